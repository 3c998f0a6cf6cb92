"""The slots of one instance, and how their sequences' requests become batches.

`DirectLane` gives each slot its place in the batch; `OldestLane` runs a dynamic batcher over the
requests that are next in their sequences. Which sequence gets a slot, and for how long, is
`core.sequence`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Protocol

from devkit.core.request import NullRequest, Request
from devkit.core.scheduler import (
    FULL_ROOM,
    SLOTS,
    SLOTS_DELAYED,
    DynamicBatcher,
    Refuse,
    Worker,
)


class Executor(Protocol):
    """What a lane asks of the sequence batcher it belongs to."""

    max_batch_size: int
    refuse: Refuse

    def null(self, like: Request) -> NullRequest: ...

    def execute(self, worker: Worker, batch: list[Request], reason: int) -> None: ...

    def cancel(self, request: Request) -> None: ...

    def give_up(self, sequence: Sequence) -> None: ...


class Sequence:
    """One sequence: its requests to come, where it runs, and when it was last heard of."""

    __slots__ = ("ended", "evicted", "identity", "lane", "last", "queue", "running", "slot")

    def __init__(self, identity: int | str) -> None:
        self.identity = identity
        self.queue: deque[Request] = deque()
        self.running: Request | None = None
        self.lane: Lane | None = None
        self.slot = -1
        self.last = 0
        self.evicted = False
        self.ended = False
        """No request can join it any more; its slot is free once the queue is empty."""

    def over(self) -> bool:
        return self.ended and not self.queue and self.running is None


class Lane:
    """The slots of one instance."""

    def __init__(self, worker: Worker, slots: int, order: int) -> None:
        self.worker = worker
        self.order = order
        self.slots: list[Sequence | None] = [None] * slots

    def add(self, sequence: Sequence, request: Request) -> None:
        """`request` has joined the end of `sequence`'s queue."""

    def dispatch(self) -> None:
        """Run what can run now."""
        raise NotImplementedError

    def close(self) -> None:
        """End timers, if any."""


class DirectLane(Lane):
    """A batch has a place for each slot; places before the last one used are filled up."""

    def __init__(
        self, worker: Worker, slots: int, order: int, batcher: Executor, settings: Any
    ) -> None:
        super().__init__(worker, slots, order)
        self._batcher = batcher
        self._delay = settings.max_queue_delay_microseconds * 1000
        self._enough = settings.minimum_slot_utilization * slots
        self._timer: asyncio.TimerHandle | None = None

    def dispatch(self) -> None:
        if self.worker.room() < FULL_ROOM:
            return
        ready = []
        for each in list(self.slots):
            if each and each.queue and each.running is None:
                if each.queue[0].cancelled:
                    self._batcher.give_up(each)
                else:
                    ready.append(each)
        if not ready:
            return
        reason = SLOTS
        if self._delay and len(ready) < self._enough:
            reason = SLOTS_DELAYED
            oldest = min(each.queue[0].times.queue_start for each in ready)
            wait = oldest + self._delay - time.monotonic_ns()
            if wait > 0:
                self.close()
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(wait / 1e9, self.dispatch)
                return
        first = ready[0].queue[0]
        fitting = {each.slot: each for each in ready if each.queue[0].fit_key == first.fit_key}
        batch: list[Request] = []
        for slot in range(max(fitting) + 1):
            sequence = fitting.get(slot)
            if sequence is None:
                batch.append(self._batcher.null(first))
            else:
                request = sequence.running = sequence.queue.popleft()
                batch.append(request)
        self._batcher.execute(self.worker, batch, reason)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class OldestLane(Lane):
    """The first requests of all sequences share batches, those that came first going first.

    For its dynamic batcher, the lane is the one worker.
    """

    def __init__(
        self, worker: Worker, slots: int, order: int, batcher: Executor, settings: Any
    ) -> None:
        super().__init__(worker, slots, order)
        self._batcher = batcher
        self.dynamic = DynamicBatcher(
            batcher.refuse,
            max_batch_size=max(batcher.max_batch_size, 1),
            preferred=tuple(settings.preferred_batch_size),
            delay_us=settings.max_queue_delay_microseconds,
        )
        self.name = worker.name
        self.dynamic.workers = [self]

    def room(self) -> int:
        return self.worker.room()

    def steered_room(self) -> int:
        return self.worker.steered_room()

    def execute(self, requests: list[Request], reason: int = SLOTS) -> None:
        self._batcher.execute(self.worker, requests, reason)

    def add(self, sequence: Sequence, request: Request) -> None:
        if sequence.running is None and sequence.queue[0].cancelled:
            self._batcher.give_up(sequence)
        elif sequence.running is None:
            sequence.running = sequence.queue.popleft()
            self.dynamic.put(sequence.running)
            sequence.running.owner = self._batcher

    def dispatch(self) -> None:
        for sequence in list(self.slots):
            if sequence and sequence.queue and sequence.running is None:
                self.add(sequence, sequence.queue[0])
        self.dynamic.dispatch()

    def close(self) -> None:
        self.dynamic.close()
