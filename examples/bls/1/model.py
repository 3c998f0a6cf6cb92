"""Business logic scripting: a model that calls another model, as often as the data ask for.

Adds STEP to START with the model add_sub until an element passes LIMIT. An ensemble could not: its
steps are fixed. A failed call does not raise: it comes back as a response that has an error.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

MOST_CALLS = 100


def add(model, a, b):
    """a + b, computed by another model of the server."""
    request = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.Tensor("INPUT0", a), pb_utils.Tensor("INPUT1", b)],
    )
    response = request.exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        # The request parameter "adder" names another model to add with.
        adder = json.loads(request.parameters()).get("adder", "add_sub")
        at = pb_utils.get_input_tensor_by_name(request, "START").as_numpy()
        step = pb_utils.get_input_tensor_by_name(request, "STEP").as_numpy()
        limit = pb_utils.get_input_tensor_by_name(request, "LIMIT").as_numpy()[0]
        calls = 0
        try:
            while at.max() <= limit and calls < MOST_CALLS:
                at = add(adder, at, step)
                calls += 1
        except pb_utils.TritonModelException as failure:
            # This request's error, not that of the others in the list.
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(failure)))
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("END", at),
                pb_utils.Tensor("CALLS", np.array([calls], dtype=np.int32)),
            ]
        )
