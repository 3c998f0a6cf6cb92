"""A function and its gradient, from JAX: differentiated, mapped over the batch and compiled.

Each batch size is compiled once, at its first request; `initialize` does it for size 1 so that the
first client does not wait.
"""

import os

# Before the import: JAX looks for accelerators then, and this instance asked for none.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import triton_python_backend_utils as pb_utils


def valley(point):
    """A long bent valley with its lowest place at (1, 1)."""
    x, y = point
    return (1 - x) ** 2 + 10 * (y - x**2) ** 2


class TritonPythonModel:
    def initialize(self, args):
        self.value_and_gradient = jax.jit(jax.vmap(jax.value_and_grad(valley)))
        self.value_and_gradient(jnp.zeros((1, 2), dtype=jnp.float32))

    def execute(self, requests):
        responses = []
        for request in requests:
            points = pb_utils.get_input_tensor_by_name(request, "XY").as_numpy()
            values, gradients = self.value_and_gradient(points)
            responses.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor("VALUE", np.asarray(values).reshape(-1, 1)),
                        pb_utils.Tensor("GRADIENT", np.asarray(gradients)),
                    ]
                )
            )
        return responses
