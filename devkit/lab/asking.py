"""One inference that a person asks for in the browser: JSON values in, JSON values out.

Goes the way of every client; a decoupled model's responses are collected, up to a number. Knows no
HTTP and no browser.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract.recording import Record
from devkit.control.client import Client
from devkit.control.fast import datatype_of
from devkit.errors import ControlError
from devkit.transport import dtypes

MOST_RESPONSES = 100
MOST_VALUES = 1000

Arrays = Mapping[str, npt.NDArray[Any]]


def ask(client: Client, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Send what `asked` says and return the responses, with at most MOST_VALUES of each tensor.

    `model` and `inputs` (name, datatype, shape, data) make a request; `capture` is the number of a
    recorded one that is sent again. `debug` sends it to the instance in the debugger.
    """
    model, inputs = _request(client, asked)
    started = time.monotonic()
    options: dict[str, Any] = {
        "version": str(asked.get("version", "")),
        "id": str(asked.get("id", "")),
        "parameters": asked.get("parameters") or None,
        "timeout": asked.get("timeout"),
    }
    if client.model(model).decoupled:
        stream = client.stream(model, inputs, **options)
        responses = list(itertools.islice(stream, MOST_RESPONSES))
    else:
        responses = [client.infer(model, inputs, debug=bool(asked.get("debug")), **options)]
    return {
        "responses": [_told(each) for each in responses],
        "seconds": time.monotonic() - started,
        "error": None,
    }


def _request(client: Client, asked: Mapping[str, Any]) -> tuple[str, Arrays]:
    number = asked.get("capture")
    if number is None:
        rows = asked.get("inputs") or []
        return str(asked.get("model", "")), {str(row.get("name")): _array(row) for row in rows}
    records: list[Record] = client.captures(numbers=[int(number)])
    if not records:
        raise ControlError(
            f"request {number} is not kept any more, or only a part of it",
            remedy="send a new one, or let the runtime keep more",
        )
    return str(asked.get("model") or records[0].model), records[0].request.arrays("inputs")


def _array(row: Mapping[str, Any]) -> npt.NDArray[Any]:
    """An input as it was typed: numbers and texts in nested lists, or flat beside a shape."""
    name, datatype = row.get("name"), str(row.get("datatype", ""))
    kind = dtypes.NUMPY.get("FP32" if datatype == "BF16" else datatype)
    if kind is None:
        raise ControlError(f"input '{name}': '{datatype}' is no data type that can be typed in")
    values = row.get("data")
    try:
        if datatype == "BYTES":
            array = np.array(_bytes(values), dtype=np.object_)
        else:
            array = np.asarray(values, dtype=kind)
        return array.reshape(row["shape"]) if row.get("shape") is not None else array
    except (ValueError, TypeError, OverflowError) as problem:
        raise ControlError(
            f"input '{name}': the values are no {datatype} of shape {row.get('shape')}: {problem}"
        ) from problem


def _bytes(values: Any) -> Any:
    if isinstance(values, list):
        return [_bytes(each) for each in values]
    return str(values).encode()


def _told(outputs: Arrays) -> dict[str, Any]:
    return {"outputs": [_tensor(name, array) for name, array in outputs.items()]}


def _tensor(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    flat = array.reshape(-1)[:MOST_VALUES]
    return {
        "name": name,
        "datatype": datatype_of(name, array),
        "shape": list(array.shape),
        "data": [_plain(each) for each in flat.tolist()],
        "truncated": array.size > MOST_VALUES,
    }


def _plain(value: Any) -> Any:
    """What JSON can say: bytes as text, and NaN and the infinities as words."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value
