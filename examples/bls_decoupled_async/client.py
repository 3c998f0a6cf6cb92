"""Lets bls_decoupled_async add up several series of squares at once, and checks every total."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def check(client, module):
    numbers = np.array([3, 0, 7, 1, 12], dtype=np.int32)
    tensor = module.InferInput("N", list(numbers.shape), "INT32")
    tensor.set_data_from_numpy(numbers)
    result = client.infer("bls_decoupled_async", [tensor])
    n = numbers.astype(np.int64)
    np.testing.assert_array_equal(result.as_numpy("COUNT"), numbers)
    np.testing.assert_array_equal(result.as_numpy("TOTAL"), n * (n + 1) * (2 * n + 1) // 6)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("bls_decoupled_async over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("bls_decoupled_async over gRPC: right")


if __name__ == "__main__":
    main()
