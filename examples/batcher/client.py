"""Sends eight requests at once over HTTP and checks that each gets its own rows back."""

import argparse

import numpy as np
import tritonclient.http


def tensor(value):
    array = np.full((1, 2), value, dtype=np.float32)
    result = tritonclient.http.InferInput("X", list(array.shape), "FP32")
    result.set_data_from_numpy(array)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="", help="not used here")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http, concurrency=8) as client:
        pending = [client.async_infer("batcher", [tensor(value)]) for value in range(8)]
        together = []
        for value, request in enumerate(pending):
            result = request.get_result()
            np.testing.assert_array_equal(result.as_numpy("Y"), [[2 * value, 2 * value]])
            together.append(int(result.as_numpy("TOGETHER")[0, 0]))
    assert all(1 <= count <= 8 for count in together)
    print(f"batcher: right; requests per execute as each client saw it: {together}")


if __name__ == "__main__":
    main()
