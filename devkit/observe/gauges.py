"""What the machine says: memory, CPU and descriptors of processes, GPUs, and shared memory.

Reading PSS and USS walks a process's page tables, milliseconds for a large one: call `sample` from
a side thread, never on the event loop. Nothing here keeps a history or knows a model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psutil

from devkit.transport import memory
from devkit.transport.memory import Slab, SlabUsage

WARN_BELOW = 0.1
"""Part of /dev/shm that must stay free; below it the snapshot carries a warning."""

WARN_BYTES = 16 << 20
"""Of a small /dev/shm, so much must stay free, or a quarter where that is less."""

CONTAINER_DEFAULT = 64 << 20
"""What Docker and Kubernetes give a container for /dev/shm unless told otherwise."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Of one process: bytes, and -1 where the system does not tell."""

    pid: int
    rss: int = -1
    pss: int = -1
    uss: int = -1
    cpu_percent: float = 0.0
    threads: int = 0
    open_files: int = -1
    gpu: int = -1


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Of one GPU: bytes, and percent of the last moments in which it computed."""

    index: int
    name: str
    total: int = -1
    used: int = -1
    busy_percent: int = -1


@dataclass(frozen=True, slots=True)
class SharedMemoryUse:
    """`/dev/shm` as a whole, and the slabs that this runtime and its stubs made."""

    total: int
    free: int
    slabs: tuple[SlabUsage, ...]
    warning: str = ""


class Gauges:
    """Samples processes; keeps a handle on each, since CPU use is a difference of two looks."""

    def __init__(self) -> None:
        self.gpus = Gpus()
        self._known: dict[int, psutil.Process] = {}

    def sample(self, pids: Iterable[int]) -> dict[int, ProcessUse]:
        """Use of each process that still runs; those not named any more are forgotten."""
        wanted = set(pids)
        self._known = {pid: one for pid, one in self._known.items() if pid in wanted}
        found = {}
        for pid in wanted:
            use = self._look(pid)
            if use is not None:
                found[pid] = use
        for pid, size in self.gpus.by_process().items():
            if pid in found:
                found[pid] = replace(found[pid], gpu=size)
        return found

    def _look(self, pid: int) -> ProcessUse | None:
        try:
            process = self._known.get(pid)
            if process is None or not process.is_running():
                process = self._known[pid] = psutil.Process(pid)
            with process.oneshot():
                full = _full_memory(process)
                return ProcessUse(
                    pid, process.memory_info().rss, getattr(full, "pss", -1),
                    getattr(full, "uss", -1), process.cpu_percent(), process.num_threads(),
                    _open_files(process),
                )  # fmt: skip
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            self._known.pop(pid, None)
            return None


def _full_memory(process: psutil.Process) -> object:
    try:
        return process.memory_full_info()
    except psutil.AccessDenied:
        return None


def _open_files(process: psutil.Process) -> int:
    try:
        return process.num_fds()
    except (psutil.AccessDenied, AttributeError):  # Windows has handles instead
        return -1


class Gpus:
    """GPUs through NVML (`nvidia-ml-py`, the extra `gpu`); nothing where there is no device.

    Attributes:
        present: whether this machine has a device; NVML is imported only then, when first asked.
        missing: why nothing is shown all the same, for a person; empty where something is.
    """

    def __init__(self) -> None:
        self._library: Any = None
        self._looked = False
        self._devices: list[tuple[Any, str]] = []
        self.missing = ""
        self.present = _has_device()

    def _nvml(self) -> Any:
        """NVML, initialized once; None where there is no device, library or permission."""
        if self._looked:
            return self._library
        self._looked = True
        if not self.present:
            return None
        try:
            import pynvml
        except ImportError:
            self.missing = "GPU memory is not shown: pip install 'triton-devkit[gpu]'"
            return None
        try:
            pynvml.nvmlInit()
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                name = pynvml.nvmlDeviceGetName(handle)
                text = name.decode() if isinstance(name, bytes) else str(name)
                self._devices.append((handle, text))
        except pynvml.NVMLError as problem:
            self.missing = f"GPU memory is not shown: {problem}"
            self._devices.clear()
            return None
        self._library = pynvml
        return pynvml

    def by_process(self) -> dict[int, int]:
        """Bytes of GPU memory by process, over all devices; a container may see no processes."""
        nvml = self._nvml()
        found: dict[int, int] = {}
        for handle, _ in self._devices if nvml else ():
            try:
                running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except nvml.NVMLError:
                continue
            for one in running:
                found[one.pid] = found.get(one.pid, 0) + (one.usedGpuMemory or 0)
        return found

    def devices(self) -> tuple[GpuUse, ...]:
        """Every GPU."""
        nvml = self._nvml()
        return tuple(
            _gpu(nvml, index, handle, name)
            for index, (handle, name) in enumerate(self._devices if nvml else ())
        )


def _has_device() -> bool:
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg") or os.name == "nt"


def _gpu(nvml: Any, index: int, handle: Any, name: str) -> GpuUse:
    total = used = busy = -1
    try:
        memory_info = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, used = int(memory_info.total), int(memory_info.used)
        busy = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:  # a MIG slice tells no utilization
        pass
    return GpuUse(index, name, total, used, busy)


def shared_memory(
    owned: Iterable[Slab],
    process: int | None = None,
    told: Mapping[str, SlabUsage] | None = None,
) -> SharedMemoryUse:
    """Shared memory now.

    `owned` are this process's slabs, known block by block, as are those that their stubs have
    `told` of, by name; the others (`devkit-<process>-*`) are seen from outside, by their size.
    """
    usages = {slab.name: slab.usage() for slab in owned}
    try:
        entries = list(memory.DIRECTORY.glob(f"devkit-{process or os.getpid()}-*"))
        usage = shutil.disk_usage(memory.DIRECTORY)
    except OSError:
        return SharedMemoryUse(0, 0, tuple(usages.values()))
    for entry in entries:
        if entry.name not in usages:
            size = _file_size(entry.name)
            if size >= 0 and told and entry.name in told:
                usages[entry.name] = told[entry.name]
            elif size >= 0:
                usages[entry.name] = SlabUsage(entry.name, size, -1, -1, -1, ())
    return SharedMemoryUse(
        usage.total, usage.free, tuple(usages[name] for name in sorted(usages)), _warning(usage)
    )


def _file_size(name: str) -> int:
    try:
        return (memory.DIRECTORY / name).stat().st_size
    except FileNotFoundError:
        return -1


def _warning(usage: shutil._ntuple_diskusage) -> str:
    return low(usage.total, usage.free)


def low(total: int, free: int) -> str:
    """What to say where /dev/shm is nearly full; empty where it is not."""
    wanted = max(total * WARN_BELOW, min(WARN_BYTES, total / 4))
    if not total or free >= wanted:
        return ""
    default = " (what a container gets unless told otherwise)" if total <= CONTAINER_DEFAULT else ""
    return (
        f"{memory.DIRECTORY} is nearly full: {free >> 20} of {total >> 20} MiB{default} are free. "
        "Tensors that find no room fail their requests. Start the container with `docker run "
        "--shm-size=1g`, `shm_size: 1gb` in Compose, or in Kubernetes an emptyDir with `medium: "
        "Memory` mounted there"
    )


def free_memory() -> tuple[int, int]:
    """Total and free bytes of /dev/shm, zeros where there is none; takes a microsecond."""
    try:
        found = os.statvfs(memory.DIRECTORY)
    except OSError:
        return 0, 0
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
