"""Pictures of the runtime: what the core and the gauges hold, as the frozen messages of the seam.

Reads, never changes. Only the control server imports it: faces get the pictures, not the core.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from devkit.contract.recording import Record
from devkit.control import messages
from devkit.core.engine import Engine
from devkit.core.instance import Instance
from devkit.core.model import Model
from devkit.core.statistics import Counters, Tally
from devkit.observe.gauges import Gauges, GpuUse, ProcessUse, SharedMemoryUse, shared_memory
from devkit.observe.logs import Line
from devkit.transport.memory import Slab, SlabUsage

FRESH_SECONDS = 0.5
"""Gauges younger than this are shown again, while they tell of every process: several faces cost
no more than one."""


STUB_SECONDS = 0.3
"""How long a stub may take to say what its response slab holds."""


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
        self.warned: dict[str, dict[tuple[str, str], messages.Warned]] = {}
        self.other_slabs = other_slabs
        self._told: dict[str, SlabUsage] = {}
        self._gpus: tuple[GpuUse, ...] = ()
        self._gauges = Gauges()
        self._uses: dict[int, ProcessUse] = {}
        self._looked = 0.0
        self._looked_at: frozenset[int] = frozenset()
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
            gpus=tuple(
                messages.Gpu(one.index, one.name, one.total, one.used, one.busy_percent)
                for one in self._gpus
            ),
            time=time.time(),
        )

    async def look(self) -> None:
        """Sample the processes in a side thread, unless that was just done for all of them."""
        async with self._looking:
            pids = {self.runtime.pid}
            pids |= {each.pid for model in self.engine.models() for each in model.instances}
            # A stub with a response slab counts anew: it can say more than the slab's size.
            pids |= {-each.pid for each in self._with_slabs()}
            fresh = time.monotonic() - self._looked < FRESH_SECONDS
            if fresh and pids <= self._looked_at:
                return
            self._uses = await asyncio.to_thread(
                self._gauges.sample, [pid for pid in pids if pid > 0]
            )
            self._gpus = self._gauges.gpus.devices()
            self._told = await self._ask_stubs()
            self._looked = time.monotonic()
            self._looked_at = frozenset(pids)

    def _with_slabs(self) -> list[Instance]:
        return [
            each
            for model in self.engine.models()
            for each in model.instances
            if each.state == "ready" and each.response_memory is not None
        ]

    async def _ask_stubs(self) -> dict[str, SlabUsage]:
        """What the stubs say of their response slabs; one that is stuck is seen by size alone."""
        asked = self._with_slabs()

        async def ask(instance: Instance) -> Any:
            try:
                return await instance.call("memory", timeout=STUB_SECONDS)
            except asyncio.TimeoutError:  # the built-in one only since 3.11
                return {}

        answers = await asyncio.gather(*(ask(each) for each in asked))
        slabs = [answer["slab"] for answer in answers if answer.get("slab")]
        return {
            slab["name"]: SlabUsage(
                slab["name"], slab["size"], slab["used"], slab["high_water"], slab["blocks"],
                tuple((name, size) for name, size in slab["owners"]),
            )
            for slab in slabs
        }  # fmt: skip

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
            work=_work(counters),
            batch_sizes=_sizes(counters),
            warnings=tuple(self.warned.get(model.name, {}).values()),
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
        if instance.debugger is not None and instance.debugger.stands_since:
            state = "debugging"
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
            work=_tally(instance.tally),
            last_words=self.last_words.get(instance.name, ""),
        )

    def memory(self) -> messages.SharedMemory:
        """Shared memory now."""
        return _memory(self.shared())

    def shared(self) -> SharedMemoryUse:
        """Shared memory now, as the gauges say it."""
        own = [slab for model in self.engine.models() for slab in model.slabs()]
        own += [slab for model in self.engine.repository.draining for slab in model.slabs()]
        return shared_memory([*own, *self.other_slabs()], self.runtime.pid, self._told)


def _tensor(spec: Any, max_batch_size: int) -> messages.Tensor:
    shape = (-1, *spec.dims) if max_batch_size else tuple(spec.dims)
    return messages.Tensor(spec.name, spec.datatype, shape, bool(getattr(spec, "optional", False)))


def _files(model: Model) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file for each in model.instances for file in each.files))


def _process(use: ProcessUse) -> messages.Process:
    return messages.Process(
        use.pid, use.rss, use.pss, use.uss, use.cpu_percent, use.threads, use.open_files, use.gpu
    )


def _tally(done: Tally) -> messages.Work:
    return messages.Work(
        done.inferences, done.executions, done.requests, done.failed, done.queue_ns, done.input_ns,
        done.infer_ns, done.output_ns, done.busy_ns,
    )  # fmt: skip


def _work(counters: Counters) -> messages.Work:
    return messages.Work(
        counters.inference_count, counters.execution_count,
        counters.success.count + counters.fail.count, counters.fail.count, counters.queue.ns,
        counters.compute_input.ns, counters.compute_infer.ns, counters.compute_output.ns,
        sum(batch.compute_infer.ns for batch in counters.batches.values()),
    )  # fmt: skip


def _sizes(counters: Counters) -> tuple[messages.BatchSize, ...]:
    return tuple(
        messages.BatchSize(size, batch.compute_infer.count, batch.compute_infer.ns)
        for size, batch in sorted(counters.batches.items())
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


def capture_info(one: Record) -> messages.CaptureInfo:
    """A recorded request without the bytes."""
    header = one.request.header
    inputs = tuple(
        messages.Tensor(row["name"], row["datatype"], tuple(row["shape"]))
        for row in header.get("inputs", ())
    )
    return messages.CaptureInfo(
        one.number, one.model, one.version, str(header.get("id", "")), one.time, one.seconds,
        len(one.request.data), sum(len(reply.wire.data) for reply in one.replies),
        len(one.replies) + one.dropped, one.error, one.whole, len(one.probes), one.dropped, inputs,
    )  # fmt: skip
