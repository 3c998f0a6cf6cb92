"""What a trace holds, and how it becomes a timeline: requests, their phases, the model's own spans.

A `Trace` is one request of one model; the requests it caused (BLS calls, ensemble steps) are traces
of their own that name it as their parent. Times are CLOCK_MONOTONIC nanoseconds, which every
process of a machine shares; 0 where that point was never reached. Recording is `observe.traces`'
business, files are `contract.trace_forms`', words `contract.trace_words`'. Pure, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

QUEUE_INPUT = "TENSOR_QUEUE_INPUT"
BACKEND_OUTPUT = "TENSOR_BACKEND_OUTPUT"


@dataclass(frozen=True, slots=True)
class OwnSpan:
    """A part of `execute` that the model marked with `devkit.span`; `thread` is the system's id."""

    name: str
    start: int
    end: int
    thread: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """A tensor as the level TENSORS keeps it: its values as text, separated by commas."""

    activity: str
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: str


@dataclass(slots=True)
class Trace:
    """One traced request.

    Attributes:
        parent: id of the trace it was caused by, 0 for a client's own request.
        protocol: `HTTP`, `GRPC` or `LOCAL`; `BLS` or `ENSEMBLE` for a caused one.
        handed_on: of a BLS call, whether the model gave it its own request's trace. The real server
            traces only those.
        instance, pid, batch, batch_size: who executed it, in which of its batches, with how many
            requests; empty for an ensemble.
        receive_start, receive_end, send_start, send_end: of the front end.
        complete: when the last response was there; `responses` are the times of each.
        waiting, busy, instances: when it came: requests in the queue, busy instances, all of them.
        delay: microseconds the batcher may wait for a fuller batch.
    """

    id: int
    model: str
    version: str
    request_id: str = ""
    parent: int = 0
    protocol: str = ""
    handed_on: bool = True
    instance: str = ""
    pid: int = 0
    batch: int = 0
    batch_size: int = 1
    receive_start: int = 0
    receive_end: int = 0
    request_start: int = 0
    queue_start: int = 0
    compute_start: int = 0
    compute_input_end: int = 0
    compute_output_start: int = 0
    compute_end: int = 0
    request_end: int = 0
    complete: int = 0
    send_start: int = 0
    send_end: int = 0
    waiting: int = 0
    busy: int = 0
    instances: int = 0
    delay: int = 0
    error: str = ""
    responses: tuple[int, ...] = ()
    spans: tuple[OwnSpan, ...] = ()
    tensors: tuple[TracedTensor, ...] = ()

    @property
    def start(self) -> int:
        """The first thing known of it."""
        return self.receive_start or self.request_start

    @property
    def end(self) -> int:
        """The last thing known of it."""
        return max(self.start, self.send_end, self.request_end, self.complete)

    @property
    def executed(self) -> bool:
        """Whether an instance ran it."""
        return bool(self.pid and self.compute_output_start)


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of the timeline.

    Attributes:
        kind: `request`, a phase of it (`receive`, `queue`, `input`, `infer`, `output` or
            `stream`, `send`), `execute` (a batch, in the instance's process) or `own` (the
            model's).
        lane: spans of one lane of one process lie inside each other or apart, and never overlap.
        trace, parent: id of the trace it belongs to, and of the trace that one was caused by.
    """

    name: str
    kind: str
    start: int
    end: int
    pid: int
    process: str
    lane: int
    lane_name: str
    trace: int
    parent: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e6


def phases(trace: Trace) -> list[tuple[str, int, int]]:
    """(name, start, end) of what a request went through, in order.

    Where responses were sent before the last was there, all that follows `execute` is `stream`.
    """
    found = []
    streamed = bool(trace.send_start and trace.send_start < trace.complete)

    def phase(name: str, start: int, end: int) -> None:
        if start and end >= start:
            found.append((name, start, end))

    phase("receive", trace.receive_start, trace.receive_end)
    if trace.executed:
        phase("queue", trace.queue_start, trace.compute_start)
        phase("input", trace.compute_start, trace.compute_input_end)
        phase("infer", trace.compute_input_end, trace.compute_output_start)
        name = "stream" if streamed else "output"
        phase(name, trace.compute_output_start, trace.compute_end)
    elif trace.compute_start and trace.pid:
        phase("queue", trace.queue_start, trace.compute_start)
    elif trace.instances:  # refused, or taken back, while it waited
        phase("queue", trace.queue_start, trace.complete)
    if not streamed:
        phase("send", trace.send_start, trace.send_end)
    return found


def families(traces: Iterable[Trace]) -> list[list[Trace]]:
    """The traces by the client's request that they belong to, each before those it caused."""
    known: dict[int, list[Trace]] = {}
    roots = []
    everything = sorted(traces, key=lambda one: one.id)
    ids = {one.id for one in everything}
    for one in everything:
        if one.parent in ids:
            known.setdefault(one.parent, []).append(one)
        else:
            roots.append(one)

    def below(one: Trace) -> Iterator[Trace]:
        yield one
        for child in known.get(one.id, ()):
            yield from below(child)

    return [list(below(root)) for root in roots]


class _Lanes:
    """Gives each span the first lane that is free from its start on."""

    def __init__(self) -> None:
        self._free: list[int] = []

    def take(self, start: int, end: int) -> int:
        for lane, free in enumerate(self._free):
            if free <= start:
                self._free[lane] = end
                return lane
        self._free.append(end)
        return len(self._free) - 1


def timeline(traces: Sequence[Trace], runtime: int) -> list[Span]:
    """Every span of `traces`, by process and lane, ordered by start; `runtime` is its pid."""
    spans: list[Span] = []
    lanes = _Lanes()
    for one in sorted(traces, key=lambda each: each.start):
        lane = lanes.take(one.start, one.end)
        spans += _of_request(one, runtime, lane)
    spans += _of_instances(traces)
    spans.sort(key=lambda span: (span.start, -span.end))
    return spans


def _of_request(one: Trace, runtime: int, lane: int) -> Iterator[Span]:
    named = f"{one.model} {one.request_id}".rstrip()
    about: dict[str, Any] = {"model": one.model, "version": one.version}
    for key in ("request_id", "protocol", "instance", "error"):
        if getattr(one, key):
            about[key] = getattr(one, key)
    common = (runtime, "runtime", lane, f"requests {lane + 1}", one.id, one.parent)
    yield Span(named, "request", one.start, one.end, *common, about)
    for name, start, end in phases(one):
        yield Span(name, name, start, end, *common)


def _of_instances(traces: Sequence[Trace]) -> Iterator[Span]:
    seen: set[tuple[Any, ...]] = set()
    for one in traces:
        if not one.pid:
            continue
        batch = (one.pid, one.batch)
        common = (one.id, one.parent)
        if one.executed and batch not in seen:
            seen.add(batch)
            name = "execute" if one.batch_size == 1 else f"execute ({one.batch_size} requests)"
            about = {"model": one.model, "batch": one.batch, "requests": one.batch_size}
            yield Span(
                name, "execute", one.compute_input_end, one.compute_output_start, one.pid,
                one.instance, one.pid, "execute", *common, about,
            )  # fmt: skip
        for own in one.spans:
            key = (one.pid, own.thread, own.start, own.end, own.name)
            if key in seen:  # of a batch: every request of it has the span
                continue
            seen.add(key)
            thread = own.thread or one.pid
            lane = "execute" if thread == one.pid else f"thread {thread}"
            yield Span(
                own.name, "own", own.start, own.end, one.pid, one.instance, thread, lane,
                *common, own.attributes,
            )  # fmt: skip
