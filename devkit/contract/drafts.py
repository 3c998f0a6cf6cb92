"""Configurations that devkit makes or changes itself: from sample tensors, or to another scale.

What they are turned into is `completion`'s affair; nothing here knows an instance or a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.errors import ConfigError
from devkit.transport.dtypes import ALL, to_config

Tensors = Mapping[str, tuple[str, Sequence[int]]]
"""Protocol datatype and shape of each tensor."""


def scale(config: Any, count: int) -> Any:
    """A copy of `config` whose first instance group has `count` instances; the rest stays."""
    if count < 1:
        raise ConfigError(
            f"a model cannot have {count} instances",
            model=config.name or None,
            remedy="Ask for 1 or more; `devkit unload` takes a model out of service.",
        )
    scaled = pb.ModelConfig()
    scaled.CopyFrom(config)
    if not scaled.instance_group:
        scaled.instance_group.add(name=config.name)
    scaled.instance_group[0].count = count
    return scaled


def infer_config(
    name: str, inputs: Tensors, outputs: Tensors | None = None, max_batch_size: int = 0
) -> Any:
    """A config for `name` made from the tensors of a sample request, and of its answer if known.

    The number of dimensions is taken as given and their extents as accidental (-1), since a
    sample says nothing about other requests. With `max_batch_size` the first is the batch.
    """
    config = pb.ModelConfig(name=name, backend="python", max_batch_size=max_batch_size)
    for tensor, (datatype, shape) in inputs.items():
        config.input.add(**_tensor(tensor, datatype, shape, max_batch_size))
    for tensor, (datatype, shape) in (outputs or {}).items():
        config.output.add(**_tensor(tensor, datatype, shape, max_batch_size))
    return config


def _tensor(name: str, datatype: str, shape: Sequence[int], max_batch_size: int) -> dict[str, Any]:
    if datatype not in ALL:
        raise ConfigError(
            f"tensor '{name}' has type {datatype}, which Triton has not",
            remedy=f"Use one of {', '.join(sorted(ALL))}.",
        )
    rank = len(shape) - (1 if max_batch_size else 0)
    if rank < 0:
        raise ConfigError(
            f"tensor '{name}' is a scalar and has no batch dimension",
            remedy="Give it one (shape [1]), or leave max_batch_size at 0.",
        )
    return {
        "name": name,
        "data_type": pb.DataType.Value(to_config(datatype)),
        "dims": [-1] * rank or [1],
    }
