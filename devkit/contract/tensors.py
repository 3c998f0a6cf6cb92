"""What a completed `ModelConfig` says about tensors, instances, versions and metadata.

Plain frozen values the rest of the runtime works with; nothing here changes a configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.transport.dtypes import from_config


@dataclass(frozen=True, slots=True)
class IOSpec:
    """One declared input or output.

    Attributes:
        datatype: protocol spelling (`FP32`, `BYTES`).
        dims: as the config gives them, -1 for a variable one.
        shape: what a request must send: `dims`, with a leading -1 where the model batches.
        reshape: what the model sees instead of `dims`, or None.
        labels: `label_filename` of an output, "" if none.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    optional: bool = False
    allow_ragged: bool = False
    reshape: tuple[int, ...] | None = None
    labels: str = ""


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """One resource an instance needs from the rate limiter before it may run."""

    name: str
    count: int
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """One instance to start, named as the server names it.

    Attributes:
        kind: `CPU`, `GPU` or `MODEL`, as `model_instance_kind` tells the model.
        device_id: the GPU's number; 0 for CPU and MODEL, as `model_instance_device_id` has it.
        group: index of the instance group; `count` is how many instances the group has in all.
        passive: loaded, but never given requests.
    """

    name: str
    kind: str
    device_id: int
    group: int
    count: int
    passive: bool = False
    host_policy: str = ""
    priority: int = 0
    resources: tuple[ResourceSpec, ...] = ()


def inputs(config: Any) -> dict[str, IOSpec]:
    """Declared inputs by name, in the config's order."""
    return {tensor.name: _spec(tensor, config.max_batch_size) for tensor in config.input}


def outputs(config: Any) -> dict[str, IOSpec]:
    """Declared outputs by name, in the config's order."""
    return {tensor.name: _spec(tensor, config.max_batch_size) for tensor in config.output}


def _spec(tensor: Any, max_batch_size: int) -> IOSpec:
    dims = tuple(tensor.dims)
    return IOSpec(
        name=tensor.name,
        datatype=datatype(tensor.data_type),
        dims=dims,
        shape=(-1, *dims) if max_batch_size > 0 else dims,
        optional=getattr(tensor, "optional", False),
        allow_ragged=getattr(tensor, "allow_ragged_batch", False),
        reshape=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
        labels=getattr(tensor, "label_filename", ""),
    )


def datatype(number: int) -> str:
    """Protocol spelling of a config's data type number."""
    return from_config(pb.DataType.Name(number))


def is_decoupled(config: Any) -> bool:
    """Whether the model may answer a request any number of times."""
    return bool(config.model_transaction_policy.decoupled)


def instances(config: Any) -> list[InstanceSpec]:
    """Instances the completed `config` asks for, in the order the server starts them."""
    return [
        spec for index, group in enumerate(config.instance_group) for spec in _group(group, index)
    ]


def _group(group: Any, index: int) -> list[InstanceSpec]:
    kind = pb.ModelInstanceGroup.Kind.Name(group.kind).removeprefix("KIND_")
    devices = list(group.gpus) if kind == "GPU" else [0]
    places = [device for device in devices for _ in range(group.count)]
    limiter = group.rate_limiter
    return [
        InstanceSpec(
            name=f"{group.name}_{number}",
            kind=kind,
            device_id=device,
            group=index,
            count=len(places),
            passive=group.passive,
            host_policy=group.host_policy,
            priority=limiter.priority,
            resources=tuple(
                ResourceSpec(r.name, r.count, getattr(r, "global")) for r in limiter.resources
            ),
        )
        for number, device in enumerate(places)
    ]


def metadata(config: Any, versions: Iterable[str]) -> dict[str, Any]:
    """Body of `GET /v2/models/M`, keys in the server's order."""
    return {
        "name": config.name,
        "versions": list(versions),
        "platform": config.platform or config.backend,
        "inputs": [_described(_spec(tensor, config.max_batch_size)) for tensor in config.input],
        "outputs": [_described(_spec(tensor, config.max_batch_size)) for tensor in config.output],
    }


def _described(spec: IOSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def versions_served(policy: Any, found: Iterable[int]) -> list[int]:
    """Versions of `found` that a completed config's `version_policy` serves, ascending.

    `version_policy { }` says nothing, and then the server serves all; completion turns an absent
    policy into `latest { num_versions: 1 }`.
    """
    numbers = sorted(set(found))
    choice = policy.WhichOneof("policy_choice")
    if choice == "specific":
        wanted = set(policy.specific.versions)
        return [number for number in numbers if number in wanted]
    if choice == "latest":
        latest = policy.latest.num_versions
        return numbers[-latest:] if latest else []
    return numbers
