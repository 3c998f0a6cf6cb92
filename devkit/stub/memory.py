"""Shared memory as one stub sees it: inputs that lie in regions, and its own response slab.

An input that a model keeps must never be overwritten: every array over a region holds the
`Lease` of its request, so a lease that is still alive when `execute` has returned is what HOLD
names, and its end is what DROP reports. What a slab or a region is, `transport.memory` says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from devkit.transport.memory import Region, Slab, SlabUsage
from devkit.transport.messages import OWN_RESPONSE_SLAB, Place


class Lease:
    """The right to read a request's inputs in shared memory; ends with the last array over them."""

    __slots__ = ("__weakref__", "_on_end", "held", "of_request", "sequence")

    def __init__(
        self, sequence: int, on_end: Callable[[int], None], *, of_request: bool = True
    ) -> None:
        """`on_end` hears of the end if `held` was set; `of_request` is False for a BLS response."""
        self.sequence = sequence
        self.held = not of_request
        self.of_request = of_request
        self._on_end = on_end

    def __del__(self) -> None:
        if self.held:
            self._on_end(self.sequence)


class PlacedBuffer:
    """Bytes of one input in a region. NumPy arrays made of it keep it alive, and so its lease."""

    __slots__ = ("__array_interface__", "address", "lease", "place", "view")

    def __init__(self, lease: Lease, place: Place, view: memoryview) -> None:
        self.lease = lease
        self.place = place
        self.view = view
        # An array over an empty view has no address worth asking for.
        self.address = address(np.frombuffer(view, dtype=np.uint8)) if len(view) else 0

    def array(self, dtype: np.dtype[Any], shape: Tuple[int, ...]) -> npt.NDArray[Any]:
        """A writable array over the bytes themselves."""
        if not len(self.view):
            return np.empty(shape, dtype)
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (self.address, False),
        }
        return np.asarray(self)

    def place_of(self, array: npt.NDArray[Any]) -> Optional[Place]:
        """Where `array` lies if all of it lies in this input, else None."""
        start = address(array) - self.address
        if start >= 0 and start + array.nbytes <= self.place.size:
            return Place(self.place.region, self.place.offset + start, array.nbytes)
        return None


def address(array: npt.NDArray[Any]) -> int:
    """Virtual address of an array's first element."""
    found: int = array.__array_interface__["data"][0]
    return found


class Regions:
    """The regions the other side has announced, by slot, mapped when first needed."""

    def __init__(self) -> None:
        self._named: Dict[int, Tuple[str, int, Optional[int]]] = {}
        self._mapped: Dict[int, Region] = {}

    def announce(self, slot: int, described: List[Any]) -> None:
        """REGION: `slot` means from now on the file, offset and size in `described`."""
        old = self._mapped.pop(slot, None)
        if old is not None:
            old.close()  # arrays over it keep their mapping
        path, offset, size = described
        self._named[slot] = (path, offset, size)

    def view(self, place: Place) -> memoryview:
        """Writable bytes of a place."""
        region = self._mapped.get(place.region)
        if region is None:
            path, offset, size = self._named[place.region]
            region = self._mapped[place.region] = Region(Path(path), offset=offset, size=size)
        return region.view(place.offset, place.size)


class ResponseMemory:
    """The stub's own slab, made when the first large output comes."""

    def __init__(self, name: str, size: int, step: int) -> None:
        self._name = name
        self._size = size
        self._step = step
        self._slab: Optional[Slab] = None

    @property
    def path(self) -> Optional[Path]:
        """File of the slab, None while there is none."""
        return self._slab.path if self._slab else None

    def store(self, data: memoryview, owner: str = "response") -> Place:
        """Copy `data` into a block of its own. Raises SharedMemoryError where none can be had."""
        if self._slab is None:
            self._slab = Slab(self._name, size=self._size, step=self._step)
        block = self._slab.allocate(len(data), owner)
        block.view()[:] = data
        return Place(OWN_RESPONSE_SLAB, block.offset, len(data))

    def usage(self) -> Optional[SlabUsage]:
        """What the slab holds, asked by another thread; None while there is none."""
        slab = self._slab
        return slab.usage() if slab is not None else None

    def free(self, offsets: Tuple[int, ...]) -> None:
        """RELEASE: the runtime has written these blocks out."""
        if self._slab is not None:
            for offset in offsets:
                self._slab.free(offset)

    def unlink(self) -> None:
        """Remove the slab's file; the runtime's mapping of it stays."""
        if self._slab is not None:
            self._slab.unlink()
            self._slab = None
