"""Post-mortem: what was known when an `execute` raised or a stub died, kept until it is looked at.

The requests with their bytes (so that they can be sent again), the traceback, each frame's source
and locals as the stub told them, the last lines the process wrote, and how it ended. A bounded
ring; the same failure again within a moment is counted, not kept. What to do about a failure is
the model's business, not decided here.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from devkit.contract.recording import Probe, Record, Reply, Wire
from devkit.core import checks
from devkit.core.request import NullRequest, Request
from devkit.errors import Code, SharedMemoryError
from devkit.observe.capture import wire_of
from devkit.observe.logs import Line, Log

if TYPE_CHECKING:
    from devkit.core.taps import FailureEvent, Taps

log = logging.getLogger("devkit.failures")

KEPT = 200
BYTES = 64 << 20
LINES = 40
ALIKE_SECONDS = 0.5
SETTLE_SECONDS = 0.2
"""How long what a process printed before it failed may take to arrive."""


@dataclass(eq=False)
class Failure:
    """One failed `execute`, or the death of a process.

    Attributes:
        kind: `raised` or `died`.
        requests: those that were executed, the answer being the error.
        status: exit status of the process where it died, negative for a signal.
        lines: the last it wrote.
        repeats: how often the same failed again right after.
    """

    number: int
    time: float
    kind: str
    model: str
    version: str
    instance: str
    pid: int
    error: str
    line: str = ""
    traceback: str = ""
    frames: tuple[dict[str, Any], ...] = ()
    requests: tuple[Record, ...] = ()
    status: int | None = None
    lines: list[Line] = field(default_factory=list)
    repeats: int = 0
    settled: bool = False

    @property
    def size(self) -> int:
        """Bytes of its requests."""
        return sum(one.size for one in self.requests)

    @property
    def ending(self) -> str:
        """How the process ended, in words; empty where it did not."""
        if self.kind != "died":
            return ""
        if self.status is None:
            return "the process is gone"
        if self.status < 0:
            try:
                name = signal.Signals(-self.status).name
            except ValueError:
                name = f"signal {-self.status}"
            return f"ended by {name}" + _HINTS.get(name, "")
        return f"ended itself with exit status {self.status}"


_HINTS = {
    "SIGKILL": " (when nobody sent it, the system was out of memory)",
    "SIGSEGV": " (a C extension touched memory that is not its own; the lines below are its stack)",
    "SIGBUS": " (shared memory has run out, or a mapped file became shorter)",
    "SIGABRT": " (a C library gave up; its last words are below)",
}


class Failures:
    """A ring of failures over all models."""

    def __init__(
        self, lines: Log, probes_of: Callable[[Request], tuple[Probe, ...]] = lambda _: ()
    ) -> None:
        self._lines = lines
        self._probes_of = probes_of
        self._ring: OrderedDict[int, Failure] = OrderedDict()
        self._next = 1
        self._used = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.listeners: list[Callable[[Failure], None]] = []

    def listen(self, taps: Taps) -> None:
        """Start keeping failures."""
        taps.failures.append(self.on_failure)

    def on_failure(self, event: FailureEvent) -> None:
        """A batch has failed; the memory of its requests is still there."""
        now = time.time()
        kind = "died" if event.died else "raised"
        last = next(reversed(self._ring.values()), None)
        if (
            last is not None and now - last.time < ALIKE_SECONDS and kind == "raised"
            and (last.kind, last.model, last.line, last.error)
            == (kind, event.model, event.line, event.error)
        ):  # fmt: skip
            last.repeats += 1
            return
        failure = Failure(
            self._next, now, kind, event.model, event.version, event.instance,
            event.source.pid if event.source is not None else 0, event.error, event.line,
            event.traceback, event.frames,
            tuple(self._records(event)),
        )  # fmt: skip
        self._next += 1
        self._ring[failure.number] = failure
        self._used += failure.size
        while len(self._ring) > KEPT or (self._used > BYTES and len(self._ring) > 1):
            _, oldest = self._ring.popitem(last=False)
            self._used -= oldest.size
        self._settle_later(failure, event.source)
        for listener in self.listeners:
            listener(failure)

    def _records(self, event: FailureEvent) -> Iterator[Record]:
        told = event.error
        if not event.died:
            told = checks.execute_failed(event.instance, event.error).message
        for number, request in enumerate(event.requests, 1):
            if type(request) is NullRequest:
                continue
            try:
                wire = wire_of(request)
            except SharedMemoryError:  # the client has taken its region back
                continue
            begun = request.times.request_start
            lasted = (time.monotonic_ns() - begun) / 1e9
            error = Reply(Wire(0, b""), told, int(Code.INTERNAL))
            yield Record(
                number, event.model, request.model_version, time.time() - lasted, lasted, wire,
                (error,), self._probes_of(request),
            )  # fmt: skip

    def _settle_later(self, failure: Failure, source: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._settle(failure, source))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, failure: Failure, source: Any) -> None:
        """Wait for the last lines of the process, and for its exit status where it died."""
        if failure.kind == "died" and source is not None:
            await source.ended.wait()
            failure.status = await source.process.wait(2.0)
        await asyncio.sleep(SETTLE_SECONDS)
        failure.lines = self._lines_of(failure)
        failure.settled = True

    def _lines_of(self, failure: Failure) -> list[Line]:
        lines = self._lines.lines(instance=failure.instance, count=4 * LINES)
        until = failure.time + (SETTLE_SECONDS / 4 if failure.kind == "raised" else 60.0)
        own = [one for one in lines if one.pid == failure.pid and one.time <= until]
        return own[-LINES:]

    async def close(self) -> None:
        """End what still waits."""
        for task in list(self._tasks):
            task.cancel()

    def failures(self, model: str = "") -> list[Failure]:
        """What is kept, the oldest first, of one model or of all."""
        return [one for one in self._ring.values() if not model or one.model == model]

    async def failure(self, number: int) -> Failure | None:
        """The failure of that number, complete: its last lines have arrived."""
        found = self._ring.get(number)
        if found is not None and not found.settled:
            for _ in range(50):
                await asyncio.sleep(0.05)
                if found.settled:
                    break
        return found

    def record(self, number: int, request: int) -> Record | None:
        """Request `request` (1 is the first) of a failure."""
        found = self._ring.get(number)
        if found is None:
            return None
        return next((one for one in found.requests if one.number == request), None)

    def clear(self, model: str = "") -> int:
        """Forget the failures of one model or all; returns how many."""
        gone = self.failures(model)
        for one in gone:
            del self._ring[one.number]
            self._used -= one.size
        return len(gone)
