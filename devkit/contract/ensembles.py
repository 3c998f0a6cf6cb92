"""An ensemble against the models it is made of, as the server checks it when it loads one.

`scheduling` checks the maps by themselves; here they meet the completed configurations of the
models. Nothing here runs a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.errors import Code, LoadError

Lookup = Callable[[str, int], Any]
"""Completed config of a loaded model's version (-1: the newest); None when the model is not there,
False when the model is there and that version is not."""


def check_ensemble(config: Any, lookup: Lookup) -> Any:
    """A copy of the completed ensemble `config` with `decoupled` as its models make it.

    Raises LoadError with the server's text when a model is missing or a tensor does not fit.
    """
    done = pb.ModelConfig()
    done.CopyFrom(config)
    models = [_model(step, config.name, lookup) for step in config.ensemble_scheduling.step]
    for step, model in zip(config.ensemble_scheduling.step, models, strict=True):
        _check_batch_size(config, step.model_name, model)
    tensors = _Tensors(config)
    for step, model in zip(config.ensemble_scheduling.step, models, strict=True):
        _check_step(step, model, tensors)
    done.model_transaction_policy.decoupled = any(
        model.model_transaction_policy.decoupled for model in models
    )
    return done


def _refuse(ensemble: str, text: str) -> LoadError:
    return LoadError(
        f"load failed for model '{ensemble}': {text}\n", Code.INVALID_ARG, model=ensemble
    )


def _model(step: Any, ensemble: str, lookup: Lookup) -> Any:
    name = step.model_name
    if name == ensemble:
        raise _refuse(
            ensemble, f"circular dependency between ensembles: {name} -> ... -> {name} -> {name}"
        )
    model = lookup(name, step.model_version)
    if model is None:
        raise _refuse(
            ensemble,
            f"ensemble {ensemble} contains models that are not available or ambiguous: {name}",
        )
    if model is False:
        raise _refuse(
            ensemble,
            f"ensemble '{ensemble}' depends on '{name}' whose required version "
            f"{step.model_version} is not loaded.",
        )
    return model


def _check_batch_size(config: Any, name: str, model: Any) -> None:
    if 0 < model.max_batch_size < config.max_batch_size:
        raise _refuse(
            config.name,
            f"ensemble {config.name} allows maximum batch size {config.max_batch_size}, but it "
            f"contains model {name} which only allows maximum batch size to be "
            f"{model.max_batch_size}",
        )


class _Tensors:
    """Type and shape of each ensemble tensor, and the model that said so first."""

    def __init__(self, config: Any) -> None:
        self.ensemble = config.name
        self.known: dict[str, tuple[Any, Any]] = {}
        for tensor in (*config.input, *config.output):
            self.add(tensor.name, tensor, config)

    def add(self, name: str, tensor: Any, model: Any) -> None:
        """Note that `model` sees `name` as `tensor`; refuse it where another sees it otherwise."""
        first, owner = self.known.setdefault(name, (tensor, model))
        prefix = f"in ensemble {self.ensemble}, ensemble tensor {name}: inconsistent"
        inferred = "{} is inferred from model {} while {} is inferred from model {}"
        if first.data_type != tensor.data_type:
            kinds = (pb.DataType.Name(first.data_type), pb.DataType.Name(tensor.data_type))
            text = inferred.format(kinds[0], owner.name, kinds[1], model.name)
            raise _refuse(self.ensemble, f"{prefix} data type: {text}")
        if not _fits(first, owner, tensor, model):
            shapes = (_shape(first.dims), _shape(tensor.dims))
            text = inferred.format(shapes[0], owner.name, shapes[1], model.name)
            raise _refuse(self.ensemble, f"{prefix} shape: {text}")


def _fits(one: Any, owner: Any, other: Any, model: Any) -> bool:
    """Whether the dims agree, as given or with the batch dimension of those that have one."""
    full = (_full(one, owner), _full(other, model))
    return _same(one.dims, other.dims) or _same(*full)


def _full(tensor: Any, model: Any) -> list[int]:
    return [-1, *tensor.dims] if model.max_batch_size else list(tensor.dims)


def _same(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )


def _shape(dims: Sequence[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def _check_step(step: Any, model: Any, tensors: _Tensors) -> None:
    where = f"in ensemble {tensors.ensemble}, "
    declared = {tensor.name: tensor for tensor in model.input}
    for name, target in step.input_map.items():
        if name not in declared:
            raise _refuse(
                tensors.ensemble,
                f"{where}ensemble tensor {target} is mapping to non-existing input {name} in model "
                f"{model.name}",
            )
        tensors.add(target, declared[name], model)
    for name, tensor in declared.items():
        if name not in step.input_map and not tensor.optional:
            raise _refuse(
                tensors.ensemble,
                f"{where}input {name} in model {model.name} is not mapped to any ensemble tensors",
            )
    written = {tensor.name: tensor for tensor in model.output}
    for name, target in step.output_map.items():
        if name not in written:
            raise _refuse(
                tensors.ensemble,
                f"{where}ensemble tensor {target} is mapped from non-existing output {name} in "
                f"model {model.name}",
            )
        tensors.add(target, written[name], model)
