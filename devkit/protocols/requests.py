"""From what a front end decoded to the core's `Request`: interning, shared memory, raw requests.

Both HTTP and gRPC pass through here, so that equal requests of either share one `Description` and
with it everything the core worked out about it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from devkit.contract import wire
from devkit.core.request import Description, Request, SharedPlace, TensorSpec
from devkit.errors import InferError
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.memory import Block

NOT_A_VERSION = (
    "failed to get model version from specified version string '{}' (details: stol), version "
    "should be an integral value > 0"
)


class Regions(Protocol):
    """The engine's registry of clients' shared memory, as far as requests need it."""

    def find(self, name: str, offset: int, size: int) -> SharedPlace: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A parsed header with its description; interned together.

    Attributes:
        shared: something of the request or the reply lies in clients' shared memory.
        cuts: where each input begins and ends in the tail, if all of them lie there.
        sequenced: it carries more than tensors: a sequence, a timeout or a priority.
    """

    header: wire.Header
    description: Description
    shared: bool
    cuts: tuple[tuple[int, int], ...] | None
    sequenced: bool


def prepare(header: wire.Header, descriptions: Descriptions) -> Prepared:
    """Everything that follows from `header` alone."""
    description = descriptions.get(
        header.inputs, header.outputs, header.parameters, header.encoding
    )
    cuts = None
    if header.in_tail:
        ends = list(itertools.accumulate(header.sizes))
        cuts = tuple(zip([0, *ends], ends, strict=False))
    sequenced = bool(header.correlation_id or header.flags or header.timeout or header.priority)
    return Prepared(header, description, header.regions(), cuts, sequenced)


class Descriptions:
    """Descriptions by what they describe."""

    def __init__(self, capacity: int = 4096) -> None:
        self._table: wire.Interned[Description] = wire.Interned(capacity)

    def get(
        self,
        inputs: Sequence[wire.Tensor],
        outputs: tuple[str, ...],
        parameters: dict[str, Any],
        encoding: wire.Encoding,
    ) -> Description:
        """The one Description of these."""
        # Types belong to the key: 1, True and 1.0 are equal but not the same parameter.
        key = (
            tuple((each.name, each.datatype, each.shape) for each in inputs),
            outputs,
            tuple((name, type(value), value) for name, value in parameters.items()),
            encoding,
        )
        found = self._table.get(key)
        if found is None:
            specs = tuple(TensorSpec(each.name, each.datatype, each.shape) for each in inputs)
            found = Description(specs, outputs, parameters, encoding)
            self._table.put(key, found)
        return found


def forward(
    request: Request, headers: Sequence[tuple[str, str]], descriptions: Descriptions
) -> None:
    """Give `request` headers as parameters, behind its own."""
    said = request.description
    parameters = {**said.parameters, **dict(headers)}
    tensors = [wire.Tensor(spec.name, spec.datatype, spec.shape) for spec in said.inputs]
    request.description = descriptions.get(tensors, said.outputs, parameters, said.encoding)


def in_block(
    header: wire.Header, view: memoryview, block: Block, start: int, model: str
) -> list[ReadableBuffer | SharedPlace | None]:
    """The pieces of a tail received into `block` at `start`, as places instead of bytes."""
    pieces: list[ReadableBuffer | SharedPlace | None] = list(wire.slices(header, view, model))
    offset = block.offset + start
    for index, size in enumerate(header.sizes):
        if size >= 0:
            pieces[index] = SharedPlace(block.slab, offset, size, block)
            offset += size
    return pieces


def output_places(header: wire.Header, regions: Regions) -> dict[str, SharedPlace]:
    """The places of the outputs that go to clients' regions."""
    return {
        output.name: regions.find(*output.region)
        for output in header.encoding.outputs.values()
        if output.region is not None
    }


def normal_version(text: str) -> str:
    """A version as the core names it, from digits with a sign or blanks before them, as C reads it.

    Raises InferError in the real server's words.
    """
    if text == "" or (text.isdecimal() and text[0] != "0" and len(text) < 19):
        return text
    stripped = text.lstrip(" \t\n\v\f\r")
    digits = stripped[1:] if stripped[:1] in ("-", "+") else stripped
    count = 0
    while count < len(digits) and "0" <= digits[count] <= "9":
        count += 1
    number = int(digits[:count]) if count else 0
    if not count or number >= 1 << 63:
        raise InferError(NOT_A_VERSION.format(text))
    if stripped[0] == "-" and number:
        raise InferError(
            f"invalid model version specified '{text}' , version should be an integral value > 0"
        )
    return str(number)


def give_up(request: Request) -> None:
    """Give back the memory of a request that the core refused to take."""
    blocks, request.blocks = request.blocks, []
    for block in blocks:
        block.release()


def read_labels(model: Any, encoding: wire.Encoding) -> dict[str, Sequence[str]]:
    """Labels of the outputs that are wanted as classes."""
    found: dict[str, Sequence[str]] = {}
    for output in encoding.outputs.values():
        spec = model.outputs.get(output.name)
        if output.classes and spec is not None and spec.labels:
            path = Path(model.model_dir, spec.labels)
            found[output.name] = _read_labels(path, path.stat().st_mtime_ns)
    return found


@functools.lru_cache(maxsize=64)
def _read_labels(path: Path, changed: int) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8", errors="surrogateescape").splitlines())
