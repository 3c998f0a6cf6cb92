"""A decoupled model whose responses come after `execute` has returned, from threads of its own.

Each element of VALUES comes back as one response, PAUSE_MS apart. `execute` only starts a thread
per request, so one instance serves many requests at once and their responses mingle.
"""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.closing = threading.Event()
        self.threads = []

    def execute(self, requests):
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        for request in requests:
            # What a thread needs is taken out here: the inputs are the request's, and the
            # request is over for this model once `execute` has returned.
            values = pb_utils.get_input_tensor_by_name(request, "VALUES").as_numpy().copy()
            pause = pb_utils.get_input_tensor_by_name(request, "PAUSE_MS").as_numpy()[0] / 1000
            thread = threading.Thread(
                target=self.send_all, args=(request.get_response_sender(), values, pause)
            )
            thread.start()
            self.threads.append(thread)
        return None

    def send_all(self, sender, values, pause):
        for index, value in enumerate(values):
            if sender.is_cancelled():
                break
            outputs = [
                pb_utils.Tensor("VALUE", np.array([value], dtype=np.int32)),
                pb_utils.Tensor("INDEX", np.array([index], dtype=np.uint32)),
            ]
            sender.send(pb_utils.InferenceResponse(outputs))
            self.closing.wait(pause)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        self.closing.set()
        for thread in self.threads:
            thread.join()
