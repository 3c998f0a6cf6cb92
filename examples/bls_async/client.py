"""Sends tables to bls_async and checks each row; then two tables that do not fit."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException


def tables(module, a, b):
    tensors = []
    for name, array in (("A", a), ("B", b)):
        tensors.append(module.InferInput(name, list(array.shape), "FP32"))
        tensors[-1].set_data_from_numpy(array)
    return tensors


def check(client, module):
    a = np.arange(80, dtype=np.float32).reshape(20, 4)
    b = a[::-1].copy()
    result = client.infer("bls_async", tables(module, a, b))
    np.testing.assert_array_equal(result.as_numpy("SUM"), a + b)
    np.testing.assert_array_equal(result.as_numpy("DIFFERENCE"), a - b)
    try:
        client.infer("bls_async", tables(module, a, b[:3]))
    except InferenceServerException as refusal:
        assert "A has 20 rows and B 3" in refusal.message(), refusal
    else:
        raise AssertionError("tables of different lengths were accepted")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("bls_async over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("bls_async over gRPC: right")


if __name__ == "__main__":
    main()
