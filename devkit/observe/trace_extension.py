"""The trace extension: its settings, which requests they choose, and the file it writes.

Settings, sampling, and what goes to the file or to `FILE.0`, `FILE.1`, ... are the real server's.
On purpose unlike it, the file is whole JSON after every write, and nothing is lost at the end.
Checking what a client sends is the protocols' business.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.contract.trace_forms import triton_events
from devkit.contract.tracing import Trace
from devkit.errors import InferError

if TYPE_CHECKING:
    from devkit.core.engine import TraceSettings
    from devkit.observe.traces import Family

log = logging.getLogger("devkit.traces")

FIELDS = ("trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode")
FLUSH_SECONDS = 0.5
FLUSH_TRACES = 500

_NO_FILE = "Attempting to set invalid trace setting :trace file name is not given"
_NO_RATE = "Attempting to set invalid trace setting :sample rate must be non-zero"


@dataclass
class Values:
    """One set of settings; `own` are the fields that were set for it, the others are inherited."""

    level: tuple[str, ...] = ()
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0
    file: str = ""
    mode: str = "triton"
    own: frozenset[str] = field(default_factory=frozenset)


class TraceFile:
    """A trace file, and its numbered ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = itertools.count()
        self._begun = False
        self._lock = threading.Lock()

    def write(self, text: str, *, numbered: bool) -> None:
        """Append traces, or put them into a file of their own. A failure is logged."""
        try:
            with self._lock:
                if numbered:
                    path = Path(f"{self.name}.{next(self._numbers)}")
                    path.write_text(f"[{text}]", encoding="utf-8")
                else:
                    self._append(text.encode("utf-8"))
        except OSError as problem:
            log.error("failed creating trace file: %s", problem)

    def _append(self, data: bytes) -> None:
        if not self._begun:
            Path(self.name).write_bytes(b"[" + data + b"]")
            self._begun = True
            return
        with open(self.name, "r+b") as file:
            file.seek(-1, 2)  # over the bracket
            file.write(b"," + data + b"]")


class Setting:
    """Settings at work: chooses requests, and holds the traces that are still to be written."""

    def __init__(self, values: Values, file: TraceFile, extension: Extension) -> None:
        self.values = values
        self.tensors = "TENSORS" in values.level
        self._timestamps = "TIMESTAMPS" in values.level
        self._file = file
        self._extension = extension
        self._count = values.count
        self._sampled = self._collected = 0
        self._waiting: list[Sequence[Trace]] = []

    @property
    def count(self) -> int:
        """Traces that are still to be taken, -1 for any number."""
        return self._count

    @property
    def valid(self) -> bool:
        """Whether it traces anything."""
        values = self.values
        return bool(
            values.level and values.rate and self._count and values.file and values.mode == "triton"
        )

    def sample(self) -> bool:
        """Whether to trace the request that came now."""
        if not self.valid:
            return False
        self._sampled += 1
        if self._sampled % self.values.rate:
            return False
        if self._count > 0:
            self._count -= 1
            if not self._count:
                self._extension.changed()
        return True

    def __call__(self, family: Family) -> None:
        """A traced request is over."""
        self._collected += 1
        self._waiting.append(family.traces)
        frequency = self.values.log_frequency
        counted_out = not self._count and self._collected == self._sampled
        if counted_out or (frequency and len(self._waiting) >= frequency):
            self._write(numbered=True)
        elif not frequency and self._count < 0:
            self._extension.flush_later(self, len(self._waiting) >= FLUSH_TRACES)

    def flush(self) -> None:
        """Write what waits, as when the setting is replaced or the server ends."""
        self._write(numbered=bool(self.values.log_frequency))

    def _write(self, *, numbered: bool) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._extension.write(self._file, waiting, numbered, self._timestamps)


class Extension:
    """Global settings over those of the command line, and each model's over the global ones.

    Attributes:
        on_change: called when what is traced may have changed.
    """

    def __init__(self, defaults: TraceSettings) -> None:
        self._default = _values(defaults)
        self._files: dict[str, TraceFile] = {}
        self._global = self._make(self._default)
        self._models: dict[str, Setting] = {}
        self._numbers = itertools.count(1)
        self._timer: Any = None
        self._due: set[Setting] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.active = self._global.valid

    def _make(self, values: Values) -> Setting:
        file = self._files.get(values.file)
        if file is None:
            file = self._files[values.file] = TraceFile(values.file)
        return Setting(values, file, self)

    # -- settings --------------------------------------------------------------------------------

    def show(self, model: str = "") -> dict[str, Any]:
        """Settings in the real server's order; `trace_level` is a list, the rest are strings."""
        setting = self._models.get(model, self._global)
        values = setting.values
        return {
            "trace_level": list(values.level) or ["OFF"],
            "trace_rate": str(values.rate),
            "trace_count": str(setting.count),
            "log_frequency": str(values.log_frequency),
            "trace_file": values.file,
            "trace_mode": values.mode,
        }

    def update(self, changes: Mapping[str, Any], model: str = "") -> None:
        """Apply changes (None clears). Raises InferError; then nothing changes."""
        made = self._updated(changes, model)
        self._replace(made, model)
        if not model:
            for name, setting in list(self._models.items()):
                # What they inherit may be another value now.
                self._replace(self._updated({}, name), name, before=setting)
        self.changed()

    def _updated(self, changes: Mapping[str, Any], model: str) -> Values | None:
        """The new settings; None where a model has none of its own any more."""
        current = self._models.get(model) if model else self._global
        below = self._global.values if model else self._default
        own = set(current.values.own) if current is not None else set()
        for key, value in changes.items():
            (own.discard if value is None else own.add)(key)
        if model and not own:
            return None
        made = Values(
            below.level, below.rate, below.count, below.log_frequency, below.file, below.mode,
            frozenset(own),
        )  # fmt: skip
        if model:
            made.count = self._global.count
        for key in own:
            attribute = key if key == "log_frequency" else key.removeprefix("trace_")
            if changes.get(key) is not None:
                value = changes[key]
            else:
                assert current is not None
                value = (
                    current.count if key == "trace_count" else getattr(current.values, attribute)
                )
            setattr(made, attribute, tuple(value) if key == "trace_level" else value)
        if made.level and not made.rate:
            raise InferError(_NO_RATE)
        if made.level and made.mode == "triton" and not made.file:
            raise InferError(_NO_FILE)
        return made

    def _replace(self, values: Values | None, model: str, before: Setting | None = None) -> None:
        old = before or (self._models.get(model) if model else self._global)
        if old is not None:
            old.flush()
        if not model:
            assert values is not None
            self._global = self._make(values)
        elif values is None:
            self._models.pop(model, None)
        else:
            self._models[model] = self._make(values)

    def changed(self) -> None:
        """Look again whether anything is traced."""
        self.active = any(one.valid for one in (self._global, *self._models.values()))
        self.on_change()

    # -- traces ----------------------------------------------------------------------------------

    def sample(self, model: str) -> Setting | None:
        """The settings that want the request that came for `model`; None if they do not."""
        setting = self._models.get(model, self._global)
        return setting if setting.sample() else None

    def flush_later(self, setting: Setting, now: bool) -> None:
        """Write soon what a setting without a log frequency has collected."""
        self._due.add(setting)
        if now:
            self._flush_due()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_SECONDS, self._flush_due)

    def _flush_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due = self._due, set()
        for setting in due:
            setting.flush()

    def write(
        self, file: TraceFile, families: Sequence[Sequence[Trace]], numbered: bool, stamps: bool
    ) -> None:
        """Put families of traces into the file."""
        parts = [self._text(family, stamps) for family in families]
        file.write(",".join(part for part in parts if part), numbered=numbered)

    def _text(self, family: Sequence[Trace], stamps: bool) -> str:
        """The last-caused request first, as the real server has it."""
        if len(family) == 1:
            return triton_events(family[0], next(self._numbers), timestamps=stamps)
        numbers: dict[int, int] = {}
        for one in sorted(family, key=lambda each: each.id):
            if one.handed_on and (not one.parent or one.parent in numbers):
                numbers[one.id] = next(self._numbers)
        parts = [
            triton_events(one, numbers[one.id], numbers.get(one.parent, 0), timestamps=stamps)
            for one in sorted(family, key=lambda each: -each.id)
            if one.id in numbers
        ]
        return ",".join(part for part in parts if part)

    def close(self) -> None:
        """The server ends: write everything."""
        self._flush_due()
        for setting in (self._global, *self._models.values()):
            setting.flush()


def _values(given: TraceSettings) -> Values:
    level = tuple(each for each in given.trace_level if each in ("TIMESTAMPS", "TENSORS"))
    return Values(
        level, int(given.trace_rate), int(given.trace_count), int(given.log_frequency),
        given.trace_file, given.trace_mode,
    )  # fmt: skip
