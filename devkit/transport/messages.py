"""What the runtime and a stub say to each other, byte by byte: the one seam between them.

A stub has three sockets, each a Unix stream pair, each carrying frames of
`<payload length: u32> <kind: u8> <3 bytes of padding> <payload>`:

* **data**: loading, requests in, responses out. The stub's main thread reads it; any of its
  threads may write, a frame at a time.
* **control**: JSON both ways (`CONTROL`), served by the stub's control thread while the main thread
  is inside `execute` or stopped in a debugger: logs, cancellation, debugging, metrics.
* **bls**: requests the model sends to other models and their responses. The runtime reads it,
  so a BLS call never waits behind prefetched batches on the data socket.

Cold messages carry JSON, because the two sides may be different Python versions. The two that a
request pays for, `EXECUTE` and `RESULT`, are packed structs. What repeats is said once: a request's
description (`PLAN`) and a response's (`SIGNATURE`) travel the first time and are then named by a
slot; saying a slot again replaces its meaning, so neither side's table grows without bound.

A tensor is a *place*: (region, offset, size). Region 0 means that its bytes follow at once, inside
the frame. Region 1 is the stub's own response slab. Others are announced by `REGION`. The stub may
answer with a place in a region the request came in: an unchanged input costs no copy.

Life of memory: the runtime owns the blocks that inputs lie in, and frees them when the batch's
RESULT has come, unless a HOLD named the request before it (the model kept an array); DROP ends
that. The stub owns its response slab; RELEASE gives blocks of it back.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from devkit.transport.dtypes import ReadableBuffer

DEBUGGED = "*"
"""In place of the instance a request is meant for: whichever a debugger is attached to."""

INLINE_LIMIT = 64 * 1024
"""Tensors up to this many bytes travel inside the frame; larger ones by place."""

# data, runtime -> stub
INITIALIZE, PLAN, REGION, EXECUTE, RELEASE, FINALIZE = 1, 2, 3, 4, 5, 6
# data, stub -> runtime
READY, FAILED, SIGNATURE, RESULT, RESPONSES, FAILURE, HOLD, DROP, FINALIZED = range(32, 41)
SPANS = 42
PROBE = 41
# bls, stub -> runtime and back
BLS_REQUEST, BLS_RESPONSE, BLS_CANCEL = 64, 65, 66
# control, both ways
CONTROL = 96

OWN_RESPONSE_SLAB = 1

HEADER = struct.Struct("<IB3x")
PLACE = struct.Struct("<IQQ")
_SLOT = struct.Struct("<I")
_BATCH = struct.Struct("<QI")
_REQUEST = struct.Struct("<QIII")
_RESULT = struct.Struct("<QQQI")
_RESPONSE = struct.Struct("<QBBIII")
_REQUEST_SIZE = _REQUEST.size
_RESULT_HEAD = struct.Struct("<IB3xQQQI")  # HEADER and _RESULT at once
RESPONSE_SIZE = _RESPONSE.size

NO_EXTRA: Dict[str, Any] = {}
"""The `extra` of a request that has none; shared, so never written to."""

TRACED: Dict[str, Any] = {"traced": True}
"""The `extra` of a request that is traced and has nothing else; shared, so never written to."""

_TRACED = json.dumps(TRACED).encode("ascii")

OK, ERROR, NOTHING = 0, 1, 2
"""What a response holds: tensors, an error text, or nothing (only flags)."""

FINAL = 1
"""Response flag: no more responses follow for this request."""

RESCHEDULE = 2
"""Response flag: the model released the request for rescheduling (iterative sequences)."""


class Place(NamedTuple):
    """Where a tensor's bytes lie outside the frame."""

    region: int
    offset: int
    size: int


Tensor = Union[ReadableBuffer, Place]


@dataclass(frozen=True)
class Plan:
    """What a request is apart from its bytes and its identity.

    Attributes:
        inputs: (name, protocol datatype, shape) of each input, in the order their data comes.
        outputs: names of the requested outputs; the runtime lists all of them where the client
            named none, so that `requested_output_names()` is always complete.
        parameters: JSON text that `request.parameters()` returns, `""` where there are none.
    """

    inputs: Tuple[Tuple[str, str, Tuple[int, ...]], ...]
    outputs: Tuple[str, ...]
    parameters: str = ""


@dataclass(frozen=True)
class Signature:
    """(name, protocol datatype, shape) of each output of a response, in the model's own order."""

    outputs: Tuple[Tuple[str, str, Tuple[int, ...]], ...]


@dataclass
class WireRequest:
    """One request inside an EXECUTE.

    `extra` holds what few requests have: `correlation_id` (int or str), `flags`, `timeout`
    (microseconds), `priority`, `trace` (JSON text of the trace context), `traced` (its spans are
    wanted: SPANS, before the request's last response), `cancelled` (its client has gone already).
    """

    sequence: int
    plan: int
    tensors: List[Tensor]
    id: str = ""
    extra: Dict[str, Any] = field(default_factory=dict)


@dataclass
class WireResponse:
    """One response: tensors under `signature`, or an error's text and code, or only flags.

    `parameters` is what `InferenceResponse.parameters()` held, as JSON text.
    """

    sequence: int
    kind: int = OK
    flags: int = FINAL
    signature: int = 0
    tensors: List[Tensor] = field(default_factory=list)
    error: str = ""
    code: int = 1
    parameters: str = ""


@dataclass
class Result:
    """End of one `execute` call. Times are CLOCK_MONOTONIC nanoseconds around `execute` itself."""

    batch: int
    started: int
    ended: int
    responses: List[WireResponse]


def frame(kind: int, *parts: ReadableBuffer) -> bytes:
    """One frame of the given parts."""
    body = b"".join(parts)
    return HEADER.pack(len(body), kind) + body


def json_frame(kind: int, value: Any) -> bytes:
    return frame(kind, json.dumps(value, separators=(",", ":")).encode("utf-8"))


def parse_json(payload: ReadableBuffer) -> Any:
    return json.loads(bytes(payload).decode("utf-8"))


def slot_frame(kind: int, slot: int, value: Any) -> bytes:
    """PLAN, SIGNATURE or REGION: a slot and what it means from now on."""
    body = json.dumps(value, separators=(",", ":")).encode("utf-8")
    return frame(kind, _SLOT.pack(slot), body)


def parse_slot(payload: ReadableBuffer) -> Tuple[int, Any]:
    return _SLOT.unpack_from(payload)[0], parse_json(memoryview(payload)[_SLOT.size :])


def plan_frame(slot: int, plan: Plan) -> bytes:
    return slot_frame(PLAN, slot, [plan.inputs, plan.outputs, plan.parameters])


def parse_plan(payload: ReadableBuffer) -> Tuple[int, Plan]:
    slot, (inputs, outputs, parameters) = parse_slot(payload)
    described = tuple((name, kind, tuple(shape)) for name, kind, shape in inputs)
    return slot, Plan(described, tuple(outputs), parameters)


def signature_frame(slot: int, signature: Signature) -> bytes:
    return slot_frame(SIGNATURE, slot, signature.outputs)


def parse_signature(payload: ReadableBuffer) -> Tuple[int, Signature]:
    slot, outputs = parse_slot(payload)
    return slot, Signature(tuple((name, kind, tuple(shape)) for name, kind, shape in outputs))


def region_frame(slot: int, path: str, offset: int = 0, size: Optional[int] = None) -> bytes:
    """REGION: `slot` is from now on `size` bytes of the file `path` from `offset`."""
    return slot_frame(REGION, slot, [path, offset, size])


def sequences_frame(kind: int, numbers: Sequence[int]) -> bytes:
    """HOLD and DROP (request numbers) or RELEASE (offsets in the response slab)."""
    return frame(kind, struct.pack(f"<{len(numbers)}Q", *numbers))


def parse_sequences(payload: ReadableBuffer) -> Tuple[int, ...]:
    return struct.unpack(f"<{len(payload) // 8}Q", payload)


def probe_frame(described: Dict[str, Any], data: ReadableBuffer) -> bytes:
    """PROBE: what a tensor is that the model shows, and its bytes."""
    header = json.dumps(described, separators=(",", ":")).encode("utf-8")
    return frame(PROBE, _SLOT.pack(len(header)), header, data)


def parse_probe(payload: ReadableBuffer) -> Tuple[Dict[str, Any], memoryview]:
    view = memoryview(payload)
    end = _SLOT.size + _SLOT.unpack_from(view)[0]
    return parse_json(view[_SLOT.size : end]), view[end:]


def _append_tensors(parts: List[ReadableBuffer], tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        if type(tensor) is Place:
            parts.append(PLACE.pack(*tensor))
        else:
            parts.append(PLACE.pack(0, 0, len(tensor)))
            parts.append(tensor)  # type: ignore[arg-type]  # not a Place, so bytes


def _read_tensors(payload: memoryview, offset: int, count: int) -> Tuple[List[Tensor], int]:
    tensors: List[Tensor] = []
    for _ in range(count):
        region, start, size = PLACE.unpack_from(payload, offset)
        offset += PLACE.size
        if region:
            tensors.append(Place(region, start, size))
        else:
            tensors.append(payload[offset : offset + size])
            offset += size
    return tensors, offset


def append_request(
    parts: List[ReadableBuffer],
    sequence: int,
    plan: int,
    identity: str,
    extra: Optional[Dict[str, Any]],
    tensors: Sequence[Tensor],
) -> None:
    """Add one request to the parts of an EXECUTE (see `execute_head`)."""
    name = identity.encode("utf-8", "surrogateescape") if identity else b""
    more = b""
    if extra:
        more = _TRACED if extra is TRACED else json.dumps(extra).encode("utf-8")
    parts.append(_REQUEST.pack(sequence, plan, len(name), len(more)))
    if name:
        parts.append(name)
    if more:
        parts.append(more)
    _append_tensors(parts, tensors)


def execute_head(batch: int, count: int) -> bytes:
    """First part of an EXECUTE; `count` requests follow by `append_request`, then `frame`."""
    return _BATCH.pack(batch, count)


def execute_frame(batch: int, requests: Sequence[WireRequest]) -> bytes:
    parts: List[ReadableBuffer] = [execute_head(batch, len(requests))]
    for request in requests:
        append_request(
            parts, request.sequence, request.plan, request.id, request.extra, request.tensors
        )
    return frame(EXECUTE, *parts)


def read_batch(view: memoryview) -> Tuple[int, int, int]:
    """Batch number and request count of an EXECUTE, and the offset of its first request."""
    batch, count = _BATCH.unpack_from(view)
    return batch, count, _BATCH.size


def read_request(
    view: memoryview, offset: int, plans: Mapping[int, Any]
) -> Tuple[int, int, List[Tensor], str, Dict[str, Any], int]:
    """(sequence, slot, tensors, id, extra, next offset) of the request at `offset` of an EXECUTE.

    `plans` maps a slot to anything with `inputs`; tensors inline are views of `view`. A tuple and
    no `WireRequest`, because every request pays for this.
    """
    sequence, slot, id_length, extra_length = _REQUEST.unpack_from(view, offset)
    offset += _REQUEST_SIZE
    identity = ""
    extra: Dict[str, Any] = NO_EXTRA
    if id_length:
        identity = str(view[offset : offset + id_length], "utf-8", "surrogateescape")
        offset += id_length
    if extra_length:
        more = view[offset : offset + extra_length]
        extra = TRACED if more == _TRACED else parse_json(more)
        offset += extra_length
    tensors, offset = _read_tensors(view, offset, len(plans[slot].inputs))
    return sequence, slot, tensors, identity, extra, offset


def parse_execute(
    payload: ReadableBuffer, plans: Mapping[int, Plan]
) -> Tuple[int, List[Tuple[WireRequest, Plan]]]:
    """Batch number and requests; inline tensors are views of `payload`."""
    view = memoryview(payload)
    batch, count, offset = read_batch(view)
    requests = []
    for _ in range(count):
        sequence, slot, tensors, identity, extra, offset = read_request(view, offset, plans)
        request = WireRequest(sequence, slot, tensors, identity, dict(extra))
        requests.append((request, plans[slot]))
    return batch, requests


def _error_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a model may put half a surrogate pair there
        return text.encode("utf-8", "replace")


def append_response(parts: List[ReadableBuffer], response: WireResponse) -> None:
    is_error = response.kind == ERROR
    text = _error_bytes(response.error) if is_error else b""
    parameters = response.parameters.encode("utf-8") if response.parameters else b""
    named = response.code if is_error else response.signature
    parts.append(
        _RESPONSE.pack(
            response.sequence, response.kind, response.flags, named, len(text) + len(parameters),
            len(parameters),
        )
    )  # fmt: skip
    if text:
        parts.append(text)
    if parameters:
        parts.append(parameters)
    if response.kind == OK:
        _append_tensors(parts, response.tensors)


def _read_responses(
    view: memoryview, offset: int, count: int, signatures: Dict[int, Any]
) -> List[WireResponse]:
    responses = []
    for _ in range(count):
        sequence, kind, flags, named, length, trailing = _RESPONSE.unpack_from(view, offset)
        offset += _RESPONSE.size
        response = WireResponse(sequence, kind, flags)
        if length:
            cut = offset + length - trailing
            if kind == ERROR:
                response.error = bytes(view[offset:cut]).decode("utf-8", "surrogateescape")
            response.parameters = bytes(view[cut : cut + trailing]).decode("utf-8")
            offset += length
        if kind == OK:
            response.signature = named
            outputs = len(signatures[named].outputs)
            response.tensors, offset = _read_tensors(view, offset, outputs)
        elif kind == ERROR:
            response.code = named
        responses.append(response)
    return responses


def result_head(length: int, batch: int, started: int, ended: int, count: int) -> bytes:
    """Head of a RESULT frame whose responses take `length` bytes; the responses follow it."""
    return _RESULT_HEAD.pack(_RESULT.size + length, RESULT, batch, started, ended, count)


def response_head(sequence: int, flags: int, signature: int) -> bytes:
    """Head of an OK response without parameters; its tensors' places and bytes follow it."""
    return _RESPONSE.pack(sequence, OK, flags, signature, 0, 0)


def inline_place(size: int) -> bytes:
    """Place of a tensor whose `size` bytes follow at once."""
    return PLACE.pack(0, 0, size)


def result_frame(result: Result) -> bytes:
    parts: List[ReadableBuffer] = [
        _RESULT.pack(result.batch, result.started, result.ended, len(result.responses))
    ]
    for response in result.responses:
        append_response(parts, response)
    return frame(RESULT, *parts)


def parse_result(payload: ReadableBuffer, signatures: Dict[int, Any]) -> Result:
    """`signatures` maps a slot to anything with `outputs`; tensors inline are `payload`'s views."""
    view = memoryview(payload)
    batch, started, ended, count = _RESULT.unpack_from(view)
    responses = _read_responses(view, _RESULT.size, count, signatures)
    return Result(batch, started, ended, responses)


def responses_frame(responses: Sequence[WireResponse]) -> bytes:
    """RESPONSES: what a response sender sends, outside any batch's end."""
    parts: List[ReadableBuffer] = [_SLOT.pack(len(responses))]
    for response in responses:
        append_response(parts, response)
    return frame(RESPONSES, *parts)


def parse_responses(payload: ReadableBuffer, signatures: Dict[int, Any]) -> List[WireResponse]:
    view = memoryview(payload)
    (count,) = _SLOT.unpack_from(view)
    return _read_responses(view, _SLOT.size, count, signatures)


def bls_frame(kind: int, header: Dict[str, Any], tensors: Sequence[Tensor] = ()) -> bytes:
    """BLS_REQUEST (`header["inputs"]` describes `tensors`) or BLS_RESPONSE (`header["outputs"]`).

    A request: `call`, `op` (`infer`, `load_model`, `unload_model`, `is_model_ready`), and for
    `infer` `model`, `version`, `id`, `inputs` ([name, datatype, shape] each), `outputs` (names),
    `correlation_id`, `flags`, `timeout`, `parameters` (JSON text), `trace`, `traced` (number of the
    request whose trace the model handed on), `decoupled`, `parent`.
    A response: `call`, `final`, `error` (whole text, or null), `code`, `outputs` ([name, datatype,
    shape] each), `parameters` (JSON text), `value` (of an operation that is no inference), and
    `release`, a number of the sender's choice, where a tensor is a place.

    Places of a request are in region 1 or in a region that the data socket announced, those of a
    response in a region that this socket announced (REGION). The runtime copies or sends a
    request's placed tensors before it answers with `final`; the stub frees them then. A response's
    places are good until the stub says BLS_CANCEL `{"release": number}`; BLS_CANCEL
    `{"cancel": call}` gives a call up.
    """
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    parts: List[ReadableBuffer] = [_SLOT.pack(len(text)), text]
    _append_tensors(parts, tensors)
    return frame(kind, *parts)


def parse_bls(payload: ReadableBuffer) -> Tuple[Dict[str, Any], List[Tensor]]:
    """Header and tensors of a BLS_REQUEST or BLS_RESPONSE."""
    view = memoryview(payload)
    (length,) = _SLOT.unpack_from(view)
    start = _SLOT.size + length
    header = parse_json(view[_SLOT.size : start])
    described = header["inputs"] if "inputs" in header else header.get("outputs") or ()
    tensors, _ = _read_tensors(view, start, len(described) if start < len(view) else 0)
    return header, tensors


class FrameReader:
    """Cuts a byte stream into (kind, payload) frames; payloads are views of what was fed."""

    def __init__(self) -> None:
        self._rest: List[bytes] = []
        self._missing = 0  # bytes without which there is no whole frame

    def feed(self, data: bytes) -> Iterator[Tuple[int, memoryview]]:
        if self._rest:
            self._rest.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return  # joined once, however many pieces a long frame comes in
            data = b"".join(self._rest)
            self._rest = []
        view = memoryview(data)
        offset, end = 0, len(data)
        stop = HEADER.size
        while stop <= end:
            length, kind = HEADER.unpack_from(view, offset)
            stop += length
            if stop > end:
                break
            yield kind, view[offset + HEADER.size : stop]
            offset = stop
            stop += HEADER.size
        if offset < end:
            self._rest = [bytes(view[offset:])]
            self._missing = stop - end
