"""`ModelConfig` as the server's JSON, byte for byte, and back.

The server prints every plain field in the order the message declares them, 64-bit integers as
numbers in the places listed here and as strings elsewhere, and maps in no order that means
anything (here: sorted by key). No validation: `completion` does that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc.model_config_pb2 import ModelConfig

from devkit.contract import rapidjson
from devkit.errors import ConfigError

_LONG = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    }
)

# Printed as strings, by protobuf's rule for 64-bit integers that the server leaves alone here.
_STRINGS = frozenset(
    {
        "inference.ModelInstanceGroup.SecondaryDevice.device_id",
        "inference.ModelSequenceBatching.InitialState.dims",
        "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    }
)

# Fields younger than the server these bytes were recorded from: left out while they say nothing.
_YOUNG = frozenset({"inference.ModelEnsembling.max_inflight_requests"})


def to_dict(config: Any) -> dict[str, Any]:
    """`config` as the server's JSON has it, key order included."""
    return _message(config)


def to_json(config: Any) -> str:
    """Body of `GET /v2/models/M/config` for the completed `config`."""
    return _dump(to_dict(config))


def from_dict(values: Mapping[str, Any]) -> Any:
    """`ModelConfig` of a JSON configuration; ConfigError names a field or value it cannot have."""
    config = ModelConfig()
    try:
        json_format.ParseDict(dict(values), config)
    except json_format.ParseError as error:
        raise ConfigError(
            f"not a model configuration: {error}",
            remedy="Give the JSON that GET /v2/models/NAME/config answers, with your changes.",
        ) from error
    return config


def from_json(text: str) -> Any:
    """`ModelConfig` of JSON text, as the `config` parameter of a load request carries it."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"the configuration is not JSON: {error}",
            remedy="A load request's `config` is the model configuration as JSON, not as pbtxt.",
        ) from error
    if not isinstance(values, dict):
        raise ConfigError("the configuration is not a JSON object")
    return from_dict(values)


def _message(message: Any) -> dict[str, Any]:
    fields = sorted(message.DESCRIPTOR.fields, key=_is_plain_choice)
    return {field.name: _field(message, field) for field in fields if _is_printed(message, field)}


def _is_plain_choice(field: Any) -> bool:
    """Whether `field` is a plain member of a oneof: those come last (`initial_state`'s data)."""
    return field.containing_oneof is not None and field.message_type is None


def _is_printed(message: Any, field: Any) -> bool:
    if field.full_name in _YOUNG and not getattr(message, field.name):
        return False
    return not field.has_presence or bool(message.HasField(field.name))


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _scalar(value[key], kind) for key in sorted(value)}
    if field.is_repeated:
        return [_scalar(item, field) for item in value]
    return _scalar(value, field)


def _scalar(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if field.type in _LONG and field.full_name in _STRINGS:
        return str(value)
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return _number(value, (6, 9), np.float32)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _number(value, (15, 17), float)
    return value


def _number(value: float, digits: Iterable[int], kind: Callable[[Any], Any]) -> float | int:
    """`value` with the fewer `digits` that still mean it; an int where that needs no point.

    The server writes it once as text and reads it back, so 16777216 comes out as an integer,
    10000000000, first written 1e+10, as 10000000000.0, and a float's last digits are 9-digit ones.
    """
    text = ""
    for precision in digits:
        text = f"{value:.{precision}g}"
        if kind(float(text)) == kind(value):
            break
    return int(text) if text.lstrip("-").isdigit() else _read(text)


def _read(text: str) -> float:
    """A decimal as the server's JSON reader takes it: digits and power of ten rounded apart."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) - len(fraction)
    digits = float(whole + fraction)
    return digits * float(f"1e{power}") if power >= 0 else digits / float(f"1e{-power}")


def _dump(value: Any) -> str:
    """Compact JSON with the server's spelling of numbers and of control characters."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(key)}:{_dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dump, value)) + "]"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, float):
        return rapidjson.number(value).decode()
    return json.dumps(value)


def _quote(text: str) -> str:
    return rapidjson.quote(text.encode()).decode()
