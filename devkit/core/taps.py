"""Hooks on the request's path, and nothing else: who listens, and how a listener is let go.

The path asks `if taps.responses:` before it builds anything, so an unobserved runtime pays one
attribute check. A listener that raises is removed and logged; the request goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("devkit.taps")

Listener = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """A model changed: `state` is loading, ready, failed, swapped, unloading or unloaded."""

    name: str
    version: str
    state: str
    reason: str = ""
    traceback: str = ""
    line: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class InstanceEvent:
    """An instance changed: `state` is starting, ready, dead, restarting or stopped."""

    model: str
    version: str
    instance: str
    pid: int
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line a model wrote: `stream` is stdout, stderr or a Logger level (INFO, WARNING, ...)."""

    model: str
    version: str
    instance: str
    pid: int
    stream: str
    text: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class WarningEvent:
    """A contract warning: the model did what the real server answers with silence or worse."""

    model: str
    instance: str
    rule: str
    message: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A load has come to its next stage, named in words."""

    name: str
    version: str
    stage: str


@dataclass(frozen=True, slots=True)
class SequenceEvent:
    """A sequence changed: `state` is started, placed, moved, ended or evicted (it was silent)."""

    model: str
    version: str
    correlation_id: int | str
    state: str
    instance: str = ""
    slot: int = -1


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """`execute` raised, or its process died: where, and what the frames held.

    Attributes:
        requests: those that were being executed, their memory still there.
        source: the `Instance`; its `ended` is set when all that it wrote has arrived.
        died: whether the process is gone; then there are no frames.
    """

    model: str
    version: str
    instance: str
    request_ids: tuple[str, ...]
    error: str
    traceback: str
    line: str
    frames: tuple[dict[str, Any], ...]
    requests: tuple[Any, ...] = ()
    source: Any = None
    died: bool = False


class Taps:
    """Lists of listeners, by what they listen to.

    Attributes:
        responses: called with (request, response) before the response is handed to its front end's
            callback, while the memory behind it is still there.
        batches: called with (model, instance, batch) when an `execute` has ended.
        cancels: called with (request, where) when nobody waits for a request any more; `where` is
            `queue` or the name of the instance that runs it.
        probes: called with (requests, described, data) when a model has shown a tensor.
        models, instances, logs, warnings, failures, stages, sequences: called with the event of
            that kind.
    """

    __slots__ = (
        "batches",
        "cancels",
        "failures",
        "instances",
        "logs",
        "models",
        "probes",
        "responses",
        "sequences",
        "stages",
        "warnings",
    )

    def __init__(self) -> None:
        self.responses: list[Listener] = []
        self.batches: list[Listener] = []
        self.models: list[Listener] = []
        self.instances: list[Listener] = []
        self.logs: list[Listener] = []
        self.warnings: list[Listener] = []
        self.failures: list[Listener] = []
        self.cancels: list[Listener] = []
        self.probes: list[Listener] = []
        self.stages: list[Listener] = []
        self.sequences: list[Listener] = []

    @staticmethod
    def emit(listeners: list[Listener], *arguments: Any) -> None:
        """Call every listener; one that raises is removed."""
        for listener in list(listeners):
            try:
                listener(*arguments)
            except Exception:
                listeners.remove(listener)
                log.exception("observer %r failed and was removed", listener)
