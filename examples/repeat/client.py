"""Two requests to repeat on one gRPC stream, whose responses mingle; then one that is cancelled."""

import argparse
import queue

import numpy as np
import tritonclient.grpc


def inputs(values, pause):
    array, milliseconds = np.array(values, dtype=np.int32), np.array([pause], dtype=np.uint32)
    tensors = [
        tritonclient.grpc.InferInput("VALUES", list(array.shape), "INT32"),
        tritonclient.grpc.InferInput("PAUSE_MS", [1], "UINT32"),
    ]
    tensors[0].set_data_from_numpy(array)
    tensors[1].set_data_from_numpy(milliseconds)
    return tensors


def check_two(client):
    wanted = {"slow": [3, 1, 2], "fast": [10, 20, 30, 40]}
    pauses = {"slow": 20, "fast": 5}
    got = {name: [] for name in wanted}
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for name, values in wanted.items():
        client.async_stream_infer("repeat", inputs(values, pauses[name]), request_id=name)
    for _ in range(sum(map(len, wanted.values()))):
        result, error = answers.get(timeout=30)
        assert error is None, error
        name = result.get_response().id
        assert result.as_numpy("INDEX").tolist() == [len(got[name])]
        got[name] += result.as_numpy("VALUE").tolist()
    client.stop_stream()
    assert got == wanted, got


def check_cancelled(client):
    """A stream that is given up in the middle: the model sees it and stops."""
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("repeat", inputs(range(3000), 10))
    result, error = answers.get(timeout=30)
    assert error is None, error
    assert result.as_numpy("VALUE").tolist() == [0]
    client.stop_stream(cancel_requests=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="", help="not used here")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check_two(client)
        print("repeat, two requests on one stream: right")
        check_cancelled(client)
        print("repeat, cancelled in the middle: right")


if __name__ == "__main__":
    main()
