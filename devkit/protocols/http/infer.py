"""`infer`, `generate` and `generate_stream`: the hot path of the HTTP front end.

Decode, call the engine, encode. What repeats is interned: a header's bytes name a `Prepared`, and a
response's signature keeps the JSON written for it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from devkit.contract import generate, wire
from devkit.core.request import Request, Response, SharedPlace
from devkit.core.steering import MARKED
from devkit.errors import Code, InferError, SharedMemoryError, UnknownModelError
from devkit.protocols.http.endpoints import STATUS
from devkit.protocols.http.routes import JSON, TEXT
from devkit.protocols.http.server import Connection, Head, Route, Target
from devkit.protocols.requests import (
    Descriptions,
    Prepared,
    forward,
    give_up,
    in_block,
    normal_version,
    output_places,
    prepare,
    read_labels,
)
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.memory import ALIGNMENT, Block

EVENTS = "text/event-stream; charset=utf-8"
DECOUPLED = "HTTP end point doesn't support models with decoupled transaction policy"
COMPRESSION = "Unsupported compression type"
NO_RESPONSE = "expected a single response, got 0"

_WINDOW = {"gzip": 31, "deflate": 15}
_OCTETS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
    b"Inference-Header-Content-Length: %d\r\n"
)
_TEXTUAL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_INTERNED_HEADER = 16 * 1024


class Inference:
    """The inference endpoints of one engine."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._prepared: wire.Interned[Prepared] = wire.Interned(4096)
        self.descriptions = Descriptions()

    # -- routes --------------------------------------------------------------------------------

    def infer_route(self, method: str, names: dict[str, str]) -> Route:
        """`/v2/models/M/infer`."""
        model, version, refusal = names["model"], "", None
        try:
            version = normal_version(names["version"])
        except InferError as problem:
            refusal = problem

        def handle(
            connection: Connection, head: Head, body: memoryview, block: Block | None
        ) -> None:
            if refusal is not None:
                _refuse(connection, refusal, TEXT)
                return
            self.infer(connection, head, model, version, body, block)

        def receive(head: Head) -> Target | None:
            return self._receive(head, model)

        return Route(handle, receive)

    def generate_route(self, method: str, names: dict[str, str]) -> Route:
        """`/v2/models/M/generate`."""
        return self._generate_route(names, stream=False)

    def stream_route(self, method: str, names: dict[str, str]) -> Route:
        """`/v2/models/M/generate_stream`."""
        return self._generate_route(names, stream=True)

    def _generate_route(self, names: dict[str, str], *, stream: bool) -> Route:
        def handle(
            connection: Connection, head: Head, body: memoryview, block: Block | None
        ) -> None:
            self.generate(connection, head, names, body, stream=stream)

        return Route(handle)

    # -- infer ---------------------------------------------------------------------------------

    def _receive(self, head: Head, model: str) -> Target | None:
        """Shared memory for a long binary body, placed so that its first tensor is aligned."""
        start = head.header_length
        if start is None or not 0 < start < head.length or head.content_encoding is not None:
            return None
        padding = -start % ALIGNMENT
        try:
            slab = self.engine.request_slab(model)
            if slab is None:
                return None
            block = slab.allocate(padding + head.length, "request")
        except (InferError, SharedMemoryError):
            return None  # received privately; what is wrong shows when the body is there
        return Target(block.view(padding, head.length), block)

    def infer(
        self, connection: Connection, head: Head, name: str, version: str, body: memoryview,
        block: Block | None,
    ) -> None:  # fmt: skip
        """Answer an infer request."""
        engine = self.engine
        request = None
        began = time.monotonic_ns() if engine.tracer is not None else 0
        try:
            model = engine.model(name, version)
            if model.decoupled:
                raise _Early(DECOUPLED, Code.UNSUPPORTED)
            if head.content_encoding is not None:
                body = memoryview(_decompress(head.content_encoding, body))
            start = len(body) if head.header_length is None else head.header_length
            if not 0 <= start <= len(body):
                raise _Early(
                    f"inference header size should be in range (0, {len(body)}), got: {start}"
                )
            call = _InferCall(self, connection, head, model)
            if start == 0:
                request = self._raw(name, version, model, body, call)
            else:
                request = self._request(name, version, body, start, block, call)
                block = None  # the request has it now
            call.request = request
            connection.on_abort = call.abort
            if began:
                request.arrival = ("HTTP", connection.began or began, began)
            if head.debug:
                request.steer = MARKED
            if head.forwarded:
                forward(request, head.forwarded, self.descriptions)
            engine.infer(request)
        except InferError as problem:
            if request is not None:
                give_up(request)
            if block is not None:
                block.release()
            early = isinstance(problem, (_Early, UnknownModelError))
            _refuse(connection, problem, TEXT if early else JSON)

    def _request(
        self, name: str, version: str, body: memoryview, start: int, block: Block | None,
        call: _InferCall,
    ) -> Request:  # fmt: skip
        identity, prepared = self.prepare(bytes(body[:start]))
        header = prepared.header
        call.encoding = header.encoding
        buffers: list[Any]
        if block is not None:
            padding = -start % ALIGNMENT
            buffers = list(in_block(header, body[start:], block, padding + start, name))
        elif prepared.cuts is not None and len(body) - start == header.total:
            buffers = [body[start + begin : start + end] for begin, end in prepared.cuts]
        else:
            buffers = list(wire.slices(header, body[start:], name))
        if prepared.shared:
            regions = self.engine.regions
            buffers = [
                regions.find(*tensor.region) if tensor.region is not None else buffer
                for tensor, buffer in zip(header.inputs, buffers, strict=True)
            ]
            call.places = output_places(header, regions)
        request = Request(name, prepared.description, buffers, call.respond, version, identity)
        if block is not None:
            request.blocks.append(block)
        if prepared.sequenced:
            request.correlation_id = header.correlation_id
            request.flags = header.flags
            request.timeout = header.timeout
            request.priority = header.priority
        return request

    def prepare(self, text: bytes) -> tuple[str, Prepared]:
        """The request id of a header and everything else it says."""
        prepared = self._prepared.young.get(text)
        if prepared is not None:  # only headers without an id are kept under their whole text
            return prepared.header.id, prepared
        identity, key = wire.split_id(text)
        if not identity:
            key = text
        prepared = self._prepared.get(key)
        if prepared is None:
            try:
                header = wire.parse_header(key)
            except InferError:
                if identity:
                    wire.parse_header(text)  # raises with the id and the offsets of the whole
                raise
            prepared = prepare(header, self.descriptions)
            if header.repeatable and len(key) <= _INTERNED_HEADER:
                self._prepared.put(key, prepared)
        return identity or prepared.header.id, prepared

    def _raw(
        self, name: str, version: str, model: Any, body: memoryview, call: _InferCall
    ) -> Request:
        """A body without a header is the one input of the model."""
        label = "[request id: <id_unknown>] "
        tensor, data = wire.raw_tensor(body, label, name, model.inputs, model.max_batch_size)
        call.encoding = wire.encoding(True)
        description = self.descriptions.get([tensor], (), {}, call.encoding)
        return Request(name, description, [data], call.respond, version)

    # -- generate ------------------------------------------------------------------------------

    def generate(
        self, connection: Connection, head: Head, names: dict[str, str], body: memoryview, *,
        stream: bool,
    ) -> None:  # fmt: skip
        """Answer a generate request."""
        engine = self.engine
        began = time.monotonic_ns() if engine.tracer is not None else 0
        try:
            name, version = names["model"], normal_version(names["version"])
            model = engine.model(name, version)
            if head.content_encoding not in (None, "identity"):
                raise InferError("Unsupported content-encoding, only 'identity' is supported.")
            parsed = generate.parse(bytes(body), model.inputs)
            description = self.descriptions.get(
                parsed.inputs, (), parsed.parameters, wire.encoding(False)
            )
            call = (_StreamCall if stream else _GenerateCall)(engine, connection, parsed.id)
            data = [tensor.data or b"" for tensor in parsed.inputs]
            request = Request(name, description, list(data), call.respond, version, parsed.id)
            call.request = request
            connection.on_abort = call.abort
            if began:
                request.arrival = ("HTTP", connection.began or began, began)
            if head.debug:
                request.steer = MARKED
            engine.infer(request)
        except InferError as problem:
            _refuse(connection, problem, JSON)


class _Early(InferError):
    """A refusal before the body is looked at; those go out as text/plain."""


def _refuse(connection: Connection, problem: InferError, content_type: str) -> None:
    headers = "Accept-Encoding: gzip, deflate\r\n" if problem.message is COMPRESSION else ""
    connection.reply(
        STATUS[problem.code], content_type, generate.error(problem.message), headers=headers
    )


def _decompress(encoding: str, body: memoryview) -> ReadableBuffer:
    """The body itself; nothing of what is no such data, as libevent and zlib leave it."""
    if encoding == "identity":
        return body
    if encoding not in _WINDOW:
        raise _Early(COMPRESSION, Code.UNSUPPORTED)
    try:
        return zlib.decompressobj(_WINDOW[encoding]).decompress(body)
    except zlib.error:
        return b""


class _InferCall:
    """One infer request on its way, and how its reply is written."""

    __slots__ = (
        "_api", "_connection", "_done", "_head", "_model", "_usual", "encoding", "places",
        "request",
    )  # fmt: skip

    def __init__(self, api: Inference, connection: Connection, head: Head, model: Any) -> None:
        self._api = api
        self._connection = connection
        self._head = head
        self._model = model
        self._done = False
        self._usual = not head.accept and head.version == "1.1"
        self.encoding: wire.Encoding = None  # type: ignore[assignment]  # set with the request
        self.places: dict[str, SharedPlace] | None = None
        self.request: Request | None = None

    def abort(self) -> None:
        """The client is gone. The request goes on, as in the real server: only gRPC cancels."""
        self._done = True

    def respond(self, response: Response) -> None:
        """The engine's answer."""
        if self._done:
            response.release()
            return
        error = response.error
        if response.empty:
            if not response.final:
                return
            error = InferError(NO_RESPONSE, Code.INTERNAL)
        self._done = True
        trace = response.request.trace
        if trace is not None:
            trace.sending()
        if error is None:
            try:
                self._write(response)
            except InferError as problem:
                error = problem
        if error is not None:
            response.release()
            _refuse(self._connection, error, TEXT)
        if trace is not None:
            trace.sent()

    def _write(self, response: Response) -> None:
        encoding = self.encoding
        request_id = response.request.id
        if encoding.plain and not request_id and not response.parameters and self._usual:
            sizes = list(map(len, response.buffers))
            written = response.signature.memo.get(encoding)
            # Names are compared too: the signature of a response without outputs is everybody's.
            if written is not None and written[0] == (response.model_name, sizes):
                self._connection.reply_parts(
                    written[1], written[2], [written[3], *response.buffers], response.release
                )
                return
        labels: Mapping[str, Sequence[str]] | None = None
        if not encoding.plain:
            labels = read_labels(self._model, encoding)
        reply = wire.reply(
            response.signature, response.buffers, encoding,
            model=response.model_name, version=response.model_version, id=request_id,
            parameters=response.parameters, places=self.places, labels=labels,
            batched=self._model.max_batch_size > 0,
        )  # fmt: skip
        text, tail = reply.json, reply.tail
        start = _OCTETS % len(text) if reply.binary else _TEXTUAL
        if self._head.version != "1.1":
            start = start.replace(b"1.1", self._head.version.encode("ascii"), 1)
        parts: list[ReadableBuffer] = [text, *tail]
        if self._head.accept:
            packer = zlib.compressobj(wbits=_WINDOW[self._head.accept])
            parts = [*map(packer.compress, parts), packer.flush()]
            start += b"Content-Encoding: %b\r\n" % self._head.accept.encode("ascii")
        size = sum(map(len, parts))
        if reply.binary and len(tail) == len(response.buffers) and not request_id and self._usual:
            sizes = list(map(len, tail))
            response.signature.memo[encoding] = (
                (response.model_name, sizes), start, size, text
            )  # fmt: skip
        self._connection.reply_parts(start, size, parts, response.release)


class _GenerateCall:
    """One generate request: exactly one response is wanted."""

    def __init__(self, engine: Any, connection: Connection, identity: str) -> None:
        self._engine = engine
        self._connection = connection
        self._identity = identity
        self._done = False
        self._count = 0
        self._status = 200
        self._text = b""
        self.request: Request | None = None

    def abort(self) -> None:
        """The client is gone. The request goes on, as in the real server: only gRPC cancels."""
        self._done = True

    def respond(self, response: Response) -> None:
        """One of the engine's answers."""
        trace = response.request.trace
        if not response.empty:
            self._count += 1
            if not self._done:
                self._status, self._text = self._encode(response)
        response.release()
        if response.final and not self._done:
            self._done = True
            if self._count != 1:
                self._status, self._text = 200, generate.error(generate.ONE_RESPONSE)
            if trace is not None:
                trace.sending()
            self._connection.start_stream(self._status, JSON)
            self._connection.write_chunk(self._text)
            self._connection.end_stream()
            if trace is not None:
                trace.sent()

    def _encode(self, response: Response) -> tuple[int, bytes]:
        error = response.error
        if error is None:
            try:
                return 200, generate.reply(
                    response.signature.outputs, response.buffers, response.model_name,
                    response.model_version, self._identity,
                )  # fmt: skip
            except InferError as problem:
                error = problem
        return 400, generate.error(error.message)  # whatever its code, says the real server


class _StreamCall(_GenerateCall):
    """One generate_stream request: every response is an event."""

    def respond(self, response: Response) -> None:
        """One of the engine's answers."""
        if self._done:
            response.release()
            return
        trace = response.request.trace
        if trace is not None:
            trace.sending()
        if not response.empty:
            status, text = self._encode(response)
            if self._count == 0:
                self._connection.start_stream(status, EVENTS)
            self._count += 1
            self._connection.write_chunk(b"data: " + text + b"\n\n")
        response.release()
        if response.final:
            self._done = True
            if self._count == 0:
                self._connection.start_stream(200, EVENTS)
            self._connection.end_stream()
        if trace is not None:
            trace.sent()
