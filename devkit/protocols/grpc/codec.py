"""`ModelInferRequest` to what the core takes, and responses to `ModelInferResponse`, as bytes.

The message up to its raw tensors is the same for many requests once the id is cut out of it; it is
interned, and such a request is never parsed by protobuf. A response is written from its signature's
memo and the tensors. Texts are the real server's (2.51). Nothing here knows a server.
"""

from __future__ import annotations

import array as packed
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from devkit.contract import wire
from devkit.core.request import Description, Request, Response
from devkit.errors import InferError
from devkit.protocols.requests import Descriptions, normal_version
from devkit.transport import dtypes
from devkit.transport.dtypes import ReadableBuffer

RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
    "starting with 'triton_' are allowed: triton_enable_empty_final_response"
)
EMPTY_FINAL = "triton_enable_empty_final_response"
INVALID = wire.INVALID

_INTERNED = 16 * 1024
_RAW = 0x3A  # the tag of raw_input_contents

_CONTENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("bool_contents", "BOOL", ("BOOL",)),
    ("int_contents", "INT32", ("INT8", "INT16", "INT32")),
    ("int64_contents", "INT64", ("INT64",)),
    ("uint_contents", "UINT32", ("UINT8", "UINT16", "UINT32")),
    ("uint64_contents", "UINT64", ("UINT64",)),
    ("fp32_contents", "FP32", ("FP32",)),
    ("fp64_contents", "FP64", ("FP64",)),
    ("bytes_contents", "BYTES", ("BYTES",)),
)
"""(field, what the server calls it, the datatypes it may hold)"""

_CODES: dict[str, str] = {"INT64": "q", "UINT64": "Q", "FP32": "f", "FP64": "d"}


class Irregular(Exception):
    """Bytes in an order no protobuf library writes; the message has to be parsed as a whole."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the part before the raw tensors says.

    Attributes:
        header: inputs, outputs and parameters; inputs with `data` came as explicit contents.
        raw: how many inputs take their bytes from the raw tensors, in order.
    """

    name: str
    version: str
    header: wire.Header
    description: Description
    raw: int
    shared: bool
    empty_final: bool


@dataclass(slots=True)
class Decoded:
    """A request as far as its bytes alone say."""

    id: str
    plan: Plan
    raw: list[ReadableBuffer]


# -- protobuf's wire format -----------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A non-negative integer as protobuf writes it."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Irregular


def _skip(data: bytes, at: int, tag: int) -> int:
    """Where the field `tag` that begins at `at` ends, if it is one of known length."""
    if not data.startswith(bytes((tag,)), at):
        return at
    length, at = _read_varint(data, at + 1)
    return at + length


def _raw_start(data: bytes, at: int) -> int:
    """Where the first raw tensor begins, or the end of the message."""
    end = len(data)
    while at < end:
        tag = data[at]
        if tag == _RAW:
            return at
        if tag & 7 != 2:  # every field of this message is length-delimited
            raise Irregular
        length, at = _read_varint(data, at + 1)
        at += length
    if at != end:
        raise Irregular
    return end


def _raw_tensors(data: bytes, at: int) -> list[ReadableBuffer]:
    view = memoryview(data)
    end = len(data)
    found: list[ReadableBuffer] = []
    while at < end:
        if data[at] != _RAW:
            raise Irregular
        length = data[at + 1]
        at += 2
        if length >= 0x80:
            length, at = _read_varint(data, at - 1)
        stop = at + length
        if stop > end:
            raise Irregular
        found.append(view[at:stop])
        at = stop
    return found


# -- requests -------------------------------------------------------------------------------------


class Decoder:
    """Requests of one front end, with what it has seen before."""

    def __init__(self) -> None:
        self._plans: wire.Interned[Plan] = wire.Interned(4096)
        self._lengths: list[int] = []
        self.descriptions = Descriptions()

    def decode(self, data: bytes) -> Decoded:
        """Read a message.

        Raises InferError where it is refused, and protobuf's DecodeError where it is no message.
        """
        try:
            return self._decode(data)
        except (Irregular, IndexError):
            return self._whole(pb.ModelInferRequest.FromString(data))

    def _decode(self, data: bytes) -> Decoded:
        start = _skip(data, _skip(data, 0, 0x0A), 0x12)
        after = _skip(data, start, 0x1A)
        identity = ""
        if after != start:
            offset = _read_varint(data, start + 1)[1]
            identity = data[offset:after].decode("utf-8", "surrogateescape")
        opening = data[:start]
        young = self._plans.young
        for length in self._lengths:
            plan = young.get(opening + data[after : after + length])
            if plan is not None:
                return Decoded(identity, plan, _raw_tensors(data, after + length))
        raw = _raw_start(data, after)
        key = opening + data[after:raw]
        plan = self._plans.get(key)
        if plan is None:
            message = pb.ModelInferRequest.FromString(data[:raw])
            plan = self.plan(message, has_raw=raw < len(data))
            # A plan with explicit contents holds one request's data.
            if plan.header.repeatable and plan.raw and len(key) <= _INTERNED:
                self._plans.put(key, plan)
        if plan.raw:
            self._remember(raw - after)
        return Decoded(identity, plan, _raw_tensors(data, raw))

    def _remember(self, length: int) -> None:
        """Look for this length first next time."""
        if length in self._lengths:
            self._lengths.remove(length)
        self._lengths.insert(0, length)
        del self._lengths[4:]

    def _whole(self, message: Any) -> Decoded:
        raw = list(message.raw_input_contents)
        return Decoded(message.id, self.plan(message, has_raw=bool(raw)), raw)

    def plan(self, message: Any, *, has_raw: bool) -> Plan:
        """What `message` says apart from its id and its raw tensors."""
        name, version = message.model_name, normal_version(message.model_version)
        parameters, special, empty_final = _parameters(message.parameters)
        label = f"[request id: {message.id or '<id_unknown>'}] "
        seen: set[str] = set()
        for item in message.inputs:
            if item.name in seen:
                raise InferError(f"{label}input '{item.name}' already exists in request")
            seen.add(item.name)
        outputs = [_output(item) for item in message.outputs]
        inputs = [_input(item, name, has_raw=has_raw) for item in message.inputs]
        encoding = wire.encoding(True, outputs)
        names = tuple(output.name for output in outputs)
        sizes = tuple(tensor.size for tensor in inputs)
        repeatable = not any(tensor.data is not None for tensor in inputs)
        header = wire.Header(
            tuple(inputs), names, parameters, encoding, sizes, 0, repeatable, **special
        )
        description = self.descriptions.get(inputs, names, parameters, encoding)
        raw = sizes.count(0)
        return Plan(name, version, header, description, raw, header.regions(), empty_final)


def _parameters(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Parameters for the model, those that mean something to the server, the empty-final wish."""
    parameters: dict[str, Any] = {}
    special: dict[str, Any] = {}
    flags, empty_final = 0, False
    for key, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        content: Any = getattr(value, kind) if kind else None
        if key == "sequence_id":
            _expect(key, kind, "int64_param", "string_param", "int64_param or string_param.")
            if kind == "int64_param":
                content %= 1 << 64
            special["correlation_id"] = content
        elif key in ("sequence_start", "sequence_end"):
            _expect(key, kind, "bool_param", "bool_param.")
            bit = wire.SEQUENCE_START if key == "sequence_start" else wire.SEQUENCE_END
            flags |= bit if content else 0
        elif key == "priority":
            _expect(key, kind, "int64_param", "uint64_param", "int64_param or uint64_param.")
            if content < 0:
                raise InferError("invalid value for 'priority', expected value >= 0.")
            special["priority"] = content
        elif key == "timeout":
            _expect(key, kind, "int64_param", "int64_param.")
            special["timeout"] = content % (1 << 64)
        elif key == EMPTY_FINAL:
            _expect(key, kind, "bool_param", "bool_param.")
            empty_final = content
        elif key.startswith("triton_"):
            raise InferError(RESERVED)
        else:
            wanted = "int64_param, bool_param, or string_param."
            _expect(key, kind, "int64_param", "bool_param", "string_param", "double_param", wanted)
            parameters[key] = content
    special["flags"] = flags
    return parameters, special, empty_final


def _expect(key: str, kind: str | None, *allowed: str) -> None:
    """Refuse a parameter of another kind than `allowed`, whose last names them for the text."""
    if kind not in allowed[:-1]:
        raise InferError(f"invalid value type for '{key}' parameter, expected {allowed[-1]}")


def _region(item: Any) -> tuple[str, int, int] | None:
    parameters = item.parameters
    if "shared_memory_region" not in parameters:
        return None
    found: list[Any] = []
    for key, kind in (
        ("shared_memory_region", "string_param"),
        ("shared_memory_offset", "int64_param"),
        ("shared_memory_byte_size", "int64_param"),
    ):
        if key not in parameters:
            if key == "shared_memory_offset":
                found.append(0)
                continue
            raise InferError(
                "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
                f"parameter for tensor '{item.name}'"
            )
        if parameters[key].WhichOneof("parameter_choice") != kind:
            raise InferError(
                f"invalid value type for '{key}' parameter for tensor '{item.name}', expected "
                f"{kind}."
            )
        found.append(getattr(parameters[key], kind))
    # What is negative wraps, as the server's unsigned sizes do, and is then out of any range.
    return found[0], found[1] % (1 << 64), found[2] % (1 << 64)


def _output(item: Any) -> wire.Output:
    region = _region(item)
    classes = 0
    if "classification" in item.parameters:
        parameter = item.parameters["classification"]
        if parameter.WhichOneof("parameter_choice") != "int64_param":
            raise InferError(
                "invalid value type for 'classification' parameter, expected int64_param"
            )
        if region is not None:
            raise InferError("output can't set both 'shared_memory_region' and 'classification'")
        classes = max(0, parameter.int64_param)
    return wire.Output(item.name, True, classes, region)


def _input(item: Any, model: str, *, has_raw: bool) -> wire.Tensor:
    """An input; `size` 0 marks one whose bytes are the next raw tensor."""
    name, shape = item.name, tuple(item.shape)
    datatype = item.datatype if item.datatype in dtypes.ALL else INVALID
    region = _region(item)
    has_contents = item.HasField("contents")
    if region is not None:
        if has_contents:
            raise InferError(
                f"unexpected 'content' provided when using shared memory for input tensor '{name}' "
                f"for model '{model}'"
            )
        return wire.Tensor(name, datatype, shape, region=region)
    if has_raw:
        if has_contents:
            raise InferError(
                f"contents field must not be specified when using raw_input_contents for '{name}' "
                f"for model '{model}'"
            )
        return wire.Tensor(name, datatype, shape, size=0)
    if not has_contents:
        raise _no_data(name, model)
    return wire.Tensor(name, datatype, shape, data=_contents(item, datatype, model))


def _no_data(name: str, model: str) -> InferError:
    return InferError(
        f"unable to find data for input tensor '{name}' for model '{model}' in request."
    )


def _contents(item: Any, datatype: str, model: str) -> bytes:
    data = b""
    for field, called, allowed in _CONTENTS:
        values = getattr(item.contents, field)
        if not len(values):
            continue
        if datatype not in allowed:
            raise InferError(
                f"unexpected explicit tensor data for input tensor '{item.name}' for model "
                f"'{model}' of type '{called}', expected datatype '{datatype}'"
            )
        data = _pack(datatype, values)
    return data


def _pack(datatype: str, values: Sequence[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(len(value).to_bytes(4, "little") + value for value in values)
    if datatype in _CODES:
        return packed.array(_CODES[datatype], values).tobytes()
    wide = np.array(values, dtype=np.int64)  # narrower ones wrap
    return wide.astype(dtypes.NUMPY[datatype]).tobytes()


def inputs(decoded: Decoded, regions: Any) -> list[Any]:
    """Bytes or place of each input. Raises InferError."""
    plan = decoded.plan
    raw = decoded.raw
    header = plan.header
    if plan.raw == len(header.inputs) and len(raw) >= plan.raw:
        return raw[: plan.raw] if len(raw) != plan.raw else raw
    buffers: list[Any] = []
    taken = 0
    for tensor in header.inputs:
        if tensor.region is not None:
            buffers.append(regions.find(*tensor.region))
        elif tensor.data is not None:
            buffers.append(tensor.data)
        elif taken < len(raw):
            buffers.append(raw[taken])
            taken += 1
        else:
            raise _no_data(tensor.name, plan.name)
    return buffers


def request(decoded: Decoded, buffers: list[Any], respond: Any) -> Request:
    """The core's request of a decoded one."""
    plan = decoded.plan
    made = Request(plan.name, plan.description, buffers, respond, plan.version, decoded.id)
    header = plan.header
    if header.correlation_id or header.flags or header.timeout or header.priority:
        made.correlation_id = header.correlation_id
        made.flags = header.flags
        made.timeout = header.timeout
        made.priority = header.priority
    return made


# -- responses ------------------------------------------------------------------------------------


def _text(tag: int, value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return bytes((tag,)) + varint(len(raw)) + raw


def _described(name: str, datatype: str, shape: Sequence[int]) -> bytes:
    extents = b"".join(varint(extent % (1 << 64)) for extent in shape)
    body = _text(0x0A, name) + _text(0x12, datatype)
    if shape:
        body += b"\x1a" + varint(len(extents)) + extents
    return b"\x2a" + varint(len(body)) + body


def parameters_bytes(parameters: Mapping[str, Any]) -> bytes:
    """Response parameters as the message's field 4."""
    message = pb.ModelInferResponse()
    for key, value in parameters.items():
        if isinstance(value, bool):
            message.parameters[key].bool_param = value
        elif isinstance(value, int):
            message.parameters[key].int64_param = value
        elif isinstance(value, float):
            message.parameters[key].double_param = value
        else:
            message.parameters[key].string_param = str(value)
    return bytes(message.SerializeToString())


FINAL = {final: parameters_bytes({"triton_final_response": final}) for final in (True, False)}
"""The stream's own parameter, as bytes."""


def encode(
    response: Response,
    encoding: wire.Encoding,
    *,
    extra: bytes = b"",
    places: Mapping[str, wire.Room] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    batched: bool = False,
) -> bytes:
    """A response without an error as a ModelInferResponse; `extra` are parameters as bytes."""
    signature = response.signature
    buffers: Sequence[ReadableBuffer] = response.buffers
    if encoding.plain:
        key = ("grpc", response.model_name, response.model_version)
        found = signature.memo.get(key)
        if found is None:
            opening = _text(0x0A, response.model_name) + _text(0x12, response.model_version)
            described = b"".join(
                _described(spec.name, spec.datatype, spec.shape) for spec in signature.outputs
            )
            found = signature.memo[key] = (opening, described)
        opening, described = found
    else:
        opening = _text(0x0A, response.model_name) + _text(0x12, response.model_version)
        described, buffers = _special(response, encoding, places or {}, labels or {}, batched)
    parts: list[ReadableBuffer] = [opening]
    if response.request.id:
        parts.append(_text(0x1A, response.request.id))
    if response.parameters:
        parts.append(parameters_bytes(response.parameters))
    if extra:
        parts.append(extra)
    parts.append(described)
    for data in buffers:
        size = len(data)
        parts.append(b"\x32" + varint(size))
        parts.append(data)
    return b"".join(parts)


def _special(
    response: Response,
    encoding: wire.Encoding,
    places: Mapping[str, wire.Room],
    labels: Mapping[str, Sequence[str]],
    batched: bool,
) -> tuple[bytes, list[ReadableBuffer]]:
    """Outputs of which some are wanted as classes or in shared memory."""
    described, buffers = [], []
    for spec, data in zip(response.signature.outputs, response.buffers, strict=True):
        rule = encoding.outputs.get(spec.name)
        datatype, shape = spec.datatype, spec.shape
        if rule is not None and rule.classes:
            data, shape = wire.classify(
                spec, data, rule.classes, labels.get(spec.name, ()), batched=batched
            )
            datatype = "BYTES"
        elif rule is not None and rule.region is not None:
            wire.place(spec.name, data, places[spec.name])
            data = b""
        described.append(_described(spec.name, datatype, shape))
        buffers.append(data)
    return b"".join(described), buffers


def stream_response(response: bytes, error: str = "") -> bytes:
    """A ModelStreamInferResponse of an encoded response."""
    opening = _text(0x0A, error) if error else b""
    return opening + b"\x12" + varint(len(response)) + response


def named(model: str, identity: str, extra: bytes = b"") -> bytes:
    """A ModelInferResponse that only says whose it is, as errors in a stream carry."""
    return (
        (_text(0x0A, model) if model else b"")
        + (_text(0x1A, identity) if identity else b"")
        + extra
    )
