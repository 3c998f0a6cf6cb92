import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.accumulator = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()[0, 0]
            corrid = pb_utils.get_input_tensor_by_name(request, "CORRID").as_numpy()[0, 0]
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if start:
                self.accumulator[corrid] = 0
            self.accumulator[corrid] += int(value[0, 0])
            out = np.array([[self.accumulator[corrid]]], dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses
