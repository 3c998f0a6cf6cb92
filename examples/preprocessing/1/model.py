"""Image files in, what a network takes out: one grey channel of 32 x 32, values from 0 to 1.

`image_file.py` lies beside this file and is imported by its name: a model's own folder is on its
path.
"""

import image_file
import numpy as np
import triton_python_backend_utils as pb_utils

SIZE = 32


def grey(image):
    """float32 [height, width]; transparency is ignored."""
    colours = image[..., :3] if image.shape[-1] >= 3 else image[..., :1]
    return colours.mean(axis=-1, dtype=np.float32) / np.float32(255)


def shrink(image, size):
    """[size, size] by the nearest pixels; plain, and no package needed."""
    rows, columns = ((np.arange(size) * extent + extent // 2) // size for extent in image.shape)
    return image[np.ix_(rows, columns)]


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        files = pb_utils.get_input_tensor_by_name(request, "FILE").as_numpy()
        try:
            images = [shrink(grey(image_file.decode(data)), SIZE) for data in files.ravel()]
        except ValueError as problem:
            error = pb_utils.TritonError(str(problem), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        pixels = np.stack(images)[:, np.newaxis]
        return pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", pixels)])
