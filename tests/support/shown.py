"""A model that shows what it works on, and fails in several ways when asked to."""

SHOWING = """
import os

import devkit
import numpy as np
import triton_python_backend_utils as pb_utils


def fail(value):
    doubled = value * 2
    raise ValueError("asked to fail")


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            half = devkit.probe("half", x / 2, request=request)
            with devkit.span("work"):
                big = np.arange(100.0)
                if x.size and x.flat[0] == -1:
                    print("about to raise", flush=True)
                    fail(x)
                if x.size and x.flat[0] == -2:
                    print("about to die", flush=True)
                    os.kill(os.getpid(), 11)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", half * 4)]))
        return answers
"""
