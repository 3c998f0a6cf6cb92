import asyncio
import json
import queue
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

_FILE = "model.json"


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, c):
        c.set_model_transaction_policy({"decoupled": True})
        c.set_max_batch_size(0)
        return c

    def initialize(self, args):
        self.args = args
        self.logger = pb_utils.Logger
        self.model_config = json.loads(args["model_config"])
        out = pb_utils.get_output_config_by_name(self.model_config, "text_output")
        self.dtype = pb_utils.triton_string_to_numpy(out["data_type"])
        self.queue = queue.Queue()
        self._thread = threading.Thread(target=self.loop)
        self._thread.start()
        self._responses = threading.Thread(target=self.respond)
        self._responses.start()

    def loop(self):
        asyncio.run(self.main())

    async def main(self):
        while True:
            await asyncio.sleep(1)

    def respond(self):
        while True:
            item = self.queue.get()
            if item is None:
                break
            sender, response, flag = item
            del item
            sender.send(response, flag)

    def _get(self, request):
        prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
        if isinstance(prompt, bytes):
            prompt = prompt.decode("utf-8")
        stream = pb_utils.get_input_tensor_by_name(request, "stream")
        stream = stream.as_numpy()[0] if stream else False
        t = pb_utils.get_input_tensor_by_name(request, "sampling_parameters")
        parameters = t.as_numpy()[0].decode("utf-8") if t else request.parameters()
        return prompt, stream, parameters

    def create(self, text):
        t = pb_utils.Tensor("text_output", np.asarray([text.encode("utf-8")], dtype=self.dtype))
        return pb_utils.InferenceResponse(output_tensors=[t])

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                prompt, _stream, _params = self._get(request)
                self.queue.put_nowait(
                    (sender, self.create(prompt), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                )
            except Exception as e:
                error = pb_utils.TritonError(f"Error generating stream: {e}")
                t = pb_utils.Tensor("text_output", np.asarray(["N/A"], dtype=self.dtype))
                r = pb_utils.InferenceResponse(output_tensors=[t], error=error)
                sender.send(r, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def finalize(self):
        self.queue.put(None)
        self._thread.join()
