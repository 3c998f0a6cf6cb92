"""The system shared-memory extension's registry: clients' regions by name.

Registering maps a region; a request that names it gets places in it, which the stub maps itself, so
tensors are neither copied in nor out.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

from devkit.core.request import SharedPlace
from devkit.errors import Code, InferError, SharedMemoryError
from devkit.transport.memory import Region, region_path


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """A registered region; offset and byte_size are bytes within the key's file."""

    name: str
    key: str
    offset: int
    byte_size: int


class Regions:
    """Regions that clients have registered. Errors are InferErrors with the real server's texts."""

    def __init__(self) -> None:
        self._regions: dict[str, tuple[RegionStatus, Region]] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map `byte_size` bytes at `offset` of the POSIX region `key` under `name`."""
        if name in self._regions:
            raise InferError(
                f"shared memory region '{name}' already in manager", Code.ALREADY_EXISTS
            )
        if "/" in key.lstrip("/") or not key.strip("/"):
            raise InferError(f"Unable to open shared memory region: '{key}'", Code.INTERNAL)
        try:
            region = Region(region_path(key), offset=offset, size=byte_size)
        except SharedMemoryError as problem:
            text = problem.message.rsplit("'", 2)[0] + f"'{key}'"
            raise InferError(text, Code.INTERNAL) from problem
        if not byte_size or offset % mmap.ALLOCATIONGRANULARITY:
            region.close()  # the real server maps exactly this range, which the system refuses
            raise InferError(
                f"failed to register shared memory region '{name}': unable to process address "
                "spaceInvalid argument"
            )
        self._regions[name] = (RegionStatus(name, key, offset, byte_size), region)

    def unregister(self, name: str | None = None) -> None:
        """Forget `name`, or every region; unknown names are no error."""
        for each in [name] if name else list(self._regions):
            entry = self._regions.pop(each, None)
            if entry:
                entry[1].close()

    def status(self, name: str | None = None) -> list[RegionStatus]:
        """All regions by name, or the one asked for."""
        if name:
            if name not in self._regions:
                raise InferError(
                    f"Unable to find system shared memory region: '{name}'", Code.NOT_FOUND
                )
            return [self._regions[name][0]]
        return [self._regions[each][0] for each in sorted(self._regions)]

    def find(self, name: str, offset: int, size: int) -> SharedPlace:
        """`size` bytes at `offset` of region `name`, for a tensor to lie in."""
        entry = self._regions.get(name)
        if entry is None:
            raise InferError(f"Unable to find shared memory region: '{name}'", Code.NOT_FOUND)
        status, region = entry
        if not size or offset + size > status.byte_size:
            raise InferError(f"Invalid offset + byte size for shared memory region: '{name}'")
        return SharedPlace(region, offset, size)
