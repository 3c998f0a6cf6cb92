import asyncio
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.model_config = json.loads(args["model_config"])

    async def execute(self, requests):
        responses = []
        for request in requests:
            in_0 = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            in_1 = pb_utils.get_input_tensor_by_name(request, "INPUT1")
            infer_request = pb_utils.InferenceRequest(
                model_name="seq", requested_output_names=["OUTPUT0"], inputs=[in_0, in_1]
            )
            awaits = [infer_request.async_exec()]
            infer_request = pb_utils.InferenceRequest(
                model_name="ocr", requested_output_names=["OUTPUT1"], inputs=[in_0, in_1]
            )
            awaits.append(infer_request.async_exec())
            infer_responses = await asyncio.gather(*awaits)
            for infer_response in infer_responses:
                if infer_response.has_error():
                    raise pb_utils.TritonModelException(infer_response.error().message())
            a = pb_utils.get_output_tensor_by_name(infer_responses[0], "OUTPUT0")
            b = pb_utils.get_output_tensor_by_name(infer_responses[1], "OUTPUT1")
            responses.append(pb_utils.InferenceResponse(output_tensors=[a, b]))
        return responses
