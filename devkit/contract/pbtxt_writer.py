"""`ModelConfig` written as a `config.pbtxt` a person would write.

Lists in brackets, short messages on one line, and, in the minimal form, nothing that completion
would add again. What it writes, the real server's parser reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc import model_config_pb2 as pb

from devkit.contract.completion import normalize

_WIDTH = 88
_INDENT = "  "
# Said even where they have their default: an empty `response_cache { }` tells a reader nothing.
_ALWAYS = frozenset(
    {
        "inference.BatchInput.kind",
        "inference.BatchOutput.kind",
        "inference.ModelInstanceGroup.SecondaryDevice.kind",
        "inference.ModelOptimizationPolicy.PinnedMemoryBuffer.enable",
        "inference.ModelResponseCache.enable",
        "inference.ModelSequenceBatching.Control.kind",
        "inference.ModelTransactionPolicy.decoupled",
        "inference.ModelVersionPolicy.Latest.num_versions",
    }
)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def to_pbtxt(config: Any, *, minimal: bool = True) -> str:
    """Text of `config`; minimal text leaves out what completion would put back."""
    shown = _minimal(config) if minimal else config
    return "".join(f"{line}\n" for line in _fields(shown))


def _minimal(config: Any) -> Any:
    """A copy without every field whose absence completion makes good.

    Found by trying: a field goes when the config without it completes to the same. `name` and
    `backend` stay for the reader's sake. `kind` goes only from a completed config: where a user
    wrote KIND_CPU, it matters on the machine with GPUs that the text is taken to.
    """
    short = pb.ModelConfig()
    short.CopyFrom(config)
    completed = config.HasField("version_policy") and bool(config.default_model_filename)
    if completed:
        _try_without(short, short, "instance_group", _completed(short))
    for group in short.instance_group:
        if group.name == config.name:
            group.name = ""  # the name of a lone default group that has since been scaled
    target = _completed(short)
    for message, field in list(_candidates(short, completed)):
        _try_without(short, message, field, target)
    return short


def _completed(config: Any) -> Any:
    return normalize(config, config.name)


def _candidates(config: Any, completed: bool) -> Iterator[tuple[Any, str]]:
    """Message and field of everything completion may add, innermost first."""
    for group in config.instance_group:
        yield from ((group, field) for field in ("name", "gpus"))
        if completed:
            yield group, "kind"
    if config.HasField("dynamic_batching"):
        yield config.dynamic_batching, "preferred_batch_size"
    if config.HasField("sequence_batching"):
        if config.sequence_batching.HasField("oldest"):
            yield config.sequence_batching.oldest, "preferred_batch_size"
        yield config.sequence_batching, "max_sequence_idle_microseconds"
    if config.HasField("optimization"):
        yield config.optimization, "input_pinned_memory"
        yield config.optimization, "output_pinned_memory"
    for field in ("version_policy", "optimization", "default_model_filename"):
        yield config, field
    yield config, "model_transaction_policy"


def _try_without(config: Any, message: Any, field: str, target: Any) -> None:
    kept = type(message)()
    kept.CopyFrom(message)
    message.ClearField(field)
    if _completed(config) != target:
        message.CopyFrom(kept)


def _fields(message: Any) -> Iterator[str]:
    given = {field for field, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:  # in the order the message declares them
        if field in given or field.full_name in _ALWAYS:
            yield from _field(field, getattr(message, field.name))


def _field(field: Any, value: Any) -> Iterator[str]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key in sorted(value):
            yield from _block(field.name, list(_entry(field.message_type, key, value[key])))
    elif field.message_type is None:
        yield f"{field.name}: {_list(field, value) if field.is_repeated else _scalar(field, value)}"
    elif field.is_repeated:
        yield from _messages(field.name, value)
    else:
        yield from _block(field.name, list(_fields(value)))


def _entry(entry: Any, key: Any, value: Any) -> Iterator[str]:
    yield from _field(entry.fields_by_name["key"], key)
    kind = entry.fields_by_name["value"]
    if kind.message_type is None:
        yield from _field(kind, value)
    else:
        yield from _block("value", list(_fields(value)))


def _messages(name: str, values: Any) -> Iterator[str]:
    """A list of messages: one line if it fits, else one block an element."""
    bodies = [list(_fields(value)) for value in values]
    inline = ", ".join(_inline(body) for body in bodies)
    line = f"{name} [ {inline} ]"
    if len(line) <= _WIDTH and len(bodies) == 1:
        yield line
        return
    yield f"{name} ["
    for index, body in enumerate(bodies):
        comma = "," if index + 1 < len(bodies) else ""
        short = _INDENT + _inline(body)
        if len(short) < _WIDTH:
            yield short + comma
            continue
        yield f"{_INDENT}{{"
        yield from (f"{_INDENT}{_INDENT}{line}" for line in body)
        yield f"{_INDENT}}}{comma}"
    yield "]"


def _block(name: str, body: list[str]) -> Iterator[str]:
    line = f"{name} {_inline(body)}"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"{name} {{"
    yield from (_INDENT + line for line in body)
    yield "}"


def _inline(body: list[str]) -> str:
    return " ".join(["{", *(line.strip() for line in body), "}"])


def _list(field: Any, values: Any) -> str:
    return "[ " + ", ".join(_scalar(field, value) for value in values) + " ]"


def _scalar(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if field.type == FieldDescriptor.TYPE_STRING:
        return _quote(value)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return "true" if value else "false"
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return str(np.float32(value))
    return str(value)


def _quote(text: str) -> str:
    """A quoted string; control characters as octal, everything else as it is."""
    escaped = "".join(
        _ESCAPES.get(char) or (f"\\{ord(char):03o}" if ord(char) < 32 else char) for char in text
    )
    return f'"{escaped}"'
