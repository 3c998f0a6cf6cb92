"""Events on their way to the faces: numbered once, kept a while, handed to every reader.

A reader that falls behind is not waited for: its queue is dropped and it is told to take a
snapshot instead. Nothing here knows what an event means, or how it is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from devkit.control.messages import Event

HISTORY = 5000
READER_LIMIT = 1000


class Stream:
    """The one counter of events, and the readers of this runtime.

    Attributes:
        sequence: number of the last event; a snapshot taken now is as of that number.
    """

    def __init__(self, history: int = HISTORY) -> None:
        self.sequence = 0
        self._history: deque[Event] = deque(maxlen=history)
        self._readers: set[Reader] = set()

    def emit(self, kind: str, **about: Any) -> Event:
        """Number an event and hand it to every reader; call it on the event loop's thread."""
        self.sequence += 1
        event = Event(self.sequence, time.time(), kind, **about)
        self._history.append(event)
        for reader in self._readers:
            reader.put(event)
        return event

    def since(self, sequence: int) -> list[Event] | None:
        """The events after number `sequence`, or None where some are not kept any more."""
        if sequence > self.sequence or sequence < 0:
            return None  # a number of another runtime's
        oldest = self._history[0].sequence if self._history else self.sequence + 1
        if sequence + 1 < oldest:
            return None
        return [event for event in self._history if event.sequence > sequence]

    def open(self, kinds: frozenset[str] = frozenset(), limit: int = READER_LIMIT) -> Reader:
        """A reader of the events to come, of some kinds or of all."""
        reader = Reader(self, kinds, limit)
        self._readers.add(reader)
        return reader

    def close(self, reader: Reader) -> None:
        """That reader gets nothing more."""
        self._readers.discard(reader)


class Reader:
    """One reader's queue, bounded: full means dropped, never waited for."""

    def __init__(self, stream: Stream, kinds: frozenset[str], limit: int) -> None:
        self.dropped = False
        self._stream = stream
        self._kinds = kinds
        self._limit = limit
        self._queue: list[Event] = []
        self._news = asyncio.Event()

    def wants(self, event: Event) -> bool:
        """Whether the event is of a kind this reader asked for."""
        return not self._kinds or event.kind in self._kinds

    def put(self, event: Event) -> None:
        """Queue an event; one too many empties the queue."""
        if self.dropped or not self.wants(event):
            return
        if len(self._queue) >= self._limit:
            self._queue.clear()
            self.dropped = True
        else:
            self._queue.append(event)
        self._news.set()

    async def next(self, timeout: float | None = None) -> list[Event] | None:
        """The events at hand, as soon as there are any; `[]` when `timeout` seconds have passed.

        None when this reader was too slow: it must take a snapshot, and goes on from there.
        """
        if not self._queue and not self.dropped:
            try:
                await asyncio.wait_for(self._news.wait(), timeout)
            except asyncio.TimeoutError:
                return []
        self._news.clear()
        if self.dropped:
            self.dropped = False
            return None
        events, self._queue = self._queue, []
        return events

    def close(self) -> None:
        """Stop listening."""
        self._stream.close(self)
