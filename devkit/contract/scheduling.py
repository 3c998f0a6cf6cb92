"""What the server refuses while it polls the repository: batching, sequences, ensembles' own maps.

Every text is the real server's, which writes it to its log only. `completion` raises them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.contract.checks import Refusal

_CORRELATION_TYPES = (
    pb.TYPE_UINT64,
    pb.TYPE_INT64,
    pb.TYPE_UINT32,
    pb.TYPE_INT32,
    pb.TYPE_STRING,
)
_CHOICES = "'int32_false_true', 'fp32_false_true' {} 'bool_false_true'"


def check(config: Any) -> None:
    """All checks of the polling stage; `config` is filled in."""
    name = config.name
    if config.max_batch_size < 0:
        raise Refusal(f"'max_batch_size' must be non-negative value for {name}")
    choice = config.WhichOneof("scheduling_choice")
    if choice == "dynamic_batching":
        _check_dynamic(config.dynamic_batching, config.max_batch_size, name)
    elif choice == "sequence_batching":
        _check_sequence(config.sequence_batching, config.max_batch_size, name)
    if config.platform == "ensemble":
        _check_ensemble(config)
    if config.response_cache.enable:
        _check_cache(config)


def _check_cache(config: Any) -> None:
    unfit = ""
    if config.HasField("sequence_batching"):
        unfit = "sequence batching scheduler"
    elif config.model_transaction_policy.decoupled:
        unfit = "'decoupled' transaction policy"
    if unfit:
        raise Refusal(
            f"Response Cache does not currently support model {config.name} with {unfit}. "
            "Please disable the response cache."
        )


def _check_preferred(sizes: Iterable[int], limit: int, what: str, name: str) -> None:
    for size in sizes:
        if size <= 0:
            raise Refusal(f"{what} must be positive for {name}")
        if size > limit:
            raise Refusal(f"{what} must be <= max batch size for {name}")


def _check_dynamic(batching: Any, limit: int, name: str) -> None:
    _check_preferred(batching.preferred_batch_size, limit, "dynamic batching preferred size", name)
    levels = batching.priority_levels
    if not levels:
        return
    if not 1 <= batching.default_priority_level <= levels:
        raise Refusal(f"default priority level must be in range [1, {levels}] for {name}")
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            raise Refusal(
                f"priority queue policy must have priority level in range [1, {levels}] for {name}"
            )
    if batching.preserve_ordering and levels > 1:
        raise Refusal(
            f"Only one priority level is allowed when 'preserve_ordering' is true for {name}"
        )


def _check_sequence(batching: Any, limit: int, name: str) -> None:
    _check_control_names(batching.control_input, name)
    for kind in ("CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_READY"):
        control = _the_control(batching.control_input, kind, name)
        if control is not None:
            _check_values(control, kind, name)
    control = _the_control(batching.control_input, "CONTROL_SEQUENCE_CORRID", name)
    if control is not None:
        _check_correlation(control, name)
    _check_preferred(
        batching.oldest.preferred_batch_size, limit, "sequence batching preferred batch size", name
    )
    if not 0 <= batching.direct.minimum_slot_utilization <= 1:
        raise Refusal(
            f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}"
        )


def _check_control_names(control_inputs: Any, name: str) -> None:
    for control_input in control_inputs:
        if not control_input.name:
            raise Refusal(f"sequence batching control tensor must have a name for {name}")
    for tensor, count in Counter(control_input.name for control_input in control_inputs).items():
        if count > 1:
            raise Refusal(
                f"sequence batching control tensor '{tensor}' is specified for multiple control "
                f"kinds for {name}"
            )


def _the_control(control_inputs: Any, kind: str, name: str) -> Any:
    """The one control of `kind`, or None."""
    number = pb.ModelSequenceBatching.Control.Kind.Value(kind)
    found = [c for tensor in control_inputs for c in tensor.control if c.kind == number]
    if len(found) > 1:
        raise Refusal(f"sequence batching specifies multiple {kind} tensors for {name}")
    return found[0] if found else None


def _values(control: Any) -> dict[str, int]:
    """How many values each `*_false_true` that is set has."""
    fields = ("int32_false_true", "fp32_false_true", "bool_false_true")
    return {field: len(getattr(control, field)) for field in fields if getattr(control, field)}


def _check_values(control: Any, kind: str, name: str) -> None:
    given = _values(control)
    if len(given) > 1:
        raise Refusal(
            f"sequence batching specifies more than one from {_CHOICES.format('and')} for {kind} "
            f"for {name}"
        )
    if not given:
        raise Refusal(
            f"sequence batching must specify either {_CHOICES.format('or')} for {kind} for {name}"
        )
    for field, count in given.items():
        if count != 2:
            raise Refusal(
                f"sequence batching control '{field}' must have exactly 2 entries for {kind} "
                f"for {name}"
            )


def _check_correlation(control: Any, name: str) -> None:
    kind = "CONTROL_SEQUENCE_CORRID"
    if _values(control):
        raise Refusal(
            f"sequence batching must not specify either {_CHOICES.format('or')} for {kind} "
            f"for {name}"
        )
    if control.data_type not in _CORRELATION_TYPES:
        raise Refusal(
            f"unexpected data type for control {kind} for {name}. Allowed data types are "
            "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
        )


def _check_ensemble(config: Any) -> None:
    name = config.name
    if config.backend:
        raise Refusal(
            f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type"
        )
    if not config.HasField("ensemble_scheduling"):
        raise Refusal(
            f"ensemble scheduling must be set for ensemble {name} whose platform is ensemble"
        )
    if config.instance_group:
        raise Refusal(f"instance group should not be specified for ensemble '{name}'")
    if config.model_warmup:
        raise Refusal(f"model_warmup can not be specified for ensemble '{name}'")
    if not config.ensemble_scheduling.step:
        raise Refusal(f"must specify 'step' for ensemble '{name}'")
    _check_steps(config)
    _check_flow(config)


def _check_steps(config: Any) -> None:
    name = config.name
    written: set[str] = set()
    for index, step in enumerate(config.ensemble_scheduling.step):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                raise Refusal(f"must specify '{field}' in step {index} of ensemble '{name}'")
        for tensor in step.output_map.values():
            if tensor in written:
                raise Refusal(
                    f"ensemble tensor '{tensor}' can appear in an output map only once for "
                    f"ensemble '{name}' step {index}"
                )
            written.add(tensor)


def _check_flow(config: Any) -> None:
    """Every input leads somewhere, every output comes from somewhere, nothing is left over.

    A tensor counts as connected once a step whose inputs all are connected writes it.
    """
    name = config.name
    steps = list(config.ensemble_scheduling.step)
    mentioned = _mentioned(steps)
    inputs = [tensor.name for tensor in config.input]
    outputs = [tensor.name for tensor in config.output]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            if tensor not in mentioned:
                raise Refusal(f"ensemble {kind} '{tensor}' for ensemble {name}' is not used")
    connected = _connected(steps, set(inputs))
    for tensor in outputs:
        if tensor not in connected:
            raise Refusal(
                f"output '{tensor}' for ensemble '{name}' is not written: at least one of its "
                f"depending tensors, '{_loose_end(tensor, steps, connected)}', is not connected"
            )
    used = {tensor for step in steps for tensor in step.input_map.values()} | set(outputs)
    for tensor in mentioned:
        if tensor not in connected or tensor not in used:
            raise Refusal(f"ensemble tensor '{tensor}' is unused in ensemble '{name}'")


def _mentioned(steps: Iterable[Any]) -> list[str]:
    """Ensemble tensors the steps name, each once, in order of appearance."""
    names: dict[str, None] = {}
    for step in steps:
        names.update(dict.fromkeys(step.input_map.values()))
        names.update(dict.fromkeys(step.output_map.values()))
    return list(names)


def _connected(steps: Iterable[Any], inputs: set[str]) -> set[str]:
    connected = set(inputs)
    waiting = list(steps)
    while runnable := [step for step in waiting if connected.issuperset(step.input_map.values())]:
        for step in runnable:
            waiting.remove(step)
            connected.update(step.output_map.values())
    return connected


def _loose_end(tensor: str, steps: Iterable[Any], connected: set[str]) -> str:
    """The tensor furthest upstream of `tensor` that nothing connected leads to."""
    writers = {name: step for step in steps for name in step.output_map.values()}
    seen = {tensor}
    while tensor in writers:
        upstream = sorted(set(writers[tensor].input_map.values()) - connected - seen)
        if not upstream:
            break
        tensor = upstream[0]
        seen.add(tensor)
    return tensor
