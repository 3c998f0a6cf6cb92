"""What a debugger shows of a tensor without copying it: data type, shape, a few numbers.

Called by expressions the debugger evaluates in a stopped frame, with whatever arrays are there:
`pb_utils.Tensor`, NumPy, PyTorch, JAX, CuPy. Nothing here is imported unless one asks.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, List, Optional

import numpy as np

LARGEST = 1 << 22  # elements; of larger arrays only a sample is measured
MOST = 200  # variables of one frame that are looked at


def described(values: Dict[str, Any]) -> str:
    """JSON of what is known of each array among `values`, by name."""
    found = {}
    for name, value in list(values.items())[:MOST]:
        about = _about(value)
        if about is not None:
            found[str(name)] = about
    return json.dumps(found)


def part(value: Any, start: int, count: int) -> str:
    """JSON of `count` elements of an array from number `start` on, and of what it is.

    The elements travel as the bytes of their data type, in base64; strings as a list.
    """
    about = _about(value)
    array = _array(value)
    if about is None or array is None:
        return json.dumps(None)
    piece = array.reshape(-1)[start : start + count]
    if piece.dtype.kind in "OSU":
        about["items"] = [_text(each) for each in piece.tolist()]
    else:
        about["data"] = base64.b64encode(np.ascontiguousarray(piece).tobytes()).decode("ascii")
    about["start"] = start
    return json.dumps(about)


def callee(request: Any) -> str:
    """JSON of the name of the model that a request of the model's own is for."""
    return json.dumps(getattr(getattr(request, "_called", None), "model", None))


def _about(value: Any) -> Optional[Dict[str, Any]]:
    kind = type(value)
    shape = getattr(value, "shape", None)
    if kind.__name__ == "Tensor" and hasattr(value, "as_numpy"):
        shape = value.shape()
    elif not hasattr(value, "dtype") or not isinstance(shape, tuple) or not shape:
        return None  # a scalar says itself what it is
    about: Dict[str, Any] = {
        "kind": f"{kind.__module__}.{kind.__name__}",
        "dtype": _dtype(value),
        "shape": [int(each) for each in shape],
    }
    device = getattr(value, "device", None)
    if device is not None:
        about["device"] = str(device)
    array = _array(value)
    if array is not None:
        about.update(_numbers(array))
    return about


def _dtype(value: Any) -> str:
    if hasattr(value, "dtype"):
        return str(value.dtype).replace("torch.", "")
    return str(value.as_numpy().dtype)


def _array(value: Any) -> Optional[Any]:
    """The array's memory as NumPy sees it, or None where it lies on a device."""
    try:
        if isinstance(value, np.ndarray):
            return value
        if hasattr(value, "as_numpy"):
            return value.as_numpy() if value.is_cpu() else None
        if type(value).__module__.partition(".")[0] == "torch":
            return value.detach().numpy() if value.device.type == "cpu" else None
        if type(value).__module__.startswith("cupy"):
            return None
        return np.asarray(value)
    except Exception:  # a half-made tensor, a type NumPy lacks: then there are no numbers to show
        return None


def _numbers(array: Any) -> Dict[str, Any]:
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()
    if not flat.size or flat.dtype.kind not in "biuf":
        return {"preview": _preview(flat)}
    if flat.size > LARGEST:
        flat = flat[:: -(-flat.size // LARGEST)]
    shown: Dict[str, Any] = {"preview": _preview(flat)}
    if flat.dtype.kind == "f":
        finite = flat[np.isfinite(flat)]
        shown["nan"] = int(np.isnan(flat).sum())
        shown["inf"] = int(np.isinf(flat).sum())
    else:
        finite = flat
    if finite.size:
        shown["min"], shown["max"] = float(finite.min()), float(finite.max())
        shown["mean"] = float(finite.mean(dtype=np.float64))
    return shown


def _preview(flat: Any) -> List[Any]:
    return [_plain(each) for each in flat[:6].tolist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return value if isinstance(value, (bool, int)) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value[:200].decode("utf-8", "replace")
    return str(value)[:200]
