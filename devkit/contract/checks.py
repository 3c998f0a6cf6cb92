"""What the server refuses in a configuration when the model loads: tensors, states, instances.

Every text is the real server's, in its order; `completion` wraps them into its answers. What the
server refuses earlier, while it polls the repository, is in `scheduling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

PLATFORMS = {
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
}
"""Backends that old configurations name by a `platform`."""


class Refusal(Exception):
    """One rule is broken; raised inside this package only, `text` is the server's."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def check_name(config: Any, name: str) -> None:
    """A config's own name, if it has one, is the folder's."""
    if config.name and config.name != name:
        raise Refusal(
            f"unexpected directory name '{name}' for model '{config.name}', "
            "directory name must equal model name"
        )


def check_backend(config: Any, name: str, default: str) -> None:
    """A config names a backend, or a platform the server knows, or its files tell the backend."""
    if config.backend or config.platform in ("ensemble", *PLATFORMS):
        return
    if config.platform:
        raise Refusal(f"unexpected platform type '{config.platform}' for {name}")
    if not default or config.HasField("ensemble_scheduling"):
        raise Refusal(
            f"Invalid model name: Could not determine backend for model '{name}' with no backend "
            "in model configuration. Expected model name of the form 'model.<backend_name>'."
        )


def check(config: Any, gpus: int) -> None:
    """All checks of the loading stage; `config` is filled in.

    An ensemble's tensors are checked against its models' instead, in `ensembles`.
    """
    if config.platform == "ensemble":
        return
    if config.backend not in ("", "python") and not config.runtime:
        raise Refusal(
            f"unable to find backend library for backend '{config.backend}', try specifying "
            "runtime on the model configuration."
        )
    for group in config.instance_group:
        _check_group(group, config, gpus)
    for tensor in config.input:
        _check_input(tensor, config)
    for tensor in config.output:
        _check_tensor(tensor, "output", config)
    _check_batch_inputs(config)
    _check_batch_outputs(config)
    if config.HasField("sequence_batching"):
        for state in config.sequence_batching.state:
            _check_state(state)
    for warmup in config.model_warmup:
        for name, tensor in warmup.inputs.items():
            _check_warmup(name, tensor)


def _check_warmup(name: str, tensor: Any) -> None:
    if any(extent < 0 for extent in tensor.dims):
        raise Refusal(
            f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
        )
    if tensor.WhichOneof("input_data_type") is None:
        raise Refusal(
            f"[request id: <id_unknown>] warmup setting expects input '{name}' to have "
            "input_data_type set"
        )


def _check_group(group: Any, config: Any, gpus: int) -> None:
    kind = pb.ModelInstanceGroup.Kind.Name(group.kind)
    where = f"instance group {group.name} of model {config.name}"
    if kind == "KIND_GPU":
        if not gpus and not group.gpus:
            raise Refusal(f"{where} has kind KIND_GPU but no GPUs are available")
        for gpu in group.gpus:
            if not 0 <= gpu < gpus:
                known = "".join(f"{index}, " for index in range(gpus)).rstrip(", ")
                raise Refusal(
                    f"{where} specifies invalid or unsupported gpu id {gpu}. GPUs with at least "
                    f"the minimum required CUDA compute compatibility of 6.000000 are: {known}"
                )
    elif group.gpus:
        raise Refusal(f"{where} has kind {kind} but specifies one or more GPUs")
    if group.profile:
        platform = f"{config.platform} " if config.platform else ""
        raise Refusal(
            f"{where} and platform {platform}specifies profile field which is only supported "
            "for TensorRT models"
        )


def _check_input(tensor: Any, config: Any) -> None:
    _check_tensor(tensor, "input", config)
    if tensor.format != pb.ModelInput.FORMAT_NONE and len(tensor.dims) != 3:
        raise Refusal(f"model input NHWC/NCHW require 3 dims for {config.name}")


def _check_tensor(tensor: Any, kind: str, config: Any) -> None:
    """Name, type, dims and reshape of one tensor."""
    model = config.name
    if not tensor.name:
        raise Refusal(f"model {kind} must specify 'name' for {model}")
    what = f"model {kind} '{tensor.name}'"
    if tensor.data_type == pb.TYPE_INVALID:
        raise Refusal(f"{what} must specify 'data_type' for {model}")
    if not tensor.dims:
        raise Refusal(f"{what} must specify 'dims' for {model}")
    if any(extent < 1 and extent != -1 for extent in tensor.dims):
        raise Refusal(
            f"{what} dimension must be integer >= 1, or -1 to indicate a variable-size dimension "
            f"for {model}"
        )
    if tensor.HasField("reshape"):
        _check_reshape(tensor, what, config)
    if tensor.is_shape_tensor:
        raise Refusal(f"shape tensors are only supported for TensorRT platform for {model}")
    if tensor.is_non_linear_format_io:
        raise Refusal(
            f"Non-linear IO format is only supported for the TensorRT platform for {model}"
        )


def _check_reshape(tensor: Any, what: str, config: Any) -> None:
    shape = list(tensor.reshape.shape)
    if not shape and config.max_batch_size == 0:
        raise Refusal(
            f"{what} cannot have empty reshape for non-batching model as scalar tensors are not "
            f"supported for {config.name}"
        )
    if any(extent < 1 and extent != -1 for extent in shape):
        raise Refusal(
            f"{what} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size "
            f"dimension for {config.name}"
        )
    if _segments(tensor.dims) != _segments(shape):
        raise Refusal(f"{what} has different size for dims and reshape for {config.name}")


def _segments(dims: Sequence[int]) -> list[int]:
    """Sizes between the variable dimensions: a reshape must keep each of them."""
    runs: list[list[int]] = [[]]
    for extent in dims:
        if extent == -1:
            runs.append([])
        else:
            runs[-1].append(extent)
    return [prod(run) for run in runs]


def _check_batch_inputs(config: Any) -> None:
    names = {tensor.name for tensor in config.input}
    for entry in config.batch_input:
        kind = pb.BatchInput.Kind.Name(entry.kind)
        _check_source_count(entry, f"batch input kind '{kind}'", config.name)
        if entry.data_type not in (pb.TYPE_INT32, pb.TYPE_FP32):
            raise Refusal(
                f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {config.name}"
            )
        _check_sources(entry, names, config.name)


def _check_batch_outputs(config: Any) -> None:
    names = {tensor.name for tensor in config.input}
    declared = {tensor.name for tensor in config.output}
    for entry in config.batch_output:
        kind = pb.BatchOutput.Kind.Name(entry.kind)
        _check_source_count(entry, f"batch output kind '{kind}'", config.name)
        _check_sources(entry, names, config.name)
        for target in entry.target_name:
            if target not in declared:
                raise Refusal(f"unknown target output name '{target}' for {config.name}")


def _check_source_count(entry: Any, what: str, model: str) -> None:
    count = len(entry.source_input)
    if count != 1:
        raise Refusal(f"{what} expects 1 source input, got {count} for {model}")


def _check_sources(entry: Any, names: set[str], model: str) -> None:
    for source in entry.source_input:
        if source not in names:
            raise Refusal(f"unknown source input name '{source}' for {model}")


def _check_state(state: Any) -> None:
    """`initial_state` of one implicit state."""
    name = state.input_name
    count = len(state.initial_state)
    if count > 1:
        raise Refusal(
            f"initial_state field for state input '{name}' must contain exactly one or zero "
            f"element. Found '{count}' elements."
        )
    for initial in state.initial_state:
        _check_initial(initial, state, name)


def _check_initial(initial: Any, state: Any, name: str) -> None:
    if not initial.name:
        raise Refusal(
            f"Field 'name' must be set when using initial_state for state input '{name}'."
        )
    if initial.WhichOneof("state_data") is None:
        raise Refusal(f"initial_state setting expects state'{name}' to have state_data set")
    if initial.data_type != state.data_type:
        raise Refusal(
            f"The data type used for 'initial_state' field of state '{name}' does not match the "
            "state data type."
        )
    if -1 in initial.dims:
        raise Refusal(
            f"'initial_state' field for state input name '{name}' contains variable dimensions."
        )
    if len(initial.dims) != len(state.dims):
        raise Refusal(
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions "
            f"for state input '{name}'. {len(initial.dims)} != {len(state.dims)}"
        )
    for ours, theirs in zip(initial.dims, state.dims, strict=True):
        if theirs not in (-1, ours):
            raise Refusal(
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim "
                f"description. {ours} != {theirs}"
            )
