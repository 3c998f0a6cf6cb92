"""The ONE WebSocket of a browser tab: the runtime's events, and whether there is a runtime.

The socket stays open when the runtime goes: the tab is told so, and gets the next runtime's events
on the same socket. What the tab wants (how often gauges, which debug session it looks on at) it
says in a message, and the way to the runtime is laid anew, from the last event that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, ClassVar
from urllib.parse import urlencode

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler
from websockets.asyncio.client import unix_connect
from websockets.exceptions import WebSocketException

from devkit.control import messages
from devkit.lab.desk import Desk

POLL_SECONDS = 1.0
_LOOKS_ON = ("kinds", "gauges", "debugger")


class EventsHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One tab."""

    auth_resource: ClassVar[str] = "devkit"

    def initialize(self, desk: Desk) -> None:
        self.desk = desk
        self._wanted: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self._told: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        self._task = asyncio.ensure_future(self._run())

    def on_message(self, message: str | bytes) -> None:
        """The tab says what it wants; a message that cannot be read ends the connection."""
        try:
            wanted = json.loads(message)
        except ValueError:
            wanted = None
        if not isinstance(wanted, dict):
            self.close(1007, "not a JSON object")
            return
        self._wanted = wanted
        self._changed.set()

    def on_close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        with contextlib.suppress(WebSocketClosedError):
            while True:
                runtime = await self.desk.look()
                await self._tell_state()
                if runtime is None:
                    await self._wait(POLL_SECONDS / 4 if self._is_starting() else POLL_SECONDS)
                    continue
                self._changed.clear()
                try:
                    await self._follow(runtime)
                except (OSError, WebSocketException, asyncio.TimeoutError):
                    self.desk.missed()
                    await asyncio.sleep(POLL_SECONDS / 10)

    def _is_starting(self) -> bool:
        return bool(self.desk.status()["state"] == "starting")

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def _tell_state(self) -> None:
        status = self.desk.status()
        if status != self._told:
            self._told = status
            await self.write_message(messages.to_json({"type": "runtime", "runtime": status}))

    async def _follow(self, runtime: messages.Runtime) -> None:
        """Pass on its events until it ends, or until the tab wants something else."""
        address = f"ws://runtime/v{runtime.version}/events?{self._query(runtime)}"
        async with unix_connect(
            runtime.control, address, max_size=None, compression=None, close_timeout=1
        ) as upstream:

            async def pump() -> None:
                async for message in upstream:
                    # Awaited, so that a slow tab is seen by the runtime, which then sends less.
                    await self.write_message(message)

            pumping = asyncio.ensure_future(pump())
            changing = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({pumping, changing}, return_when=asyncio.FIRST_COMPLETED)
                if pumping.done():
                    pumping.result()
                    self.desk.missed()
            finally:
                for task in (pumping, changing):
                    task.cancel()
                await asyncio.gather(pumping, changing, return_exceptions=True)

    def _query(self, runtime: messages.Runtime) -> str:
        wanted = self._wanted
        query = {name: wanted[name] for name in _LOOKS_ON if wanted.get(name) is not None}
        if isinstance(query.get("kinds"), list):
            query["kinds"] = ",".join(map(str, query["kinds"]))
        if wanted.get("since") is not None and wanted.get("pid") == runtime.pid:
            query["since"] = wanted["since"]
        return urlencode(query)
