"""Lets bls_decoupled add up squares, and checks the totals: of many, of one, of none."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def check(client, module):
    for n in (10, 1, 0):
        tensor = module.InferInput("N", [1], "INT32")
        tensor.set_data_from_numpy(np.array([n], dtype=np.int32))
        result = client.infer("bls_decoupled", [tensor])
        assert result.as_numpy("COUNT").tolist() == [n]
        assert result.as_numpy("TOTAL").tolist() == [n * (n + 1) * (2 * n + 1) // 6]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("bls_decoupled over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("bls_decoupled over gRPC: right")


if __name__ == "__main__":
    main()
