"""How requests became batches, streams and sequences: what the taps tell, bounded.

The parts of a batch are kept for all batches of a slow model and for the first of each second of a
fast one; the core counts every one by its reason and size. What a reason means in words is
`observe.explain`'s business. Nothing here holds a tensor's bytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from devkit.core.request import NullRequest, Request, Response, TensorSpec

if TYPE_CHECKING:
    from devkit.core.instance import Batch, Instance
    from devkit.core.model import Model
    from devkit.core.taps import SequenceEvent, Taps

RING = 300
KEPT_A_SECOND = 100
PARTS = 64
"""Requests of a batch, and responses of a stream, that are kept of a larger number."""


@dataclass(frozen=True, slots=True)
class Part:
    """A request as a part of a batch."""

    id: str
    inputs: tuple[TensorSpec, ...]
    batch_size: int
    correlation_id: int | str
    flags: int
    queue_ns: int
    outcome: str


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """One `execute`; `count` requests, of which `parts` are the first."""

    number: int
    time: float
    instance: str
    reason: int
    size: int
    count: int
    input_ns: int
    infer_ns: int
    failed: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """One response of a stream, `at` seconds after its request came."""

    at: float
    final: bool
    empty: bool
    error: str
    outputs: tuple[TensorSpec, ...]


@dataclass(slots=True)
class Stream:
    """A decoupled request and its responses: the first half of `PARTS`, and the last ones."""

    id: str
    model: str
    version: str
    time: float
    count: int = 0
    state: str = "open"
    first: list[KeptResponse] = field(default_factory=list)
    last: deque[KeptResponse] = field(default_factory=lambda: deque(maxlen=PARTS // 2))


@dataclass(frozen=True, slots=True)
class Gone:
    """A request whose client gave it up, `seconds` after it came."""

    request: Request | None
    id: str
    model: str
    version: str
    where: str
    seconds: float
    correlation_id: int | str


@dataclass(frozen=True, slots=True)
class Lane:
    """A sequence, where it ran, and how it ended."""

    correlation_id: int | str
    model: str
    version: str
    state: str
    started: float
    instance: str = ""
    slot: int = -1
    ended: float = 0.0
    moves: int = 0


class Batches:
    """Listens at the taps, and at each model until it has enough of this second's batches."""

    def __init__(self) -> None:
        self._taps: Taps | None = None
        self._rings: dict[int, deque[KeptBatch]] = {}
        self._budgets: dict[int, int] = {}
        self._open: dict[Request, Stream] = {}
        self._streams: deque[Stream] = deque(maxlen=RING)
        self._gone: deque[Gone] = deque(maxlen=RING)
        self._lanes: dict[tuple[str, str, int | str], Lane] = {}
        self._ended: deque[Lane] = deque(maxlen=RING)

    def listen(self, taps: Taps) -> None:
        """Start."""
        self._taps = taps
        taps.cancels.append(self.on_cancel)
        taps.sequences.append(self.on_sequence)

    def arm(self, models: Iterable[Model]) -> None:
        """Watch these models for the next second; to be called once in each, and when one loads.

        A model that runs thousands of batches a second pays for the first of them only.
        """
        assert self._taps is not None
        decoupled = False
        generations = set()
        for model in models:
            generations.add(model.generation)
            decoupled = decoupled or model.decoupled
            self._budgets[model.generation] = KEPT_A_SECOND
            if self.on_batch not in model.watchers:
                model.watchers.append(self.on_batch)
        for gone in self._budgets.keys() - generations:
            del self._budgets[gone]
            self._rings.pop(gone, None)
        listeners = self._taps.responses
        if decoupled and self.on_response not in listeners:
            listeners.append(self.on_response)
        elif not decoupled and self.on_response in listeners:
            listeners.remove(self.on_response)

    # -- batches ---------------------------------------------------------------------------------

    def on_batch(self, model: Model, instance: Instance, batch: Batch) -> None:
        """An `execute` has ended."""
        left = self._budgets.get(model.generation, 0)
        if left <= 1:
            model.watchers.remove(self.on_batch)  # until `arm`
        self._budgets[model.generation] = left - 1
        ring = self._rings.get(model.generation)
        if ring is None:
            ring = self._rings[model.generation] = deque(maxlen=RING)
        ring.append(_kept(instance, batch))

    def batches(self, model: Model, count: int = RING) -> list[KeptBatch]:
        """The last batches of a model that were kept, the oldest first."""
        kept = self._rings.get(model.generation, ())
        return list(kept)[-count:] if count else []

    # -- streams ---------------------------------------------------------------------------------

    def on_response(self, request: Request, response: Response) -> None:
        """A response is on its way out; only those of decoupled models are looked at."""
        model = request.model
        if model is None or not model.decoupled:
            return
        stream = self._open.get(request)
        now = time.monotonic_ns()
        seconds = (now - request.times.request_start) / 1e9
        if stream is None:
            stream = self._open[request] = Stream(
                request.id, model.name, model.version_text, time.time() - seconds
            )
        error = response.error.message if response.error is not None else ""
        kept = KeptResponse(
            seconds, response.final, response.empty, error, response.signature.outputs
        )
        stream.count += 1
        if len(stream.first) < PARTS // 2:
            stream.first.append(kept)
        else:
            stream.last.append(kept)
        if error:
            stream.state = "failed"
        if response.final:
            if not error:
                stream.state = "ended"
            self._streams.append(stream)
            del self._open[request]

    def streams(self, model: str = "") -> list[Stream]:
        """Streams that have ended and those under way, the oldest first."""
        self.tidy()
        found = list(self._streams)
        for request, stream in self._open.items():
            state = "abandoned" if request.cancelled else stream.state
            found.append(replace(stream, state=state))
        return [one for one in found if not model or one.model == model]

    # -- requests that nobody waits for ------------------------------------------------------------

    def on_cancel(self, request: Request, where: str) -> None:
        """A client has gone: its request was taken out of a queue, or its instance was told."""
        if type(request) is NullRequest:
            return
        model = request.model
        waited = (time.monotonic_ns() - request.times.request_start) / 1e9
        self._gone.append(
            Gone(
                None if where == "queue" else request, request.id, request.model_name,
                model.version_text if model is not None else "", where, waited,
                request.correlation_id,
            )
        )  # fmt: skip

    def gone(self, model: str = "") -> list[Gone]:
        """The last requests that were given up; `request` is set where the model runs it still."""
        self.tidy()
        return [one for one in self._gone if not model or one.model == model]

    def tidy(self) -> None:
        """Let go of requests that have ended without a response that anybody wanted."""
        for request in [one for one in self._open if one.done]:
            stream = self._open.pop(request)
            stream.state = "cancelled" if request.cancelled else stream.state
            self._streams.append(stream)
        for place, one in enumerate(self._gone):
            if one.request is not None and one.request.done:
                self._gone[place] = replace(one, request=None)

    # -- sequences -------------------------------------------------------------------------------

    def on_sequence(self, event: SequenceEvent) -> None:
        """A sequence started, got a slot, moved, ended or was evicted."""
        key = (event.model, event.version, event.correlation_id)
        lane = self._lanes.get(key)
        if lane is None:
            if event.state in ("ended", "evicted"):
                return  # it was told of as over, or began before anybody listened
            lane = Lane(event.correlation_id, event.model, event.version, "waiting", time.time())
        if event.state == "placed":
            moves = lane.moves + (lane.instance not in ("", event.instance))
            lane = replace(
                lane, state="running", instance=event.instance, slot=event.slot, moves=moves
            )
        elif event.state == "moved":
            lane = replace(lane, state="waiting")
        elif event.state in ("ended", "evicted"):
            self._lanes.pop(key, None)
            self._ended.append(replace(lane, state=event.state, ended=time.time()))
            return
        self._lanes[key] = lane

    def lanes(self, model: str = "") -> list[Lane]:
        """Sequences that are over and those under way, the oldest first."""
        found = [*self._ended, *self._lanes.values()]
        return [one for one in found if not model or one.model == model]


def _kept(instance: Instance, batch: Batch) -> KeptBatch:
    requests = batch.requests
    return KeptBatch(
        batch.number, time.time(), instance.name, batch.reason, batch.size, len(requests),
        batch.started - batch.sent, batch.ended - batch.started, batch.failed,
        tuple(_part(request, batch.failed) for request in requests[:PARTS]),
    )  # fmt: skip


def _part(request: Any, failed: bool) -> Part:
    times = request.times
    return Part(
        request.id, request.description.inputs, request.batch_size, request.correlation_id,
        request.flags, max(times.compute_start - times.queue_start, 0) if times.queue_start else 0,
        _outcome(request, failed),
    )  # fmt: skip


def _outcome(request: Any, failed: bool) -> str:
    if type(request) is NullRequest:
        return "empty"
    if request.cancelled:
        return "cancelled"
    if failed:
        return "failed"
    return "answered" if request.done else "open"
