"""One stub process as the runtime sees it: what it was given, what it answered, how it ended.

The hot path of the runtime is here: `execute` packs a batch into one frame, `_on_result` unpacks
the answer and hands each response to its front end. Which request goes where is the scheduler's
business, starting processes the launcher's, and what to do about a death the model's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.core import checks, judging
from devkit.core.judging import Verdict
from devkit.core.launcher import Process
from devkit.core.links import LineReader, Link
from devkit.core.request import (
    NO_OUTPUTS,
    Description,
    NullRequest,
    OutputSignature,
    Request,
    Response,
    SharedPlace,
    TensorSpec,
)
from devkit.core.scheduler import FULL_ROOM, ONE_BY_ONE
from devkit.core.spinner import MOMENT_NS
from devkit.core.statistics import Tally
from devkit.core.taps import FailureEvent, LogEvent, Taps, WarningEvent
from devkit.errors import Code, InferError, SharedMemoryError
from devkit.transport import messages
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.memory import Block, Region, region_path

if TYPE_CHECKING:
    from devkit.core.model import Model
    from devkit.core.rate_limiter import Permit
    from devkit.core.steering import Target

log = logging.getLogger("devkit.instance")

READY_SECONDS = 5.0
"""How long a model's `is_ready` may take, as the real backend gives it."""

LAST_BYTES = 0.1
"""Seconds that what a process wrote before its end has to arrive, where no end of file follows."""

PLAN_SLOTS = 1024
PREFETCH = 4
"""Batches a fast model may have in its socket at once: hides the wake-up between two executes."""

PREFETCH_BELOW_NS = 150_000
"""Mean execute time under which prefetching pays; above it, it would only keep work from others."""


LEARNING = ("every output, declared or not",)
"""Stands for the requested outputs of a request that learns a config (`Request.learning`)."""


class Batch:
    """The requests of one `execute` call.

    Attributes:
        reason: why it closed, one of the scheduler's numbers.
        started, ended: of `execute`, 0 until it has ended.
        stood: nanoseconds of it that it stood in a debugger.
    """

    __slots__ = (
        "awaited", "ended", "failed", "number", "reason", "requests", "sent", "size", "started",
        "stood",
    )  # fmt: skip

    def __init__(
        self, number: int, requests: list[Request], sent: int, reason: int = ONE_BY_ONE
    ) -> None:
        self.number = number
        self.awaited = False
        self.failed = False
        self.reason = reason
        self.started = self.ended = self.stood = 0
        self.requests = requests
        self.sent = sent
        self.size = sum(request.batch_size for request in requests)


class Instance:
    """A model instance: one stub process and the requests it has.

    Attributes:
        state: `starting`, `ready`, `stopping` or `dead`.
        started_by: how the process came to be: `spawn`, `warm` or `shared`.
        load_seconds: from the start of the process to READY.
        asynchronous: whether the model's `execute` is a coroutine function.
        last_words: the tail of its stderr, for the error report when it dies.
        permit: what it must ask before it executes, where a rate limiter is at work.
        tally: what it has done, in numbers.
        execute_line: `path:line` of the model's `execute`.
        debugger: what a debugger has of it, None while none is attached.
        spare: whether it is here only as long as another stands in a debugger.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        kind: str,
        device_id: int,
        process: Process,
        taps: Taps,
        on_end: Callable[[Instance], None],
    ) -> None:
        self.model = model
        self.name = name
        self.kind = kind
        self.device_id = device_id
        self.process = process
        self.pid = process.pid
        self.state = "starting"
        self.started_by = process.method
        self.started_at = time.time()
        self.load_seconds = 0.0
        self.executes = 0
        self.tally = Tally()
        self.execute_line = ""
        self.files: list[str] = []
        self.modules: list[str] = []
        self.asks_ready = False
        self.asynchronous = False
        self._opinion: asyncio.Task[Any] | None = None
        self.last_words: deque[str] = deque(maxlen=50)
        self.batches: deque[Batch] = deque()
        self.pending: dict[int, Request] = {}
        self.loaded: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._finalized = asyncio.Event()
        self.ended = asyncio.Event()
        self.permit: Permit | None = None
        self.debugger: Target | None = None
        self.spare = False
        self._taps = taps
        self._on_end = on_end
        self.judge = judging.of_model(model, model.strict, self._warn)
        self._plans: OrderedDict[Description, int] = OrderedDict()
        self._signatures: dict[int, OutputSignature] = {}
        self._regions: dict[Region, int] = {}
        self._places: dict[int, Region] = {}
        self._responses_region: Region | None = None
        self._releases: list[int] = []
        self._outbox: list[ReadableBuffer] = []
        self._flush_due = False
        self._mean_execute = 0.0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self.data = Link(self._on_data, self._on_data_end)
        self.control = Link(self._on_control, lambda: None)
        self.bls = Link(self._on_bls, lambda: None)
        self._pipes: list[asyncio.BaseTransport] = []

    async def connect(self) -> None:
        """Take the process's sockets and pipes into the event loop."""
        loop, process = self._loop, self.process
        await loop.create_connection(lambda: self.data, sock=process.data)
        await loop.create_connection(lambda: self.control, sock=process.control)
        await loop.create_connection(lambda: self.bls, sock=process.bls)
        for descriptor, stream in ((process.stdout, "stdout"), (process.stderr, "stderr")):
            pipe = os.fdopen(descriptor, "rb", 0)
            transport, _ = await loop.connect_read_pipe(partial(self._reader, stream), pipe)
            self._pipes.append(transport)
        process.on_end(lambda: loop.call_later(LAST_BYTES, self.data.abort))

    def _reader(self, stream: str) -> LineReader:
        return LineReader(lambda text: self._on_print(stream, text))

    # -- requests in ---------------------------------------------------------------------------

    def room(self) -> int:
        """Batches it can take now (see `scheduler.Worker`)."""
        if self.state != "ready":
            return 0
        waiting = len(self.batches)
        if self.debugger is not None:
            # Nothing may wait in a process that a debugger can stop.
            return 0 if self.debugger.reserved else self.steered_room()
        if not waiting:
            return FULL_ROOM if self.permit is None or self.permit.ask() else 0
        if self._mean_execute > PREFETCH_BELOW_NS or not self.model.may_prefetch:
            return 0
        return PREFETCH - waiting if self.executes > PREFETCH else 0

    def steered_room(self) -> int:
        """The same for a request that is meant for this instance."""
        if self.state != "ready" or self.batches:
            return 0
        return FULL_ROOM if self.permit is None or self.permit.ask() else 0

    def execute(self, requests: list[Request], reason: int = ONE_BY_ONE) -> None:
        """Send a batch. A request whose tensors find no shared memory is refused alone."""
        now = time.monotonic_ns()
        number = self.executes = self.executes + 1
        parts: list[ReadableBuffer] = [b""]
        sent = []
        for request in requests:
            try:
                tensors = [
                    buffer
                    if type(buffer) is not SharedPlace and len(buffer) <= messages.INLINE_LIMIT  # type: ignore[arg-type]
                    else self._place(request, buffer)
                    for buffer in request.buffers
                ]
            except SharedMemoryError as problem:
                self.model.refuse(request, InferError(problem.message, Code.INTERNAL), "OTHER")
                continue
            description = request.description
            slot = self._plans.get(description)
            if slot is None:
                slot = self._announce(description)
            request.times.compute_start = now
            request.owner = self
            self.pending[request.sequence] = request
            messages.append_request(
                parts,
                request.sequence,
                slot,
                request.id,
                _extra(request),
                tensors,  # type: ignore[arg-type]
            )
            sent.append(request)
        if not sent:
            return
        if self.permit is not None:
            self.permit.take()
        parts[0] = messages.execute_head(number, len(sent))
        batch = Batch(number, sent, now, reason)
        self.batches.append(batch)
        if self._mean_execute < MOMENT_NS and self.model.spinner is not None:
            batch.awaited = True
            self.model.spinner.wait(now)
        self._send(messages.frame(messages.EXECUTE, *parts))

    def _announce(self, description: Description) -> int:
        """Tell the stub what `description` is; the oldest slot is taken when all are in use."""
        if len(self._plans) < PLAN_SLOTS:
            slot = len(self._plans)
        else:
            _, slot = self._plans.popitem(last=False)
        plan = messages.Plan(
            tuple((spec.name, spec.datatype, spec.shape) for spec in description.inputs),
            self._wanted(description),
            _parameters_text(description.parameters),
        )
        self._send(messages.plan_frame(slot, plan))
        self._plans[description] = slot
        return slot

    def _wanted(self, description: Description) -> tuple[str, ...]:
        if NullRequest in description.memo:
            return ()
        return description.outputs or tuple(self.model.outputs)

    def _place(self, request: Request, buffer: Any) -> messages.Place:
        """Where `buffer` lies in shared memory, copying it there if it does not yet."""
        if type(buffer) is SharedPlace:
            region, offset, size = buffer.region, buffer.offset, buffer.size
            if buffer.block is None:
                region.require(offset, size)
        else:
            slab = self.model.request_slab()
            block = slab.allocate(len(buffer), f"{self.model.name} request {request.sequence}")
            request.blocks.append(block)
            block.view()[:] = buffer
            region, offset, size = slab, block.offset, len(buffer)
        slot = self._regions.get(region)
        if slot is None:
            slot = self._regions[region] = self._slot()
            self._places[slot] = region
            fixed = region.size if region.offset else None
            self._send(messages.region_frame(slot, str(region.path), region.offset, fixed))
        return messages.Place(slot, offset, size)

    def _slot(self) -> int:
        """A number for one more region: one that is not used any more, or the next."""
        if not self.pending:  # an answer may still name a place in it
            for region, slot in self._regions.items():
                if region.closed:
                    del self._regions[region]
                    return slot
        return len(self._regions) + messages.OWN_RESPONSE_SLAB + 1

    def _send(self, data: ReadableBuffer) -> None:
        """Write at the end of this turn of the loop: what one turn brings costs one system call."""
        self._outbox.append(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._releases:
            self._outbox.insert(0, messages.sequences_frame(messages.RELEASE, self._releases))
            self._releases = []
        outbox, self._outbox = self._outbox, []
        self.data.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))

    def _release_response(self, offset: int) -> None:
        self._releases.append(offset)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    # -- answers out ---------------------------------------------------------------------------

    def _on_data(self, kind: int, payload: memoryview) -> None:
        if kind == messages.RESULT:
            self._on_result(messages.parse_result(payload, self._signatures))
        elif kind == messages.RESPONSES:
            for wire in messages.parse_responses(payload, self._signatures):
                self._deliver(wire)
        elif kind == messages.SIGNATURE:
            slot, signature = messages.parse_signature(payload)
            self._signatures[slot] = OutputSignature(
                tuple(TensorSpec(*output) for output in signature.outputs)
            )
        elif kind == messages.FAILURE:
            self._on_failure(messages.parse_json(payload))
        elif kind == messages.REGION:
            self.announced(payload)
        elif kind == messages.SPANS:
            self._on_spans(messages.parse_json(payload))
        elif kind == messages.PROBE:
            if self._taps.probes:
                self._on_probe(*messages.parse_probe(payload))
        elif kind == messages.HOLD:
            for number in messages.parse_sequences(payload):
                if number in self.pending:
                    self.pending[number].held = True
        elif kind == messages.DROP:
            for number in messages.parse_sequences(payload):
                self._held_over(number)
        elif kind in (messages.READY, messages.FAILED):
            answer = messages.parse_json(payload)
            answer["ok"] = kind == messages.READY
            if not self.loaded.done():
                self.loaded.set_result(answer)
        elif kind == messages.FINALIZED:
            self._finalized.set()

    def _on_probe(self, described: dict[str, Any], data: memoryview) -> None:
        """The model shows a tensor: for one request, or for the batch that begins with it."""
        first = self.pending.get(described["request"])
        if first is None:
            return
        requests = [first]
        if described["batch"]:
            for batch in self.batches:
                if batch.requests[0] is first:
                    requests = batch.requests
        Taps.emit(self._taps.probes, requests, described, bytes(data))

    def _on_result(self, result: messages.Result) -> None:
        batch = self._take_batch(result.batch)
        # Where it stood in a debugger, every clock of it was moved on by that time.
        batch.started, batch.ended = result.started + batch.stood, result.ended
        infer = batch.ended - batch.started
        self._mean_execute += (infer - self._mean_execute) / 16
        for wire in result.responses:
            self._deliver(wire, ending=True)
        requests = batch.requests
        counters, tally = self.model.counters, self.tally
        if self.model.sequences is not None:
            # Empty slots are part of the batch's size, but no inference of anybody's.
            requests = [request for request in requests if type(request) is not NullRequest]
            counters.inference_count -= len(batch.requests) - len(requests)
            tally.inferences -= len(batch.requests) - len(requests)
        tally.executions += 1
        counters.executed(requests, batch.size, batch.started, batch.ended, tally)
        self._over(batch)

    def _on_spans(self, rows: list[Any]) -> None:
        """What the model marked itself in traced requests, `row[0]`; before their last answer."""
        for sequences, *row in rows:
            for number in sequences:
                request = self.pending.get(number)
                if request is not None and request.trace is not None:
                    request.trace.add_spans([row])

    def _take_batch(self, number: int) -> Batch:
        # The stub runs batches in the order it got them.
        batch = self.batches.popleft()
        if batch.awaited and self.model.spinner is not None:
            self.model.spinner.got()
        if batch.number != number:
            raise RuntimeError(f"{self.name} ended batch {number}, expected {batch.number}")
        return batch

    def _over(self, batch: Batch) -> None:
        self.model.counters.closed(batch.reason, batch.size)
        if self.model.watchers:
            Taps.emit(self.model.watchers, self.model, self, batch)
        if self._taps.batches:
            Taps.emit(self._taps.batches, self.model, self, batch)
        if self.model.sequences is not None:
            self.model.sequences.over(self, batch.requests)
        if self.permit is not None:
            self.permit.give_back()
        if self.model.scheduler.queue or self.model.scheduler.steered:
            self.model.scheduler.dispatch()
        self.model.idle_check()

    def _deliver(self, wire: messages.WireResponse, *, ending: bool = False) -> None:
        request = self.pending.get(wire.sequence)
        if request is None:
            self._drop_places(wire)
            return
        if wire.kind == messages.NOTHING and not wire.flags & messages.FINAL:
            if wire.flags & messages.RESCHEDULE:
                self._reschedule(request)
            return  # a None in the list: the model means to answer by its sender, or never
        final = bool(wire.flags & messages.FINAL)
        response = self._response(request, wire, final)
        if final:
            self._finish(request)
        if request.cancelled and request.done:
            response.release()
            if request.trace is not None:
                request.trace.ended("cancelled")
            return
        if self._taps.responses:  # first: a front end gives the memory back once it has written
            Taps.emit(self._taps.responses, request, response)
        request.on_response(response)

    def _reschedule(self, request: Request) -> None:
        """The model released `request` to get it again; see `sequence` for when it does."""
        sequences = self.model.sequences
        if sequences is not None and sequences.reschedule(request):
            if not request.held:
                _free_copies(request)
            return
        self._warn(
            "reschedule",
            "a request was released for rescheduling, but its model is no iterative sequence or "
            "the request ended its sequence: it is never answered",
        )

    def _warn(self, rule: str, message: str, line: str = "") -> None:
        """A contract warning, at the line of the model's `execute` where none is known better."""
        event = WarningEvent(self.model.name, self.name, rule, message, line or self.execute_line)
        log.warning("%s: %s (%s)", self.name, event.message, event.line or event.rule)
        Taps.emit(self._taps.warnings, event)

    def _response(self, request: Request, wire: messages.WireResponse, final: bool) -> Response:
        model = self.model
        response = Response(request, model.name, model.version_text, final=final)
        if wire.parameters:
            response.parameters = json.loads(wire.parameters)
        if wire.kind == messages.ERROR:
            response.error = InferError(wire.error, Code(wire.code), model=model.name)
            model.counters.error_responses += 1
        elif wire.kind == messages.NOTHING:
            response.empty = True
        else:
            self._fill(response, request, wire)
        return response

    def _fill(self, response: Response, request: Request, wire: messages.WireResponse) -> None:
        signature = self._signatures[wire.signature]
        wanted = request.description.outputs
        if request.learning and not self.model.outputs:
            wanted = LEARNING
        kept = signature.memo.get(wanted)
        if kept is None:
            kept = signature.memo[wanted] = (
                *self._select(signature, wanted),
                self.judge.verdict(signature, wanted),
            )
        response.signature, indexes, verdict = kept
        if verdict is not judging.FINE and self._refused(response, request, signature, verdict):
            self._drop_places(wire)
            return
        tensors = wire.tensors
        for tensor in tensors:
            if type(tensor) is messages.Place:
                try:
                    self._resolve(response, request, tensors)
                except SharedMemoryError as problem:  # a client's region is not what it was
                    self._drop_places(wire)
                    response.buffers = []
                    response.error = InferError(problem.message, Code.INTERNAL)
                    return
                break
        else:
            response.buffers = tensors  # type: ignore[assignment]  # all inline
        if indexes is not None:
            response.buffers = [response.buffers[index] for index in indexes]

    def _refused(
        self, response: Response, request: Request, signature: OutputSignature, verdict: Verdict
    ) -> bool:
        """Whether a response unlike the config is an error; it is one in strict mode."""
        if type(request) is NullRequest:
            return False
        text = verdict.error
        if verdict.rows is not None and verdict.rows != request.batch_size:
            more = self.judge.wrong_rows(signature, request.batch_size)
            text = "; ".join(filter(None, (text, more)))
        if not text:
            return False
        place = f" ({self.execute_line})" if self.execute_line else ""
        response.error = InferError(f"strict mode: {text}{place}", Code.INTERNAL)
        response.signature = NO_OUTPUTS
        self.model.counters.error_responses += 1
        return True

    def _select(
        self, signature: OutputSignature, wanted: tuple[str, ...]
    ) -> tuple[OutputSignature, list[int] | None]:
        """The outputs a client gets: declared in the config and, if it named any, asked for."""
        declared = self.model.outputs
        if wanted is LEARNING:
            return OutputSignature(signature.outputs), None
        indexes = [
            index
            for index, spec in enumerate(signature.outputs)
            if spec.name in declared and (not wanted or spec.name in wanted)
        ]
        if len(indexes) == len(signature.outputs):
            return OutputSignature(signature.outputs), None
        return OutputSignature(tuple(signature.outputs[index] for index in indexes)), indexes

    def _resolve(
        self, response: Response, request: Request, tensors: list[messages.Tensor]
    ) -> None:
        """Turn places into views, and see that their memory outlives the reply."""
        own, borrowed = [], False
        for tensor in tensors:
            if type(tensor) is messages.Place:
                view = self._places[tensor.region].view(tensor.offset, tensor.size)
                response.buffers.append(view)
                if tensor.region == messages.OWN_RESPONSE_SLAB:
                    own.append(tensor.offset)
                else:
                    borrowed = True
            else:
                response.buffers.append(tensor)  # type: ignore[arg-type]
        blocks = [block.retain() for block in request.blocks] if borrowed else []

        def release() -> None:
            for offset in own:
                self._release_response(offset)
            for block in blocks:
                block.release()

        response.on_release = release

    def _drop_places(self, wire: messages.WireResponse) -> None:
        for tensor in wire.tensors:
            if type(tensor) is messages.Place and tensor.region == messages.OWN_RESPONSE_SLAB:
                self._release_response(tensor.offset)

    def _finish(self, request: Request) -> None:
        """The last response is here: forget the request, give its memory back unless held."""
        request.done = True
        request.owner = None
        if not request.held:
            del self.pending[request.sequence]
            _free(request)
        if self.debugger is not None:
            self._loop.call_soon(self.debugger.on_answer)
        self.model.finished(request)

    def _held_over(self, number: int) -> None:
        request = self.pending.get(number)
        if request is not None:
            request.held = False
            if request.done:
                del self.pending[number]
                _free(request)

    def _on_failure(self, failure: dict[str, Any]) -> None:
        """`execute` raised, or returned what it may not: the whole batch fails alike."""
        batch = self._take_batch(failure["batch"])
        batch.failed = True
        batch.started, batch.ended = failure["started"] + batch.stood, failure["ended"]
        self.tally.executions += 1
        self.tally.failed += len(batch.requests)
        self.tally.busy_ns += batch.ended - batch.started
        error = checks.execute_failed(self.name, failure["error"])
        model = self.model
        model.counters.raised(batch.size, batch.sent + batch.stood, batch.started, batch.ended)
        if self._taps.failures:
            identities = tuple(request.id for request in batch.requests)
            event = FailureEvent(
                model.name, model.version_text, self.name, identities, failure["error"],
                failure.get("traceback", ""), failure.get("line", ""),
                tuple(failure.get("frames", ())), tuple(batch.requests), self,
            )  # fmt: skip
            Taps.emit(self._taps.failures, event)
        for request in batch.requests:
            if not request.done:
                self.fail(request, error, "BACKEND")
        self._over(batch)

    def fail(self, request: Request, error: InferError, reason: str) -> None:
        """Answer one request of this instance with an error of the runtime's own."""
        self._finish(request)
        if type(request) is not NullRequest:
            self.model.refuse(request, error, reason)

    def announced(self, payload: memoryview) -> None:
        """The stub has made its response slab; it says so on each socket that names it."""
        if self._responses_region is None:
            _, (path, offset, size) = messages.parse_slot(payload)
            self._responses_region = Region(Path(path), offset=offset, size=size)
            self._places[messages.OWN_RESPONSE_SLAB] = self._responses_region

    @property
    def response_memory(self) -> Region | None:
        """Its response slab, None while it has made none."""
        return self._responses_region

    def region(self, slot: int) -> Region:
        """The region that the stub names `slot`: its response slab, or one announced to it."""
        return self._places[slot]

    # -- cancellation --------------------------------------------------------------------------

    def cancel(self, request: Request) -> None:
        """Tell the stub that nobody waits for `request` any more; `execute` may ask and stop."""
        if self._taps.cancels:
            Taps.emit(self._taps.cancels, request, self.name)
        self.send_control({"op": "cancel", "sequences": [request.sequence]})

    def abandon(self, request: Request) -> None:
        """Forget a request that the model will never answer and whose client has gone."""
        if request.sequence in self.pending and not request.done:
            self._finish(request)

    async def is_ready(self) -> bool:
        """What the model's own `is_ready` says: False when it raises, takes longer than
        READY_SECONDS, or returns no bool. Who asks while it is being asked waits for that answer.
        """
        if self.state != "ready":
            return False
        if not self.asks_ready or (self.debugger is not None and self.debugger.stands_since):
            return True
        if self._opinion is None:
            self._opinion = self._loop.create_task(self.call("ready", timeout=READY_SECONDS + 60))
            self._opinion.add_done_callback(self._forget_opinion)
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._opinion), READY_SECONDS)
        except TimeoutError:
            log.warning("%s: is_ready has not answered within %g s", self.name, READY_SECONDS)
            return False
        if "error" in answer:
            log.warning("%s: is_ready failed: %s", self.name, answer["error"])
            return False
        return bool(answer["ready"])

    def _forget_opinion(self, task: asyncio.Task[Any]) -> None:
        self._opinion = None
        if not task.cancelled():
            task.exception()  # a stub that ended meanwhile; whoever asked has been told

    # -- control, prints, death ----------------------------------------------------------------

    def send_control(self, message: dict[str, Any]) -> None:
        self.control.write(messages.json_frame(messages.CONTROL, message))

    async def call(self, op: str, timeout: float = 10.0, **arguments: Any) -> Any:
        """A control call with an answer, served even while `execute` runs or is stopped."""
        number = len(self._calls) + int(time.monotonic_ns() % 1_000_000) * 1000
        future = self._calls[number] = self._loop.create_future()
        self.send_control({"op": op, "call": number, **arguments})
        try:
            return await asyncio.wait_for(future, timeout)
        finally:
            del self._calls[number]

    def _on_control(self, kind: int, payload: memoryview) -> None:
        message = messages.parse_json(payload)
        op = message["op"]
        if op == "log":
            self._log(
                message["level"], message["message"], message.get("file", ""),
                int(message.get("line", 0)),
            )  # fmt: skip
        elif op == "warning":
            self._warn(message["rule"], message["message"], message.get("line", ""))
        elif op == "reply":
            future = self._calls.get(message["call"])
            if future is not None and not future.done():
                future.set_result(message)
        else:
            self.model.on_control(self, message)

    def _on_bls(self, kind: int, payload: memoryview) -> None:
        self.model.on_bls(self, kind, payload)

    def _log(self, stream: str, text: str, file: str = "", line: int = 0) -> None:
        event = LogEvent(
            self.model.name, self.model.version_text, self.name, self.pid, stream, text, file, line
        )
        Taps.emit(self._taps.logs, event)

    def say(self, stream: str, text: str) -> None:
        """A line about it for the log, of whoever looks after it."""
        self._log(stream, text)

    def _on_print(self, stream: str, text: str) -> None:
        if stream == "stderr":
            self.last_words.append(text)
        self._log(stream, text)

    def _on_data_end(self) -> None:
        """The stub's data socket is closed: it ended as asked, or it died."""
        died = self.state in ("starting", "ready")
        self.state = "dead"
        if not self.loaded.done():
            self.loaded.set_result({"ok": False, "died": True})
        if died:
            self.process.kill()  # a stub that closed its socket but lives on is of no use
        self._on_end(self)
        self._loop.create_task(self._clean_up())

    async def _clean_up(self) -> None:
        """Let the last prints arrive, reap the process, and give all its memory back."""
        await self.process.wait(2.0)
        await asyncio.sleep(0)
        for link in (self.control, self.bls):
            link.close()
        for pipe in self._pipes:
            pipe.close()
        for request in list(self.pending.values()):
            if request.done:
                _free(request)
        self.pending.clear()
        if self._responses_region is not None:
            self._responses_region.close()
        region_path(self.model.response_slab_name(self.name)).unlink(missing_ok=True)
        if self.model.bls is not None:
            self.model.bls.ended(self)
        if self.model.custom_metrics is not None:
            self.model.custom_metrics.ended(self)
        for _ in range(3):  # a transport closes in the loop's next turns
            await asyncio.sleep(0)
        self.ended.set()

    def begun_and_waiting(self) -> tuple[list[Request], list[Request]]:
        """After a death: the requests of the batch that ran, and those it never began."""
        begun = list(self.batches[0].requests) if self.batches else []
        waiting = [request for batch in list(self.batches)[1:] for request in batch.requests]
        for batch in self.batches:
            if batch.awaited and self.model.spinner is not None:
                self.model.spinner.got()
        self.batches.clear()
        known = {request.sequence for request in (*begun, *waiting)}
        begun += [
            request
            for request in self.pending.values()
            # One that waits to be run again is its scheduler's.
            if not request.done and request.owner is self and request.sequence not in known
        ]
        for request in waiting:
            self.pending.pop(request.sequence, None)
            _free_copies(request)
        return [request for request in begun if not request.done], waiting

    async def stop(self, seconds: float) -> None:
        """Finalize and end the process; kill it when it takes longer than `seconds`."""
        if self.state in ("ready", "starting"):
            self.state = "stopping"
            self._send(messages.frame(messages.FINALIZE))
            try:
                await asyncio.wait_for(self.ended.wait(), seconds)
                return
            except TimeoutError:
                log.warning("%s did not finalize within %.0f s and was killed", self.name, seconds)
        self.process.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), 5.0)


def _free(request: Request) -> None:
    blocks, request.blocks = request.blocks, []
    for block in blocks:
        block.release()


def _free_copies(request: Request) -> None:
    """Give back the blocks that a dead instance's tensors were copied to; originals are here."""
    in_use = {buffer.block for buffer in request.buffers if type(buffer) is SharedPlace}
    kept: list[Block] = []
    for block in request.blocks:
        if block in in_use:
            kept.append(block)
        else:
            block.release()
    request.blocks = kept


def _extra(request: Request) -> dict[str, Any] | None:
    sequenced = request.correlation_id or request.flags
    if not (sequenced or request.timeout or request.priority or request.cancelled):
        return None if request.trace is None else messages.TRACED
    extra: dict[str, Any] = {"cancelled": True} if request.cancelled else {}
    if request.trace is not None:
        extra["traced"] = True
    if request.correlation_id:
        extra["correlation_id"] = request.correlation_id
    if request.flags:
        extra["flags"] = request.flags
    if request.timeout:
        extra["timeout"] = request.timeout
    if request.priority:
        extra["priority"] = request.priority
    return extra


def _parameters_text(parameters: dict[str, Any]) -> str:
    return json.dumps(parameters, separators=(",", ":"), ensure_ascii=False) if parameters else ""
