"""KServe v2 over HTTP, both ways.

A request's JSON header and binary tail become what the core takes, a response becomes the bytes of
a reply.

Pure: no sockets, no models. What comes in many requests alike is worked out once: the bytes of a
header that describes only binary or shared inputs are interned (`Headers`), the request id kept out
of the key. Texts and order of the refusals are the real server's (2.51).
"""

from __future__ import annotations

import array as packed
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import orjson

from devkit.contract import rapidjson
from devkit.errors import Code, InferError, SharedMemoryError
from devkit.transport import dtypes
from devkit.transport.dtypes import ReadableBuffer

SEQUENCE_START, SEQUENCE_END = 1, 2

_SIGNED = frozenset({"INT8", "INT16", "INT32", "INT64"})
_UNSIGNED = frozenset({"UINT8", "UINT16", "UINT32", "UINT64"})
_CODES: dict[str, Any] = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d", "BOOL": "?",
}  # fmt: skip
_RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
    "specified."
)
_LARGE = 4096
"""Elements from which NumPy converts faster than the interpreter does."""

Value = TypeVar("Value")


class Interned(Generic[Value]):
    """A bounded table, least recently used out first, in two generations so that a hit costs one
    look-up and no bookkeeping."""

    __slots__ = ("_capacity", "_old", "young")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.young: dict[Hashable, Value] = {}
        self._old: dict[Hashable, Value] = {}

    def get(self, key: Hashable) -> Value | None:
        """What was kept under `key`, if it still is."""
        found = self.young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Hashable, value: Value) -> None:
        """Keep `value` under `key`."""
        if len(self.young) >= self._capacity:
            self._old, self.young = self.young, {}
        self.young[key] = value

    def __len__(self) -> int:
        return len(self.young) + len(self._old)


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a header says of one input.

    Attributes:
        size: its bytes in the binary tail, or -1 where `data` or `region` has them.
        data: bytes made of a JSON `data` field.
        region: (name, offset, byte size) of a registered shared-memory region.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int = -1
    data: bytes | None = None
    region: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """How a client wants one output: inline, binary, as classes, or in shared memory."""

    name: str
    binary: bool
    classes: int = 0
    region: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """How a reply is written. Interned: compared, and used as a key, by identity.

    Attributes:
        binary: what holds for outputs the client did not name.
        outputs: what it said of those it named, by name.
    """

    binary: bool
    outputs: dict[str, Output]
    plain: bool
    """No classes and no shared memory: the reply follows from sizes alone."""


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed request header.

    Attributes:
        inputs: in the client's order.
        outputs: names requested, in the client's order.
        parameters: the request's own, after those with a meaning were taken out.
        sizes: for each input its bytes in the tail, -1 for none; `total` is their sum.
        repeatable: nothing in it is one request's alone, so it may be interned.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]
    encoding: Encoding
    sizes: tuple[int, ...]
    total: int
    repeatable: bool
    id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    priority: int = 0

    @property
    def in_tail(self) -> bool:
        """Whether every input lies in the binary tail."""
        return -1 not in self.sizes

    def regions(self) -> bool:
        """Whether anything of the request or the reply lies in shared memory."""
        return any(each.region for each in self.inputs) or any(
            each.region for each in self.encoding.outputs.values()
        )


_encodings: Interned[Encoding] = Interned(1024)


def encoding(binary: bool, outputs: Sequence[Output] = ()) -> Encoding:
    """The one Encoding of these wishes."""
    key = (binary, tuple(outputs))
    found = _encodings.get(key)
    if found is None:
        plain = not any(each.classes or each.region for each in outputs)
        found = Encoding(binary, {each.name: each for each in outputs}, plain)
        _encodings.put(key, found)
    return found


# -- requests --------------------------------------------------------------------------------------


def split_id(header: bytes) -> tuple[str, bytes]:
    """The request id and the header without it, where the id comes first, as clients write it.

    Where it does not, the header as it is, and its id is found by parsing.
    """
    if header.startswith(b'{"id":"'):
        end = header.find(b'"', 7)
        if header[end + 1 : end + 2] == b"," and b"\\" not in header[7:end]:
            try:
                return header[7:end].decode("utf-8"), b"{" + header[end + 2 :]
            except UnicodeDecodeError:
                pass
    return "", header


def parse_header(text: bytes) -> Header:
    """Read a request header. Raises InferError in the real server's words."""
    document = rapidjson.parse(text)
    members = document if type(document) is dict else {}
    identity = ""
    if "id" in members:
        identity = rapidjson.string(members["id"], "Unable to parse 'id': ")
    parameters, special, binary = _request_parameters(members)
    if "inputs" not in members:
        raise rapidjson.missing("inputs")
    inputs = []
    for item in rapidjson.array(members["inputs"], "Unable to parse 'inputs': "):
        inputs.append(_input(item if type(item) is dict else {}))
    outputs = []
    if "outputs" in members:
        for item in rapidjson.array(members["outputs"], "Unable to parse 'outputs': "):
            outputs.append(_output(item if type(item) is dict else {}, binary))
    seen = set()
    for tensor in inputs:
        if tensor.name in seen:
            label = identity or "<id_unknown>"
            raise InferError(
                f"[request id: {label}] input '{tensor.name}' already exists in request"
            )
        seen.add(tensor.name)
    sizes = tuple(tensor.size for tensor in inputs)
    return Header(
        inputs=tuple(inputs),
        outputs=tuple(output.name for output in outputs),
        parameters=parameters,
        encoding=encoding(binary, outputs),
        sizes=sizes,
        total=sum(size for size in sizes if size > 0),
        repeatable=not any(tensor.data is not None for tensor in inputs),
        id=identity,
        **special,
    )


def _request_parameters(members: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Parameters for the model, those that mean something to the server, `binary_data_output`."""
    parameters: dict[str, Any] = {}
    special: dict[str, Any] = {}
    flags, binary = 0, False
    given = members.get("parameters", {})
    if type(given) is not dict:
        raise InferError(
            "failed to get request params.: attempt to get members for non-object", Code.INTERNAL
        )
    for key, value in given.items():
        about = f"Unable to parse '{key}': "
        if key == "sequence_id":
            if type(value) is int and 0 <= value < 1 << 64:
                special["correlation_id"] = value
            else:
                special["correlation_id"] = rapidjson.string(value, about)
        elif key == "sequence_start":
            flags |= SEQUENCE_START if rapidjson.boolean(value, about) else 0
        elif key == "sequence_end":
            flags |= SEQUENCE_END if rapidjson.boolean(value, about) else 0
        elif key in ("priority", "timeout"):
            special[key] = rapidjson.unsigned(value, about)
        elif key == "binary_data_output":
            binary = rapidjson.boolean(value, about)
        elif key.startswith("triton_"):
            raise InferError(_RESERVED)
        else:
            parameters[key] = parameter(key, value)
    special["flags"] = flags
    return parameters, special, binary


def parameter(key: str, value: Any) -> int | float | bool | str:
    """A request parameter's value, refused where it is a list, an object or null."""
    if isinstance(value, (int, float, str)):  # bool is an int
        return value
    raise InferError(
        f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
    )


def _region(parameters: Mapping[str, Any]) -> tuple[str, int, int] | None:
    if "shared_memory_region" not in parameters:
        return None
    found: list[Any] = [
        rapidjson.string(
            parameters["shared_memory_region"], "Unable to parse 'shared_memory_region': "
        )
    ]
    for key in ("shared_memory_offset", "shared_memory_byte_size"):
        found.append(rapidjson.unsigned(parameters.get(key, 0), f"Unable to parse '{key}': "))
    return found[0], found[1], found[2]


def _input(item: Mapping[str, Any]) -> Tensor:
    parameters = item.get("parameters")
    if type(parameters) is not dict:
        parameters = {}
    size = -1
    if "binary_data_size" in parameters:
        size = rapidjson.unsigned(
            parameters["binary_data_size"], "Unable to parse 'binary_data_size': "
        )
    region = _region(parameters)
    sources = [
        name
        for name, present in (
            ("'data'", "data" in item),
            ("'binary_data_size'", size >= 0),
            ("'shared_memory_region'", region is not None),
        )
        if present
    ]
    if len(sources) != 1:
        found = f"But set {' '.join(sources)}" if sources else "But no field is set"
        raise InferError(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in "
            f"'parameters', 'shared_memory_region' in 'parameters'. {found}"
        )
    fields = []
    for key in ("name", "datatype"):
        if key not in item:
            raise rapidjson.missing(key)
        fields.append(rapidjson.string(item[key], f"Unable to parse '{key}': "))
    name, datatype = fields
    if "shape" not in item:
        raise rapidjson.missing("shape")
    about = "Unable to parse 'shape': "
    shape = tuple(
        rapidjson.unsigned(extent, about) for extent in rapidjson.array(item["shape"], about)
    )
    if datatype not in dtypes.ALL:
        if "data" in item:
            raise InferError(f"invalid datatype for input {name}")
        datatype = INVALID  # for the model's own check to refuse
    data = None
    if "data" in item:
        # 2.51 compares the count only where there is a shape; without one the model refuses.
        data = pack(name, datatype, item["data"], dtypes.element_count(shape) if shape else None)
    return Tensor(name, datatype, shape, size, data, region)


INVALID = "<invalid>"
"""What the real server calls a datatype that is none."""


def _output(item: Mapping[str, Any], binary: bool) -> Output:
    if "name" not in item:
        raise rapidjson.missing("name")
    name = rapidjson.string(item["name"], "Unable to parse 'name': ")
    parameters = item.get("parameters")
    if type(parameters) is not dict:
        return Output(name, binary)
    classes = 0
    if "classification" in parameters:
        classes = rapidjson.unsigned(
            parameters["classification"], "Unable to set 'classification': "
        )
    region = _region(parameters)
    if region is not None and "classification" in parameters:
        raise InferError("Output can't set both 'shared_memory_region' and 'classification'")
    if "binary_data" in parameters:
        binary = rapidjson.boolean(parameters["binary_data"], "Unable to parse 'binary_data': ")
        if region is not None and binary:
            raise InferError("Output can't set both 'shared_memory_region' and 'binary_data'")
    return Output(name, binary and region is None, classes, region)


def _leaves(nested: list[Any]) -> list[Any]:
    """Elements of nested arrays, in order, however deep."""
    found: list[Any] = []
    open_arrays = [iter(nested)]
    while open_arrays:
        for item in open_arrays[-1]:
            if type(item) is list:
                open_arrays.append(iter(item))
                break
            found.append(item)
        else:
            open_arrays.pop()
    return found


def pack(name: str, datatype: str, data: Any, count: int | None) -> bytes:
    """Bytes of a JSON `data` field, whose nesting does not matter but whose elements do."""
    if datatype in ("FP16", "BF16"):
        raise InferError(
            f"receiving {datatype} data via JSON is not supported. Please use the binary data "
            f"format for input {name}"
        )
    about = "Unable to parse 'data': "
    values = rapidjson.array(data, about)
    kinds = set(map(type, values))
    if list in kinds:
        values = _leaves(data)
        kinds = set(map(type, values))
    if datatype == "BYTES":
        if kinds - {str}:
            raise rapidjson.wrong_type("string", "string", "Unable to parse JSON bytes array: ")
        packed_data = _pack_strings(values)
    elif datatype == "BOOL":
        if kinds - {bool}:
            raise rapidjson.wrong_type("boolean", "boolean", about)
        packed_data = bytes(values)
    elif datatype in _SIGNED or datatype in _UNSIGNED:
        packed_data = _pack_integers(datatype, values, kinds, about)
    else:
        if kinds - {int, float}:
            raise rapidjson.wrong_type("number", "double", about)
        packed_data = packed.array(_CODES[datatype], values).tobytes()
    if count == 0:
        return b""  # 2.51 does not look at the data of a shape without elements
    if count is not None and len(values) != count and datatype != "BYTES":
        raise InferError(about + "Shape does not match true shape of 'data' field", Code.INTERNAL)
    return packed_data


def _pack_strings(values: Sequence[str]) -> bytes:
    parts = []
    for value in values:
        raw = rapidjson.to_bytes(value)
        parts.append(struct.pack("<I", len(raw)))
        parts.append(raw)
    return b"".join(parts)


def _pack_integers(datatype: str, values: list[Any], kinds: set[type], about: str) -> bytes:
    signed = datatype in _SIGNED
    low, high = (-(1 << 63), 1 << 63) if signed else (0, 1 << 64)
    if kinds - {int} or (values and not (low <= min(values) and max(values) < high)):
        kind = "signed-integer" if signed else "unsigned-integer"
        raise rapidjson.wrong_type(kind, kind, about)
    try:
        return packed.array(_CODES[datatype], values).tobytes()
    except OverflowError:  # the server wraps what does not fit
        wide = np.array(values, dtype=np.int64 if signed else np.uint64)
        return wide.astype(dtypes.NUMPY[datatype]).tobytes()


def slices(header: Header, tail: memoryview, model: str) -> list[ReadableBuffer | None]:
    """Bytes of each input: of the tail, of its JSON data, None where shared memory has them."""
    buffers: list[ReadableBuffer | None] = []
    offset, end = 0, len(tail)
    for tensor in header.inputs:
        size = tensor.size
        if size >= 0:
            if size > end - offset:
                raise InferError(
                    f"unexpected size for input '{tensor.name}', expecting "
                    f"{size - (end - offset)} additional bytes for model '{model}'"
                )
            buffers.append(tail[offset : offset + size])
            offset += size
        else:
            buffers.append(tensor.data)
    if offset != end:
        raise InferError(f"unexpected additional input data for model '{model}'")
    return buffers


def raw_tensor(
    data: ReadableBuffer, label: str, model: str, inputs: Mapping[str, Any], max_batch_size: int
) -> tuple[Tensor, bytes]:
    """The one input that a body without a header becomes (the raw request of the extension)."""
    if len(inputs) != 1:
        raise InferError(
            f"{label}Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(inputs)} inputs in '{model}' model configuration"
        )
    spec = next(iter(inputs.values()))
    body = bytes(data)
    if spec.datatype == "BYTES":
        body = struct.pack("<I", len(body)) + body
        dims = tuple(1 if extent < 0 else extent for extent in spec.dims)
    else:
        fixed = dtypes.SIZES[spec.datatype] * dtypes.element_count(
            extent for extent in spec.dims if extent >= 0
        )
        variable = len(body) // (fixed or 1)
        dims_list = list(spec.dims)
        for index, extent in enumerate(dims_list):
            if extent < 0:
                dims_list[index], variable = variable, 1
        dims = tuple(dims_list)
        expected = dtypes.SIZES[spec.datatype] * dtypes.element_count(dims)
        if expected != len(body):
            raise InferError(
                f"{label}input byte size mismatch for input 'raw_input' for model '{model}'. "
                f"Expected {expected}, got {len(body)}"
            )
    shape = (1, *dims) if max_batch_size else dims
    return Tensor(spec.name, spec.datatype, shape, len(body)), body


# -- replies ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply's JSON and the binary outputs behind it; `binary` where it has any."""

    json: bytes
    tail: list[ReadableBuffer]
    binary: bool


def reply(
    signature: Any,
    buffers: Sequence[ReadableBuffer],
    wanted: Encoding,
    *,
    model: str,
    version: str,
    id: str = "",
    parameters: Mapping[str, Any] | None = None,
    places: Mapping[str, Room] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    batched: bool = False,
) -> Reply:
    """Write a response as `wanted` asks.

    `signature` has `outputs` (name, datatype, shape of each) and a `memo`; `places` are the regions
    of outputs that go to shared memory. Raises InferError where an output cannot be sent so.
    """
    if wanted.plain and not parameters:
        sizes = tuple(map(len, buffers))
        key = (wanted, model, version, sizes)
        memo = signature.memo
        found = memo.get(key)
        if found is None:
            found = _binary_reply(signature.outputs, sizes, wanted, model, version)
            if len(memo) >= 64:
                memo.clear()  # sizes of BYTES outputs vary without end
            memo[key] = found
        if found is not False:
            text = (
                b'{"id":' + rapidjson.quote(rapidjson.to_bytes(id)) + b"," + found
                if id
                else (b"{" + found)
            )
            return Reply(text, list(buffers), bool(buffers))
    return _mixed_reply(
        signature.outputs, buffers, wanted, _opening(model, version, id, parameters),
        places or {}, labels or {}, batched,
    )  # fmt: skip


def _opening(
    model: str, version: str, identity: str, parameters: Mapping[str, Any] | None
) -> bytes:
    parts = [b"{"]
    if identity:
        parts += [b'"id":', rapidjson.quote(rapidjson.to_bytes(identity)), b","]
    parts += [
        b'"model_name":', rapidjson.quote(rapidjson.to_bytes(model)),
        b',"model_version":', rapidjson.quote(version.encode()), b",",
    ]  # fmt: skip
    if parameters:
        parts += [b'"parameters":', orjson.dumps(dict(parameters)), b","]
    return b"".join(parts)


def _described(name: str, datatype: str, shape: Sequence[int]) -> bytes:
    extents = ",".join(map(str, shape)).encode()
    return (
        b'{"name":' + rapidjson.quote(rapidjson.to_bytes(name))
        + b',"datatype":"' + datatype.encode() + b'","shape":[' + extents + b"]"
    )  # fmt: skip


def _binary_reply(
    outputs: Sequence[Any], sizes: Sequence[int], wanted: Encoding, model: str, version: str
) -> bytes | bool:
    """JSON of a reply whose outputs are all binary, less its first brace; False if one is not."""
    parts = []
    for spec, size in zip(outputs, sizes, strict=True):
        rule = wanted.outputs.get(spec.name)
        if not (wanted.binary if rule is None else rule.binary):
            return False
        described = _described(spec.name, spec.datatype, spec.shape)
        parts.append(described + b',"parameters":{"binary_data_size":%d}}' % size)
    return _opening(model, version, "", None)[1:] + b'"outputs":[' + b",".join(parts) + b"]}"


def _mixed_reply(
    outputs: Sequence[Any],
    buffers: Sequence[ReadableBuffer],
    wanted: Encoding,
    opening: bytes,
    places: Mapping[str, Room],
    labels: Mapping[str, Sequence[str]],
    batched: bool,
) -> Reply:
    parts: list[bytes] = []
    tail: list[ReadableBuffer] = []
    binary = False
    for spec, data in zip(outputs, buffers, strict=True):
        rule = wanted.outputs.get(spec.name)
        datatype, shape = spec.datatype, spec.shape
        if rule is not None and rule.classes:
            data, shape = classify(
                spec, data, rule.classes, labels.get(spec.name, ()), batched=batched
            )
            datatype = "BYTES"
        described = _described(spec.name, datatype, shape)
        if rule is not None and rule.region is not None:
            place(spec.name, data, places[spec.name])
            parts.append(described + b"}")
        elif wanted.binary if rule is None else rule.binary:
            binary = True
            parts.append(described + b',"parameters":{"binary_data_size":%d}}' % len(data))
            tail.append(data)
        else:
            parts.append(described + b',"data":' + unpack(datatype, data) + b"}")
    return Reply(opening + b'"outputs":[' + b",".join(parts) + b"]}", tail, binary)


class Room(Protocol):
    """Memory of a client's for an output; `view` raises SharedMemoryError where it is gone."""

    size: int

    def view(self) -> memoryview: ...


def place(name: str, data: ReadableBuffer, room: Room) -> None:
    """Copy an output to the client's region. Raises InferError where that is too small."""
    if room.size < len(data):
        raise InferError(
            f"shared memory size specified with the request for output '{name}' ({room.size} "
            f"bytes) should be at least {len(data)} bytes to hold the results",
            Code.INTERNAL,
        )
    try:
        room.view()[: len(data)] = data
    except SharedMemoryError as problem:
        raise InferError(problem.message, Code.INTERNAL) from problem


def unpack(datatype: str, data: ReadableBuffer) -> bytes:
    """A tensor's bytes as a flat JSON array."""
    if datatype == "BYTES":
        return b"[" + b",".join(map(rapidjson.quote, strings(data))) + b"]"
    if datatype in ("FP16", "BF16"):
        raise InferError(
            f"sending {datatype} data via JSON is not supported. Please use the binary data format "
            "for output"
        )
    view = memoryview(data).cast("B")
    if datatype in ("FP32", "FP64"):
        return _unpack_floats(datatype, view)
    return orjson.dumps(view.cast(_CODES[datatype]).tolist())


def _unpack_floats(datatype: str, view: memoryview) -> bytes:
    if len(view) < _LARGE * dtypes.SIZES[datatype]:
        return rapidjson.numbers(view.cast(_CODES[datatype]).tolist())
    values = np.frombuffer(view, dtypes.NUMPY[datatype]).astype(np.float64)
    size = np.abs(values)
    odd = np.flatnonzero(~((size >= 1e-4) & (size < 1e15) | (size == 0)))
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if not len(odd):
        return text
    parts = text[1:-1].split(b",")
    for index in odd:
        parts[index] = rapidjson.number(float(values[index]))
    return b"[" + b",".join(parts) + b"]"


def strings(data: ReadableBuffer) -> list[bytes]:
    """Elements of a BYTES tensor; what follows a broken length prefix is left out."""
    raw = bytes(data)
    found, offset, end = [], 0, len(raw)
    while offset + 4 <= end:
        length = int.from_bytes(raw[offset : offset + 4], "little")
        offset += 4
        found.append(raw[offset : offset + length])
        offset += length
    return found


def classify(
    spec: Any, data: ReadableBuffer, classes: int, labels: Sequence[str] = (), *, batched: bool
) -> tuple[bytes, tuple[int, ...]]:
    """The largest values of each batch element as BYTES `value:index[:label]`, and their shape."""
    if spec.datatype not in dtypes.NUMPY or spec.datatype in ("BYTES", "BOOL"):
        raise InferError(
            f"class result not available for output due to unsupported type '{spec.datatype}'",
            Code.INTERNAL,
        )
    values = np.frombuffer(data, dtypes.NUMPY[spec.datatype])
    rows = spec.shape[0] if batched and spec.shape else 1
    values = values.reshape(rows, -1)
    count = min(classes, values.shape[1])
    floating = values.dtype.kind == "f"
    results = []
    for row in values:
        order = np.argsort(-row if floating else -row.astype(object), kind="stable")[:count]
        for index in order:
            value = f"{float(row[index]):f}" if floating else str(int(row[index]))
            label = f":{labels[index]}" if index < len(labels) else ""
            results.append(f"{value}:{index}{label}")
    return _pack_strings(results), (rows, count) if batched else (count,)
