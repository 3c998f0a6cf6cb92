"""Shared-memory regions: mapping them, handing out blocks, accounting, sweeping up.

A region is one file under /dev/shm. `Region` maps one that exists (a client's, or the other
side's); `Slab` owns one and hands out blocks of it. `multiprocessing.shared_memory` is not used:
its resource tracker unlinks other people's regions when a process crashes.

Linux-only calls (`/dev/shm`, `posix_fallocate`) live here and nowhere else on the path.
"""

from __future__ import annotations

import bisect
import mmap
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from devkit.errors import SharedMemoryError

DIRECTORY = Path(os.environ.get("DEVKIT_SHM_DIR", "/dev/shm"))  # the tests point it elsewhere
ALIGNMENT = 64  # a cache line, and what vectorised kernels like to load from
_NAME = re.compile(r"^devkit-(\d+)-")


def region_path(key: str) -> Path:
    """File of a POSIX shared-memory key such as `/my_region`."""
    return DIRECTORY / key.lstrip("/")


class Region:
    """A mapping of an existing region, remapped when it has grown.

    Old mappings stay valid for the views made of them, so growth never moves live data.
    """

    def __init__(self, path: Path, *, offset: int = 0, size: Optional[int] = None) -> None:
        """Map `size` bytes of `path` from `offset` (the whole file where `size` is None).

        Raises SharedMemoryError when the file is missing or smaller than that.
        """
        self.path = path
        self.offset = offset
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except (OSError, ValueError) as problem:  # ValueError: a name with a NUL in it
            raise SharedMemoryError(
                f"Unable to open shared memory region: '/{path.name}'"
            ) from problem
        self._fixed = size
        self._view = memoryview(b"")
        try:
            self._map((offset + size) if size is not None else 0)
        except BaseException:
            os.close(self._fd)
            raise

    def _map(self, needed: int) -> None:
        length = os.fstat(self._fd).st_size
        if length < needed or length == 0:
            raise SharedMemoryError(f"Invalid shared memory region: '/{self.path.name}'")
        self._view = memoryview(mmap.mmap(self._fd, length))

    @property
    def size(self) -> int:
        """Bytes a caller may address."""
        return len(self._view) - self.offset if self._fixed is None else self._fixed

    def view(self, offset: int, size: int) -> memoryview:
        """`size` writable bytes at `offset` of this region."""
        start = self.offset + offset
        beyond = start + size > len(self._view)
        if beyond or self._fixed is not None:
            self.require(offset, size)
        if beyond:
            self._map(start + size)
        return self._view[start : start + size]

    def require(self, offset: int, size: int) -> None:
        """Raise SharedMemoryError where the file no longer has these bytes.

        To touch them would end this process by SIGBUS: a client may cut its region at any time.
        """
        if self._fd < 0 or os.fstat(self._fd).st_size < self.offset + offset + size:
            raise SharedMemoryError(f"Invalid shared memory region: '/{self.path.name}'")

    @property
    def closed(self) -> bool:
        """Whether it was given back; views may still be held."""
        return self._fd < 0

    def address_of(self, offset: int) -> int:
        """Virtual address of `offset` here; only good for comparing with an array's own address."""
        import ctypes

        return ctypes.addressof(ctypes.c_char.from_buffer(self._view, self.offset + offset))

    def close(self) -> None:
        """Give the descriptor back. Views that are still held keep their mapping alive."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._view = memoryview(b"")


@dataclass(frozen=True)
class SlabUsage:
    """What a gauge shows of one slab; all numbers are bytes except `blocks`."""

    name: str
    size: int
    used: int
    high_water: int
    blocks: int
    owners: Tuple[Tuple[str, int], ...]


class Block:
    """A counted piece of a slab; the last `release` gives it back."""

    __slots__ = ("_holders", "offset", "size", "slab")

    def __init__(self, slab: "Slab", offset: int, size: int) -> None:
        self.slab = slab
        self.offset = offset
        self.size = size
        self._holders = 1

    def view(self, offset: int = 0, size: Optional[int] = None) -> memoryview:
        """Writable bytes of this block."""
        length = self.size - offset if size is None else size
        return self.slab.view(self.offset + offset, length)

    def retain(self) -> "Block":
        self._holders += 1
        return self

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self.slab.free(self.offset)


class Slab(Region):
    """A region this process owns and hands out in blocks; it grows by `step` bytes when full.

    The pages are reserved when the slab grows (`posix_fallocate`), so a full /dev/shm is an error
    here, with a remedy, and not a SIGBUS in the middle of somebody's `execute`.
    """

    def __init__(self, name: str, *, size: int = 1 << 20, step: int = 1 << 20) -> None:
        """Create `/dev/shm/<name>` of `size` bytes; SharedMemoryError when it does not fit."""
        path = DIRECTORY / name
        self.name = name
        self.step = step
        self.used = 0
        self.high_water = 0
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _reserve(descriptor, 0, size, name)
        except BaseException:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        super().__init__(path)
        self._free: List[Tuple[int, int]] = [(0, size)]  # (offset, size), by offset
        self._live: Dict[int, Tuple[int, str]] = {}
        self.on_free: Optional[Callable[[], None]] = None

    def allocate(self, size: int, owner: str = "") -> Block:
        """A block of at least `size` bytes, first fit; `owner` is what gauges name it by."""
        rounded = max(ALIGNMENT, (size + ALIGNMENT - 1) & -ALIGNMENT)
        fits = (index for index, (_, extent) in enumerate(self._free) if extent >= rounded)
        index = next(fits, -1)
        if index < 0:
            self._grow(rounded)
            return self.allocate(size, owner)
        offset, extent = self._free[index]
        if extent == rounded:
            del self._free[index]
        else:
            self._free[index] = (offset + rounded, extent - rounded)
        self._live[offset] = (rounded, owner)
        self.used += rounded
        self.high_water = max(self.high_water, self.used)
        return Block(self, offset, size)

    def free(self, offset: int) -> None:
        """Give back the block at `offset` and join it with free neighbours."""
        size, _ = self._live.pop(offset)
        self.used -= size
        index = bisect.bisect_left(self._free, (offset, 0))
        if index < len(self._free) and self._free[index][0] == offset + size:
            size += self._free.pop(index)[1]
        if index and sum(self._free[index - 1]) == offset:
            before = self._free.pop(index - 1)
            offset, size = before[0], before[1] + size
            index -= 1
        self._free.insert(index, (offset, size))

    def _grow(self, needed: int) -> None:
        length = os.fstat(self._fd).st_size
        tail = self._free[-1] if self._free and sum(self._free[-1]) == length else None
        missing = needed - (tail[1] if tail else 0)
        extra = -(-missing // self.step) * self.step
        _reserve(self._fd, length, extra, self.name)
        self._map(length + extra)
        if tail:
            self._free[-1] = (tail[0], tail[1] + extra)
        else:
            self._free.append((length, extra))

    def usage(self) -> SlabUsage:
        owners: Dict[str, int] = {}
        for size, owner in list(self._live.values()):  # at once: others may ask, in threads
            owners[owner] = owners.get(owner, 0) + size
        return SlabUsage(
            self.name, self.size, self.used, self.high_water, len(self._live),
            tuple(sorted(owners.items())),
        )  # fmt: skip

    def unlink(self) -> None:
        """Remove the file and close. Mappings elsewhere stay valid until they end."""
        self.path.unlink(missing_ok=True)
        self.close()


def _reserve(descriptor: int, start: int, size: int, name: str) -> None:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, start, size)
        else:
            os.ftruncate(descriptor, start + size)
    except OSError as problem:
        os.ftruncate(descriptor, start)  # a failed reservation may have taken some pages
        free = os.statvfs(DIRECTORY)
        raise SharedMemoryError(
            f"Failed to increase the shared memory pool '{name}' by {size} bytes: "
            f"{free.f_bavail * free.f_frsize} bytes are free in {DIRECTORY}",
            remedy=f"start the container with --shm-size={-(-(start + size) * 2 // (1 << 20))}m "
            f"or more, or free what else is in {DIRECTORY}",
        ) from problem


def slab_name(process: int, model: str, purpose: str) -> str:
    """Name of a slab: `devkit-<runtime pid>-<model>-<purpose>`, safe as a file name."""
    safe = re.sub(r"[^A-Za-z0-9_.]", "_", model)[:100]
    return f"devkit-{process}-{safe}-{purpose}"


def sweep() -> List[str]:
    """Remove what runtimes that no longer run left in /dev/shm; returns the names removed."""
    removed = []
    for entry in DIRECTORY.glob("devkit-*"):
        match = _NAME.match(entry.name)
        if match and not _alive(int(match.group(1))):
            entry.unlink(missing_ok=True)
            removed.append(entry.name)
    return removed


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
