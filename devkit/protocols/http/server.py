"""HTTP/1.1 on sockets: heads, bodies, replies. It knows no endpoint; a `Router` says who answers.

A head is looked up by its bytes: a client's heads repeat, so httptools parses each once. A long
body goes straight from the socket into the memory its route asks for (`Route.receive`). One request
of a connection is served at a time, as the real server does; what is pipelined behind it waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import httptools

from devkit.contract.wire import Interned
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.memory import Block

log = logging.getLogger("devkit.http")

REASONS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Not Allowed",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip

DIRECT = 64 * 1024
"""Bodies longer than this are received where they will stay."""

_SCRATCH = 256 * 1024
_HEAD_LIMIT = 1 << 20  # a KServe client may send large headers; this only ends an endless one
_CACHED_HEAD = 4096
_WAITING_LIMIT = 1 << 20
_ABSOLUTE = re.compile(r"^[a-z]+://[^/]*", re.IGNORECASE)
_LEADING_INTEGER = re.compile(r"\s*([+-]?\d+)")


@dataclass(slots=True)
class Target:
    """Where a body goes: `view` of exactly its length, and the block that holds it."""

    view: memoryview
    block: Block


@dataclass(slots=True, eq=False)
class Head:
    """A parsed request head; one object for all requests whose heads are the same bytes.

    Attributes:
        length: of the body; -1 where it is chunked.
        header_length: `Inference-Header-Content-Length`, None without one.
        accept: the encoding a reply may have: `gzip`, `deflate` or "".
        debug: whether the request asks for the instance that a debugger has.
        forwarded: headers that a model sees as parameters.
    """

    method: str
    path: str
    route: Route
    length: int = 0
    header_length: int | None = None
    content_encoding: str | None = None
    accept: str = ""
    debug: bool = False
    keep_alive: bool = True
    version: str = "1.1"
    expect: bool = False
    forwarded: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers a request.

    Attributes:
        handle: called on the loop with the whole body; replies now or later.
        receive: called for a long body with its head; the memory to receive it into, or None.
        arguments: what the path named.
        api: the part of the protocol that it belongs to, as the restriction flags name it.
    """

    handle: Callable[[Connection, Head, memoryview, Block | None], None]
    receive: Callable[[Head], Target | None] | None = None
    arguments: tuple[str, ...] = field(default=())
    api: str = ""


Router = Callable[[str, str], Route]
"""(method, path) to the route; every path has one."""


class BadHead(Exception):
    """Bytes that are no HTTP request. The connection is closed without a word, as evhtp does."""


Admit = Callable[["Head", "Headers"], None]
"""Looks at a new head with all its headers: may give it another route, or note what it forwards."""


class Headers:
    """The headers of one head: by name in lower case, and as they came."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.fields: list[tuple[str, str]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # latin-1 takes any byte, and what devkit reads of headers is ASCII
        field_name, text = name.decode("latin-1"), value.decode("latin-1")
        self.headers[field_name.lower()] = text
        self.fields.append((field_name, text))


def parse_head(data: bytes, router: Router, admit: Admit | None = None) -> Head:
    """Read a head that ends in an empty line. Raises BadHead."""
    reader = Headers()
    parser = httptools.HttpRequestParser(reader)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as problem:
        raise BadHead(str(problem)) from problem
    try:
        head = _head_of(parser, reader, router)
    except ValueError as problem:  # a number of thousands of digits
        raise BadHead(str(problem)) from problem
    if admit is not None:
        admit(head, reader)
    return head


def _head_of(parser: httptools.HttpRequestParser, reader: Headers, router: Router) -> Head:
    method = parser.get_method().decode("ascii")
    path = _ABSOLUTE.sub("", reader.url.decode("utf-8", "surrogateescape")).partition("?")[0]
    head = Head(method, path, router(method, path))
    head.version = parser.get_http_version()
    headers = reader.headers
    connection = headers.get("connection", "").lower()
    head.keep_alive = "keep-alive" in connection or (
        head.version != "1.0" and "close" not in connection
    )
    if "chunked" in headers.get("transfer-encoding", "").lower():
        head.length = -1
    elif "content-length" in headers:
        head.length = int(headers["content-length"])
    if "inference-header-content-length" in headers:
        number = _LEADING_INTEGER.match(headers["inference-header-content-length"])
        head.header_length = int(number.group(1)) if number else 0  # as C's atoll reads it
    head.content_encoding = headers.get("content-encoding")
    head.debug = headers.get("devkit-debug", "0") != "0"
    head.accept = choose_encoding(headers.get("accept-encoding", ""))
    head.expect = headers.get("expect", "").lower() == "100-continue"
    return head


def choose_encoding(accepted: str) -> str:
    """The reply's encoding: the acceptable one of the highest quality, the first among equals."""
    best, chosen = 0.0, ""
    for item in accepted.split(","):
        name, _, quality = item.partition(";")
        name = name.strip().lower()
        if name in ("gzip", "deflate"):
            try:
                weight = float(quality.partition("=")[2]) if quality else 1.0
            except ValueError:
                continue
            if weight > best:
                best, chosen = weight, name
    return chosen


class _Chunks:
    """Undoes chunked transfer coding, fed piece by piece."""

    def __init__(self) -> None:
        self.body = bytearray()
        self._rest = b""
        self._left = 0  # of the current chunk, with its line end
        self._trailer = False

    def feed(self, data: bytes) -> bytes | None:
        """What follows the body once it is whole, else None. Raises BadHead."""
        data = self._rest + data
        self._rest = b""
        while True:
            if self._left:
                piece = data[: self._left]
                self.body += piece
                self._left -= len(piece)
                data = data[len(piece) :]
                if self._left:
                    return None
                del self.body[-2:]
            line, found, after = data.partition(b"\r\n")
            if not found:
                if len(data) > _HEAD_LIMIT:
                    raise BadHead("endless chunk header")
                self._rest = data
                return None
            data = after
            if self._trailer:
                if not line:
                    return data
                continue
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError as problem:
                raise BadHead("chunk size") from problem
            if size < 0:
                raise BadHead("chunk size")
            if size:
                self._left = size + 2
            else:
                self._trailer = True


class Owner(Protocol):
    """What a connection needs of its server."""

    scratch: memoryview
    heads: Interned[Head]
    router: Router
    admit: Admit | None
    connections: set[Connection]
    closing: bool


class Connection(asyncio.BufferedProtocol):
    """One client's connection, and the one request of it that is being served.

    Attributes:
        began: when a long body began to come, 0 for a request that came in one piece.
        busy: a request was handed to its handler and has not been answered.
        on_abort: called when the client goes away while busy.
    """

    __slots__ = (
        "_block", "_body", "_chunks", "_filled", "_head", "_owner", "_parsing", "_paused",
        "_unwritten", "_waiting", "began", "busy", "on_abort", "transport",
    )  # fmt: skip

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._head: Head | None = None
        self._body: memoryview | None = None  # being received directly
        self._block: Block | None = None
        self._filled = 0
        self._chunks: _Chunks | None = None
        self._waiting = b""
        self._parsing = False
        self._paused = False
        self._unwritten: list[Callable[[], None]] = []
        self.began = 0
        self.busy = False
        self.on_abort: Callable[[], None] | None = None
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # until connected

    # -- asyncio's side ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # it is one that writes
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._owner.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connections.discard(self)
        self.resume_writing()
        self._waiting = b""
        self._body = None
        if self._block is not None:
            self._block.release()
            self._block = None
        abort, self.on_abort = self.on_abort, None
        if abort is not None:
            abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._body is not None:
            return self._body[self._filled :]
        return self._owner.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is not None:
            self._filled += nbytes
            if self._filled == len(self._body):
                self._received()
            return
        data = bytes(self._owner.scratch[:nbytes])
        if self._waiting:
            data = self._waiting + data
            self._waiting = b""
        if self.busy:
            self._waiting = data
            if len(data) > _WAITING_LIMIT:
                self._paused = True
                self.transport.pause_reading()
            return
        self._parse(data)

    def eof_received(self) -> bool:
        return False  # a client that half-closes is gone, as for the real server

    def resume_writing(self) -> None:
        """Everything written has left: give back the memory that was kept for it."""
        if not self._unwritten:
            return
        done, self._unwritten = self._unwritten, []
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits()
        for release in done:
            release()

    # -- reading -----------------------------------------------------------------------------------

    def _parse(self, data: bytes) -> None:
        self._parsing = True
        try:
            while data and not self.busy:
                rest = self._start(data) if self._chunks is None else self._feed_chunks(data)
                if rest is None:
                    break
                data = rest
        except BadHead as problem:
            log.debug("closed a connection: %s", problem)
            self.transport.abort()
            return
        finally:
            self._parsing = False
        self._waiting = data

    def _start(self, data: bytes) -> bytes | None:
        """Begin the request that `data` begins with; what follows it, None if its head is cut."""
        end = data.find(b"\r\n\r\n") + 4
        if end == 3:
            if len(data) > _HEAD_LIMIT:
                raise BadHead("endless head")
            return None
        raw = data[:end]
        head = self._owner.heads.young.get(raw) or self._look_up(raw)
        self._head = head
        if head.expect:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = head.length
        if length < 0:
            self._chunks = _Chunks()
            return data[end:]
        stop = end + length
        if stop <= len(data):
            self.busy = True
            head.route.handle(self, head, memoryview(data)[end:stop], None)
            return data[stop:]
        self._receive(head, data[end:])
        return b""

    def _look_up(self, raw: bytes) -> Head:
        heads = self._owner.heads
        head = heads.get(raw)
        if head is None:
            head = parse_head(raw, self._owner.router, self._owner.admit)
            if len(raw) <= _CACHED_HEAD:
                heads.put(raw, head)
        return head

    def _feed_chunks(self, data: bytes) -> bytes:
        assert self._chunks is not None
        assert self._head is not None
        after = self._chunks.feed(data)
        if after is None:
            return b""
        body, self._chunks = self._chunks.body, None
        self.busy = True
        self._head.route.handle(self, self._head, memoryview(body), None)
        return after

    def _receive(self, head: Head, begun: bytes) -> None:
        """Receive the rest of a body directly."""
        self.began = time.monotonic_ns()
        target = None
        if head.length > DIRECT and head.route.receive is not None:
            target = head.route.receive(head)
        if target is not None:
            body, self._block = target.view, target.block
        else:
            try:
                body = memoryview(bytearray(head.length))
            except (MemoryError, OverflowError) as problem:
                raise BadHead(f"a body of {head.length} bytes") from problem
        body[: len(begun)] = begun
        self._body = body
        self._filled = len(begun)

    def _received(self) -> None:
        assert self._head is not None
        assert self._body is not None
        body, self._body = self._body, None
        block, self._block = self._block, None
        self.busy = True
        self._parsing = True
        try:
            self._head.route.handle(self, self._head, body, block)
        finally:
            self._parsing = False
        if not self.busy:
            self._next()

    # -- writing -----------------------------------------------------------------------------------

    def reply(
        self, status: int, content_type: str, body: bytes = b"", *, headers: str = ""
    ) -> None:
        """Answer with a whole body."""
        head = self._head
        assert head is not None
        text = (
            f"HTTP/{head.version} {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"{headers}{self._connection(head)}Content-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1")
        # The real server sends a body after HEAD too, which no client could make sense of.
        self.transport.write(text + body if head.method != "HEAD" else text)
        self.finish()

    @staticmethod
    def _connection(head: Head) -> str:
        if not head.keep_alive:
            return "Connection: close\r\n"
        return "Connection: keep-alive\r\n" if head.version == "1.0" else ""

    def reply_parts(
        self,
        start: bytes,
        size: int,
        parts: list[ReadableBuffer],
        release: Callable[[], None],
    ) -> None:
        """Answer with status 200, a head that `start` begins, and `parts` of `size` bytes in all.

        `release` is called when the parts' memory is no longer needed.
        """
        head = self._head
        assert head is not None
        connection = "" if head.keep_alive and head.version == "1.1" else self._connection(head)
        end = b"%sContent-Length: %d\r\n\r\n" % (connection.encode("ascii"), size)
        transport = self.transport
        if size <= DIRECT:
            transport.write(b"".join((start, end, *parts)))
            release()
        else:
            # With a limit of 0 the transport says when the last byte has left.
            transport.set_write_buffer_limits(high=0)
            transport.write(start + end)
            for part in parts:
                transport.write(part)
            self._unwritten.append(release)
            if transport.get_write_buffer_size() == 0:
                self.resume_writing()
        self.finish()

    def start_stream(self, status: int, content_type: str) -> None:
        """Answer with a chunked body, whose chunks follow."""
        head = self._head
        assert head is not None
        self.transport.write(
            f"HTTP/{head.version} {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"{self._connection(head)}Transfer-Encoding: chunked\r\n\r\n".encode("latin-1")
        )

    def write_chunk(self, data: bytes) -> None:
        """Send a piece of a chunked body."""
        if data:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """End a chunked body."""
        self.transport.write(b"0\r\n\r\n")
        self.finish()

    def finish(self) -> None:
        """The request is answered: close, or go on with the next."""
        self.on_abort = None
        self.began = 0
        self.busy = False
        head = self._head
        assert head is not None
        if not head.keep_alive or self._owner.closing:
            self._waiting = b""
            self.transport.close()
        elif not self._parsing:
            self._next()

    def _next(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        if self._waiting:
            data, self._waiting = self._waiting, b""
            self._parse(data)


class Server:
    """Listens, and keeps the connections."""

    def __init__(self, router: Router, admit: Admit | None = None) -> None:
        self.router = router
        self.admit = admit
        self.scratch = memoryview(bytearray(_SCRATCH))
        self.heads: Interned[Head] = Interned(2048)
        self.connections: set[Connection] = set()
        self.closing = False
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which the system chose where `port` is 0. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=1024, reuse_address=True
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace: float = 0.0) -> None:
        """Stop listening, let running requests finish for `grace` seconds, then close them."""
        self.closing = True
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            if not connection.busy:
                connection.transport.close()
        deadline = asyncio.get_running_loop().time() + grace
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
        while self.connections:
            await asyncio.sleep(0)
