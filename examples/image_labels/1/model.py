"""Scores in, the name of the best one out; the names come from `parameters` in config.pbtxt."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        names = parameters["labels"]["string_value"].split(",")
        self.names = np.array([name.encode() for name in names], dtype=np.object_)

    def execute(self, requests):
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
            best = self.names[scores.argmax(axis=-1)].reshape(-1, 1)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", best)]))
        return responses
