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
class FailureEvent:
    """`execute` raised: where, and what the frames held."""

    model: str
    version: str
    instance: str
    request_ids: tuple[str, ...]
    error: str
    traceback: str
    line: str
    frames: tuple[dict[str, Any], ...]


class Taps:
    """Lists of listeners, by what they listen to.

    Attributes:
        responses: called with (request, response) before the response is handed to its front end's
            callback, while the memory behind it is still there.
        batches: called with (model, instance, batch) when an `execute` has ended.
        models, instances, logs, warnings, failures: called with the event of that kind.
    """

    __slots__ = ("batches", "failures", "instances", "logs", "models", "responses", "warnings")

    def __init__(self) -> None:
        self.responses: list[Listener] = []
        self.batches: list[Listener] = []
        self.models: list[Listener] = []
        self.instances: list[Listener] = []
        self.logs: list[Listener] = []
        self.warnings: list[Listener] = []
        self.failures: list[Listener] = []

    @staticmethod
    def emit(listeners: list[Listener], *arguments: Any) -> None:
        """Call every listener; one that raises is removed."""
        for listener in list(listeners):
            try:
                listener(*arguments)
            except Exception:
                listeners.remove(listener)
                log.exception("observer %r failed and was removed", listener)
