"""What happened and why, in words: why a batch closed, and what a load did and waits for.

Words and a bounded journal of loads, swaps and unloads, made from the taps. Pure where it can be;
nothing here changes anything, and nothing here knows who reads it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from devkit.core import scheduler
from devkit.core.repository import DRAINED

if TYPE_CHECKING:
    from devkit.core.model import Model
    from devkit.core.taps import InstanceEvent, ModelEvent, StageEvent, Taps

REASONS = {
    scheduler.ONE_BY_ONE: "one-by-one",
    scheduler.FULL: "full",
    scheduler.PREFERRED: "preferred-size",
    scheduler.DELAYED: "delay-over",
    scheduler.NOTHING_MORE: "nothing-more",
    scheduler.TOO_LARGE: "too-large",
    scheduler.OTHER_SHAPE: "other-shape",
    scheduler.SLOTS: "sequence-slots",
    scheduler.SLOTS_DELAYED: "sequence-delay-over",
}
"""Stable names of why a batch closed."""


def why(reason: int, model: Model) -> str:
    """Why a batch of `model` closed, as the end of the sentence "it closed because ..."."""
    config = model.config
    if reason == scheduler.ONE_BY_ONE:
        if model.max_batch_size:
            return (
                "requests run one by one: no dynamic_batching in the config, so max_batch_size "
                f"{model.max_batch_size} only bounds the batch that one request may bring"
            )
        return "requests run one by one: max_batch_size is 0, the model takes no batches"
    if reason == scheduler.FULL:
        return f"it is full: max_batch_size is {model.max_batch_size}"
    if reason == scheduler.PREFERRED:
        sizes = ", ".join(map(str, _batching(config).preferred_batch_size))
        return f"it has a preferred size ({sizes})"
    if reason == scheduler.DELAYED:
        delay = _batching(config).max_queue_delay_microseconds
        return f"its oldest request had waited max_queue_delay_microseconds ({delay})"
    if reason == scheduler.NOTHING_MORE:
        return "an instance was free, nothing else waited, and no queue delay is set"
    if reason == scheduler.TOO_LARGE:
        return f"the next request would not have fitted into max_batch_size {model.max_batch_size}"
    if reason == scheduler.OTHER_SHAPE:
        return "the next request has other shapes or inputs, and the inputs are not ragged"
    if reason == scheduler.SLOTS:
        return "it holds the next request of every sequence on the instance that had one"
    return "too few sequences had a request, and max_queue_delay_microseconds was over"


def _batching(config: Any) -> Any:
    """The part of a config that says when its batches close."""
    choice = config.WhichOneof("scheduling_choice")
    if choice == "dynamic_batching":
        return config.dynamic_batching
    sequence = config.sequence_batching
    return sequence.oldest if sequence.HasField("oldest") else sequence.direct


def advice(model: Model) -> list[str]:
    """What would change how requests become batches, a sentence each; of a model that ran."""
    steps = model.config.ensemble_scheduling.step
    if steps:
        names = ", ".join(dict.fromkeys(step.model_name for step in steps))
        return [f"An ensemble executes nothing itself: ask for the batches of its steps, {names}."]
    by_reason = {reason: count for reason, (count, _) in model.counters.reasons.items()}
    total = sum(by_reason.values())
    if not total:
        return []
    mean = sum(size for _, size in model.counters.reasons.values()) / total
    found = []
    if by_reason.get(scheduler.ONE_BY_ONE, 0) == total and model.max_batch_size > 1:
        found.append(
            "Add `dynamic_batching { }` to config.pbtxt to have requests share an execute; the "
            "Python backend never batches without it."
        )
    lone = by_reason.get(scheduler.NOTHING_MORE, 0)
    if lone > total / 2 and mean < 2:
        found.append(
            "Batches stay small because requests come one at a time: let clients send at once, or "
            "set max_queue_delay_microseconds to wait for more."
        )
    if by_reason.get(scheduler.OTHER_SHAPE, 0) > total / 4:
        found.append(
            "Requests of different shapes cannot share a batch: pad them in the client, or set "
            "allow_ragged_batch on the inputs and a batch_input for their lengths."
        )
    if by_reason.get(scheduler.DELAYED, 0) > total / 2 and mean < 2:
        found.append(
            "Most batches waited the whole queue delay for one request: the delay only adds "
            "latency at this load."
        )
    return found


# --- loads, swaps and unloads -------------------------------------------------------------------


@dataclass(slots=True)
class Operation:
    """A load, swap, unload or restart. Times are seconds; `began` is of the monotonic clock."""

    model: str
    kind: str
    cause: str
    time: float
    began: float
    version: str = ""
    state: str = "running"
    seconds: float = 0.0
    stages: list[tuple[str, float]] = field(default_factory=list)  # name, when it began
    starting: dict[str, float] = field(default_factory=dict)  # instances that are not ready yet
    ready: int = 0
    error: str = ""
    line: str = ""
    drained: float = -1.0

    def durations(self) -> list[tuple[str, float]]:
        """Each stage and how long it took; the last of a running one until now."""
        ends = [begin for _, begin in self.stages[1:]]
        ends.append(self.began + self.seconds if self.state != "running" else time.monotonic())
        return [
            (name, max(end - begin, 0.0))
            for (name, begin), end in zip(self.stages, ends, strict=True)
        ]

    def text(self) -> str:
        """All of it in a sentence."""
        done = {"load": "loaded", "swap": "swapped", "unload": "unloaded", "restart": "restarted"}
        what = f"'{self.model}'" + (f" version {self.version}" if self.version else "")
        cause = f" ({self.cause})" if self.cause else ""
        if self.state == "running":
            since = _span(time.monotonic() - self.began)
            return f"{what}: {self.kind} under way for {since}{cause}"
        parts = [f"{name} {_span(taken)}" for name, taken in self.durations() if taken >= 0.001]
        detail = f": {', '.join(parts)}" if parts else ""
        if self.state == "failed":
            at = f" at {self.line}" if self.line else ""
            first = self.error.strip().splitlines()[0] if self.error.strip() else "no reason given"
            stage = self.stages[-1][0] if self.stages else self.kind
            return (
                f"{what} did not {self.kind}{cause}: it failed in '{stage}' after "
                f"{_span(self.seconds)}{at}: {first}"
            )
        return f"{what} {done.get(self.kind, self.kind)} in {_span(self.seconds)}{cause}{detail}"


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


class Journal:
    """The last operations on every model.

    Attributes:
        on_end: called with each `Operation` when it is over.
    """

    def __init__(self, kept: int = 200) -> None:
        self.on_end: list[Callable[[Operation], None]] = []
        self._ended: deque[Operation] = deque(maxlen=kept)
        self._running: dict[str, Operation] = {}

    def listen(self, taps: Taps) -> None:
        """Start."""
        taps.models.append(self.on_model)
        taps.stages.append(self.on_stage)
        taps.instances.append(self.on_instance)

    def on_stage(self, event: StageEvent) -> None:
        """A load has come to its next stage."""
        now = time.monotonic()
        if event.stage == DRAINED:
            self._drained(event.name, now)
            return
        running = self._running.get(event.name)
        if running is None:
            running = self._running[event.name] = Operation(
                event.name, "load", "", time.time(), now
            )
        if not running.stages or running.stages[-1][0] != event.stage:
            running.stages.append((event.stage, now))

    def _drained(self, name: str, now: float) -> None:
        for one in reversed(self._ended):
            if one.model == name and one.kind in ("swap", "unload"):
                one.drained = now - one.began
                return

    def on_model(self, event: ModelEvent) -> None:
        """A model is loading, ready, failed, swapped or unloaded."""
        now = time.monotonic()
        running = self._running.get(event.name)
        if event.state == "loading":
            if running is None:
                running = self._running[event.name] = Operation(
                    event.name, "load", "", time.time(), now
                )
            running.cause = event.reason
            return
        if event.state == "unloaded":
            running = Operation(event.name, "unload", event.reason, time.time(), now)
        elif running is None:
            if event.state != "failed":
                return  # a further version of what was told of already
            running = Operation(event.name, "load", "", time.time(), now)
        running.version = event.version
        running.seconds = now - running.began
        running.state = "failed" if event.state == "failed" else "done"
        if event.state == "swapped":
            running.kind = "swap"
        if running.state == "failed":
            running.error, running.line = event.reason, event.line
        self._end(running)

    def on_instance(self, event: InstanceEvent) -> None:
        """An instance is starting, ready, dead or restarting."""
        now = time.monotonic()
        running = self._running.get(event.model)
        key = f"{event.model}/{event.instance}"
        again = self._running.get(key)
        if event.state == "restarting":
            self._running[key] = Operation(
                event.model, "restart", f"instance {event.instance} (pid {event.pid}) died",
                time.time(), now, event.version, stages=[(f"start {event.instance}", now)],
            )  # fmt: skip
        elif again is not None and event.state == "ready":
            again.seconds, again.state = now - again.began, "done"
            del self._running[key]
            self._over(again)
        elif running is not None:
            if event.state == "starting":
                running.starting[event.instance] = now
            elif event.state in ("ready", "dead") and event.instance in running.starting:
                del running.starting[event.instance]
                running.ready += event.state == "ready"

    def _end(self, operation: Operation) -> None:
        if self._running.get(operation.model) is operation:
            del self._running[operation.model]
        self._over(operation)

    def _over(self, operation: Operation) -> None:
        self._ended.append(operation)
        for listener in self.on_end:
            listener(operation)

    def operations(self, model: str = "") -> list[Operation]:
        """The last operations, the oldest first, those that run last."""
        found = [*self._ended, *self._running.values()]
        return [one for one in found if not model or one.model == model]


def blocks(operation: Operation, draining: Iterable[Model]) -> str:
    """What an operation waits for now, in words; empty where it waits for nothing."""
    now = time.monotonic()
    if operation.state == "running":
        waits = [
            f"instance {name} has been starting for {_span(now - since)}"
            for name, since in operation.starting.items()
        ]
        if waits:
            told = "; ".join(waits[:3])
            more = f", {len(waits) - 3} more" if len(waits) > 3 else ""
            ready = f"{operation.ready} ready"
            return f"{told}{more}: its imports and initialize are not done ({ready})"
        if operation.stages:
            name, since = operation.stages[-1]
            return f"{name} has taken {_span(now - since)} so far"
        return ""
    if operation.kind not in ("swap", "unload") or operation.drained >= 0:
        return ""
    return "; ".join(filter(None, (_drains(each, now) for each in draining
                                   if each.name == operation.model)))  # fmt: skip


def _drains(model: Model, now: float) -> str:
    running = [request for one in model.instances for batch in one.batches
               for request in batch.requests]  # fmt: skip
    waiting = len(model.scheduler)
    if not running and not waiting:
        return "the old version finalizes its instances"
    oldest = min((request.times.compute_start for request in running), default=0)
    since = f" (the oldest for {_span(now - oldest / 1e9)})" if oldest else ""
    queued = f", {waiting} wait" if waiting else ""
    return f"the old version still runs {len(running)} requests{since}{queued}"
