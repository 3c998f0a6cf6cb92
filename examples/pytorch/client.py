"""Sends batches of several sizes to pytorch at once, and checks them against NumPy."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def weights(*shape):
    steps = np.arange(np.prod(shape), dtype=np.float32)
    return ((steps % 7 - 3) / 4).reshape(shape)


def expected(x):
    hidden = np.maximum(x @ weights(8, 4).T + weights(8), 0)
    return hidden @ weights(2, 8).T + weights(2)


def tensor(module, array):
    result = module.InferInput("X", list(array.shape), "FP32")
    result.set_data_from_numpy(array)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    random = np.random.default_rng(3)
    batches = [random.standard_normal((rows, 4), dtype=np.float32) for rows in (1, 3, 2, 5)]
    with tritonclient.http.InferenceServerClient(arguments.http, concurrency=4) as client:
        pending = [client.async_infer("pytorch", [tensor(tritonclient.http, x)]) for x in batches]
        for x, request in zip(batches, pending, strict=True):
            np.testing.assert_allclose(
                request.get_result().as_numpy("Y"), expected(x), rtol=1e-4, atol=1e-5
            )
        print("pytorch over HTTP, four batches at once: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        for x in batches:
            answer = client.infer("pytorch", [tensor(tritonclient.grpc, x)]).as_numpy("Y")
            np.testing.assert_allclose(answer, expected(x), rtol=1e-4, atol=1e-5)
        print("pytorch over gRPC: right")


if __name__ == "__main__":
    main()
