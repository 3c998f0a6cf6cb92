"""What watches a runtime for the faces: history, batches, journal and warnings, wired together.

Made by the control server, and the one place that knows which observers there are. What they keep
is told by `control.gauges`, `control.batches` and `control.profile`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from devkit.control import messages
from devkit.control.snapshots import Photographer
from devkit.control.stream import Stream
from devkit.core.engine import Engine
from devkit.core.taps import ModelEvent, SequenceEvent, StageEvent, WarningEvent
from devkit.observe.batches import Batches
from devkit.observe.explain import Journal, Operation
from devkit.observe.history import History

log = logging.getLogger("devkit.explain")

WARNINGS = 50
"""Contract warnings kept of each model."""

SEQUENCE_EVENTS = 20
"""Starts and ends of sequences told as events each second; evictions always are."""


class Watch:
    """The observers of one runtime."""

    def __init__(self, engine: Engine, photographer: Photographer, stream: Stream) -> None:
        self.engine = engine
        self.photographer = photographer
        self.history = History(engine, photographer.other_slabs)
        self.batches = Batches()
        self.journal = Journal()
        self._stream = stream
        self._warned = photographer.warned
        self._loading: dict[str, float] = {}
        self._second = 0
        self._told = 0

    def start(self) -> None:
        """Listen at the engine's taps, and begin to tick."""
        taps = self.engine.taps
        self.batches.listen(taps)
        self.journal.listen(taps)
        taps.warnings.append(self._on_warning)
        taps.models.append(self._on_model)
        taps.stages.append(self._on_stage)
        taps.sequences.append(self._on_sequence)
        self.journal.on_end.append(self._on_operation)
        self.history.on_low.append(self._on_low)
        self.history.on_tick.append(self._tidy)
        self.history.start()

    def stop(self) -> None:
        """Tick no more."""
        self.history.stop()

    def _tidy(self) -> None:
        self.batches.tidy()
        self.batches.arm(self.engine.models())

    def _on_warning(self, event: WarningEvent) -> None:
        known = self._warned.setdefault(event.model, {})
        key = (event.rule, event.message)
        old = known.pop(key, None)
        now = time.time()
        if old is not None:
            known[key] = replace(old, count=old.count + 1, time=now)
        else:
            known[key] = messages.Warned(
                event.rule, event.message, event.line, event.instance, time=now
            )
        while len(known) > WARNINGS:
            del known[next(iter(known))]

    def _on_model(self, event: ModelEvent) -> None:
        """A version that is served anew starts without the warnings of the one before."""
        if event.state == "loading":
            self._loading[event.name] = time.time()
        elif event.state in ("ready", "swapped"):
            since = self._loading.get(event.name, 0.0)
            known = self._warned.get(event.name, {})
            self._warned[event.name] = {k: one for k, one in known.items() if one.time >= since}
            self.batches.arm(self.engine.models())
        elif event.state == "unloaded":
            self._warned.pop(event.name, None)

    def _on_stage(self, event: StageEvent) -> None:
        self._stream.emit("stage", model=event.name, version=event.version, text=event.stage)

    def _on_operation(self, operation: Operation) -> None:
        text = operation.text()
        log.info("%s", text)
        self._stream.emit(
            "operation", model=operation.model, version=operation.version, state=operation.state,
            text=text, line=operation.line, seconds=operation.seconds,
        )  # fmt: skip

    def _on_sequence(self, event: SequenceEvent) -> None:
        """At most so many a second: a busy model's must not push all other events out."""
        if event.state != "evicted":
            second = int(time.monotonic())
            if second != self._second:
                self._second, self._told = second, 0
            if self._told >= SEQUENCE_EVENTS:
                return
            self._told += 1
        self._stream.emit(
            "sequence", model=event.model, version=event.version, instance=event.instance,
            state=event.state, text=str(event.correlation_id),
        )  # fmt: skip

    def _on_low(self, text: str) -> None:
        if text:
            log.warning("%s", text)
            self._stream.emit("memory", state="low", text=text)
        else:
            self._stream.emit("memory", state="ok", text="/dev/shm has room again")


def count_of(query: Any, name: str, default: int) -> int:
    """A number of a query; what is none counts as the default."""
    try:
        return int(query.get(name, default))
    except ValueError:
        return default
