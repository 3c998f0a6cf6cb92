import io
import json

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


class TritonPythonModel:
    def initialize(self, args):
        self.model_config = model_config = json.loads(args["model_config"])
        output0_config = pb_utils.get_output_config_by_name(
            model_config, "detection_preprocessing_output"
        )
        self.output0_dtype = pb_utils.triton_string_to_numpy(output0_config["data_type"])

    def execute(self, requests):
        output0_dtype = self.output0_dtype
        responses = []
        for request in requests:
            in_0 = pb_utils.get_input_tensor_by_name(request, "detection_preprocessing_input")

            def image_loader(image_data):
                img = np.asarray(image_data).astype(np.uint8)
                img = np.transpose(img, axes=[2, 0, 1])
                return img

            img = in_0.as_numpy()
            image = Image.open(io.BytesIO(img.tobytes()))
            img_out = image_loader(image)
            out_tensor_0 = pb_utils.Tensor(
                "detection_preprocessing_output", img_out.astype(output0_dtype)
            )
            inference_response = pb_utils.InferenceResponse(output_tensors=[out_tensor_0])
            responses.append(inference_response)
        return responses

    def finalize(self):
        print("Cleaning up...")
