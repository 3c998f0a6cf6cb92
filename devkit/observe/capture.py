"""The recorder: a bounded ring of whole requests and responses, in wire form.

It listens at the engine's taps and copies what it keeps, since the memory of a request is given
back right after. It keeps the first request of every description (each distinct shape of request
is seen at least once), every failed one, and of the others a bounded number a second, so that
recording costs a busy model next to nothing. What a recording looks like is
`contract.recording`'s business; who reads it, the control API's.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devkit.contract.recording import Record, Reply, TensorRow, Wire, request_wire, response_wire
from devkit.core.request import Request, Response, SharedPlace

if TYPE_CHECKING:
    from devkit.core.taps import Taps

RING_BYTES = 64 << 20
RING_COUNT = 1000
LARGEST = 16 << 20
PER_SECOND = 10.0

_NOTHING = Wire(0, b"")


class Capture:
    """A ring of `Record`s over all models.

    Attributes:
        count, bytes: bounds of the ring; the oldest records go first.
        largest: a request with more bytes than this is not kept at all.
        rate: how many requests a second of a description already seen are kept.
    """

    def __init__(
        self,
        *,
        count: int = RING_COUNT,
        bytes: int = RING_BYTES,
        largest: int = LARGEST,
        rate: float = PER_SECOND,
    ) -> None:
        self.count = count
        self.bytes = bytes
        self.largest = largest
        self.rate = rate
        self.used = 0
        self.skipped = 0  # larger than `largest`
        self._ring: OrderedDict[int, Record] = OrderedDict()
        self._next = 1
        self._open: dict[Request, list[Reply]] = {}
        self._due: dict[str, int] = {}  # by model: monotonic ns when the next may be kept

    def listen(self, taps: Taps) -> None:
        """Start recording."""
        taps.responses.append(self.on_response)

    def silence(self, taps: Taps) -> None:
        """Stop recording; what is in the ring stays."""
        if self.on_response in taps.responses:
            taps.responses.remove(self.on_response)
        self._open.clear()

    def on_response(self, request: Request, response: Response) -> None:
        """A response is on its way out, its memory still valid."""
        kept = self._open.get(request)
        if kept is None:
            if not self._wanted(request, response):
                return
            kept = []
            if not response.final:
                self._open[request] = kept
        if not (response.empty and not response.error):
            kept.append(_reply(request, response))
        if response.final:
            self._open.pop(request, None)
            self._keep(request, response, kept)

    def _wanted(self, request: Request, response: Response) -> bool:
        memo = request.description.memo
        now = time.monotonic_ns()
        first = self not in memo
        memo[self] = True
        if not first and response.error is None and now < self._due.get(request.model_name, 0):
            return False
        self._due[request.model_name] = now + int(1e9 / self.rate)
        return True

    def _keep(self, request: Request, response: Response, replies: list[Reply]) -> None:
        size = sum(map(_size, request.buffers)) + sum(len(one.wire.data) for one in replies)
        if size > self.largest:
            self.skipped += 1
            return
        lasted = (time.monotonic_ns() - request.times.request_start) / 1e9
        record = Record(
            self._next, request.model_name, request.model_version, time.time() - lasted, lasted,
            request_wire(
                _input_rows(request), request.description.outputs, id=request.id,
                parameters=_parameters(request),
            ),
            tuple(replies),
        )  # fmt: skip
        self._next += 1
        self._ring[record.number] = record
        self.used += record.size
        while self._ring and (len(self._ring) > self.count or self.used > self.bytes):
            _, oldest = self._ring.popitem(last=False)
            self.used -= oldest.size

    def records(self, model: str = "") -> Iterator[Record]:
        """What is kept, the oldest first, of one model or of all."""
        return (one for one in list(self._ring.values()) if not model or one.model == model)

    def record(self, number: int) -> Record | None:
        """The record of that number, while it is in the ring."""
        return self._ring.get(number)

    def clear(self, model: str = "") -> int:
        """Forget the records of one model or of all; returns how many."""
        gone = [one.number for one in self.records(model)]
        for number in gone:
            self.used -= self._ring.pop(number).size
        return len(gone)


def _size(buffer: object) -> int:
    return buffer.size if isinstance(buffer, SharedPlace) else len(buffer)  # type: ignore[arg-type]


def _input_rows(request: Request) -> list[TensorRow]:
    return [
        (spec.name, spec.datatype, spec.shape,
         buffer.view() if isinstance(buffer, SharedPlace) else buffer)
        for spec, buffer in zip(request.description.inputs, request.buffers, strict=True)
    ]  # fmt: skip


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


def _reply(request: Request, response: Response) -> Reply:
    if response.error is not None:
        return Reply(_NOTHING, response.error.message, int(response.error.code), response.final)
    rows: list[TensorRow] = [
        (spec.name, spec.datatype, spec.shape, buffer)
        for spec, buffer in zip(response.signature.outputs, response.buffers, strict=True)
    ]
    return Reply(
        response_wire(
            response.model_name, response.model_version, rows, id=request.id,
            parameters=response.parameters,
        ),
        final=response.final,
    )  # fmt: skip
