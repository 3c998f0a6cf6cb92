"""The generate extension's mapping: flat JSON to a request, a response to flat JSON.

Members named like an input become that input, everything else a request parameter; the members of
`parameters` count as if they stood outside. Texts are the real server's (2.51). Nothing here knows
HTTP or event streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from devkit.contract import rapidjson, wire
from devkit.errors import Code, InferError
from devkit.transport import dtypes
from devkit.transport.dtypes import ReadableBuffer

ONE_RESPONSE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)


@dataclass(slots=True)
class Generate:
    """A generate request: its inputs, their bytes, what is left as parameters."""

    id: str = ""
    inputs: list[wire.Tensor] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)


def parse(body: ReadableBuffer, inputs: Mapping[str, Any]) -> Generate:
    """Map a JSON body onto `inputs` (name to IOSpec). Raises InferError."""
    document = rapidjson.parse(body)
    if type(document) is not dict:
        raise InferError("attempt to get members for non-object", Code.INTERNAL)
    request = Generate()
    if "id" in document:
        request.id = rapidjson.string(document["id"], "Unable to parse 'id': ")
    for key, value in document.items():
        if key == "parameters" and key not in inputs:
            if type(value) is not dict:
                raise rapidjson.wrong_type(
                    "object", "object", "Expected JSON object for keyword: 'parameters': "
                )
            for inner, each in value.items():
                _member(request, inner, each, inputs, "Converting keyword: 'parameters': ")
        else:
            _member(request, key, value, inputs, "")
    return request


def _member(request: Generate, key: str, value: Any, inputs: Mapping[str, Any], about: str) -> None:
    spec = inputs.get(key)
    if spec is not None:
        if any(tensor.name == key for tensor in request.inputs):
            label = request.id or "<id_unknown>"
            raise InferError(f"[request id: {label}] input '{key}' already exists in request")
        request.inputs.append(_tensor(spec, value))
        return
    try:
        request.parameters[key] = wire.parameter(key, value)
    except InferError as problem:
        raise InferError(about + problem.message, problem.code) from None


def _tensor(spec: Any, value: Any) -> wire.Tensor:
    """The tensor of a member: its shape follows from the number of elements."""
    values = value if type(value) is list else [value]
    count = len(values)
    fixed = dtypes.element_count(extent for extent in spec.shape if extent >= 0)
    variable = [index for index, extent in enumerate(spec.shape) if extent < 0]
    if (fixed and count % fixed) or (not variable and count != fixed):
        raise InferError(
            f"The schema can not convert input '{spec.name}' to tensor with proper shape"
        )
    shape = [1 if extent < 0 else extent for extent in spec.shape]
    if variable:
        shape[variable[-1]] = count // (fixed or 1)
    data = wire.pack(spec.name, spec.datatype, values, dtypes.element_count(shape))
    return wire.Tensor(spec.name, spec.datatype, tuple(shape), data=data)


def reply(
    outputs: Sequence[Any], buffers: Sequence[ReadableBuffer], model: str, version: str, id: str
) -> bytes:
    """A response as one JSON object, its keys sorted; a tensor of one element is a bare value."""
    members = {"model_name": _quoted(model), "model_version": _quoted(version)}
    if id:
        members["id"] = _quoted(id)
    for spec, data in zip(outputs, buffers, strict=True):
        if spec.name not in members:
            members[spec.name] = _value(spec, data)
    ordered = sorted((rapidjson.to_bytes(name), value) for name, value in members.items())
    return b"{" + b",".join(rapidjson.quote(name) + b":" + value for name, value in ordered) + b"}"


def _quoted(text: str) -> bytes:
    return rapidjson.quote(rapidjson.to_bytes(text))


def _value(spec: Any, data: ReadableBuffer) -> bytes:
    text = wire.unpack(spec.datatype, data)
    return text[1:-1] if dtypes.element_count(spec.shape) == 1 else text


def error(message: str) -> bytes:
    """An error as the JSON object every HTTP endpoint answers with."""
    return b'{"error":' + _quoted(message) + b"}"
