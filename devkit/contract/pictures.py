"""Tensors that are pictures: found by their shape, written as PNG. Pure; no imaging library."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SMALLEST = 8  # pixels of a side; anything smaller is a table
LARGEST = 512
MOST = 16  # of a batch
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG of a tensor.

    Attributes:
        layout: which dimension is what: `HWC`, `CHW`, `NHWC`, `NCHW`, `HW` or `NHW`.
        shown, count: pictures in it, and in the tensor.
        step: every how many-th pixel was taken.
        scaling: how values became brightness, in words.
    """

    png: bytes
    layout: str
    width: int
    height: int
    shown: int
    count: int
    step: int
    scaling: str


def layout(shape: Sequence[int], dtype: str) -> str:
    """How a tensor of that shape is a picture; empty where it does not look like one."""
    if dtype in ("object", "bool") or dtype.startswith(("complex", "<U", "|S")):
        return ""
    if len(shape) == 4:
        inner = layout(shape[1:], dtype)
        return f"N{inner}" if inner in ("HWC", "CHW") and shape[0] else ""
    if len(shape) == 3:
        if shape[2] in _CHANNELS and min(shape[:2]) >= SMALLEST:
            return "HWC"
        single = shape[0] == 1 and dtype != "uint8"  # or it is a batch of one: a row of vectors
        if shape[0] in _CHANNELS and min(shape[1:]) >= SMALLEST:
            return "" if single and shape[1] != shape[2] else "CHW"
        if dtype == "uint8" and min(shape[1:]) >= 2 * SMALLEST and shape[0]:
            return "NHW"
        return ""
    if len(shape) == 2 and dtype == "uint8" and min(shape) >= 2 * SMALLEST:
        return "HW"
    return ""


def picture(array: Array, kind: str = "", largest: int = LARGEST) -> Picture | None:
    """The picture that a tensor is; None where it is none. `kind` is a layout, if known better."""
    kind = kind or layout(array.shape, str(array.dtype))
    if not kind or not array.size or len(kind) != array.ndim:
        return None
    frames = array if kind.startswith("N") else array[None]
    inner = kind.removeprefix("N")
    if inner == "CHW":
        frames = np.moveaxis(frames, 1, -1)
    elif inner == "HW":
        frames = frames[..., None]
    count = frames.shape[0]
    frames = frames[:MOST]
    columns = math.ceil(math.sqrt(len(frames)))
    step = max(1, math.ceil(max(frames.shape[1:3]) * columns / max(1, largest)))
    frames = frames[:, ::step, ::step]
    pixels, scaling = _brightness(frames)
    sheet = _sheet(pixels, columns)
    return Picture(
        _png(sheet), kind, sheet.shape[1], sheet.shape[0], len(frames), count, step, scaling
    )


def _brightness(frames: Array) -> tuple[npt.NDArray[np.uint8], str]:
    if frames.dtype == np.uint8:
        return np.ascontiguousarray(frames), "0 … 255"
    values = frames.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8), "no finite value"
    low, high = float(values[finite].min()), float(values[finite].max())
    if low >= 0 and high <= 1:
        bounds = (0.0, 1.0)
    elif low >= -1 and high <= 1:
        bounds = (-1.0, 1.0)
    elif low >= 0 and 1 < high <= 255:
        bounds = (0.0, 255.0)
    else:
        bounds = (low, high)
    span = bounds[1] - bounds[0] or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.clip((np.where(finite, values, bounds[0]) - bounds[0]) / span * 255, 0, 255)
    return np.rint(scaled).astype(np.uint8), f"{bounds[0]:.6g} … {bounds[1]:.6g}"


def _sheet(pixels: npt.NDArray[np.uint8], columns: int) -> npt.NDArray[np.uint8]:
    """The frames side by side, a pixel of grey between them."""
    count, height, width, channels = pixels.shape
    if count == 1:
        only: npt.NDArray[np.uint8] = pixels[0]
        return only
    rows = math.ceil(count / columns)
    sheet = np.full(
        (rows * (height + 1) - 1, columns * (width + 1) - 1, channels), 128, dtype=np.uint8
    )
    for number, frame in enumerate(pixels):
        top, left = number // columns * (height + 1), number % columns * (width + 1)
        sheet[top : top + height, left : left + width] = frame
    return sheet


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    height, width, channels = pixels.shape
    colour = {1: 0, 3: 2, 4: 6}[channels]
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each after its filter, none
    lines[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 6)
    chunks = (b"IHDR", head), (b"IDAT", data), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def pixels_of(png: bytes) -> npt.NDArray[np.uint8]:
    """The pixels (height, width, channels) of a PNG that `picture` made; no other's."""
    width, height, _, colour = struct.unpack(">IIBB", png[16:26])
    channels = {0: 1, 2: 3, 6: 4}[colour]
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    lines = np.frombuffer(zlib.decompress(png[start + 4 : start + 4 + length]), np.uint8)
    found: npt.NDArray[np.uint8] = lines.reshape(height, 1 + width * channels)[:, 1:]
    return found.reshape(height, width, channels)
