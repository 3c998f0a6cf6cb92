"""The log: Triton's line format over stdlib logging, models' prints, and the last lines of each.

Everything the runtime says goes through `logging` under `devkit`; `Log` is the one place that
turns it into text and writes it. What a model prints is passed on as it is, to the same stream.
Nothing here decides what is worth saying.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

VERBOSE = logging.DEBUG
"""Level of a line that shows with `--log-verbose=1`; one less for each level above that."""

RING_LINES = 2000
INSTANCE_LINES = 500

_LETTERS = {
    logging.CRITICAL: "E", logging.ERROR: "E", logging.WARNING: "W", logging.INFO: "I",
}  # fmt: skip
_STREAM_LEVELS = {
    "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR, "VERBOSE": VERBOSE,
}  # fmt: skip


class Settings(Protocol):
    """What the logging extension sets, under the names it uses."""

    log_file: str
    log_info: bool
    log_warning: bool
    log_error: bool
    log_verbose_level: int
    log_format: str


@dataclass(slots=True)
class LogSettings:
    """The logging extension's settings and their defaults."""

    log_file: str = ""
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0
    log_format: str = "default"


class TritonFormatter(logging.Formatter):
    """`I1201 01:50:55.216649 32192 file.py:11] "text"`, or the ISO8601 form of the settings.

    A record may bring `file`, the `name:line` to show instead of the caller's, and `table`, lines
    to put below it as they are.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings

    def format(self, record: logging.LogRecord) -> str:
        """The whole text of a record, without the last newline."""
        where = getattr(record, "file", "") or f"{record.filename}:{record.lineno}"
        table = getattr(record, "table", "")
        message = record.getMessage()
        # Quoted and escaped as JSON: a newline in a message cannot forge a line of the log.
        text = json.dumps(message, ensure_ascii=False) if message or not table else ""
        line = f"{self._head(record)} {record.process} {where}] {text}"
        if table:
            line += f"\n{table}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line

    def _head(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "I")
        if self.settings.log_format == "ISO8601":
            return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(record.created))} {letter}"
        micros = int(record.created % 1 * 1e6)
        stamp = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        return f"{letter}{stamp}.{micros:06d}"


def shown(settings: Settings, level: int) -> bool:
    """Whether the settings let a line of that level through."""
    if level >= logging.ERROR:
        return settings.log_error
    if level >= logging.WARNING:
        return settings.log_warning
    if level >= logging.INFO:
        return settings.log_info
    return settings.log_verbose_level > VERBOSE - level


@dataclass(frozen=True, slots=True)
class Line:
    """One line, as the faces see it; `stream` is `stdout`, `stderr` or a level's name."""

    sequence: int
    time: float
    stream: str
    text: str
    model: str = ""
    instance: str = ""
    pid: int = 0
    file: str = ""
    line: int = 0


class Writer:
    """Writes lines from its own thread: a terminal or pipe nobody reads must not stop the loop.

    It holds `bound` lines; beyond that the oldest go and their number is told.
    """

    def __init__(self, bound: int = 20_000) -> None:
        self._waiting: deque[tuple[IO[str], str]] = deque()
        self._bound = bound
        self._dropped = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="devkit-log", daemon=True)
        self._thread.start()

    def write(self, stream: IO[str], text: str) -> None:
        """Have `text` and a newline written to `stream`, soon and in order."""
        with self._lock:
            if len(self._waiting) >= self._bound:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append((stream, text))
            self._idle.clear()
        self._wake.set()

    def flush(self, seconds: float) -> bool:
        """Wait until all is written; False where that took longer than `seconds`."""
        return self._idle.wait(seconds)

    def close(self, seconds: float = 1.0) -> None:
        """Write what waits and end the thread, or leave it behind where its reader is stuck."""
        self._closing = True
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._drain()
            if self._closing:
                return

    def _drain(self) -> None:
        touched = set()
        while True:
            with self._lock:
                if not self._waiting:
                    break
                stream, text = self._waiting.popleft()
                dropped, self._dropped = self._dropped, 0
            note = f"[{dropped} lines were dropped: the log is not being read]\n" if dropped else ""
            if _write(stream, f"{note}{text}\n"):
                touched.add(stream)
        for stream in touched:
            _write(stream, "")
        with self._lock:
            if not self._waiting:
                self._idle.set()


def _write(stream: IO[str], text: str) -> bool:
    """Write, or flush where there is no text; False where the stream is gone."""
    try:
        if text:
            stream.write(text)
        else:
            stream.flush()
    except (OSError, ValueError):  # a closed terminal or pipe: nobody is left to tell
        return False
    return True


@dataclass(slots=True)
class Log:
    """Where all lines come together: formatted, filtered, written, and the last ones kept.

    Attributes:
        settings: read for every line, so a change of them holds at once.
        listeners: called with each kept `Line`.
    """

    settings: Settings = field(default_factory=LogSettings)
    stdout: IO[str] = field(default_factory=lambda: sys.stdout)
    stderr: IO[str] = field(default_factory=lambda: sys.stderr)
    listeners: list[Callable[[Line], None]] = field(default_factory=list)
    _lines: deque[Line] = field(default_factory=lambda: deque(maxlen=RING_LINES))
    _instances: dict[str, deque[Line]] = field(default_factory=dict)
    _sequence: int = 0
    _writer: Writer = field(default_factory=Writer)
    _formatter: TritonFormatter = field(init=False)
    _handler: _Handler | None = None
    _file: IO[str] | None = None
    _before: tuple[int, bool] = (logging.NOTSET, True)

    def __post_init__(self) -> None:
        self._formatter = TritonFormatter(self.settings)

    def install(self) -> None:
        """Take over what is logged under `devkit`; opens the log file that the settings name."""
        if self.settings.log_file:
            self._file = open(self.settings.log_file, "a", encoding="utf-8")  # noqa: SIM115
        logger = logging.getLogger("devkit")
        self._before = logger.level, logger.propagate
        self._handler = _Handler(self)
        logger.addHandler(self._handler)
        logger.setLevel(1)  # the settings decide, line by line
        logger.propagate = False

    def close(self) -> None:
        """Hand `devkit` logging back, with everything written."""
        if self._handler is not None:
            logger = logging.getLogger("devkit")
            logger.removeHandler(self._handler)
            level, logger.propagate = self._before
            logger.setLevel(level)
            self._handler = None
        self._writer.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until what was logged is written."""
        self._writer.flush(seconds)

    def record(self, record: logging.LogRecord) -> None:
        """A line of the runtime's own."""
        if not shown(self.settings, record.levelno):
            return
        self._writer.write(self._file or self.stderr, self._formatter.format(record))
        text = getattr(record, "table", "") or record.getMessage()
        self._keep(record.created, record.levelname, text, file=record.filename, line=record.lineno)

    def on_model_line(self, event: Any) -> None:
        """A `core.taps.LogEvent`: what a model printed, or said through `pb_utils.Logger`."""
        level = _STREAM_LEVELS.get(event.stream)
        if level is None:
            stream = self.stderr if event.stream == "stderr" else self.stdout
            self._writer.write(stream, event.text)
        elif shown(self.settings, level):
            record = logging.LogRecord(
                "devkit.model", level, event.file, event.line, event.text, None, None
            )
            self._writer.write(self._file or self.stderr, self._formatter.format(record))
        else:
            return
        self._keep(
            time.time(), event.stream, event.text, model=event.model, instance=event.instance,
            pid=event.pid, file=os.path.basename(event.file), line=event.line,
        )  # fmt: skip

    def _keep(self, when: float, stream: str, text: str, **origin: Any) -> None:
        self._sequence += 1
        line = Line(self._sequence, when, stream, text, **origin)
        self._lines.append(line)
        if line.instance:
            ring = self._instances.get(line.instance)
            if ring is None:
                ring = self._instances[line.instance] = deque(maxlen=INSTANCE_LINES)
            ring.append(line)
        for listener in self.listeners:
            listener(line)

    def forget(self, instance: str) -> None:
        """Drop the lines kept for an instance that is gone for good."""
        self._instances.pop(instance, None)

    def lines(
        self, *, model: str = "", instance: str = "", after: int = 0, count: int = RING_LINES
    ) -> list[Line]:
        """The last `count` lines, of all, of a model or of an instance, that came after `after`."""
        chosen = [line for line in self._source(model, instance) if line.sequence > after]
        return chosen[-count:] if count else []

    def _source(self, model: str, instance: str) -> Iterator[Line]:
        if instance:
            return iter(list(self._instances.get(instance, ())))
        if not model:
            return iter(list(self._lines))
        # A chatty model must not push a quiet one's lines out: each instance has a ring of its own.
        rings = [line for ring in self._instances.values() for line in ring if line.model == model]
        return iter(sorted(rings, key=lambda line: line.sequence))


class _Handler(logging.Handler):
    """Passes stdlib records on to a `Log`."""

    def __init__(self, log: Log) -> None:
        super().__init__(level=1)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.record(record)
