"""Recorded requests as `model_warmup`: what each instance runs before it serves.

A sample's file holds one row of a request, as the server reads it (BYTES with their length
prefixes); `batch_size` is how many of them make the batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.contract import config as contract
from devkit.contract.recording import Record
from devkit.transport import dtypes

FOLDER = "warmup"
MOST = 4  # samples; each instance runs all of them at each start


@dataclass(frozen=True, slots=True)
class Warmup:
    """What is added to a model: `samples` for its config, `files` by path in its folder."""

    samples: tuple[Any, ...]
    files: dict[str, bytes]


def warmup(config: Any, records: Sequence[Record]) -> Warmup:
    """Samples of recorded requests, one for each set of shapes, the newest of each."""
    declared = contract.inputs(config)
    batching = config.max_batch_size > 0
    chosen: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if record.whole and record.replies and not any(one.error for one in record.replies):
            key = tuple(sorted((h.name, *h.shape) for h in record.request.held("inputs")))
            chosen[key] = record
    samples, files = [], {}
    for number, record in enumerate(list(chosen.values())[-MOST:], 1):
        sample = pb.ModelWarmup(name=f"recorded_{number}", batch_size=1)
        for held in record.request.held("inputs"):
            if held.name not in declared:
                continue
            array = held.array()
            shape = list(held.shape)
            if batching:
                sample.batch_size = max(1, shape[0])
                shape = shape[1:]
            file = f"recorded_{number}_{re.sub(r'[^A-Za-z0-9_.-]', '_', held.name)}"
            row = array[:1] if batching else array
            files[f"{FOLDER}/{file}"] = _data(held.datatype, row)
            entry = sample.inputs[held.name]
            entry.data_type = pb.DataType.Value(dtypes.to_config(held.datatype))
            entry.dims.extend(shape)
            entry.input_data_file = file
        if sample.inputs:
            samples.append(sample)
    return Warmup(tuple(samples), files)


def _data(datatype: str, array: Any) -> bytes:
    if datatype == "BYTES":
        return bytes(dtypes.encode_bytes(array))
    if datatype == "BF16":
        import numpy as np

        return bytes(
            (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        )
    return bytes(array.tobytes())


def config_text(text: str, samples: Sequence[Any]) -> str:
    """The config's text with the samples behind it, its comments untouched."""
    only = pb.ModelConfig(model_warmup=list(samples))
    added = contract.to_pbtxt(only, minimal=False)
    lines = [line for line in added.splitlines() if line.strip()]
    return text.rstrip("\n") + "\n" + "\n".join(lines) + "\n"
