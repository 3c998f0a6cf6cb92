"""The tracer: which requests are traced, what is noted of them, and who gets the traces.

Two kinds of listeners want traces: the trace extension (`observe.trace_extension`: sampled, into a
file) and sessions, which a face starts for a model and a number of requests. The engine and the
front ends ask `engine.tracer` first, which is None while nobody listens, and then a request's
`trace`, which is None unless it is one of those chosen. Files and words are `contract`'s business.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from devkit.contract.tracing import BACKEND_OUTPUT, QUEUE_INPUT, OwnSpan, Trace, TracedTensor
from devkit.core.request import Request, Response, SharedPlace
from devkit.errors import ControlError, InferError
from devkit.observe.tensor_text import values_text

if TYPE_CHECKING:
    from devkit.core.engine import Engine
    from devkit.core.instance import Batch, Instance
    from devkit.core.model import Model
    from devkit.observe.trace_extension import Extension

log = logging.getLogger("devkit.traces")

MOST_TRACES = 20_000
"""Traces that a session keeps; it ends when it has as many."""

MOST_SPANS = 20_000
"""Spans of the model's own that one request keeps."""

KEPT_SESSIONS = 16
"""Sessions that have ended and were not fetched."""

Taker = Callable[["Family"], None]


class Family:
    """A client's request and all that it causes, handed on when the last of it is over."""

    __slots__ = ("open", "takers", "tensors", "traces")

    def __init__(self) -> None:
        self.open = 0
        self.tensors = False
        self.takers: list[Taker] = []
        self.traces: list[Trace] = []


class Live:
    """A traced request under way: `Request.trace`."""

    __slots__ = (
        "_tracer", "batch", "batch_size", "busy", "complete", "compute", "delay", "done", "error",
        "family", "handed_on", "instance", "instances", "number", "parent", "pid", "protocol",
        "request", "responses", "send_end", "send_start", "spans", "tensors", "waiting",
    )  # fmt: skip

    def __init__(self, tracer: Tracer, number: int, request: Request, family: Family) -> None:
        self._tracer = tracer
        self.number = number
        self.request = request
        self.family = family
        self.parent = 0
        self.protocol = ""
        self.handed_on = True
        self.instance = ""
        self.pid = self.batch = 0
        self.batch_size = 1
        self.compute = (0, 0)  # start and end of `execute`
        self.complete = self.send_start = self.send_end = 0
        self.waiting = self.busy = self.instances = self.delay = 0
        self.error = ""
        self.done = False
        self.responses: list[int] = []
        self.spans: list[OwnSpan] = []
        self.tensors: list[TracedTensor] = []

    def sending(self) -> None:
        """The front end begins to write a response."""
        if not self.send_start:
            self.send_start = time.monotonic_ns()

    def sent(self) -> None:
        """The front end has handed a response to its socket."""
        self.send_end = time.monotonic_ns()

    def add_spans(self, rows: Sequence[Any]) -> None:
        """What the model marked itself; see `messages.SPANS`."""
        for name, start, end, thread, attributes in rows:
            if len(self.spans) < MOST_SPANS:
                self.spans.append(OwnSpan(name, start, end, thread, attributes))

    def ended(self, error: str = "") -> None:
        """The request is over, and nobody is told so."""
        if not self.complete:
            self.complete = time.monotonic_ns()
            self.error = self.error or error
        self._tracer.settle_soon(self)

    def record(self) -> Trace:
        """What is known of it now."""
        request = self.request
        times = request.times
        started, ended = self.compute
        receive = request.arrival or ("", 0, 0)
        # The answer is with the front end before `execute`'s end is told, or long after it.
        end = max(ended, self.complete)
        return Trace(
            id=self.number, model=request.model_name,
            version=request.model_version or getattr(request.model, "version_text", ""),
            request_id=request.id, parent=self.parent, protocol=self.protocol,
            handed_on=self.handed_on, instance=self.instance, pid=self.pid, batch=self.batch,
            batch_size=self.batch_size, receive_start=receive[1], receive_end=receive[2],
            request_start=times.request_start, queue_start=times.queue_start,
            compute_start=times.compute_start if self.pid else 0, compute_input_end=started,
            compute_output_start=ended, compute_end=end if self.pid else 0, request_end=end,
            complete=self.complete, send_start=self.send_start, send_end=self.send_end,
            waiting=self.waiting, busy=self.busy, instances=self.instances, delay=self.delay,
            error=self.error, responses=tuple(self.responses), spans=tuple(self.spans),
            tensors=tuple(self.tensors),
        )  # fmt: skip


class Session:
    """The traces of one model (or of all), until there are `count`.

    Attributes:
        begun, collected: requests chosen so far, and those of them that are over.
    """

    def __init__(self, number: int, model: str, count: int, tensors: bool) -> None:
        self.number = number
        self.model = model
        self.count = count
        self.tensors = tensors
        self.begun = self.collected = 0
        self.running = True
        self.on_end: Callable[[], None] = lambda: None
        self.traces: list[Trace] = []
        self.ended = asyncio.Event()

    def take(self, family: Family) -> None:
        """A request is over."""
        self.traces += family.traces
        self.collected += 1
        if self.running and (self.collected >= self.count > 0 or len(self.traces) >= MOST_TRACES):
            self.running = False
            self.ended.set()
            self.on_end()

    def wants(self, model: str) -> bool:
        """Whether a request to `model` is one of its own."""
        return (
            self.running
            and self.model in ("", model)
            and not (self.count > 0 and self.begun >= self.count)
        )


class Tracer:
    """Chooses requests, notes what becomes of them, and hands the traces to who wanted them.

    Attributes:
        offset: what makes nanoseconds since 1970 of a trace's times.
    """

    def __init__(self, engine: Engine, extension: Extension) -> None:
        self._engine = engine
        self.extension = extension
        self.offset = time.time_ns() - time.monotonic_ns()
        self.pid = os.getpid()
        self._numbers = itertools.count(1)
        self._sessions: dict[int, Session] = {}
        self._session_numbers = itertools.count(1)
        self._open = 0
        self._delays: dict[int, int] = {}  # of the batcher, by the model's generation
        self._wanted = False
        self._listening = False
        extension.on_change = self.refresh
        self.refresh()

    # -- who listens -----------------------------------------------------------------------------

    def start(self, model: str, count: int, *, tensors: bool = False) -> Session:
        """Trace the next `count` requests to `model` (0: until stopped; "": to any model)."""
        if count < 0:
            raise ControlError(f"{count} is not a number of requests", remedy="give 1 or more")
        if model:
            self._known(model)
        ended = [one for one in self._sessions.values() if not one.running]
        for one in ended[: max(0, len(ended) - KEPT_SESSIONS + 1)]:
            del self._sessions[one.number]
        session = Session(next(self._session_numbers), model, count, tensors)
        session.on_end = self.refresh
        self._sessions[session.number] = session
        self.refresh()
        return session

    def _known(self, model: str) -> None:
        if not any(row.name == model for row in self._engine.index()):
            self._engine.model(model)  # says in the server's words that there is none

    def session(self, number: int) -> Session:
        """The session of that number."""
        found = self._sessions.get(number)
        if found is None:
            raise ControlError(f"there is no trace session {number}")
        return found

    def sessions(self) -> list[Session]:
        """Every session that was not fetched yet."""
        return list(self._sessions.values())

    def stop(self, number: int) -> Session:
        """End a session and forget it; what it has is the caller's."""
        session = self.session(number)
        session.running = False
        session.ended.set()
        del self._sessions[number]
        self.refresh()
        return session

    def refresh(self) -> None:
        """Look whether anybody listens, and listen at the engine just as long as that."""
        wanted = self.extension.active or any(one.running for one in self._sessions.values())
        self._wanted = wanted
        wanted = wanted or self._open > 0  # what they cause belongs to the requests under way
        self._engine.tracer = self if wanted else None
        taps = self._engine.taps
        if wanted and not self._listening:
            self._listening = True
            taps.responses.insert(0, self._on_response)
            taps.batches.append(self._on_batch)
        elif not wanted and self._listening:
            self._listening = False
            for listeners, mine in (
                (taps.responses, self._on_response), (taps.batches, self._on_batch),
            ):  # fmt: skip
                if mine in listeners:
                    listeners.remove(mine)

    # -- a request's way -------------------------------------------------------------------------

    def submit(self, request: Request, model: Model) -> None:
        """Hand `request` to its model, traced if somebody wants that."""
        live = request.trace = self._begin(request, model)
        if live is None:
            model.submit(request)
            return
        try:
            model.submit(request)
        except InferError as refusal:
            live.error = refusal.message
            live.ended()
            raise

    def _begin(self, request: Request, model: Model) -> Live | None:
        parent = request.parent
        given: Live | None = request.trace
        above: Live | None = given or (parent.trace if parent is not None else None)
        if above is not None and above.done and not above.family.open:
            above = None
        wanting = (
            [one for one in self._sessions.values() if one.wants(model.name)]
            if self._sessions
            else ()
        )
        family = above.family if above is not None else Family()
        if above is None and parent is None and self.extension.active:
            taker = self.extension.sample(model.name)
            if taker is not None:
                family.takers.append(taker)
                family.tensors = taker.tensors
        for session in wanting:
            if session.take not in family.takers:
                session.begun += 1
                family.takers.append(session.take)
                family.tensors |= session.tensors
        if not family.takers:
            return None
        live = Live(self, next(self._numbers), request, family)
        if not family.open:
            self._open += 1
            if not self._wanted:  # this is the last request that was to be taken
                self.refresh()
        family.open += 1
        if above is not None:
            live.parent = above.number
            steps = parent is not None and not getattr(parent.model, "instances", True)
            live.protocol = "ENSEMBLE" if steps else "BLS"
            live.handed_on = steps or given is not None
        else:
            live.protocol = request.arrival[0] if request.arrival else ("BLS" if parent else "")
        live.waiting = len(model.scheduler.queue)
        live.instances = len(model.instances)
        for each in model.instances:
            if each.batches:
                live.busy += 1
        delay = self._delays.get(model.generation)
        if delay is None:
            delay = model.config.dynamic_batching.max_queue_delay_microseconds
            self._delays[model.generation] = delay
        live.delay = delay
        if family.tensors:
            live.tensors += [
                _tensor(QUEUE_INPUT, spec, buffer)
                for spec, buffer in zip(request.description.inputs, request.buffers, strict=True)
            ]
        return live

    def _on_response(self, request: Request, response: Response) -> None:
        live: Live | None = request.trace
        if live is None:
            return
        now = time.monotonic_ns()
        if not response.empty:
            live.responses.append(now)
        if response.error is not None:
            live.error = response.error.message
        elif live.family.tensors:
            live.tensors += [
                _tensor(BACKEND_OUTPUT, spec, buffer)
                for spec, buffer in zip(response.signature.outputs, response.buffers, strict=True)
            ]
        if response.final:
            live.complete = now
            if live.pid or live.error or not live.instances:
                self.settle_soon(live)  # else when the batch is over

    def _on_batch(self, model: Model, instance: Instance, batch: Batch) -> None:
        for request in batch.requests:
            live: Live | None = request.trace
            if live is None:
                continue
            live.instance, live.pid = instance.name, instance.pid
            live.batch, live.batch_size = batch.number, len(batch.requests)
            live.compute = (batch.started, batch.ended)
            if live.complete:
                self._settle(live)  # its answer has been written
            elif request.done:
                live.ended("cancelled" if request.cancelled else "")

    def settle_soon(self, live: Live) -> None:
        """Close a trace once this turn of the loop is over: the answer is being written now."""
        asyncio.get_running_loop().call_soon(self._settle, live)

    def _settle(self, live: Live) -> None:
        request = live.request
        if live.done:
            return
        if (
            request.times.compute_start
            and not live.pid
            and not live.error
            and request.model.instances
        ):
            return  # its `execute` has not returned yet; `_on_batch` comes back to it
        live.done = True
        request.trace = None  # or the two would keep each other until a collection
        family = live.family
        family.traces.append(live.record())
        family.open -= 1
        if family.open:
            return
        self._open -= 1
        for take in family.takers:
            take(family)
        if not self._open and not self._wanted:
            self.refresh()


def _tensor(activity: str, spec: Any, buffer: Any) -> TracedTensor:
    data = buffer.view() if isinstance(buffer, SharedPlace) else buffer
    text = values_text(spec.datatype, spec.shape, data)
    return TracedTensor(activity, spec.name, spec.datatype, tuple(spec.shape), text)
