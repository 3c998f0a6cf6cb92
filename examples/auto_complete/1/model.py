"""A model that writes its own config: `auto_complete_config` runs before anything is loaded.

It runs in a short-lived process of its own, so nothing it does is seen by `initialize`.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        auto_complete_model_config.add_input(
            {"name": "X", "data_type": "TYPE_FP32", "dims": [-1]},
        )
        auto_complete_model_config.add_input(
            {"name": "FACTOR", "data_type": "TYPE_FP32", "dims": [1], "optional": True},
        )
        auto_complete_model_config.add_output(
            {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
        )
        auto_complete_model_config.set_max_batch_size(8)
        auto_complete_model_config.set_dynamic_batching()
        return auto_complete_model_config

    def initialize(self, args):
        # What the server made of it, completed.
        config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(config, "Y")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            factor = pb_utils.get_input_tensor_by_name(request, "FACTOR")
            scale = np.full((1, 1), 2, self.dtype) if factor is None else factor.as_numpy()
            y = (x * scale).astype(self.dtype)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return responses
