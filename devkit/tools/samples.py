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
