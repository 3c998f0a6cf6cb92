"""Several BLS calls at once: with `async def execute`, calls are awaited together.

add_sub takes one row at a time; this model takes a table, calls add_sub for all its rows together
and puts the answers back in order.
"""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


async def add_and_subtract(a, b):
    """The sum and the difference of one row."""
    response = await pb_utils.InferenceRequest(
        model_name="add_sub",
        requested_output_names=["OUTPUT0", "OUTPUT1"],
        inputs=[pb_utils.Tensor("INPUT0", a), pb_utils.Tensor("INPUT1", b)],
    ).async_exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    outputs = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
    return outputs["OUTPUT0"], outputs["OUTPUT1"]


async def respond(request):
    a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
    b = pb_utils.get_input_tensor_by_name(request, "B").as_numpy()
    if a.shape != b.shape:
        problem = pb_utils.TritonError(
            f"A has {len(a)} rows and B {len(b)}", pb_utils.TritonError.INVALID_ARG
        )
        return pb_utils.InferenceResponse(error=problem)
    rows = await asyncio.gather(*map(add_and_subtract, a, b))
    sums, differences = zip(*rows) if rows else ((), ())
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("SUM", np.array(sums, dtype=np.float32).reshape(a.shape)),
            pb_utils.Tensor("DIFFERENCE", np.array(differences, dtype=np.float32).reshape(a.shape)),
        ]
    )


class TritonPythonModel:
    async def execute(self, requests):
        return list(await asyncio.gather(*map(respond, requests)))
