"""A blocking channel over a Unix stream socket, the stub's end of a pair.

The receiver spins for a moment before it sleeps: a wake-up across cores costs 40-60 us, a spin that
catches the next message about 20 us. An idle instance has stopped spinning long since, and costs
nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Deque, Optional, Tuple

from devkit.errors import TransportError
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.messages import FrameReader

SPIN_NANOSECONDS = 100_000
_CHUNK = 256 * 1024


class Channel:
    """Frames over a connected socket: one thread receives, any thread sends whole frames."""

    def __init__(self, connected: socket.socket, *, spin: int = SPIN_NANOSECONDS) -> None:
        self._socket = connected
        self._spin = spin
        self._reader = FrameReader()
        self._waiting: Deque[Tuple[int, memoryview]] = deque()
        self._posted: Deque[bytes] = deque()
        self._send_lock = threading.Lock()
        self.ended = False  # the peer has closed

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: ReadableBuffer) -> None:
        """Send whole frames. Raises TransportError when the peer is gone."""
        try:
            with self._send_lock:
                while self._posted:
                    self._socket.sendall(self._posted.popleft())
                self._socket.sendall(data)
        except OSError as problem:
            raise TransportError(f"the other side of the channel is gone: {problem}") from problem

    def post(self, data: bytes) -> None:
        """Send whole frames now, or with the next `send` if one is under way.

        For garbage collection, which may run in the middle of a `send` of the same thread: never
        waits for it and never raises.
        """
        self._posted.append(data)
        if self._send_lock.acquire(blocking=False):
            try:
                while self._posted:
                    self._socket.sendall(self._posted.popleft())
            except OSError:
                self._posted.clear()  # the peer is gone: the receiving side tells
            finally:
                self._send_lock.release()

    @property
    def at_hand(self) -> bool:
        """Whether a frame was received already; asks nobody."""
        return bool(self._waiting)

    def pending(self) -> bool:
        """Whether a frame is at hand without waiting."""
        if not self._waiting:
            self._read(socket.MSG_DONTWAIT)
        return bool(self._waiting)

    def receive(self) -> Optional[Tuple[int, memoryview]]:
        """The next (kind, payload), or None when the peer has closed."""
        if not self._waiting and not self._spin_for_frame():
            while not self._waiting:
                if self._read(0) == 0:
                    return None
        return self._waiting.popleft()

    def _spin_for_frame(self) -> bool:
        if not self._spin:
            return False
        until = time.monotonic_ns() + self._spin
        while time.monotonic_ns() < until:
            if self._read(socket.MSG_DONTWAIT) == 0:
                return False
            if self._waiting:
                return True
        return False

    def _read(self, flags: int) -> int:
        """Bytes read: 0 at the end of the stream, -1 when nothing is there yet."""
        try:
            data = self._socket.recv(_CHUNK, flags)
        except BlockingIOError:
            return -1
        except ConnectionResetError:
            data = b""
        self.ended = not data
        self._waiting.extend(self._reader.feed(data))
        return len(data)

    def close(self) -> None:
        self._socket.close()
