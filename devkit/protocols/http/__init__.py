"""The HTTP front end: KServe v2 and Triton's extensions on one port.

`server` speaks HTTP, `routes` knows the paths, `endpoints` and `infer` what is behind them.
"""

from __future__ import annotations

from typing import Any

from devkit.protocols.access import HttpAccess
from devkit.protocols.http.endpoints import Endpoints
from devkit.protocols.http.infer import Inference
from devkit.protocols.http.routes import TEXT, fixed, router
from devkit.protocols.http.server import Admit, Head, Headers, Server

__all__ = ["HttpFront"]


def _admit(access: HttpAccess) -> Admit:
    """Refuses what lacks its key, and notes the headers that a model sees."""
    refusals = {
        key.shown: fixed(
            403,
            TEXT,
            f'{{"error":"This API is restricted, expecting header \'{key.shown}\'"}}'.encode(),
        )
        for key in access.restricted.values()
    }

    def admit(head: Head, headers: Headers) -> None:
        key = access.restricted.get(head.route.api)
        if key is not None and not key.opens(headers.headers):
            head.route = refusals[key.shown]
        elif access.forwarding is not None:
            head.forwarded = access.forwarding.chosen(headers.fields)

    return admit


class HttpFront:
    """Serves an engine over HTTP, in the loop it is started on."""

    def __init__(self, engine: Any, access: HttpAccess | None = None) -> None:
        inference = Inference(engine)
        endpoints = Endpoints(engine).routes()
        endpoints["infer"] = inference.infer_route
        endpoints["generate"] = inference.generate_route
        endpoints["generate_stream"] = inference.stream_route
        self._server = Server(router(endpoints), _admit(access) if access else None)

    async def start(self, host: str = "127.0.0.1", port: int = 8000) -> int:
        """Listen; the port in use, also where `port` was 0. Raises OSError where it is taken."""
        return await self._server.start(host, port)

    async def stop(self, grace: float = 0.0) -> None:
        """Take no new requests, wait `grace` seconds for the running ones, close."""
        await self._server.stop(grace)
