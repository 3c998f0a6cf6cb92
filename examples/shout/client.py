"""Sends two texts to shout over HTTP and over gRPC, and checks what comes back."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def check(client, module):
    texts = np.array(["grüß dich", "two"], dtype=np.object_)
    tensor = module.InferInput("TEXT", list(texts.shape), "BYTES")
    tensor.set_data_from_numpy(texts)
    result = client.infer("shout", [tensor])
    loud = [item.decode("utf-8") for item in result.as_numpy("LOUD")]
    assert loud == ["GRÜSS DICH", "TWO"], loud
    assert result.as_numpy("LENGTH").tolist() == [9, 3]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("shout over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("shout over gRPC: right")


if __name__ == "__main__":
    main()
