"""The counters of the statistics extension, kept where the events happen.

They are part of the server's contract (perf_analyzer fails unless they advance), so the core keeps
them and every observer reads these; nobody measures the same thing twice.
Durations are nanoseconds, as the extension defines them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devkit.core.request import Request


@dataclass(slots=True)
class Duration:
    """How often, and how long in all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


@dataclass(slots=True)
class BatchCounters:
    """Of all executions with one batch size."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(slots=True)
class Tally:
    """What one instance has done since it was started; the same terms as `Counters`."""

    inferences: int = 0
    executions: int = 0
    requests: int = 0
    failed: int = 0
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    busy_ns: int = 0


@dataclass(slots=True)
class Counters:
    """Statistics of one model version since it was loaded."""

    inference_count: int = 0
    execution_count: int = 0
    last_inference: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    batches: dict[int, BatchCounters] = field(default_factory=dict)
    reasons: dict[int, list[int]] = field(default_factory=dict)
    """Why batches closed: executions and the sum of their sizes, by the scheduler's number."""
    failures: dict[str, int] = field(
        default_factory=lambda: {"OTHER": 0, "BACKEND": 0, "CANCELED": 0, "REJECTED": 0}
    )
    error_responses: int = 0
    pending: int = 0

    def executed(
        self,
        requests: list[Request],
        size: int,
        started: int,
        ended: int,
        tally: Tally | None = None,
    ) -> None:
        """Count a batch that an instance answered; each request's times are complete."""
        now = time.monotonic_ns()
        self.execution_count += 1
        self.inference_count += size
        self.last_inference = time.time_ns() // 1_000_000
        infer = ended - started
        batch = self.batches.get(size)
        if batch is None:
            batch = self.batches[size] = BatchCounters()
        waiting = putting = whole = 0
        for request in requests:
            times = request.times
            times.compute_input_end = started
            times.compute_output_start = ended
            times.compute_end = times.request_end = now
            waiting += times.compute_start - times.queue_start
            putting += started - times.compute_start
            whole += now - times.request_start
        count = len(requests)
        taking = now - ended
        self.success.count += count
        self.success.ns += whole
        self.queue.count += count
        self.queue.ns += waiting
        self.compute_input.count += count
        self.compute_input.ns += putting
        self.compute_infer.count += count
        self.compute_infer.ns += infer * count
        self.compute_output.count += count
        self.compute_output.ns += taking * count
        batch.compute_input.add(putting // (count or 1))
        batch.compute_infer.add(infer)
        batch.compute_output.add(taking)
        if tally is not None:
            tally.inferences += size
            tally.requests += count
            tally.queue_ns += waiting
            tally.input_ns += putting
            tally.infer_ns += infer * count
            tally.output_ns += taking * count
            tally.busy_ns += infer

    def closed(self, reason: int, size: int) -> None:
        """Count why a batch closed."""
        row = self.reasons.get(reason)
        if row is None:
            row = self.reasons[reason] = [0, 0]
        row[0] += 1
        row[1] += size

    def raised(self, size: int, sent: int, started: int, ended: int) -> None:
        """Count an `execute` that failed: among the executions and batches, not the inferences."""
        self.execution_count += 1
        batch = self.batches.get(size)
        if batch is None:
            batch = self.batches[size] = BatchCounters()
        batch.compute_input.add(started - sent)
        batch.compute_infer.add(ended - started)
        batch.compute_output.add(time.monotonic_ns() - ended)

    def failed(self, request: Request, reason: str) -> None:
        """Count a request that got no answer from the model; see `failures` for the reasons."""
        self.fail.add(time.monotonic_ns() - request.times.request_start)
        self.failures[reason] = self.failures.get(reason, 0) + 1


def to_message(name: str, version: str, counters: Counters) -> Any:
    """The statistics extension's `ModelStatistics` message of `counters`."""
    from tritonclient.grpc import service_pb2  # brings grpc: only where a front end asked

    message = service_pb2.ModelStatistics(
        name=name,
        version=version,
        last_inference=counters.last_inference,
        inference_count=counters.inference_count,
        execution_count=counters.execution_count,
    )
    kinds = (
        "success", "fail", "queue", "compute_input", "compute_infer", "compute_output",
        "cache_hit", "cache_miss",
    )  # fmt: skip
    for kind in kinds:
        _set(getattr(message.inference_stats, kind), getattr(counters, kind))
    for size in sorted(counters.batches):
        row = message.batch_stats.add(batch_size=size)
        for kind in ("compute_input", "compute_infer", "compute_output"):
            _set(getattr(row, kind), getattr(counters.batches[size], kind))
    return message


def _set(message: Any, duration: Duration) -> None:
    message.count, message.ns = duration.count, duration.ns
