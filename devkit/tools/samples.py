"""Requests made up from a model's config, for a model nobody has called yet.

They have the right names, types and shapes and harmless values; whether the model likes the
values is its own affair, since both servers are asked the same. Always the same ones for a config.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract import config as contract
from devkit.contract.recording import TensorRow, Wire, request_wire
from devkit.transport import dtypes

FREE_EXTENTS = (1, 3)  # what a dimension of -1 becomes, sample by sample
MOST_ROWS = 64
_EDGE_EXTENT = 7
_ODD_WORDS = (b"", b"\x00", "\u00e4\u4e16\U0001f600".encode(), b"x" * 1000, b"1", b"\n")
_WORDS = (b"devkit", b"", "Gr\u00fc\u00dfe".encode(), b"a longer text, with blanks")


def sample_requests(config: contract.ModelConfig) -> list[Wire]:
    """A few requests: each free extent, and for a batching model a batch of one and of more."""
    requests = []
    batches = sorted({1, min(config.max_batch_size, 3)}) if config.max_batch_size else [0]
    generator = np.random.default_rng(0)
    for extent in FREE_EXTENTS if _has_free(config) else FREE_EXTENTS[-1:]:
        for batch in batches:
            rows = [
                _row(spec, batch, extent, generator) for spec in contract.inputs(config).values()
            ]
            requests.append(request_wire(rows))
    return requests


def edge_requests(config: contract.ModelConfig) -> list[Wire]:
    """Requests at the edges: zeros, NaN and infinities, odd texts, the largest batch, no options.

    Integers stay small: they may be lengths or times, and a model would take them at their word.
    """
    specs = list(contract.inputs(config).values())
    batch = 1 if config.max_batch_size else 0
    requests = [
        request_wire([_edge_row(spec, batch, zeros) for spec in specs]) for zeros in (True, False)
    ]
    generator = np.random.default_rng(1)
    largest = min(config.max_batch_size, MOST_ROWS)
    if largest > 3:
        requests.append(request_wire([_row(spec, largest, 2, generator) for spec in specs]))
    needed = [spec for spec in specs if not spec.optional]
    if needed and len(needed) < len(specs):
        requests.append(request_wire([_row(spec, batch, 2, generator) for spec in needed]))
    return requests


def _edge_row(spec: contract.IOSpec, batch: int, zeros: bool) -> TensorRow:
    dims = tuple(_EDGE_EXTENT if size < 0 else size for size in spec.dims)
    shape = (batch, *dims) if batch else dims
    count = dtypes.element_count(shape)
    if spec.datatype == "BYTES":
        words = np.empty(count, dtype=np.object_)
        words[:] = [b"" if zeros else _ODD_WORDS[index % len(_ODD_WORDS)] for index in range(count)]
        return spec.name, spec.datatype, shape, dtypes.encode_bytes(words)
    if spec.datatype == "BF16":
        return spec.name, spec.datatype, shape, np.zeros(count, np.uint16).tobytes()
    dtype = dtypes.NUMPY[spec.datatype]
    values = np.zeros(count, dtype)
    if not zeros and dtype.kind == "f":
        info = np.finfo(dtype)
        odd = [np.nan, np.inf, -np.inf, -0.0, info.tiny, info.max, info.min]
        values[:] = [odd[index % len(odd)] for index in range(count)]
    elif not zeros:
        values[:] = 1
    return spec.name, spec.datatype, shape, values.tobytes()


def _has_free(config: contract.ModelConfig) -> bool:
    return any(-1 in spec.dims for spec in contract.inputs(config).values())


def _row(
    spec: contract.IOSpec, batch: int, extent: int, generator: np.random.Generator
) -> TensorRow:
    dims = tuple(extent if size < 0 else size for size in spec.dims)
    shape = (batch, *dims) if batch else dims
    data = _data(spec.datatype, dtypes.element_count(shape), generator)
    return spec.name, spec.datatype, shape, data


def _data(datatype: str, count: int, generator: np.random.Generator) -> bytes:
    if datatype == "BYTES":
        words = np.empty(count, dtype=np.object_)
        words[:] = [_WORDS[index % len(_WORDS)] for index in range(count)]
        return dtypes.encode_bytes(words)
    return _values(datatype, count, generator).tobytes()


def _values(datatype: str, count: int, generator: np.random.Generator) -> npt.NDArray[Any]:
    if datatype == "BOOL":
        return generator.random(count) < 0.5
    if datatype == "BF16":
        return (generator.random(count, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    dtype = dtypes.NUMPY[datatype]
    if dtype.kind == "f":
        return generator.standard_normal(count).astype(dtype)
    # Small ones: they may be indices, and a model may multiply them.
    return generator.integers(0, 10, count).astype(dtype)
