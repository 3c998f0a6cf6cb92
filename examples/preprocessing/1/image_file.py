"""Image files to arrays with the standard library and NumPy: enough of PNG and PNM for here.

A model of yours would use Pillow, OpenCV or DALI; this one needs nothing installed.
"""

import re
import struct
import zlib

import numpy as np

PNG = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by PNG colour type: grey, RGB, grey and alpha, RGBA
PNM = re.compile(rb"P([56])\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+255\s")


def decode(data):
    """The image as uint8 [height, width, channels]; ValueError says what is wrong with it."""
    if data.startswith(PNG):
        return decode_png(data)
    header = PNM.match(data)
    if header is None:
        raise ValueError("not a PNG, and not a binary PGM or PPM of 8 bits")
    channels = 3 if header[1] == b"6" else 1
    shape = (int(header[3]), int(header[2]), channels)
    pixels = np.frombuffer(data, np.uint8, offset=header.end())
    if pixels.size < np.prod(shape):
        raise ValueError("the file ends before the image does")
    return pixels[: np.prod(shape)].reshape(shape)


def decode_png(data):
    chunks = list(read_chunks(data))
    name, header = chunks[0] if chunks else (b"", b"")
    if name != b"IHDR" or len(header) != 13:
        raise ValueError("a PNG without a header")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in CHANNELS or interlaced:
        raise ValueError("only PNGs of 8 bits, without palette and interlacing, are read here")
    channels = CHANNELS[colour]
    try:
        raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    except zlib.error as problem:
        raise ValueError(f"a damaged PNG: {problem}") from None
    if len(raw) != height * (1 + width * channels):
        raise ValueError("a PNG with too little or too much data")
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    return unfilter(rows[:, 0], rows[:, 1:].reshape(height, width, channels))


def read_chunks(data):
    """Name and body of each chunk."""
    at = len(PNG)
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        yield name, data[at + 8 : at + 8 + length]
        at += 12 + length


def unfilter(kinds, filtered):
    """Undo the prediction that PNG stores each row with (sums wrap around at 256)."""
    height, width, channels = filtered.shape
    image = np.zeros((height + 1, width + 1, channels), np.uint8)  # a row and column of zeros
    for y, kind in enumerate(kinds, start=1):
        above, row, given = image[y - 1], image[y], filtered[y - 1]
        if kind == 0:
            row[1:] = given
        elif kind == 1:
            row[1:] = np.cumsum(given, axis=0, dtype=np.uint8)
        elif kind == 2:
            row[1:] = given + above[1:]
        elif kind in (3, 4):
            predict = average if kind == 3 else paeth
            for x in range(1, width + 1):
                row[x] = given[x - 1] + predict(
                    *(cell.astype(np.int16) for cell in (row[x - 1], above[x], above[x - 1]))
                )
        else:
            raise ValueError(f"a PNG with the unknown filter {kind}")
    return image[1:, 1:]


def average(left, above, corner):
    return ((left + above) // 2).astype(np.uint8)


def paeth(left, above, corner):
    guess = left + above - corner
    nearest = [abs(guess - one) for one in (left, above, corner)]
    pick = np.where((nearest[0] <= nearest[1]) & (nearest[0] <= nearest[2]), left, corner)
    above_wins = (nearest[1] <= nearest[2]) & (nearest[1] < nearest[0])
    return np.where(above_wins, above, pick).astype(np.uint8)
