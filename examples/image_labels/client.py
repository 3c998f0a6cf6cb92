"""Sends scores to image_labels and checks the names that come back."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http


def check(client, module):
    scores = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=np.float32)
    tensor = module.InferInput("SCORES", list(scores.shape), "FP32")
    tensor.set_data_from_numpy(scores)
    labels = client.infer("image_labels", [tensor]).as_numpy("LABEL")
    assert labels.tolist() == [[b"checkerboard"], [b"plain"]], labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("image_labels over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("image_labels over gRPC: right")


if __name__ == "__main__":
    main()
