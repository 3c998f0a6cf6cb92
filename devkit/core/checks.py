"""Whether a request fits a model: the refusals that come before the queue, in the server's words.

What depends on a request's description alone is worked out once for each description and model
(`check_description`); what depends on its bytes is checked for every request (`check_buffers`).
Order and texts: as the real server 2.51 gives them (FACTS 4; the parity tests compare).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from devkit.contract.config import IOSpec
from devkit.core.request import Buffer, Request, SharedPlace, TensorSpec
from devkit.errors import Code, InferError, SharedMemoryError
from devkit.transport import dtypes

BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)

LONGEST_ID = 128
"""Bytes that a sequence's id may have."""


class LateRefusal(InferError):
    """A refusal that the real server gives from behind the queue, not to the caller at once."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a description means to a model it fits.

    Attributes:
        batch_size: of each request so described; 1 for a model without a batch dimension.
        sizes: bytes each input must have, -1 for BYTES.
        strings: (index, elements) of the BYTES inputs.
        batch_key: equal for requests that may share a batch.
        plan: slot-independent part of the plan message, kept by whoever sends it.
    """

    batch_size: int
    sizes: tuple[int, ...]
    strings: tuple[tuple[int, int], ...]
    batch_key: tuple[object, ...]


def check_sequence_id(identity: int | str) -> None:
    """Refuse an id that is too long, whether or not the model has sequences at all."""
    if isinstance(identity, str) and len(identity.encode("utf-8", "surrogateescape")) > LONGEST_ID:
        raise InferError(
            f"string correlation ID cannot be longer than {LONGEST_ID} characters",
            Code.UNSUPPORTED,
        )


def _server_order(request: Request) -> tuple[TensorSpec, ...]:
    """The inputs as the real server goes through them: the request's last first.

    It keeps them in a hash map whose iteration, for a handful of names, is insertion reversed;
    which of two faulty inputs a refusal names, and how it lists them, follows from that.
    """
    return request.description.inputs[::-1]


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _missing_inputs(
    request: Request, name: str, inputs: Mapping[str, IOSpec], required: int
) -> InferError:
    given = [spec.name for spec in _server_order(request)]
    missing = [
        spec.name for spec in inputs.values() if not spec.optional and spec.name not in given
    ]
    got = ",".join(f"'{each}'" for each in given)
    # The stray bracket where nothing is missing is the real server's.
    lack = "[" + ",".join(f"'{each}'" for each in missing) + "]" if missing else "]"
    expected = str(len(inputs)) if required == len(inputs) else f"a minimum of {required}"
    if required != len(inputs):
        expected = f"number of inputs between {required} and {len(inputs)}"
        return InferError(
            f"{request.label()}expected {expected} but got {len(given)} inputs for model '{name}'. "
            f"Got input(s) [{got}], but missing required input(s) {lack}. "
            "Please provide all required input(s)."
        )
    return InferError(
        f"{request.label()}expected {expected} inputs but got {len(given)} inputs for model "
        f"'{name}'. Got input(s) [{got}], but missing required input(s) {lack}. "
        "Please provide all required input(s)."
    )


def check_description(
    request: Request,
    name: str,
    inputs: Mapping[str, IOSpec],
    outputs: Mapping[str, IOSpec],
    max_batch_size: int,
) -> Fit:
    """How `request`'s description fits; raises InferError in the real server's words if not."""
    description = request.description
    for wanted in description.outputs:
        if wanted not in outputs:
            raise InferError(f"unexpected inference output '{wanted}' for model '{name}'")
    required = sum(not spec.optional for spec in inputs.values())
    if not required <= len(description.inputs) <= len(inputs):
        raise _missing_inputs(request, name, inputs, required)
    batch_size = _batch_size(request, name, inputs, max_batch_size)
    for spec in _server_order(request):
        _check_tensor(request, name, spec, inputs[spec.name], max_batch_size)
    sizes, strings, key = [], [], []
    for index, spec in enumerate(description.inputs):
        config = inputs[spec.name]
        item = spec.shape[1:] if max_batch_size else spec.shape
        elements = dtypes.element_count(item) * (max(1, batch_size) if max_batch_size else 1)
        if spec.datatype == "BYTES":
            sizes.append(-1)
            strings.append((index, elements))
        else:
            sizes.append(elements * dtypes.SIZES[spec.datatype])
        key.append((spec.name, () if config.allow_ragged else item))
    key.sort()
    return Fit(max(1, batch_size), tuple(sizes), tuple(strings), tuple(key))


def _batch_size(
    request: Request, name: str, inputs: Mapping[str, IOSpec], max_batch_size: int
) -> int:
    size = -1
    for spec in _server_order(request):
        if spec.name not in inputs:
            raise InferError(f"unexpected inference input '{spec.name}' for model '{name}'")
    if not max_batch_size:
        return 1
    for spec in _server_order(request):
        if not spec.shape:
            raise InferError(
                f"{request.label()}input '{spec.name}' has no shape but model requires batch "
                f"dimension for '{name}'"
            )
        if size == -1:
            size = spec.shape[0]
        elif size != spec.shape[0]:
            raise InferError(
                f"{request.label()}input '{spec.name}' batch size does not match other inputs for "
                f"'{name}'"
            )
    if size > max_batch_size:
        raise InferError(
            f"{request.label()}inference request batch-size must be <= {max_batch_size} for "
            f"'{name}'"
        )
    return max(size, 0)


def _check_tensor(
    request: Request, name: str, spec: TensorSpec, config: IOSpec, max_batch_size: int
) -> None:
    if spec.datatype != config.datatype:
        raise InferError(
            f"{request.label()}inference input '{spec.name}' data-type is '{spec.datatype}', but "
            f"model '{name}' expects '{config.datatype}'"
        )
    if any(extent < 0 for extent in spec.shape):
        raise InferError(
            f"{request.label()}All input dimensions should be specified for input '{spec.name}' "
            f"for model '{name}', got {_shape(spec.shape)}"
        )
    item = spec.shape[1:] if max_batch_size else spec.shape
    dims = config.dims
    if len(item) != len(dims) or any(
        want not in (-1, got) for want, got in zip(dims, item, strict=True)
    ):
        expected = _shape((-1, *dims)) if max_batch_size else _shape(dims)
        raise InferError(
            f"{request.label()}unexpected shape for input '{spec.name}' for model '{name}'. "
            f"Expected {expected}, got {_shape(spec.shape)}. {BATCH_NOTE if max_batch_size else ''}"
        )


def check_buffers(request: Request, name: str, fit: Fit) -> None:
    """Whether the bytes of `request` are as many as its description says; raises InferError."""
    for index, (size, buffer) in enumerate(zip(fit.sizes, request.buffers, strict=True)):
        got = buffer.size if type(buffer) is SharedPlace else len(buffer)  # type: ignore[arg-type]
        if size not in (-1, got):
            raise InferError(
                f"{request.label()}input byte size mismatch for input "
                f"'{request.description.inputs[index].name}' for model '{name}'. "
                f"Expected {size}, got {got}"
            )
    for index, elements in fit.strings:
        _check_strings(request, name, index, elements, request.buffers[index])


def _check_strings(request: Request, name: str, index: int, elements: int, buffer: Buffer) -> None:
    try:
        view = memoryview(buffer.view() if isinstance(buffer, SharedPlace) else buffer)
    except SharedMemoryError as problem:
        raise InferError(problem.message, Code.INTERNAL) from problem
    input_name = request.description.inputs[index].name
    offset, end, count = 0, len(view), 0
    unpack = struct.Struct("<I").unpack_from
    while offset < end:
        if count == elements:
            raise InferError(
                f"{request.label()}unexpected number of string elements {count + 1} for inference "
                f"input '{input_name}' for model '{name}', expecting {elements}"
            )
        left = end - offset
        if left < 4:
            raise InferError(
                f"{request.label()}incomplete string length indicator for inference input "
                f"'{input_name}' for model '{name}', expecting 4 bytes but only {left} bytes "
                "available. Please make sure the string length indicator is in one buffer."
            )
        (length,) = unpack(view, offset)
        if length > left - 4:
            raise LateRefusal(
                f"incomplete string data for inference input '{input_name}', expecting string of "
                f"length {length} but only {left - 4} bytes available"
            )
        offset += 4 + length
        count += 1
    if count != elements:
        raise InferError(
            f"{request.label()}expected {elements} string elements for inference input "
            f"'{input_name}' for model '{name}', got {count}"
        )


def unknown_model(name: str, version: str = "", *, unavailable: bool = False) -> InferError:
    """The refusal of a name or a version that nothing serves."""
    from devkit.errors import UnknownModelError

    if unavailable:
        return UnknownModelError(f"Request for unknown model: '{name}' has no available versions")
    middle = f" version {version}" if version else ""
    return UnknownModelError(f"Request for unknown model: '{name}'{middle} is not found")


def not_healthy(instance: str) -> InferError:
    """The answer to the requests of a stub that died."""
    return InferError(f"Stub process '{instance}' is not healthy.", Code.INTERNAL)


def execute_failed(instance: str, error: str) -> InferError:
    """The answer to every request of a batch whose `execute` raised or returned what it may not."""
    return InferError(
        f"Failed to process the request(s) for model '{instance}', message: {error}", Code.INTERNAL
    )


def cancelled() -> InferError:
    """The answer to a request that was cancelled before an instance had it: a code, no words."""
    return InferError("", Code.CANCELLED)
