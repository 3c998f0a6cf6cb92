"""The service on grpcio's asyncio server: every RPC, or only the streams behind the native front.

Bytes in, bytes out; messages are the service's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from devkit.errors import InferError, LoadError
from devkit.protocols.access import GRPC_API, GrpcAccess, Tls
from devkit.protocols.grpc import codec
from devkit.protocols.grpc.service import (
    DEBUG_KEY,
    SERVICE,
    STATUS,
    Calls,
    Stream,
    Unary,
    details,
    steer_of,
)

CODES = {code.value[0]: code for code in grpc.StatusCode}
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
]
_END = object()


class Handler(grpc.GenericRpcHandler):
    """Finds the function of a method's path."""

    def __init__(
        self, engine: Any, decoder: codec.Decoder, access: GrpcAccess | None = None
    ) -> None:
        self._engine = engine
        self._decoder = decoder
        self._forwarding = access.forwarding if access is not None else None
        calls = Calls(engine)
        prefix = f"/{SERVICE}/"
        self._handlers: dict[str, Any] = {
            prefix + "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            prefix + "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        for name in calls.table:
            self._handlers[prefix + name] = grpc.unary_unary_rpc_method_handler(
                self._cold(calls, name)
            )
        self._keys = {
            prefix + name: access.restricted[api]
            for name, api in GRPC_API.items()
            if access is not None and api in access.restricted
        }

    def service(self, handler_call_details: Any) -> Any:
        """grpcio asks here for each call."""
        method = handler_call_details.method
        key = self._keys.get(method)
        if key is not None and not key.opens(dict(handler_call_details.invocation_metadata)):
            text = f"This protocol is restricted, expecting header '{key.shown}'"
            if method.endswith("StreamInfer"):
                return grpc.stream_stream_rpc_method_handler(_refuse_stream(text))
            return grpc.unary_unary_rpc_method_handler(_refuse(text))
        return self._handlers.get(method)

    def _forwarded(self, metadata: Any) -> Sequence[tuple[str, str]]:
        if self._forwarding is None:
            return ()
        texts = [(name, value) for name, value in metadata or () if isinstance(value, str)]
        return self._forwarding.chosen(texts)

    @staticmethod
    def _cold(calls: Calls, name: str) -> Any:
        async def call(data: bytes, context: Any) -> bytes:
            try:
                return await calls.call(name, data)
            except (InferError, LoadError) as problem:
                await context.abort(CODES[STATUS[problem.code]], details(problem))
                raise  # abort raises by itself; this tells the type checker

        return call

    async def _infer(self, data: bytes, context: Any) -> bytes:
        answered: asyncio.Future[tuple[bytes | None, InferError | None]]
        answered = asyncio.get_running_loop().create_future()

        def finish(answer: bytes | None, problem: InferError | None) -> None:
            if not answered.done():
                answered.set_result((answer, problem))

        try:
            metadata = context.invocation_metadata()
            steer = steer_of(dict(metadata or ()).get(DEBUG_KEY, ""))
            forwarded = self._forwarded(metadata)
            call = Unary(self._engine, self._decoder, data, finish, steer, forwarded)
        except InferError as problem:
            await context.abort(CODES[STATUS[problem.code]], details(problem))
            raise
        try:
            answer, error = await answered
        except asyncio.CancelledError:
            call.cancel()
            raise
        if error is not None:
            await context.abort(CODES[STATUS[error.code]], details(error))
        assert answer is not None
        return answer

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        ready: asyncio.Queue[Any] = asyncio.Queue()
        metadata = dict(context.invocation_metadata() or ())
        stream = Stream(
            self._engine, self._decoder, ready.put_nowait, ready.put_nowait,
            errors_end=metadata.get("triton_grpc_error") == "true",
            steer=steer_of(metadata.get(DEBUG_KEY, "")),
            forwarded=self._forwarded(context.invocation_metadata()),
        )  # fmt: skip

        async def read() -> None:
            async for data in requests:
                stream.feed(data)
            stream.on_idle = lambda: ready.put_nowait(_END)
            if stream.idle:
                ready.put_nowait(_END)

        reader = asyncio.ensure_future(read())
        try:
            while True:
                item = await ready.get()
                if item is _END:
                    return
                if isinstance(item, InferError):
                    await context.abort(CODES[STATUS[item.code]], details(item))
                yield item
        finally:
            stream.cancel()
            reader.cancel()


def _refuse(text: str) -> Any:
    async def refuse(data: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        raise AssertionError("abort raises")

    return refuse


def _refuse_stream(text: str) -> Any:
    async def refuse(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        yield b""

    return refuse


def _credentials(tls: Tls) -> Any:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], tls.root, require_client_auth=tls.root is not None
    )


class AioServer:
    """A grpcio server in the running loop."""

    def __init__(
        self, engine: Any, decoder: codec.Decoder, access: GrpcAccess | None = None
    ) -> None:
        self._handler = Handler(engine, decoder, access)
        self._access = access
        self._server: Any = None

    async def start(self, address: str) -> int:
        """Listen on `address`; the port, 0 for a Unix socket. Raises OSError."""
        access = self._access
        options = [*OPTIONS, *(access.options if access is not None else ())]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self._handler,))
        try:
            if access is not None and access.tls is not None:
                port = self._server.add_secure_port(address, _credentials(access.tls))
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError as problem:
            raise OSError(f"failed to bind to address {address}") from problem
        await self._server.start()
        return int(port)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait `grace` seconds for running ones, close."""
        if self._server is not None:
            await self._server.stop(grace)
