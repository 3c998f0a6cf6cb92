"""The service on grpcio's asyncio server: every RPC, or only the streams behind the native front.

Bytes in, bytes out; messages are the service's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from devkit.errors import InferError, LoadError
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

    def __init__(self, engine: Any, decoder: codec.Decoder) -> None:
        self._engine = engine
        self._decoder = decoder
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

    def service(self, handler_call_details: Any) -> Any:
        """grpcio asks here for each call."""
        return self._handlers.get(handler_call_details.method)

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
            steer = steer_of(dict(context.invocation_metadata() or ()).get(DEBUG_KEY, ""))
            call = Unary(self._engine, self._decoder, data, finish, steer)
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


class AioServer:
    """A grpcio server in the running loop."""

    def __init__(self, engine: Any, decoder: codec.Decoder) -> None:
        self._handler = Handler(engine, decoder)
        self._server: Any = None

    async def start(self, address: str) -> int:
        """Listen on `address`; the port, 0 for a Unix socket. Raises OSError."""
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self._handler,))
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as problem:
            raise OSError(f"failed to bind to address {address}") from problem
        await self._server.start()
        return int(port)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait `grace` seconds for running ones, close."""
        if self._server is not None:
            await self._server.stop(grace)
