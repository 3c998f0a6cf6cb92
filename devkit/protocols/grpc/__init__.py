"""The gRPC front end: GRPCInferenceService on one port.

`codec` knows the bytes, `service` the RPCs, `native` and `aio` are the two servers they run on.
"""

from __future__ import annotations

from typing import Any

from devkit.protocols.access import GrpcAccess
from devkit.protocols.grpc.codec import Decoder

__all__ = ["GrpcFront"]


class GrpcFront:
    """Serves an engine over gRPC, in the loop it is started on.

    `implementation` is `native` (pygrpc-native, several times grpcio's rate) or `grpcio`. What
    `access` asks for (TLS, restricted protocols, forwarded metadata) only grpcio can do.
    """

    def __init__(
        self, engine: Any, implementation: str = "native", access: GrpcAccess | None = None
    ) -> None:
        decoder = Decoder()
        self._server: Any
        if access is not None and not access.plain:
            from devkit.protocols.grpc.aio import AioServer

            self._server = AioServer(engine, decoder, access)
        elif implementation == "native":
            from devkit.protocols.grpc.native import NativeServer

            self._server = NativeServer(engine, decoder)
        elif implementation == "grpcio":
            from devkit.protocols.grpc.aio import AioServer

            self._server = AioServer(engine, decoder)
        else:
            raise ValueError(f"no such gRPC implementation: {implementation!r}")

    async def start(self, host: str = "127.0.0.1", port: int = 8001) -> int:
        """Listen; the port in use, also where `port` was 0. Raises OSError where it is taken."""
        shown = f"[{host}]" if ":" in host else host
        return int(await self._server.start(f"{shown}:{port}"))

    async def stop(self, grace: float = 0.0) -> None:
        """Take no new calls, wait `grace` seconds for the running ones, close."""
        await self._server.stop(grace)
