"""Front ends over the in-memory engine, in a uvloop of their own thread, as in the runtime."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from devkit.protocols.grpc import GrpcFront
from devkit.protocols.http import HttpFront
from devkit.protocols.metrics import MetricsFront
from tests.unit.protocols.memory_engine import MemoryEngine


class Running:
    """An engine with its front ends; `call` runs a function on their loop and returns its result."""

    def __init__(self, implementation: str = "native") -> None:
        self.engine = MemoryEngine()
        self.fronts = [
            HttpFront(self.engine),
            GrpcFront(self.engine, implementation),
            MetricsFront(self.engine),
        ]
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        ports = [self.wait(front.start("127.0.0.1", 0)) for front in self.fronts]
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{port}" for port in ports)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def wait(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(20)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async def run() -> Any:
            return function(*arguments)

        return self.wait(run())

    def until(self, condition: Callable[[], bool]) -> None:
        async def poll() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.wait(asyncio.wait_for(poll(), 10))

    def close(self) -> None:
        for front in self.fronts:
            self.wait(front.stop(0.0))
        self.call(self.engine.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def running() -> Iterator[Running]:
    server = Running()
    yield server
    server.close()


@pytest.fixture(params=["native", "grpcio"])
def either(request: pytest.FixtureRequest) -> Iterator[Running]:
    """Running, once for each implementation of gRPC."""
    server = Running(request.param)
    yield server
    server.close()
