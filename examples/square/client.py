"""Streams from square over gRPC: five responses, one, none; each request told from the others."""

import argparse
import queue

import numpy as np
import tritonclient.grpc


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="", help="not used here")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    answers = queue.Queue()
    wanted = {"five": 5, "one": 1, "none": 0}
    got = {name: [] for name in wanted}
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for name, count in wanted.items():
            tensor = tritonclient.grpc.InferInput("N", [1], "INT32")
            tensor.set_data_from_numpy(np.array([count], dtype=np.int32))
            # The empty final response is how a client sees that no more will come.
            client.async_stream_infer(
                "square", [tensor], request_id=name, enable_empty_final_response=True
            )
        open_requests = set(wanted)
        while open_requests:
            result, error = answers.get(timeout=30)
            assert error is None, error
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                open_requests.remove(response.id)
            if response.outputs:
                got[response.id] += result.as_numpy("SQUARE").tolist()
        client.stop_stream()
    assert got == {"five": [1, 4, 9, 16, 25], "one": [1], "none": []}, got
    print(f"square over a gRPC stream: right; {got}")


if __name__ == "__main__":
    main()
