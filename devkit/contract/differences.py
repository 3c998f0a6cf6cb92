"""Two tensors compared value by value: how far apart, where, and by how many representable steps.

Pure, and bounded unless everything is asked for. Which two, and what to call them, is the
caller's affair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract.inspection import LOOK, Held, shown
from devkit.transport import sampling

Array = npt.NDArray[Any]

SAME, CLOSE, DIFFERS = "same", "close", "differs"

TOLERANCES = {
    "FP16": (1e-2, 1e-3),
    "BF16": (2e-2, 1e-2),
    "FP32": (1e-4, 1e-6),
    "FP64": (1e-9, 1e-12),
}
"""Relative and absolute tolerance for `close`; other types must be equal."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Tensor `name` on two sides.

    Attributes:
        verdict: `same`, `close` (a few units of the type's precision apart) or `differs`.
        detail: in words; empty where nothing differs.
        looked_at: how many values were compared; `note` says how they were chosen.
        unequal: how many are not equal; a NaN equals a NaN.
        largest, relative: largest absolute and relative difference of finite values.
        mean: mean absolute difference of finite values.
        ulps: largest difference in representable steps of the type, -1 where it has none.
        nonfinite: values that are NaN or infinite on one side only, or unlike.
        where: index of the largest difference; `left` and `right` are the values there.
        first: index of the first difference.
    """

    name: str
    verdict: str
    detail: str = ""
    datatype: str = ""
    shape: tuple[int, ...] = ()
    count: int = 0
    looked_at: int = 0
    note: str = ""
    unequal: int = 0
    largest: float = 0.0
    relative: float = 0.0
    mean: float = 0.0
    ulps: int = -1
    nonfinite: int = 0
    where: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    left: str = ""
    right: str = ""


def compare(
    left: Held, right: Held, *, exact: bool = False, names: Sequence[str] = ("left", "right")
) -> Difference:
    """What differs between two tensors, called `names` in the words."""
    about: dict[str, Any] = {
        "name": left.name or right.name,
        "datatype": left.datatype,
        "shape": left.shape,
    }
    pairs = (("type", left.datatype or left.dtype, right.datatype or right.dtype),
             ("shape", list(left.shape), list(right.shape)))  # fmt: skip
    for what, mine, theirs in pairs:
        if mine != theirs:
            detail = f"{what} {mine} ({names[0]}), {theirs} ({names[1]})"
            return Difference(**about, verdict=DIFFERS, detail=detail)
    if left.text:
        return _compare_texts(left, right, about, names)
    if left.whole and right.runs:
        left = left.part(right.runs)
    elif right.whole and left.runs:
        right = right.part(left.runs)
    if left.runs != right.runs:
        detail = "one of them was kept in part only, so they cannot be compared"
        return Difference(**about, verdict=DIFFERS, detail=detail)
    return _compare_numbers(left, right, about, exact, names)


def _compare_texts(
    left: Held, right: Held, about: dict[str, Any], names: Sequence[str]
) -> Difference:
    mine, theirs = left.texts(), right.texts()
    places = [
        at for at, pair in enumerate(zip(mine, theirs, strict=False))
        if _bytes(pair[0]) != _bytes(pair[1])
    ]  # fmt: skip
    seen = min(len(mine), len(theirs))
    about |= {"count": left.count, "looked_at": seen}
    if seen < left.count:
        about["note"] = f"the first {seen:,} of {left.count:,} were compared"
    if not places:
        return Difference(**about, verdict=SAME)
    where = _index(places[0], left.shape)
    one, other = shown(mine[places[0]], 60), shown(theirs[places[0]], 60)
    detail = (
        f"{len(places):,} of {seen:,} texts differ; at {list(where)} {one!r} ({names[0]}), "
        f"{other!r} ({names[1]})"
    )
    return Difference(
        **about, verdict=DIFFERS, detail=detail, unequal=len(places), where=where, first=where,
        left=one, right=other,
    )  # fmt: skip


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(one) for one in np.unravel_index(flat, shape)) if shape else ()


def _compare_numbers(
    left: Held, right: Held, about: dict[str, Any], exact: bool, names: Sequence[str]
) -> Difference:
    limit = None if exact else LOOK
    tally = _Gap(*TOLERANCES.get(left.datatype, (0.0, 0.0)))
    steps = -1
    for mine, theirs in zip(left.pieces(limit), right.pieces(limit), strict=True):
        if tally.add(mine, theirs):
            steps = max(steps, _ulps(mine, theirs, left.datatype))
    about |= {"count": left.count, "looked_at": tally.seen}
    if tally.seen < left.count:
        about["note"] = f"{tally.seen:,} of {left.count:,} values were compared, in runs"
    if not tally.unequal:
        known = left.dtype.startswith(("float", "bfloat"))
        return Difference(**about, verdict=SAME, ulps=0 if known else -1)
    where, first = (_place(left, at, limit) for at in (tally.at, tally.first))
    verdict = CLOSE if tally.close and left.datatype in TOLERANCES else DIFFERS
    one, other = (f"{value!r}" for value in tally.values)
    detail = (
        f"{tally.unequal:,} of {tally.seen:,} values differ by up to {tally.largest:.3g} "
        f"({tally.relative:.2g} of the value"
        + (f", {steps:,} ulp" if steps >= 0 else "")
        + f"); at {list(where)} {one} ({names[0]}), {other} ({names[1]})"
    )
    return Difference(
        **about, verdict=verdict, detail=detail, unequal=tally.unequal, largest=tally.largest,
        relative=tally.relative, mean=tally.total / max(1, tally.finite), ulps=steps,
        nonfinite=tally.nonfinite, where=where, first=first, left=one, right=other,
    )  # fmt: skip


def _place(held: Held, looked: int, limit: int | None) -> tuple[int, ...]:
    """Index in the tensor of the `looked`-th value that was looked at."""
    for runs in (
        sampling.runs(
            held.count if held.whole else sum(stop - start for start, stop in held.runs),
            limit if limit is not None else max(held.count, 1),
        ),
        held.runs,
    ):
        for start, stop in runs:
            if looked < stop - start:
                looked += start
                break
            looked -= stop - start
    return _index(looked, held.shape)


class _Gap:
    """The differences over chunks."""

    def __init__(self, relative: float, absolute: float) -> None:
        self.seen = self.unequal = self.nonfinite = self.finite = 0
        self.largest = self.relative = self.total = 0.0
        self.at = self.first = -1
        self.values: tuple[Any, Any] = (None, None)
        self.close = True
        self._tolerance = relative, absolute
        self._worst = -1.0

    def add(self, mine: Array, theirs: Array) -> bool:
        """Take a chunk; whether anything in it differs."""
        differ = mine != theirs
        if mine.dtype.kind == "f":
            differ &= ~(np.isnan(mine) & np.isnan(theirs))
        start = self.seen
        self.seen += mine.size
        count = int(np.count_nonzero(differ))
        both = mine.size if mine.dtype.kind != "f" else int(np.count_nonzero(np.isfinite(mine)))
        self.finite += both
        if not count:
            return False
        self.unequal += count
        places = np.flatnonzero(differ)
        if self.first < 0:
            self.first = start + int(places[0])
        one, other = mine[places], theirs[places]
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            a, b = one.astype(np.float64), other.astype(np.float64)
            gap = np.abs(a - b)
            if mine.dtype.kind in "iu" and mine.dtype.itemsize == 8:
                gap = np.maximum(gap, 1.0)  # unequal, however the float64 rounds
            finite = np.isfinite(gap)
            scale = np.maximum(np.abs(a), np.abs(b))
            ratio = np.where(finite & (scale > 0), gap / scale, 0.0)
            relative, absolute = self._tolerance
            self.close &= bool(np.all(finite & (gap <= absolute + relative * scale)))
        self.nonfinite += int(np.count_nonzero(~finite))
        if finite.any():
            self.largest = max(self.largest, float(gap[finite].max()))
            self.relative = max(self.relative, float(ratio.max()))
            self.total += float(gap[finite].sum())
        ranked = np.where(finite, gap, math.inf)
        worst = int(np.argmax(ranked))
        if ranked[worst] > self._worst:
            self._worst = float(ranked[worst])
            self.at = start + int(places[worst])
            self.values = one[worst].item(), other[worst].item()
        return True


def _ulps(mine: Array, theirs: Array, datatype: str) -> int:
    """Largest number of representable values between two floats of the arrays; -1 without any."""
    if mine.dtype.kind != "f":
        return -1
    finite = np.isfinite(mine) & np.isfinite(theirs) & (mine != theirs)
    if not finite.any():
        return -1
    a, b = _ordered(mine[finite]), _ordered(theirs[finite])
    found = int((np.maximum(a, b) - np.minimum(a, b)).max())
    return found >> 16 if datatype == "BF16" else found  # it came as FP32


def _ordered(values: Array) -> npt.NDArray[np.uint64]:
    """Floats as integers in the same order, neighbours one apart."""
    bits = values.dtype.itemsize * 8
    raw = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    sign = np.uint64(1 << (bits - 1))
    magnitude = raw & np.uint64((1 << (bits - 1)) - 1)
    ordered: npt.NDArray[np.uint64] = np.where(raw & sign, sign - magnitude, sign + magnitude)
    return ordered
