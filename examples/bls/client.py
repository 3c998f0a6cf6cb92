"""Lets bls add until a limit is passed, and once with a model that does not exist."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException


def inputs(module, **arrays):
    tensors = []
    for name, values in arrays.items():
        array = np.array(values, dtype=np.float32)
        tensors.append(module.InferInput(name, list(array.shape), "FP32"))
        tensors[-1].set_data_from_numpy(array)
    return tensors


def check(client, module):
    given = inputs(module, START=[0, 1, 2, 3], STEP=[1, 2, 0.5, 0], LIMIT=[10])
    result = client.infer("bls", given)
    assert result.as_numpy("CALLS").tolist() == [5]
    assert result.as_numpy("END").tolist() == [5, 11, 4.5, 3]

    none_needed = inputs(module, START=[9, 9, 9, 9], STEP=[1, 1, 1, 1], LIMIT=[5])
    result = client.infer("bls", none_needed)
    assert result.as_numpy("CALLS").tolist() == [0]
    assert result.as_numpy("END").tolist() == [9, 9, 9, 9]

    try:
        client.infer("bls", given, parameters={"adder": "nobody"})
    except InferenceServerException as refusal:
        assert "'nobody'" in refusal.message(), refusal
    else:
        raise AssertionError("a call of a model that is not there was answered")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("bls over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("bls over gRPC: right")


if __name__ == "__main__":
    main()
