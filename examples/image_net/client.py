"""Asks image_net for scores and for the best classes by name, and checks both."""

import argparse

import numpy as np
import tritonclient.grpc
import tritonclient.http

LABELS = ["plain", "horizontal stripes", "vertical stripes", "checkerboard"]


def patterns():
    """One picture of each class, float32 [4, 1, 32, 32]."""
    y, x = np.indices((32, 32)) // 4
    pictures = np.stack([np.zeros_like(x), y % 2, x % 2, (x + y) % 2])[:, np.newaxis]
    return (0.2 + 0.6 * pictures).astype(np.float32)


def check(client, module):
    images = patterns()
    tensor = module.InferInput("PIXELS", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    scores = client.infer("image_net", [tensor]).as_numpy("SCORES")
    np.testing.assert_allclose(scores.sum(axis=1), np.ones(4), rtol=1e-5)
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]

    # The classification extension: the server sorts the scores and looks up their labels.
    best_two = module.InferRequestedOutput("SCORES", class_count=2)
    classes = client.infer("image_net", [tensor], outputs=[best_two]).as_numpy("SCORES")
    assert classes.shape == (4, 2)
    for row, picture in enumerate(classes):
        best, second = (text.decode().split(":") for text in picture)
        assert best[1:] == [str(row), LABELS[row]], best
        assert float(best[0]) > float(second[0])
        np.testing.assert_allclose(float(best[0]), scores[row].max(), rtol=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("image_net over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("image_net over gRPC: right")


if __name__ == "__main__":
    main()
