"""Two servers' answers to one request, compared tensor by tensor.

Pure: two answers in, a verdict out, with the numbers that explain it. What counts as the same:
equal bits, a NaN being equal to a NaN; values a few units of their type's precision apart are
`close`, because another build of NumPy may sum in another order. Everything else differs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract import differences
from devkit.contract.differences import CLOSE, DIFFERS, SAME
from devkit.contract.recording import Reply, Wire
from devkit.errors import Code
from devkit.transport import dtypes

_ORDER = (SAME, CLOSE, DIFFERS)

TOLERANCES = differences.TOLERANCES
"""Relative and absolute tolerance for `close`; other types must be equal."""

HTTP_STATUS = {
    Code.UNKNOWN: 400,
    Code.INTERNAL: 500,
    Code.NOT_FOUND: 404,
    Code.INVALID_ARG: 400,
    Code.UNAVAILABLE: 503,
    Code.UNSUPPORTED: 501,
    Code.ALREADY_EXISTS: 400,
    Code.CANCELLED: 400,
}


@dataclass(frozen=True)
class Tensor:
    """One output of an answer."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    array: npt.NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """What a server said: a status and either outputs or an error."""

    status: int
    outputs: dict[str, Tensor] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output, or the answer as a whole where `name` is empty.

    Attributes:
        verdict: `same`, `close` or `differs`.
        detail: what differs and by how much, in words; empty where nothing does.
        largest: largest absolute difference of values, where they could be compared.
        relative: largest relative one.
        unequal: how many values are not equal.
    """

    name: str
    verdict: str
    detail: str = ""
    datatype: str = ""
    shape: tuple[int, ...] = ()
    largest: float = 0.0
    relative: float = 0.0
    unequal: int = 0


def answer_of_http(status: int, header_length: int | None, body: bytes) -> Answer:
    """The answer in an HTTP response to an infer request."""
    if status != 200:
        try:
            return Answer(status, error=str(json.loads(body)["error"]))
        except (ValueError, KeyError, TypeError):
            return Answer(status, error=body.decode("utf-8", "replace"))
    length = len(body) if header_length is None else header_length
    try:
        return Answer(200, _tensors(Wire(length, body)))
    except ValueError as problem:  # what a stub built before NumPy 2 makes of NumPy 2's arrays
        return Answer(200, error=f"an output without its data ({problem})")


def answer_of_record(reply: Reply) -> Answer:
    """The answer that was recorded."""
    if reply.error:
        return Answer(HTTP_STATUS[Code(reply.code)], error=reply.error)
    return Answer(200, _tensors(reply.wire) if reply.wire.data else {})


def _tensors(wire: Wire) -> dict[str, Tensor]:
    header = wire.header
    found = {}
    offset = wire.header_length
    for row in header.get("outputs", ()):
        shape = tuple(row["shape"])
        size = row.get("parameters", {}).get("binary_data_size")
        if size is None:
            array = _from_json(row["datatype"], shape, row.get("data", []))
        else:
            array = dtypes.to_array(row["datatype"], shape, wire.data[offset : offset + size])
            offset += size
        found[row["name"]] = Tensor(row["name"], row["datatype"], shape, array)
    return found


def _from_json(datatype: str, shape: tuple[int, ...], data: list[Any]) -> npt.NDArray[Any]:
    if datatype == "BYTES":
        array = np.array([str(item).encode() for item in data], dtype=np.object_)
    else:
        array = np.array(data, dtype=dtypes.NUMPY.get(datatype, np.dtype(np.uint16)))
    return array.reshape(shape)


def compare(real: Answer, ours: Answer) -> list[OutputCheck]:
    """Every difference that matters, an entry per output; `ours` is devkit's answer."""
    if real.status != ours.status:
        detail = f"status {real.status} on the real server, {ours.status} here{_why(real, ours)}"
        return [OutputCheck("", DIFFERS, detail)]
    if real.status != 200 or real.error or ours.error:
        return [_compare_errors(real.error, ours.error)]
    names = list(dict.fromkeys([*ours.outputs, *real.outputs]))
    if not names:
        return [OutputCheck("", SAME, "no outputs on both")]
    return [_compare_output(name, real, ours) for name in names]


def worst(verdicts: list[str]) -> str:
    """The verdict on a whole of which these are the parts."""
    return max(verdicts, key=_ORDER.index, default=SAME)


def _why(real: Answer, ours: Answer) -> str:
    texts = [text for text in (real.error, ours.error) if text]
    return f": {texts[0].splitlines()[0]}" if texts else ""


def _compare_errors(real: str, ours: str) -> OutputCheck:
    # Behind "At:" come paths and lines of the model's file, which an export moves.
    heads = [text.split("\n\nAt:\n")[0] for text in (real, ours)]
    if heads[0] == heads[1]:
        return OutputCheck("", SAME, f"both refuse: {heads[0]}")
    return OutputCheck("", DIFFERS, f"error {heads[0]!r} on the real server, {heads[1]!r} here")


def _compare_output(name: str, real: Answer, ours: Answer) -> OutputCheck:
    theirs, mine = real.outputs.get(name), ours.outputs.get(name)
    if theirs is None or mine is None:
        where = "the real server" if theirs is None else "devkit"
        return OutputCheck(name, DIFFERS, f"{where} does not send it")
    if theirs.datatype != mine.datatype:
        detail = f"{theirs.datatype} on the real server, {mine.datatype} here"
        return OutputCheck(name, DIFFERS, detail, mine.datatype, mine.shape)
    if theirs.shape != mine.shape:
        detail = f"shape {list(theirs.shape)} on the real server, {list(mine.shape)} here"
        return OutputCheck(name, DIFFERS, detail, mine.datatype, mine.shape)
    return _compare_values(name, theirs, mine)


def _compare_values(name: str, theirs: Tensor, mine: Tensor) -> OutputCheck:
    equal = theirs.array == mine.array
    if mine.datatype not in TOLERANCES:
        unequal = int(np.size(equal) - np.count_nonzero(equal))
        if not unequal:
            return OutputCheck(name, SAME, "", mine.datatype, mine.shape)
        largest = _largest_step(theirs, mine)
        detail = f"{unequal} of {equal.size} values differ{_first(theirs, mine, ~equal)}"
        return OutputCheck(name, DIFFERS, detail, mine.datatype, mine.shape, largest, 0.0, unequal)
    real, ours = _as_float64(theirs), _as_float64(mine)
    differ = ~((real == ours) | (np.isnan(real) & np.isnan(ours)))
    unequal = int(np.count_nonzero(differ))
    if not unequal:
        return OutputCheck(name, SAME, "", mine.datatype, mine.shape)
    relative_limit, absolute_limit = TOLERANCES[mine.datatype]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        gap = np.where(differ, np.abs(real - ours), 0.0)
        scale = np.maximum(np.abs(real), np.abs(ours))
        ratio = np.where(scale > 0, gap / scale, 0.0)
        near = np.isfinite(gap) & (gap <= absolute_limit + relative_limit * scale)
    largest, relative = float(np.max(gap)), float(np.max(ratio))
    verdict = CLOSE if bool(np.all(near | ~differ)) else DIFFERS
    detail = (
        f"{unequal} of {real.size} values differ by up to {largest:.3g} "
        f"({relative:.2g} of the value){_first(theirs, mine, differ & ~near)}"
    )
    return OutputCheck(name, verdict, detail, mine.datatype, mine.shape, largest, relative, unequal)


def _as_float64(tensor: Tensor) -> npt.NDArray[np.float64]:
    array = tensor.array
    if tensor.datatype == "BF16":  # upper half of a float32
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _largest_step(theirs: Tensor, mine: Tensor) -> float:
    if mine.datatype in ("BYTES", "BOOL"):
        return 0.0
    # Through Python's integers: a difference of two UINT64 fits no NumPy type.
    pairs = zip(theirs.array.ravel().tolist(), mine.array.ravel().tolist(), strict=True)
    return float(max((abs(a - b) for a, b in pairs), default=0))


def _first(theirs: Tensor, mine: Tensor, differ: npt.NDArray[np.bool_]) -> str:
    """The first place that differs, with both values."""
    places = np.argwhere(differ)
    if not len(places):
        return ""
    place = tuple(int(index) for index in places[0])
    real, ours = theirs.array[place], mine.array[place]
    where = f"[{', '.join(map(str, place))}]"
    return f"; at {where} {_shown(real)} on the real server, {_shown(ours)} here"


def _shown(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."
