"""Requests that a model serves before anybody else's: its config's `model_warmup`.

Each instance runs every sample once it is initialized, around the scheduler, and serves only when
all were answered well. Texts and order are the real server's (observed on tritonserver 2.51): a
sample's `batch_size` is how many requests of one row make its batch, so a sample without one runs
nothing; inputs that the model does not have are passed over.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.contract import tensors
from devkit.core import checks
from devkit.core.request import Description, Request, Response, TensorSpec
from devkit.errors import InferError, LoadError
from devkit.transport import dtypes

if TYPE_CHECKING:
    from devkit.core.instance import Instance
    from devkit.core.model import Model

_NUMBERS = itertools.count(3 << 60)  # apart from clients' requests and from those for empty slots
FOLDER = "warmup"
"""Where in the model's folder `input_data_file` lies."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One entry of `model_warmup`.

    Attributes:
        name: as the config has it, often empty.
        rows: requests of its batch.
        repeats: batches of it, one after the other.
        description, buffers: what each of its requests is.
    """

    name: str
    rows: int
    repeats: int
    description: Description
    buffers: tuple[bytes, ...]


def samples(model: Model) -> list[Sample]:
    """What the config of `model` asks for. Raises LoadError where it cannot be made."""
    return [_sample(model, row) for row in model.config.model_warmup]


def _sample(model: Model, row: Any) -> Sample:
    specs, buffers = [], []
    for name in model.inputs:
        if name not in row.inputs:
            continue
        tensor = row.inputs[name]
        shape = tuple(tensor.dims)
        datatype = tensors.datatype(tensor.data_type)
        buffers.append(_data(model, name, datatype, dtypes.element_count(shape), tensor))
        specs.append(TensorSpec(name, datatype, (1, *shape) if model.max_batch_size else shape))
    description = Description(tuple(specs))
    return Sample(row.name, row.batch_size, max(row.count, 1), description, tuple(buffers))


def _data(model: Model, name: str, datatype: str, elements: int, tensor: Any) -> bytes:
    size = 4 * elements if datatype == "BYTES" else dtypes.SIZES[datatype] * elements
    kind = tensor.WhichOneof("input_data_type")
    if kind == "input_data_file":
        data = _read(model.model_dir / FOLDER / tensor.input_data_file, model.name)
        if datatype != "BYTES" and len(data) < size:
            raise LoadError(
                "Invalid argument: [request id: <id_unknown>] warmup setting expects "
                f"{size} bytes, but the data provided from {tensor.input_data_file}only has "
                f"{len(data)} bytes",
                model=model.name,
                remedy=f"make {FOLDER}/{tensor.input_data_file} {size} bytes long",
            )  # fmt: skip
        return data if datatype == "BYTES" else data[:size]
    if kind == "random_data" and datatype != "BYTES":
        return os.urandom(size)
    return bytes(size)


def _read(path: Path, model: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise LoadError(
            f"Internal: failed to open text file for read {path}: {problem.strerror}",
            model=model,
            remedy=f"`input_data_file` names a file of the model's folder {FOLDER}/",
        ) from problem


async def run(instance: Instance, wanted: Sequence[Sample]) -> None:
    """Have `instance` run the samples. Raises LoadError with the answers to one that failed."""
    for sample in wanted:
        for _ in range(sample.repeats if sample.rows else 0):
            problems = await _batch(instance, sample)
            if problems:
                told = "".join(f"{problem}; " for problem in problems)
                raise LoadError(
                    f"Invalid argument: failed to run warmup sample '{sample.name}': {told}",
                    model=instance.model.name,
                    remedy="the model must answer the requests that its own `model_warmup` makes",
                )  # fmt: skip


async def _batch(instance: Instance, sample: Sample) -> list[str]:
    model = instance.model
    if sample.rows > max(model.max_batch_size, 1):
        text = f"batch size {sample.rows} for '{instance.name}', max allowed is "
        return [f"{text}{model.max_batch_size}"] * sample.rows
    problems: list[str] = []
    over = asyncio.Event()
    left = sample.rows

    def answered(response: Response) -> None:
        nonlocal left
        if response.error is not None:
            problems.append(response.error.message)
        if response.final:
            left -= 1
            if not left:
                over.set()
        response.release()

    requests = [
        Request(model.name, sample.description, list(sample.buffers), answered)
        for _ in range(sample.rows)
    ]
    try:
        for request in requests:
            request.sequence = next(_NUMBERS)
            model.fit(request)
    except InferError as problem:
        raise LoadError(
            f"Invalid argument: {problem.message}", model=model.name,
            remedy="`model_warmup` must give every input as the model declares it",
        ) from problem  # fmt: skip
    model.open_requests += len(requests)
    instance.execute(requests)
    waits = [asyncio.ensure_future(each.wait()) for each in (over, instance.ended)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if not over.is_set():
        model.open_requests -= left
        problems += [checks.not_healthy(instance.name).message] * left
    return problems
