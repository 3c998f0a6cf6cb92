"""Keeps the instances of instance_kind busy until all three have answered, and checks who did."""

import argparse

import numpy as np
import tritonclient.http

EXPECTED = {
    "instance_kind_0_0": "CPU",
    "instance_kind_0_1": "CPU",
    "instance_kind_1_0": "MODEL",
}
ROUNDS = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="", help="not used here")
    arguments = parser.parse_args()
    tensor = tritonclient.http.InferInput("PAUSE_MS", [1], "UINT32")
    tensor.set_data_from_numpy(np.array([50], dtype=np.uint32))
    kinds, processes = {}, {}
    with tritonclient.http.InferenceServerClient(arguments.http, concurrency=6) as client:
        for _ in range(ROUNDS):
            pending = [client.async_infer("instance_kind", [tensor]) for _ in range(6)]
            for result in [request.get_result() for request in pending]:
                name = result.as_numpy("INSTANCE")[0].decode()
                kinds[name] = result.as_numpy("KIND")[0].decode()
                processes[name] = int(result.as_numpy("PROCESS")[0])
                assert result.as_numpy("DEVICE").tolist() == [0]
            if len(kinds) == len(EXPECTED):
                break
    assert kinds == EXPECTED, kinds
    assert len(set(processes.values())) == len(EXPECTED), processes
    print(f"instance_kind: right; {kinds}")


if __name__ == "__main__":
    main()
