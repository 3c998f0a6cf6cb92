"""The simplest decoupled model: N requested, N responses, 1, 4, 9, … and none for N = 0.

All are sent before `execute` returns. The final flag ends the request; it may come alone, as here,
or with the last response.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            count = pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0]
            for number in range(1, count + 1):
                if request.is_cancelled():
                    break
                square = pb_utils.Tensor("SQUARE", np.array([number**2], dtype=np.int64))
                sender.send(pb_utils.InferenceResponse([square]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
