"""Sends PPM and PNG files to preprocessing and checks the pixels; then one that is no image."""

import argparse
import struct
import zlib

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException


def ppm(image):
    height, width, _ = image.shape
    return b"P6 %d %d 255\n" % (width, height) + image.tobytes()


def png(image, kind):
    """A PNG of an RGB image whose rows are all stored with one kind of prediction."""
    height, width, _ = image.shape
    padded = np.zeros((height + 1, width + 1, 3), np.int16)
    padded[1:, 1:] = image
    left, above, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    guess = left + above - corner
    near = [abs(guess - one) for one in (left, above, corner)]
    paeth = np.where(
        (near[0] <= near[1]) & (near[0] <= near[2]),
        left,
        np.where(near[1] <= near[2], above, corner),
    )
    predicted = [np.zeros_like(left), left, above, (left + above) // 2, paeth][kind]
    rows = (image - predicted).astype(np.uint8).reshape(height, -1)
    raw = np.insert(rows, 0, kind, axis=1).tobytes()

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


def files(module, contents):
    tensor = module.InferInput("FILE", [len(contents), 1], "BYTES")
    tensor.set_data_from_numpy(np.array(contents, dtype=np.object_).reshape(-1, 1))
    return [tensor]


def check(client, module):
    image = np.random.default_rng(5).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    contents = [ppm(image), *(png(image, kind) for kind in range(5))]
    pixels = client.infer("preprocessing", files(module, contents)).as_numpy("PIXELS")
    assert pixels.shape == (6, 1, 32, 32)
    np.testing.assert_allclose(pixels[0, 0], image.mean(axis=-1) / 255, rtol=1e-5)
    for other in pixels[1:]:
        np.testing.assert_array_equal(other, pixels[0])

    large = np.repeat(np.repeat(image, 3, axis=0), 2, axis=1)
    shrunk = client.infer("preprocessing", files(module, [ppm(large)])).as_numpy("PIXELS")
    np.testing.assert_array_equal(shrunk, pixels[:1])

    try:
        client.infer("preprocessing", files(module, [b"GIF89a"]))
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
        print("preprocessing over HTTP: right")
    with tritonclient.grpc.InferenceServerClient(arguments.grpc) as client:
        check(client, tritonclient.grpc)
        print("preprocessing over gRPC: right")


if __name__ == "__main__":
    main()
