"""The last minutes of what a runtime did, a number a second each, and the warning in time.

It reads what is counted anyway and two small files of /proc for each process, so it runs always,
whoever looks: ten processes take about half a millisecond a second. What costs more (PSS, USS,
open files) is `observe.gauges`' and only done while somebody looks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from devkit.observe import gauges

if TYPE_CHECKING:
    from devkit.core.engine import Engine
    from devkit.core.instance import Instance
    from devkit.core.model import Model

log = logging.getLogger("devkit.history")

STEP = 1.0
POINTS = 600
"""Ten minutes."""

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

Key = tuple[str, str, str, str]
"""Model, version, instance (empty where it is of something larger), and the number's name."""

UNITS = {
    "inferences": "per second", "executions": "per second", "failures": "per second",
    "queue": "requests", "in_flight": "requests", "latency": "ms", "queue_time": "ms",
    "infer_time": "ms", "batch_size": "", "cpu": "percent", "busy": "percent", "rss": "bytes",
    "threads": "", "shm_free": "bytes", "shm_ours": "bytes", "gpu_used": "bytes",
    "gpu_busy": "percent",
}  # fmt: skip
"""What each number is in; times are means over the requests of that second."""


@dataclass(slots=True)
class Line:
    """One number over time, as of the last tick at its right end."""

    values: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))
    tick: int = 0


class History:
    """Ticks once a second on the event loop.

    Attributes:
        on_low: called with a sentence when /dev/shm begins to run low, and with "" when it has
            room again.
        on_tick: called after each tick, for what has to be tidied up now and then.
        cpu: by pid, percent of a core over the last second.
    """

    def __init__(self, engine: Engine, other_slabs: Callable[[], Any] = tuple) -> None:
        self.on_low: list[Callable[[str], None]] = []
        self.on_tick: list[Callable[[], None]] = []
        self.cpu: dict[int, float] = {}
        self.rss: dict[int, int] = {}
        self.end = 0.0
        self._engine = engine
        self._other_slabs = other_slabs
        self._gpus = gauges.Gpus()
        self._gpu_uses: tuple[gauges.GpuUse, ...] = ()
        self._gpu_look: asyncio.Future[tuple[gauges.GpuUse, ...]] | None = None
        self._lines: dict[Key, Line] = {}
        self._tick = 0
        self._before: dict[Any, tuple[float, ...]] = {}
        self._now: dict[Any, tuple[float, ...]] = {}
        self._looked = 0.0
        self._low = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to tick in the running loop."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(STEP, self._due)

    def stop(self) -> None:
        """Tick no more; what is kept stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self.start()
        self._look_at_gpus()
        self.tick()

    def _look_at_gpus(self) -> None:
        """Ask the driver, on a thread: its first answer takes long. The next tick has it."""
        look = self._gpu_look
        if look is not None:
            if not look.done():
                return
            self._gpu_uses = look.result()
            if self._gpus.missing:
                log.info("%s", self._gpus.missing)
                self._gpus.missing = ""
        if self._gpus.present:
            loop = asyncio.get_running_loop()
            self._gpu_look = loop.run_in_executor(None, self._gpus.devices)

    def tick(self) -> None:
        """Take down one value of everything."""
        now = time.monotonic()
        passed = now - self._looked if self._looked else STEP
        self._looked, self.end = now, time.time()
        self._tick += 1
        self._now, self.cpu, self.rss = {}, {}, {}
        self._machine(passed)
        for model in self._engine.models():
            self._of_model(model, passed)
            for instance in model.instances:
                self._of_instance(model, instance, passed)
        self._before = self._now
        for key, line in list(self._lines.items()):
            if line.tick != self._tick:
                line.values.append(None)
                if self._tick - line.tick >= POINTS:
                    del self._lines[key]
        for listener in self.on_tick:
            listener()

    def _put(self, model: str, version: str, instance: str, name: str, value: float | None) -> None:
        key = (model, version, instance, name)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line()
        line.tick = self._tick
        line.values.append(value)

    def _since(self, key: Any, *values: float) -> tuple[float, ...] | None:
        """How much each of `values` has grown since the last tick; None at the first."""
        self._now[key] = values
        before = self._before.get(key)
        if before is None:
            return None
        return tuple(value - old for value, old in zip(values, before, strict=True))

    def _machine(self, passed: float) -> None:
        total, free = gauges.free_memory()
        if total:
            self._put("", "", "", "shm_free", free)
            self._put("", "", "", "shm_ours", self._ours())
            text = gauges.low(total, free)
            if bool(text) != self._low:
                self._low = bool(text)
                for listener in self.on_low:
                    listener(text)
        self._process("", "", "", os.getpid(), passed)
        for gpu in self._gpu_uses:
            name = f"gpu {gpu.index}"
            self._put("", "", name, "gpu_used", gpu.used)
            self._put("", "", name, "gpu_busy", gpu.busy_percent)

    def _ours(self) -> int:
        slabs = list(self._other_slabs())
        size: int = 0
        for model in self._engine.models():
            slabs += model.slabs()
            for instance in model.instances:
                region = instance.response_memory
                size += region.size if region is not None else 0
        return size + sum(int(slab.size) for slab in slabs)

    def _of_model(self, model: Model, passed: float) -> None:
        counters = model.counters
        name, version = model.name, model.version_text
        flying = sum(len(batch.requests) for one in model.instances for batch in one.batches)
        self._put(name, version, "", "queue", len(model.scheduler))
        self._put(name, version, "", "in_flight", flying)
        grown = self._since(
            model.generation, counters.inference_count, counters.execution_count,
            counters.fail.count, counters.success.count, counters.success.ns, counters.queue.ns,
            counters.compute_infer.ns,
        )  # fmt: skip
        if grown is None:
            return
        inferences, executions, failures, answered, whole, waited, inside = grown
        self._put(name, version, "", "inferences", inferences / passed)
        self._put(name, version, "", "executions", executions / passed)
        self._put(name, version, "", "failures", failures / passed)
        for kind, spent in (("latency", whole), ("queue_time", waited), ("infer_time", inside)):
            self._put(name, version, "", kind, spent / answered / 1e6 if answered else None)
        self._put(name, version, "", "batch_size", inferences / executions if executions else None)

    def _of_instance(self, model: Model, instance: Instance, passed: float) -> None:
        if instance.state == "dead":
            return
        name, version = model.name, model.version_text
        self._process(name, version, instance.name, instance.pid, passed)
        tally = instance.tally
        grown = self._since((instance.pid, "work"), tally.inferences, tally.busy_ns)
        if grown is not None:
            self._put(name, version, instance.name, "inferences", grown[0] / passed)
            self._put(name, version, instance.name, "busy", grown[1] / passed / 1e7)

    def _process(self, model: str, version: str, instance: str, pid: int, passed: float) -> None:
        found = _process_use(pid)
        if found is None:
            return
        seconds, rss, threads = found
        self.rss[pid] = rss
        self._put(model, version, instance, "rss", rss)
        self._put(model, version, instance, "threads", threads)
        grown = self._since((pid, "cpu"), seconds)
        if grown is not None:
            self.cpu[pid] = grown[0] / passed * 100
            self._put(model, version, instance, "cpu", self.cpu[pid])

    def lines(
        self, model: str = "", seconds: float = POINTS * STEP
    ) -> dict[Key, list[float | None]]:
        """The last values of every number, of a model and the machine, or of all."""
        count = max(1, int(seconds / STEP))
        return {
            key: list(line.values)[-count:]
            for key, line in self._lines.items()
            if not model or key[0] in ("", model)
        }


def _process_use(pid: int) -> tuple[float, int, int] | None:
    """CPU seconds, resident bytes and threads of a process; None where it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        return (
            (int(fields[11]) + int(fields[12])) / _TICKS,
            int(fields[21]) * _PAGE,
            int(fields[17]),
        )
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
    except ProcessLookupError:
        return None
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss, process.num_threads()
    except psutil.Error:
        return None
