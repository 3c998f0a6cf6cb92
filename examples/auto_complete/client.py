"""Reads the config that auto_complete wrote for itself, then calls it with and without FACTOR."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def check(client, module, config):
    assert config["max_batch_size"] == 8
    assert [tensor["name"] for tensor in config["input"]] == ["X", "FACTOR"]
    assert [tensor.get("optional", False) for tensor in config["input"]] == [False, True]
    assert [tensor["data_type"] for tensor in config["output"]] == ["TYPE_FP32"]
    assert config["dynamic_batching"]["preferred_batch_size"] == [8]

    x = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)
    given = module.InferInput("X", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    np.testing.assert_array_equal(client.infer("auto_complete", [given]).as_numpy("Y"), 2 * x)

    factor = module.InferInput("FACTOR", [2, 1], "FP32")
    factor.set_data_from_numpy(np.array([[10], [100]], dtype=np.float32))
    answer = client.infer("auto_complete", [given, factor]).as_numpy("Y")
    np.testing.assert_array_equal(answer, x * [[10], [100]])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http, client.get_model_config("auto_complete"))
        print("auto_complete over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        config = client.get_model_config("auto_complete", as_json=True)["config"]
        check(client, tritonclient.grpc, config)
        print("auto_complete over gRPC: right")


if __name__ == "__main__":
    main()
