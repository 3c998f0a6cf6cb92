"""A tensor's values as the text that the trace level TENSORS writes."""

from __future__ import annotations

from typing import Any

from devkit.transport import dtypes

MOST_VALUES = 65_536
"""Values of one tensor that are written; the rest is left out."""


def values_text(datatype: str, shape: tuple[int, ...], data: Any) -> str:
    """Values separated by commas; strings in quotes, floats with six digits as in C++ streams.

    FP16 and BF16 stay empty, as the real server leaves them.
    """
    if datatype in ("FP16", "BF16"):
        return ""
    array = dtypes.to_array(datatype, shape, data).reshape(-1)[:MOST_VALUES]
    if datatype == "BYTES":
        return ",".join(f'"{_text(item)}"' for item in array.tolist())
    if datatype == "BOOL":
        return ",".join("1" if item else "0" for item in array.tolist())
    if datatype in ("FP32", "FP64"):
        return ",".join([f"{item:g}" for item in array.tolist()])
    return ",".join(map(str, array.tolist()))


def _text(item: Any) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
