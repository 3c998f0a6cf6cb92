"""Pictures of the runtime: what the core and the gauges hold, as the frozen messages of the seam.

Reads, never changes. Only the control server imports it: faces get the pictures, not the core.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from devkit.control import messages
from devkit.core.engine import Engine
from devkit.core.instance import Instance
from devkit.core.model import Model
from devkit.observe.capture import Capture
from devkit.observe.gauges import Gauges, ProcessUse, SharedMemoryUse, shared_memory
from devkit.observe.logs import Line
from devkit.transport.memory import Slab

FRESH_SECONDS = 0.5
"""Gauges younger than this are shown again: several faces cost no more than one."""


class Photographer:
    """Takes snapshots of one engine; keeps what only the course of events tells.

    Attributes:
        errors: by model name, the traceback or reason of the last load that failed.
        assumed: by model name, what was taken from samples.
        runtime: what is shown of the process itself; set again when ports are known.
    """

    def __init__(
        self,
        engine: Engine,
        runtime: messages.Runtime,
        other_slabs: Callable[[], Iterable[Slab]] = tuple,
    ) -> None:
        self.engine = engine
        self.runtime = runtime
        self.errors: dict[str, str] = {}
        self.assumed: dict[str, tuple[str, ...]] = {}
        self.unlearned: set[str] = set()
        self.loaded_at: dict[str, float] = {}
        self.last_words: dict[str, str] = {}
        self._other_slabs = other_slabs
        self._gauges = Gauges()
        self._uses: dict[int, ProcessUse] = {}
        self._looked = 0.0
        self._looking = asyncio.Lock()

    async def snapshot(self, sequence: int) -> messages.Snapshot:
        """Everything, with gauges at most `FRESH_SECONDS` old."""
        await self.look()
        own = self._uses.get(self.runtime.pid)
        return messages.Snapshot(
            sequence,
            self.runtime,
            self.engine.live(),
            self.engine.ready(),
            tuple(self.models()),
            _process(own) if own else None,
            self.memory(),
            time.time(),
        )

    async def look(self) -> None:
        """Sample the processes in a side thread, unless that was just done."""
        async with self._looking:
            if time.monotonic() - self._looked < FRESH_SECONDS:
                return
            pids = [self.runtime.pid]
            pids += [each.pid for model in self.engine.models() for each in model.instances]
            self._uses = await asyncio.to_thread(self._gauges.sample, pids)
            self._looked = time.monotonic()

    def models(self) -> list[messages.Model]:
        """Every model of the repositories: each version served, and those that are not."""
        found = []
        for row in self.engine.index():
            served = self._served(row.name, row.version)
            if served is not None and row.state == "READY":
                found.append(self._loaded(served))
            else:
                found.append(self._absent(row.name, row.version, row.state, row.reason))
        return found

    def model(self, name: str, version: str = "") -> messages.Model:
        """One model, its highest version; UnknownModelError where the repositories lack it."""
        rows = [one for one in self.models() if one.name == name]
        if version:
            rows = [one for one in rows if one.version == version]
        if rows:
            return rows[-1]
        return self._loaded(self.engine.model(name, version))

    def _served(self, name: str, version: str) -> Model | None:
        entry = self.engine.repository.entries.get(name)
        return entry.models.get(int(version)) if entry is not None and version else None

    def _loaded(self, model: Model) -> messages.Model:
        counters = model.counters
        config = model.config
        return messages.Model(
            name=model.name,
            version=model.version_text,
            versions=tuple(model.versions),
            state="READY",
            platform=config.platform or config.backend,
            inputs=tuple(_tensor(spec, model.max_batch_size) for spec in model.inputs.values()),
            outputs=tuple(_tensor(spec, model.max_batch_size) for spec in model.outputs.values()),
            max_batch_size=model.max_batch_size,
            decoupled=model.decoupled,
            folder=str(model.model_dir),
            file=str(model.file) if model.instances else "",
            files=_files(model),
            scratch=self._is_scratch(model.model_dir),
            assumed=self.assumed.get(model.name, ()),
            unlearned=model.name in self.unlearned,
            error=self.errors.get(model.name, ""),
            instances=tuple(self._instance(model, each) for each in model.instances),
            pending=len(model.scheduler),
            inferences=counters.inference_count,
            executions=counters.execution_count,
            failures=counters.fail.count,
            loaded_at=self.loaded_at.get(model.name, 0.0),
            load_seconds=model.load_seconds,
        )

    def _absent(self, name: str, version: str, state: str, reason: str) -> messages.Model:
        folder = self.engine.repository.folders().get(name)
        error = self.errors.get(name, "")
        return messages.Model(
            name=name,
            version=version,
            state=state,
            reason=reason or error,
            folder=str(folder or ""),
            scratch=folder is not None and self._is_scratch(folder),
            error=error,
        )

    def _is_scratch(self, folder: Path) -> bool:
        return bool(self.runtime.scratch) and folder.is_relative_to(self.runtime.scratch)

    def _instance(self, model: Model, instance: Instance) -> messages.Instance:
        use = self._uses.get(instance.pid)
        running = sum(len(batch.requests) for batch in instance.batches)
        state = "busy" if instance.state == "ready" and running else instance.state
        return messages.Instance(
            name=instance.name,
            model=model.name,
            version=model.version_text,
            pid=instance.pid,
            state=state,
            kind=instance.kind,
            device=instance.device_id,
            started=instance.started_by,
            load_seconds=instance.load_seconds,
            restarts=model.deaths(instance.name),
            executes=instance.executes,
            in_flight=running,
            process=_process(use) if use and instance.state != "dead" else None,
            last_words=self.last_words.get(instance.name, ""),
        )

    def memory(self) -> messages.SharedMemory:
        """Shared memory now."""
        own = [model._slab for model in self.engine.models() if model._slab is not None]
        use = shared_memory([*own, *self._other_slabs()], self.runtime.pid)
        return _memory(use)


def _tensor(spec: Any, max_batch_size: int) -> messages.Tensor:
    shape = (-1, *spec.dims) if max_batch_size else tuple(spec.dims)
    return messages.Tensor(spec.name, spec.datatype, shape, bool(getattr(spec, "optional", False)))


def _files(model: Model) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file for each in model.instances for file in each.files))


def _process(use: ProcessUse) -> messages.Process:
    return messages.Process(
        use.pid, use.rss, use.pss, use.uss, use.cpu_percent, use.threads, use.open_files
    )


def _memory(use: SharedMemoryUse) -> messages.SharedMemory:
    slabs = tuple(
        messages.Slab(
            one.name, one.size, one.used, one.size - one.used if one.used >= 0 else -1,
            one.high_water, one.blocks,
            tuple(messages.Owner(name, size) for name, size in one.owners),
        )
        for one in use.slabs
    )  # fmt: skip
    return messages.SharedMemory(use.total, use.free, slabs, use.warning)


def log_line(line: Line) -> messages.LogLine:
    """A kept line as the faces get it."""
    return messages.LogLine(
        line.sequence, line.time, line.stream, line.text, line.model, line.instance, line.pid,
        line.file, line.line,
    )  # fmt: skip


def captures(capture: Capture, model: str = "") -> list[messages.CaptureInfo]:
    """What is recorded, without the bytes."""
    return [
        messages.CaptureInfo(
            one.number, one.model, one.version, one.id, one.time, one.seconds,
            len(one.request.data), sum(len(reply.wire.data) for reply in one.replies),
            len(one.replies), one.error,
        )
        for one in capture.records(model)
    ]  # fmt: skip
