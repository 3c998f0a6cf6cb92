"""The recorder: a bounded ring of whole requests and responses, in wire form.

It listens at the engine's taps and copies what it keeps, since the memory of a request is given
back right after. It keeps the first request of every description (each distinct shape of request
is seen at least once), every failed, slow or probed one, and of the others a bounded number a
second, so that recording costs a busy model next to nothing. Of a request that is too large for
the ring a sample is kept, which can be looked at and not be sent again. What a recording looks
like is `contract.recording`'s business; who reads it, the control API's.
"""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from devkit.contract.recording import (
    Probe,
    Record,
    Reply,
    Runs,
    TensorRow,
    Wire,
    request_wire,
    response_wire,
)
from devkit.core.request import NullRequest, Request, Response, SharedPlace
from devkit.errors import SharedMemoryError
from devkit.transport import dtypes, sampling

if TYPE_CHECKING:
    from devkit.core.taps import Taps

RING_BYTES = 64 << 20
RING_COUNT = 1000
LARGEST = 16 << 20
PER_SECOND = 10.0
SLOW = 1.0

SAMPLE = 1 << 20
"""Bytes kept of a tensor of a request that is too large."""

MOST_PROBES = 200
_MOST_OPEN = 10_000

_NOTHING = Wire(0, b"")


class _Open:
    """What was kept so far of a request that is being answered."""

    __slots__ = ("dropped", "probes", "replies", "size", "wanted")

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.probes: list[Probe] = []
        self.size = 0
        self.dropped = 0
        self.wanted = False


class Capture:
    """A ring of `Record`s over all models.

    Attributes:
        on: whether it listens.
        count, bytes: bounds of the ring; the oldest records go first.
        largest: of a request with more bytes than this only a sample is kept.
        rate: how many requests a second of a description already seen are kept; 0 keeps all.
        slow: seconds from which on a request is kept in any case; 0 for never.
    """

    def __init__(
        self,
        *,
        count: int = RING_COUNT,
        bytes: int = RING_BYTES,
        largest: int = LARGEST,
        rate: float = PER_SECOND,
        slow: float = SLOW,
    ) -> None:
        self.count = count
        self.bytes = bytes
        self.largest = largest
        self.rate = rate
        self.slow = slow
        self.on = False
        self.used = 0
        self.skipped = 0  # kept as a sample only
        self._ring: OrderedDict[int, Record] = OrderedDict()
        self._next = 1
        self._open: dict[Request, _Open] = {}
        self._due: dict[str, int] = {}  # by model: monotonic ns when the next may be kept

    def listen(self, taps: Taps) -> None:
        """Start recording."""
        if not self.on:
            self.on = True
            taps.responses.append(self.on_response)
            taps.probes.append(self.on_probe)

    def silence(self, taps: Taps) -> None:
        """Stop recording; what is in the ring stays."""
        self.on = False
        for listeners, own in ((taps.responses, self.on_response), (taps.probes, self.on_probe)):
            if own in listeners:
                listeners.remove(own)
        self._open.clear()

    def on_probe(self, requests: Sequence[Request], shown: dict[str, Any], data: bytes) -> None:
        """A model has shown a tensor while it works on `requests`."""
        now = time.monotonic_ns()
        for request in requests:
            if request.done or type(request) is NullRequest:
                continue
            kept = self._opened(request)
            kept.wanted = True
            if len(kept.probes) < MOST_PROBES:
                seconds = (now - request.times.request_start) / 1e9
                kept.probes.append(_probe(shown, data, seconds))

    def probes_of(self, request: Request) -> tuple[Probe, ...]:
        """What the model has shown for a request that is not over yet."""
        kept = self._open.get(request)
        return tuple(kept.probes) if kept is not None else ()

    def _opened(self, request: Request) -> _Open:
        kept = self._open.get(request)
        if kept is None:
            if len(self._open) >= _MOST_OPEN:  # requests that ended without a word: cancelled ones
                for old in [one for one in self._open if one.done]:
                    del self._open[old]
            kept = self._open[request] = _Open()
            kept.size = sum(map(_size, request.buffers))
        return kept

    def on_response(self, request: Request, response: Response) -> None:
        """A response is on its way out, its memory still valid."""
        kept = self._open.get(request)
        if kept is None or not kept.wanted:
            if type(request) is NullRequest or not self._wanted(request, response):
                return
            kept = self._opened(request)
            kept.wanted = True
        if not (response.empty and not response.error):
            size = sum(map(_size, response.buffers))
            if kept.size + size <= self.largest:
                kept.size += size
                kept.replies.append(_reply(request, response))
            elif kept.replies:
                kept.dropped += 1  # a long stream: its beginning tells
            else:
                kept.replies.append(_reply(request, response, SAMPLE))
                self.skipped += 1
        if response.final:
            self._open.pop(request, None)
            self._keep(request, kept)

    def _wanted(self, request: Request, response: Response) -> bool:
        memo = request.description.memo
        now = time.monotonic_ns()
        first = self not in memo
        memo[self] = True
        if not self.rate:
            return True
        if not first and response.error is None and now < self._due.get(request.model_name, 0):
            return bool(self.slow) and now - request.times.request_start > self.slow * 1e9
        self._due[request.model_name] = now + int(1e9 / self.rate)
        return True

    def _keep(self, request: Request, kept: _Open) -> None:
        lasted = (time.monotonic_ns() - request.times.request_start) / 1e9
        try:
            wire = wire_of(request, self.largest)
        except SharedMemoryError:
            return  # the client has taken its region back
        self.add(
            Record(
                0,
                request.model_name,
                request.model_version,
                time.time() - lasted,
                lasted,
                wire,
                tuple(kept.replies),
                tuple(kept.probes),
                kept.dropped,
            )
        )

    def add(self, record: Record) -> Record:
        """Put a record into the ring, under the next number."""
        record = dataclasses.replace(record, number=self._next)
        self._next += 1
        self._ring[record.number] = record
        self.used += record.size
        self._trim()
        return record

    def _trim(self) -> None:
        while self._ring and (len(self._ring) > self.count or self.used > self.bytes):
            _, oldest = self._ring.popitem(last=False)
            self.used -= oldest.size

    def bound(self, *, count: int, bytes: int) -> None:
        """Set new bounds; what is beyond them goes."""
        self.count, self.bytes = count, bytes
        self._trim()

    def records(self, model: str = "") -> Iterator[Record]:
        """What is kept, the oldest first, of one model or of all."""
        return (one for one in list(self._ring.values()) if not model or one.model == model)

    def __len__(self) -> int:
        return len(self._ring)

    def record(self, number: int) -> Record | None:
        """The record of that number, while it is in the ring."""
        return self._ring.get(number)

    def clear(self, model: str = "", numbers: Iterable[int] | None = None) -> int:
        """Forget the records of one model, of these numbers, or all; returns how many."""
        chosen = None if numbers is None else frozenset(numbers)
        gone = [one.number for one in self.records(model) if chosen is None or one.number in chosen]
        for number in gone:
            self.used -= self._ring.pop(number).size
        return len(gone)


def _probe(shown: dict[str, Any], data: bytes, seconds: float) -> Probe:
    runs = tuple((int(start), int(stop)) for start, stop in shown["runs"])
    return Probe(
        shown["name"], shown["datatype"], tuple(shown["shape"]), data, seconds,
        bool(shown["batch"]), runs,
    )  # fmt: skip


def wire_of(request: Request, largest: int = LARGEST) -> Wire:
    """A request as its client sent it; of one larger than `largest` a sample.

    Raises SharedMemoryError where the client has taken its region back.
    """
    rows = _input_rows(request)
    runs: dict[str, Runs] = {}
    if sum(len(row[3]) for row in rows) > largest:
        rows, runs = _sampled(rows, SAMPLE)
    return request_wire(
        rows, request.description.outputs, id=request.id, parameters=_parameters(request),
        runs=runs,
    )  # fmt: skip


def _size(buffer: object) -> int:
    return buffer.size if isinstance(buffer, SharedPlace) else len(buffer)  # type: ignore[arg-type]


def _input_rows(request: Request) -> list[TensorRow]:
    return [
        (spec.name, spec.datatype, spec.shape,
         buffer.view() if isinstance(buffer, SharedPlace) else buffer)
        for spec, buffer in zip(request.description.inputs, request.buffers, strict=True)
    ]  # fmt: skip


def _sampled(rows: list[TensorRow], limit: int) -> tuple[list[TensorRow], dict[str, Runs]]:
    """Rows with at most `limit` bytes of each tensor, and which values those are."""
    kept: list[TensorRow] = []
    runs: dict[str, Runs] = {}
    for name, datatype, shape, data in rows:
        size = dtypes.SIZES.get(datatype, 0)
        view = memoryview(data)
        if len(view) <= limit:
            kept.append((name, datatype, shape, data))
            continue
        if size:
            runs[name] = chosen = sampling.runs(len(view) // size, limit // size)
            part = b"".join(view[start * size : stop * size] for start, stop in chosen)
        else:  # lengths are inside, so only its beginning can be read
            runs[name], part = ((0, 0),), bytes(view[:limit])
        kept.append((name, datatype, shape, part))
    return kept, runs


def _parameters(request: Request) -> dict[str, object]:
    """Request parameters as a client sent them, what the core took out of them put back."""
    found: dict[str, object] = dict(request.description.parameters)
    if request.correlation_id:
        found["sequence_id"] = request.correlation_id
        found["sequence_start"] = bool(request.flags & 1)
        found["sequence_end"] = bool(request.flags & 2)
    if request.priority:
        found["priority"] = request.priority
    if request.timeout:
        found["timeout"] = request.timeout
    return found


def _reply(request: Request, response: Response, limit: int = 0) -> Reply:
    if response.error is not None:
        return Reply(_NOTHING, response.error.message, int(response.error.code), response.final)
    rows: list[TensorRow] = [
        (spec.name, spec.datatype, spec.shape, buffer)
        for spec, buffer in zip(response.signature.outputs, response.buffers, strict=True)
    ]
    runs: dict[str, Runs] = {}
    if limit:
        rows, runs = _sampled(rows, limit)
    return Reply(
        response_wire(
            response.model_name, response.model_version, rows, id=request.id,
            parameters=response.parameters, runs=runs,
        ),
        final=response.final,
    )  # fmt: skip
