"""Says which instance answered: its name, its kind, its device, its process.

Every instance is a process that runs `initialize` for itself and learns there what it is.
"""

import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def text(value):
    return np.array([value.encode()], dtype=np.object_)


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.kind = args["model_instance_kind"]
        self.device = int(args["model_instance_device_id"])

    def execute(self, requests):
        responses = []
        for request in requests:
            # A busy instance gets no second request, so the next one goes to another.
            pause = pb_utils.get_input_tensor_by_name(request, "PAUSE_MS").as_numpy()[0]
            time.sleep(pause / 1000)
            responses.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor("INSTANCE", text(self.name)),
                        pb_utils.Tensor("KIND", text(self.kind)),
                        pb_utils.Tensor("DEVICE", np.array([self.device], dtype=np.int32)),
                        pb_utils.Tensor("PROCESS", np.array([os.getpid()], dtype=np.int64)),
                    ]
                )
            )
        return responses
