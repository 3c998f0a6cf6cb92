"""Draws patterns, sends them as image files to image_classifier, and checks what it calls them."""

import argparse
import struct
import zlib

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

LABELS = ["plain", "horizontal stripes", "vertical stripes", "checkerboard"]


def draw(label, size=64, field=8):
    """A grey picture, uint8 [size, size]."""
    y, x = np.indices((size, size)) // field
    pattern = {
        "plain": np.zeros_like(x),
        "horizontal stripes": y % 2,
        "vertical stripes": x % 2,
        "checkerboard": (x + y) % 2,
    }[label]
    return (60 + 140 * pattern).astype(np.uint8)


def png(image):
    height, width = image.shape
    raw = np.insert(image, 0, 0, axis=1).tobytes()
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(raw)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def files(module, contents):
    tensor = module.InferInput("FILE", [len(contents), 1], "BYTES")
    tensor.set_data_from_numpy(np.array(contents, dtype=np.object_).reshape(-1, 1))
    return [tensor]


def check(client, module):
    pictures = [png(draw(label)) for label in LABELS]
    result = client.infer("image_classifier", files(module, pictures))
    assert [row[0].decode() for row in result.as_numpy("LABEL")] == LABELS
    scores = result.as_numpy("SCORES")
    np.testing.assert_allclose(scores.sum(axis=1), np.ones(4), rtol=1e-5)
    assert (scores.max(axis=1) > 0.8).all(), scores

    # An error of a step is the ensemble's error.
    try:
        client.infer("image_classifier", files(module, [b"no image"]))
    except InferenceServerException as refusal:
        assert "not a PNG" in refusal.message(), refusal
    else:
        raise AssertionError("a file that is no image was accepted")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="localhost:8001")
    arguments = parser.parse_args()
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        check(client, tritonclient.http)
        print("image_classifier over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("image_classifier over gRPC: right")


if __name__ == "__main__":
    main()
