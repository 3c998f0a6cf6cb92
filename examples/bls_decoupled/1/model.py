"""BLS over a decoupled model: `exec(decoupled=True)` gives the responses one by one as they come.

Adds up what square sends. The last response may be empty: it only says that no more will come.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        call = pb_utils.InferenceRequest(
            model_name="square",
            requested_output_names=["SQUARE"],
            inputs=[pb_utils.get_input_tensor_by_name(request, "N")],
        )
        total = count = 0
        for response in call.exec(decoupled=True):
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
            for tensor in response.output_tensors():
                total += int(tensor.as_numpy()[0])
                count += 1
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("TOTAL", np.array([total], dtype=np.int64)),
                pb_utils.Tensor("COUNT", np.array([count], dtype=np.int32)),
            ]
        )
