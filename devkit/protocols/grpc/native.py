"""The service on pygrpc-native, whose HTTP/2 and gRPC run in Rust outside the GIL.

A thread takes calls from it in batches and hands each batch to the loop in one go; answers go out
from the loop itself. Streams in both directions are not its own: it passes them to a grpcio server
on a Unix socket (`aio`), unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from pygrpc_native._native import EVENT_CANCEL, NativeGrpcFront

from devkit.errors import InferError, LoadError
from devkit.protocols.grpc import codec
from devkit.protocols.grpc.aio import AioServer
from devkit.protocols.grpc.service import (
    DEBUG_KEY,
    SERVICE,
    STATUS,
    Calls,
    Unary,
    details,
    steer_of,
)

_BATCH = 256
_IO_THREADS = 2
_UNAVAILABLE = 14


class NativeServer:
    """A pygrpc-native front bound to the running loop."""

    def __init__(self, engine: Any, decoder: codec.Decoder) -> None:
        self._engine = engine
        self._decoder = decoder
        self._calls = Calls(engine)
        self._names = ["ModelInfer", *self._calls.table]
        self._streams = AioServer(engine, decoder)
        self._folder = ""
        self._front: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: threading.Thread | None = None
        self._running: dict[int, Unary] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopping = False

    async def start(self, address: str) -> int:
        """Listen on `address`; the port. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        methods = [(f"/{SERVICE}/{name}", False) for name in self._names]
        # Without `call_details` 0.5 does not tell when a client cancels a call.
        self._front = NativeGrpcFront(
            address, methods, call_details=True, client_key_metadata=DEBUG_KEY,
            io_threads=_IO_THREADS,
            max_concurrent_streams=1 << 20, max_metadata_size=1 << 20,
        )  # fmt: skip
        self._folder = tempfile.mkdtemp(prefix="devkit-grpc-")
        path = str(Path(self._folder, "streams.sock"))
        await self._streams.start(f"unix:{path}")
        self._front.set_fallback(path)
        self._front.start()
        self._pump = threading.Thread(target=self._take, name="devkit-grpc", daemon=True)
        self._pump.start()
        return int(self._front.bound_port)

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait `grace` seconds for running ones, close."""
        if self._front is None:
            return
        self._stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        await self._streams.stop(grace)
        while (self._running or self._tasks) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for call in list(self._running.values()):
            call.cancel()
        self._running.clear()
        self._front.close()
        if self._pump is not None:
            await loop.run_in_executor(None, self._pump.join)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self) -> None:
        """The pump's thread."""
        front, loop = self._front, self._loop
        assert loop is not None
        while (events := front.recv_batch(_BATCH)) is not None:
            if events:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody to answer
                    loop.call_soon_threadsafe(self._handle, events)

    def _handle(self, events: list[Any]) -> None:
        for kind, call_id, method, payload, mark in events:
            if kind == EVENT_CANCEL:
                self._cancel(call_id)
            elif self._stopping:
                self._front.fail(call_id, _UNAVAILABLE, "Server is shutting down")
            elif method == 0:
                self._infer(call_id, payload, steer_of(mark))
            else:
                task = asyncio.ensure_future(self._cold(call_id, self._names[method], payload))
                self._tasks[call_id] = task

    def _cancel(self, call_id: int) -> None:
        call = self._running.pop(call_id, None)
        if call is not None:
            call.cancel()

    def _infer(self, call_id: int, payload: bytes, steer: str) -> None:
        def finish(answer: bytes | None, problem: InferError | None) -> None:
            self._running.pop(call_id, None)
            if problem is not None:
                self._front.fail(call_id, STATUS[problem.code], details(problem))
            else:
                self._front.respond(call_id, answer)

        try:
            self._running[call_id] = Unary(self._engine, self._decoder, payload, finish, steer)
        except InferError as problem:
            self._front.fail(call_id, STATUS[problem.code], details(problem))

    async def _cold(self, call_id: int, name: str, payload: bytes) -> None:
        try:
            answer = await self._calls.call(name, payload)
        except (InferError, LoadError) as problem:
            self._front.fail(call_id, STATUS[problem.code], details(problem))
        else:
            self._front.respond(call_id, answer)
        finally:
            self._tasks.pop(call_id, None)
