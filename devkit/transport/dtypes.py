"""Triton's data types and what they are in NumPy and in bytes.

Three spellings meet here: the protocol's (`FP32`, `BYTES`), the config's (`TYPE_FP32`,
`TYPE_STRING`) and NumPy's. Nothing here touches a request.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Union, cast

import numpy as np
import numpy.typing as npt

ReadableBuffer = Union[bytes, bytearray, memoryview]

SIZES: Dict[str, int] = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8,
    "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
    "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8,
}  # fmt: skip
"""Bytes of one element; `BYTES` is absent because its elements carry their own length."""

NUMPY: Dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_), "UINT8": np.dtype(np.uint8), "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32), "UINT64": np.dtype(np.uint64), "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16), "INT32": np.dtype(np.int32), "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16), "FP32": np.dtype(np.float32), "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}  # fmt: skip
"""NumPy's type for each protocol type; `BF16` is absent because NumPy has none."""

FROM_NUMPY: Dict[np.dtype[Any], str] = {dtype: name for name, dtype in NUMPY.items()}

ALL = frozenset(SIZES) | {"BYTES"}


def from_config(data_type: str) -> str:
    """Protocol spelling of a config's `TYPE_*`: `TYPE_STRING` is `BYTES`, others lose `TYPE_`."""
    bare = data_type[5:] if data_type.startswith("TYPE_") else data_type
    return "BYTES" if bare == "STRING" else bare


def to_config(datatype: str) -> str:
    """Config spelling (`TYPE_*`) of a protocol type."""
    return "TYPE_STRING" if datatype == "BYTES" else "TYPE_" + datatype


def element_count(shape: Any) -> int:
    """Number of elements of `shape`; 1 for the empty shape, 0 where a dimension is 0."""
    count = 1
    for extent in shape:
        count *= extent
    return int(count)


def datatype_of(array: npt.NDArray[Any]) -> Optional[str]:
    """Protocol type of a NumPy array, or None where Triton has none (`complex64`, ...).

    Fixed-width byte strings (`S`) and text (`U`) count as BYTES.
    """
    if array.dtype.kind in "SU":
        return "BYTES"
    return FROM_NUMPY.get(array.dtype.newbyteorder("="))


def encode_bytes(array: npt.NDArray[Any]) -> bytes:
    """Serialize an array of bytes-like or str elements as BYTES: 4-byte little-endian length, data.

    Elements are taken in C order; str is encoded as UTF-8, anything else by `str()` first, as the
    backend's own `serialize_byte_tensor` does.
    """
    parts = []
    for item in array.ravel(order="C").tolist():
        if isinstance(item, str):
            item = item.encode("utf-8")
        elif not isinstance(item, (bytes, bytearray, memoryview)):
            item = str(item).encode("utf-8")
        parts.append(struct.pack("<I", len(item)))
        parts.append(bytes(item))
    return b"".join(parts)


def decode_bytes(data: ReadableBuffer, count: Optional[int] = None) -> npt.NDArray[Any]:
    """Flat object array of `bytes` from serialized BYTES `data`.

    `count` stops after that many elements. Raises ValueError when a length runs past the end.
    """
    items: List[bytes] = []
    offset, end = 0, len(data)
    view = memoryview(data)
    while offset < end and (count is None or len(items) < count):
        if offset + 4 > end:
            raise ValueError("incomplete length prefix in BYTES data")
        (length,) = struct.unpack_from("<I", view, offset)
        offset += 4
        if offset + length > end:
            raise ValueError(f"BYTES element of {length} bytes runs past the end of the data")
        items.append(bytes(view[offset : offset + length]))
        offset += length
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array


def to_array(datatype: str, shape: Any, data: ReadableBuffer) -> npt.NDArray[Any]:
    """Array over `data` (a view, except for BYTES). BF16 comes as its raw uint16 patterns."""
    if datatype == "BYTES":
        return cast("npt.NDArray[Any]", decode_bytes(data).reshape(shape))
    dtype = NUMPY.get(datatype, np.dtype(np.uint16))
    return cast("npt.NDArray[Any]", np.frombuffer(data, dtype=dtype).reshape(shape))


def to_data(array: npt.NDArray[Any]) -> ReadableBuffer:
    """Bytes of `array` in C order: a view where it is contiguous already, else a copy."""
    if array.dtype.kind in "OSU":
        return encode_bytes(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    contiguous = np.ascontiguousarray(array)
    if contiguous.size == 0:
        return b""
    return contiguous.reshape(-1).view(np.uint8).data
