"""The Debug Adapter Protocol over a socket, as a client speaks it: requests, answers, events.

Frames in, typed pieces out; asyncio, one connection. When to say what, and what a stop means, is
`session`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any

from devkit.errors import DebugError

Body = dict[str, Any]
OnEvent = Callable[[str, Body], None]

PATIENCE = 15.0
"""Seconds an answer may take; an expression that runs longer is told so."""

_LINE = 1 << 16


def encode(message: Body) -> bytes:
    """A message as it goes over the wire."""
    data = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    return b"Content-Length: %d\r\n\r\n" % len(data) + data


async def read(reader: asyncio.StreamReader) -> Body | None:
    """The next message; None when the other side has ended."""
    length = -1
    try:
        while True:
            line = (await reader.readuntil(b"\n")).strip()
            if not line:
                if length < 0:
                    continue
                break
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        message: Body = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        return None
    return message


class Dap:
    """One connection to a debug adapter.

    Attributes:
        on_event: called with (name, body) of each event, on the loop, in their order.
        on_end: called once when the adapter has gone, asked or not.
    """

    def __init__(self, on_event: OnEvent, on_end: Callable[[], None]) -> None:
        self.on_event = on_event
        self.on_end = on_end
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Body]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether the adapter is there."""
        return self._writer is not None

    async def connect(self, host: str, port: int) -> None:
        """Connect. Raises DebugError."""
        try:
            reader, self._writer = await asyncio.open_connection(host, port, limit=_LINE)
        except OSError as problem:
            raise DebugError(f"the debugger does not answer at {host}:{port}: {problem}") from None
        self._task = asyncio.get_running_loop().create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await read(reader)) is not None:
                self._on_message(message)
        finally:
            self._end()

    def _on_message(self, message: Body) -> None:
        if message.get("type") == "event":
            self.on_event(message["event"], message.get("body") or {})
        elif message.get("type") == "response":
            future = self._waiting.pop(message["request_seq"], None)
            if future is not None and not future.done():
                future.set_result(message)
        elif message.get("type") == "request":  # runInTerminal and the like: nothing for us
            self._send(
                {
                    "type": "response", "request_seq": message["seq"], "success": False,
                    "command": message.get("command", ""), "message": "not supported",
                }
            )  # fmt: skip

    def _send(self, message: Body) -> int:
        if self._writer is None:
            raise DebugError("the debugger is not connected")
        number = next(self._numbers)
        self._writer.write(encode({"seq": number, **message}))
        return number

    def post(self, command: str, arguments: Body | None = None) -> asyncio.Future[Body]:
        """Send a request; the future has the whole response, refused or not."""
        number = self._send({"type": "request", "command": command, "arguments": arguments or {}})
        future: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        return future

    async def request(
        self, command: str, arguments: Body | None = None, timeout: float = PATIENCE
    ) -> Body:
        """Send a request and give its answer's body. Raises DebugError where it is refused."""
        return await answer(self.post(command, arguments), command, timeout)

    async def close(self) -> None:
        """Leave."""
        writer, task = self._writer, self._task
        if writer is not None:
            writer.close()
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result({"success": False, "message": "the debugger has gone"})
        if writer is not None:
            self.on_end()


async def answer(future: asyncio.Future[Body], command: str, timeout: float = PATIENCE) -> Body:
    """The body of a posted request's response. Raises DebugError."""
    try:
        message = await asyncio.wait_for(asyncio.shield(future), timeout)
    except TimeoutError:
        raise DebugError(
            f"the debugger has not answered '{command}' within {timeout:g} s"
        ) from None
    if not message.get("success"):
        text = reason(message).strip()
        if text.startswith("Traceback"):  # of an expression: its last line says it
            text = text.splitlines()[-1]
        raise DebugError(text or f"the debugger refused '{command}'")
    body: Body = message.get("body") or {}
    return body


def reason(message: Body) -> str:
    """Why a response is a refusal, in the adapter's words."""
    error = (message.get("body") or {}).get("error") or {}
    return str(message.get("message") or error.get("format") or "")
