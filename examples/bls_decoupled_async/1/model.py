"""BLS over a decoupled model, several streams at once: `await async_exec(decoupled=True)`.

Asks square for every element of N together and adds up what each stream brings.
"""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


async def total_of_squares(n):
    """The sum and the number of square's responses for one n."""
    responses = await pb_utils.InferenceRequest(
        model_name="square",
        requested_output_names=["SQUARE"],
        inputs=[pb_utils.Tensor("N", np.array([n], dtype=np.int32))],
    ).async_exec(decoupled=True)
    total = count = 0
    for response in responses:
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        for tensor in response.output_tensors():
            total += int(tensor.as_numpy()[0])
            count += 1
    return total, count


async def respond(request):
    numbers = pb_utils.get_input_tensor_by_name(request, "N").as_numpy()
    sums = await asyncio.gather(*map(total_of_squares, numbers))
    totals, counts = zip(*sums) if sums else ((), ())
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("TOTAL", np.array(totals, dtype=np.int64)),
            pb_utils.Tensor("COUNT", np.array(counts, dtype=np.int32)),
        ]
    )


class TritonPythonModel:
    async def execute(self, requests):
        return list(await asyncio.gather(*map(respond, requests)))
