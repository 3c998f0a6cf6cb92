"""Text in and out. A BYTES tensor is an object array of `bytes`: decode it, it is not `str`."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            raw = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            texts = [item.decode("utf-8") for item in raw.ravel()]
            loud = np.array([text.upper().encode("utf-8") for text in texts], dtype=np.object_)
            length = np.array([len(text) for text in texts], dtype=np.int32)
            responses.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor("LOUD", loud.reshape(raw.shape)),
                        pb_utils.Tensor("LENGTH", length.reshape(raw.shape)),
                    ]
                )
            )
        return responses
