"""What the machine says: memory, CPU and descriptors of processes, and shared memory.

Reading PSS and USS walks a process's page tables, milliseconds for a large one: call `sample` from
a side thread, never on the event loop. Nothing here keeps a history or knows a model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from devkit.transport import memory
from devkit.transport.memory import Slab, SlabUsage

WARN_BELOW = 0.1
"""Part of /dev/shm that must stay free; below it the snapshot carries a warning."""


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


def shared_memory(owned: Iterable[Slab], process: int | None = None) -> SharedMemoryUse:
    """Shared memory now.

    `owned` are this process's slabs, known block by block; the stubs' own (`devkit-<process>-*`)
    are seen from outside, by their size alone.
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
            if size >= 0:
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
    if usage.total and usage.free < usage.total * WARN_BELOW:
        return (
            f"{memory.DIRECTORY} is nearly full: {usage.free >> 20} of {usage.total >> 20} MiB "
            f"are free. Start the container with a larger --shm-size."
        )
    return ""
