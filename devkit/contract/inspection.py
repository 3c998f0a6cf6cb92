"""What a tensor holds, in numbers: extremes, moments, NaNs, a histogram, a slice, a series.

Pure: bytes or an array in, frozen results out, which the control API sends as they are. Work is
bounded unless everything is asked for, and each result says how many of the values it is about.
Pictures are made in `pictures`, two tensors are compared in `differences`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract import pictures
from devkit.errors import DevkitError
from devkit.transport import dtypes, sampling
from devkit.transport.dtypes import ReadableBuffer

Array = npt.NDArray[Any]

LOOK = 1 << 22
"""Values looked at unless all are asked for: a few hundredths of a second."""

TEXTS = 10_000
"""Elements of a BYTES tensor looked at: each is an object of Python's."""

UNIQUE = 1 << 20
BINS = 32
SHOWN = 8
_CHUNK = 1 << 20
_LONGEST = 2_000  # characters of a text


class InspectionError(DevkitError):
    """What was asked of a tensor cannot be had: a slice beyond it, or more than was kept."""


class Held:
    """A tensor, or the runs of one that were kept.

    Attributes:
        shape: of the whole, also where only runs were kept.
        runs: (start, stop) of the values that are here; empty where all are.
        bytes: of the whole, -1 where unknown.
    """

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Sequence[int],
        data: ReadableBuffer | None,
        runs: Sequence[Sequence[int]] = (),
        array: Array | None = None,
    ) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = tuple(shape)
        self.runs = tuple((int(start), int(stop)) for start, stop in runs)
        self.count = dtypes.element_count(self.shape)
        self._data = data
        self._array = array
        self._flat: Array | None = None

    @classmethod
    def of(cls, name: str, array: Any) -> Held:
        """A NumPy array, or what NumPy makes one of."""
        made = np.asarray(array)
        datatype = dtypes.datatype_of(made) or ""
        return cls(name, datatype, made.shape, None, array=made)

    @property
    def whole(self) -> bool:
        """Whether every value is here."""
        return not self.runs

    @property
    def text(self) -> bool:
        """Whether its elements are BYTES."""
        return self.datatype == "BYTES" or (
            self._array is not None and self._array.dtype.kind in "OSU"
        )

    @property
    def dtype(self) -> str:
        """NumPy's name of its type."""
        if self._array is not None:
            return str(self._array.dtype)
        if self.datatype == "BF16":
            return "bfloat16"
        return str(dtypes.NUMPY.get(self.datatype, "object"))

    @property
    def bytes(self) -> int:
        """Bytes of the whole tensor."""
        if self._array is not None and not self.text:
            return int(self._array.nbytes)
        if self.datatype in dtypes.SIZES:
            return self.count * dtypes.SIZES[self.datatype]
        if self._data is not None and self.whole:
            return len(self._data)
        return -1

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one value to the next in each dimension; empty where there are none."""
        if self._array is not None:
            return tuple(int(step) for step in self._array.strides)
        size = dtypes.SIZES.get(self.datatype)
        if size is None:
            return ()
        found: list[int] = []
        for extent in reversed(self.shape):
            found.insert(0, size)
            size *= max(extent, 1)
        return tuple(found)

    def texts(self, limit: int = TEXTS) -> list[Any]:
        """The first elements of a BYTES tensor, bytes or str."""
        if self._array is not None:
            return [_plain(item) for item in self._array.flat[:limit]]
        try:
            found: list[Any] = dtypes.decode_bytes(self._data or b"", limit).tolist()
        except ValueError:  # cut off where the kept part ends
            found = _leading(self._data or b"", limit)
        return found

    def array(self) -> Array:
        """All of it; InspectionError where only a part was kept. BF16 comes as FP32."""
        if self.runs:
            kept = sum(stop - start for start, stop in self.runs)
            raise InspectionError(
                f"only {kept} of the {self.count} values of '{self.name}' were kept",
                remedy="record larger tensors whole: `devkit record --largest 2GiB`",
            )
        if self._array is not None:
            return self._array
        if self.text:
            return dtypes.to_array("BYTES", self.shape, self._data or b"")
        return self._values().reshape(self.shape)

    def part(self, runs: Sequence[tuple[int, int]]) -> Held:
        """The same with these runs of its values only."""
        flat = self._values()
        kept = np.concatenate([flat[start:stop] for start, stop in runs])
        return Held(self.name, self.datatype, self.shape, None, runs, kept)

    def _values(self) -> Array:
        """The values that are here in order, a view where the type allows it."""
        if self._flat is None:
            if self._array is not None:
                self._flat = self._array.reshape(-1)
            else:
                raw = dtypes.to_array(self.datatype, (-1,), self._data or b"")
                if self.datatype == "BF16":
                    raw = (raw.astype(np.uint32) << 16).view(np.float32)
                self._flat = raw
        return self._flat

    def pieces(self, limit: int | None) -> Iterator[Array]:
        """The values to look at, at most `limit` (None: all that are here), a chunk at a time."""
        here = self.count if self.whole else sum(stop - start for start, stop in self.runs)
        wanted = [(0, here)] if limit is None else sampling.runs(here, limit)
        contiguous = self._array is None or self._array.flags.c_contiguous
        source: Any
        if contiguous:
            source = self._values()
        else:
            assert self._array is not None
            source = self._array.flat  # no copy of the whole
        for start, stop in wanted:
            for at in range(start, stop, _CHUNK):
                yield source[at : min(at + _CHUNK, stop)]


def _plain(item: Any) -> Any:
    return item if isinstance(item, (bytes, str)) else str(item)


def _leading(data: ReadableBuffer, limit: int) -> list[bytes]:
    """The elements that are there in full at the beginning of cut BYTES data."""
    found: list[bytes] = []
    offset, view = 0, memoryview(data)
    while offset + 4 <= len(view) and len(found) < limit:
        length = int.from_bytes(view[offset : offset + 4], "little")
        if offset + 4 + length > len(view):
            break
        found.append(bytes(view[offset + 4 : offset + 4 + length]))
        offset += 4 + length
    return found


# --- the numbers --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` finite values lie between `edges[i]` and `edges[i + 1]`."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frequent:
    """A value as text, and how often it was seen."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A tensor in numbers.

    Attributes:
        looked_at: how many of the `count` values everything below is about.
        note: how they were chosen, in words; empty where it was all of them.
        minimum, maximum, mean, std: of the finite values; lengths in bytes for BYTES.
        infinite: of either sign.
        distinct: different values among those looked at, the least there are if `distinct_more`.
        first: the first values as text.
        view: what shows it best: `scalar`, `series`, `table`, `image`, `text` or `values`.
        whole: whether all of its bytes are kept, so that any slice can be had.
    """

    name: str
    datatype: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    count: int
    looked_at: int
    note: str = ""
    minimum: Any = None
    maximum: Any = None
    mean: float | None = None
    std: float | None = None
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    distinct: int = 0
    distinct_more: bool = False
    frequent: tuple[Frequent, ...] = ()
    histogram: Histogram | None = None
    first: tuple[str, ...] = ()
    view: str = "values"
    whole: bool = True

    @property
    def line(self) -> str:
        """All that matters in one line."""
        parts = [f"{self.datatype or self.dtype} {list(self.shape)}"]
        if self.minimum is not None:
            span = f"{number(self.minimum)} … {number(self.maximum)}"
            parts.append(f"lengths {span}" if self.view == "text" else span)
        if self.mean is not None and self.view != "text":
            parts.append(f"mean {number(self.mean)}, std {number(self.std)}")
        parts += [f"{count} {word}" for count, word in ((self.nan, "NaN"), (self.infinite, "inf"))
                  if count]  # fmt: skip
        if self.note:
            parts.append(self.note)
        return "; ".join(parts)


def number(value: Any) -> str:
    """A number for people."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def summarise(held: Held, *, exact: bool = False, bins: int = BINS) -> Summary:
    """The numbers of a tensor: of all its values if `exact` or few enough, else of a sample."""
    about: dict[str, Any] = {
        "name": held.name, "datatype": held.datatype, "dtype": held.dtype, "shape": held.shape,
        "strides": held.strides, "bytes": held.bytes, "count": held.count, "whole": held.whole,
    }  # fmt: skip
    if held.text:
        return _texts(held, about, None if exact else TEXTS)
    limit = None if exact else LOOK
    tally = _Tally()
    for piece in held.pieces(limit):
        tally.add(piece)
    tally.finish()
    histogram = None
    if tally.finite:
        histogram = tally.spread(held.pieces(limit), max(1, min(bins, 1000)))
    distinct, more, frequent = _distinct(held, limit)
    return Summary(
        **about, looked_at=tally.seen, note=_note(held, tally.seen),
        minimum=tally.minimum, maximum=tally.maximum, mean=_finite(tally.mean),
        std=_finite(tally.std), nan=tally.nan, infinite=tally.infinite, zeros=tally.zeros,
        distinct=distinct, distinct_more=more, frequent=frequent, histogram=histogram,
        first=_first(held), view=view_of(held),
    )  # fmt: skip


def _note(held: Held, seen: int) -> str:
    if seen >= held.count:
        return ""
    kept = "" if held.whole else "; the rest was not kept"
    return f"from {seen:,} of {held.count:,} values, in evenly spaced runs{kept}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class _Tally:
    """Counts and extremes over chunks; then, in a second pass, spread and histogram."""

    def __init__(self) -> None:
        self.seen = self.finite = self.nan = self.infinite = self.zeros = 0
        self.minimum: Any = None
        self.maximum: Any = None
        self.mean: float | None = None
        self.std: float | None = None
        self._sum = 0.0

    def add(self, piece: Array) -> None:
        self.seen += piece.size
        if not piece.size:
            return
        self.zeros += piece.size - int(np.count_nonzero(piece))
        good = piece
        if piece.dtype.kind in "fc":
            fine = np.isfinite(piece)
            count = int(np.count_nonzero(fine))
            if count < piece.size:
                nan = int(np.count_nonzero(np.isnan(piece)))
                self.nan += nan
                self.infinite += piece.size - count - nan
                good = piece[fine]
        if not good.size or piece.dtype.kind == "c":
            return
        self.finite += good.size
        with np.errstate(over="ignore"):
            self._sum += float(good.sum(dtype=np.float64))
        low, high = good.min().item(), good.max().item()
        self.minimum = low if self.minimum is None else min(low, self.minimum)
        self.maximum = high if self.maximum is None else max(high, self.maximum)

    def finish(self) -> None:
        if self.finite:
            self.mean = self._sum / self.finite
            self.minimum, self.maximum = _scalar(self.minimum), _scalar(self.maximum)

    def spread(self, pieces: Iterator[Array], bins: int) -> Histogram | None:
        low, high = float(self.minimum), float(self.maximum)
        if not math.isfinite(high - low):
            return None
        if low == high:
            bins = 1
        edges = np.linspace(low, high if high > low else low + 1, bins + 1)
        counts = np.zeros(bins, np.int64)
        squares = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in pieces:
                values = piece.astype(np.float64)
                values = values[np.isfinite(values)]
                squares += float(np.square(values - (self.mean or 0.0)).sum())
                counts += np.histogram(values, edges)[0]
        self.std = math.sqrt(squares / self.finite) if math.isfinite(squares) else None
        edges[-1] = high
        return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def _scalar(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _distinct(held: Held, limit: int | None) -> tuple[int, bool, tuple[Frequent, ...]]:
    parts, size = [], 0
    for piece in held.pieces(limit):
        parts.append(piece[: UNIQUE - size])
        size += parts[-1].size
        if size >= UNIQUE:
            break
    if not size:
        return 0, False, ()
    values, counts = np.unique(np.concatenate(parts), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:SHOWN]
    frequent = tuple(Frequent(number(values[index].item()), int(counts[index])) for index in order)
    return int(values.size), size < held.count, frequent


def _first(held: Held) -> tuple[str, ...]:
    for piece in held.pieces(None):
        return tuple(number(item) for item in piece[:SHOWN].tolist())
    return ()


def _texts(held: Held, about: dict[str, Any], limit: int | None) -> Summary:
    found = held.texts(held.count if limit is None else limit)
    lengths = np.array([len(_encoded(one)) for one in found] or [0])
    counted = Counter(found)
    note = "" if len(found) >= held.count else f"from the first {len(found):,} of {held.count:,}"
    return Summary(
        **about, looked_at=len(found), note=note,
        minimum=int(lengths.min()), maximum=int(lengths.max()), mean=float(lengths.mean()),
        std=float(lengths.std()), zeros=int(np.count_nonzero(lengths == 0)) if found else 0,
        distinct=len(counted), distinct_more=len(found) < held.count,
        frequent=tuple(Frequent(shown(one, 80), n) for one, n in counted.most_common(SHOWN)),
        first=tuple(shown(one, 80) for one in found[:SHOWN]), view="text",
    )  # fmt: skip


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def shown(value: Any, longest: int = _LONGEST) -> str:
    """An element of a BYTES tensor as text; bytes that are none are written `\\xff`."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def view_of(held: Held) -> str:
    """What shows a tensor best."""
    if held.text:
        return "text"
    if held.count <= 1:
        return "scalar"
    if not held.whole:
        return "values"
    if pictures.layout(held.shape, held.dtype):
        return "image"
    extents = [extent for extent in held.shape if extent != 1]
    if len(extents) == 1:
        return "series"
    return "table" if len(extents) == 2 else "values"


# --- parts of it --------------------------------------------------------------------------------


def parse_slice(text: str) -> tuple[Any, ...]:
    """NumPy's index of a text such as `0, :, 10:20` or `..., 3`; InspectionError if it is none."""
    found: list[Any] = []
    for part in filter(None, (one.strip() for one in text.strip("[] ").split(","))):
        try:
            if part == "...":
                found.append(...)
            elif ":" in part:
                found.append(slice(*(int(one) if one.strip() else None for one in part.split(":"))))
            else:
                found.append(int(part))
        except (ValueError, TypeError):
            raise InspectionError(
                f"'{part}' is no index", remedy="write it as NumPy does: `0, :, 10:20`"
            ) from None
    return tuple(found)


def cut(held: Held, index: str) -> Array:
    """A slice of a tensor, as a view of it."""
    array = held.array()
    try:
        return np.asarray(array[parse_slice(index)])
    except (IndexError, ValueError) as problem:
        raise InspectionError(f"[{index}] of shape {list(held.shape)}: {problem}") from None


@dataclass(frozen=True, slots=True)
class Series:
    """A row of values, or the lowest and highest of each `step` of them where there are many."""

    count: int
    step: int
    lowest: tuple[float | None, ...]
    highest: tuple[float | None, ...]


def series(held: Held, points: int = 1000, index: str = "") -> Series:
    """A tensor's values in order, at most `points` of them."""
    array = cut(held, index) if index else held.array()
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()
    step = max(1, math.ceil(flat.size / max(1, points)))
    if step == 1:
        values = tuple(_finite(float(one)) for one in flat.tolist())
        return Series(flat.size, 1, values, values)
    whole = flat.size // step * step
    low: list[float | None] = []
    high: list[float | None] = []
    rows = flat[:whole].reshape(-1, step)
    ignoring = (np.fmin, np.fmax) if flat.dtype.kind == "f" else (np.minimum, np.maximum)
    for function, found in zip(ignoring, (low, high), strict=True):
        found += [_finite(float(one)) for one in function.reduce(rows, axis=1).tolist()]
        if whole < flat.size:
            found.append(_finite(float(function.reduce(flat[whole:]))))
    return Series(flat.size, step, tuple(low), tuple(high))


@dataclass(frozen=True, slots=True)
class Grid:
    """The upper left of a table as text; `index` says which of the tensor's planes it is."""

    rows: int
    columns: int
    index: str
    cells: tuple[tuple[str, ...], ...] = field(default=())


def table(held: Held, rows: int = 20, columns: int = 12, index: str = "") -> Grid:
    """A tensor's values in rows; of more than two dimensions the first plane."""
    array = cut(held, index) if index else held.array()
    chosen = index
    while array.ndim > 2:
        array, chosen = array[0], ", ".join(filter(None, (chosen, "0")))
    if array.ndim < 2:
        array = array.reshape(1, -1) if array.ndim else array.reshape(1, 1)
    cells = tuple(
        tuple(shown(one, 80) if held.text else number(one) for one in row)
        for row in array[:rows, :columns].tolist()
    )
    return Grid(array.shape[0], array.shape[1], chosen, cells)
