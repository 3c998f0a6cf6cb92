"""Asks jax for values and gradients, checks both, and walks down into the valley with them."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def ask(client, module, points):
    tensor = module.InferInput("XY", list(points.shape), "FP32")
    tensor.set_data_from_numpy(points)
    result = client.infer("jax", [tensor])
    return result.as_numpy("VALUE"), result.as_numpy("GRADIENT")


def check(client, module):
    points = np.array([[0, 0], [1, 1], [-1.5, 2], [0.5, -0.25]], dtype=np.float32)
    values, gradients = ask(client, module, points)
    x, y = points.T
    np.testing.assert_allclose(values[:, 0], (1 - x) ** 2 + 10 * (y - x**2) ** 2, rtol=1e-4)
    by_hand = np.stack([-2 * (1 - x) - 40 * x * (y - x**2), 20 * (y - x**2)], axis=1)
    np.testing.assert_allclose(gradients, by_hand, rtol=1e-4, atol=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        point = np.zeros((1, 2), dtype=np.float32)
        first, gradient = ask(client, tritonclient.http, point)
        for _ in range(100):
            point = point - np.float32(0.02) * gradient
            value, gradient = ask(client, tritonclient.http, point)
        assert value[0, 0] < first[0, 0] / 4, (first, value)
        print(f"jax over HTTP: right; from {first[0, 0]:.3f} down to {value[0, 0]:.3f}")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("jax over gRPC: right")


if __name__ == "__main__":
    main()
