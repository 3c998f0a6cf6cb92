"""A stub's sockets and pipes in the event loop: frames in, bytes out, prints cut into lines.

What the frames mean is the instance's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from devkit.transport import messages
from devkit.transport.dtypes import ReadableBuffer

LONGEST_LINE = 256 * 1024
"""Bytes of a print without a line end that are kept together; what is longer comes in pieces."""


class Link(asyncio.Protocol):
    """One socket of a stub in the event loop: frames in, bytes out, and the end told once."""

    def __init__(
        self, on_frame: Callable[[int, memoryview], None], on_end: Callable[[], None]
    ) -> None:
        self._reader = messages.FrameReader()
        self._on_frame = on_frame
        self._on_end = on_end
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a Unix stream transport

    def data_received(self, data: bytes) -> None:
        for kind, payload in self._reader.feed(data):
            self._on_frame(kind, payload)

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = None
        self._on_end()

    def write(self, data: ReadableBuffer) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End it although its other end is still open: in a process that the stub has forked."""
        if self.transport is not None:
            self.transport.abort()


class LineReader(asyncio.Protocol):
    """A pipe of the model's prints, cut into lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode("utf-8", "replace"))
        if len(self._rest) >= LONGEST_LINE:
            self._on_line(self._rest.decode("utf-8", "replace"))
            self._rest = b""

    def connection_lost(self, problem: Exception | None) -> None:
        if self._rest:
            self._on_line(self._rest.decode("utf-8", "replace"))
            self._rest = b""
