"""Who runs next: queues of one model version, and how requests become batches.

`DirectScheduler` gives an idle instance one request at a time (what the real server does for a
Python model without dynamic batching); `DynamicBatcher` collects them. Both run on the event loop
alone, so there is nothing to lock. Neither knows what an instance is made of.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from devkit.core.checks import cancelled
from devkit.core.request import Request
from devkit.errors import Code, InferError

Refuse = Callable[[Request, InferError, str], None]


class Worker(Protocol):
    """What a scheduler asks of an instance."""

    name: str

    def room(self) -> int:
        """Batches it can take now: 0 when busy, more than 1 only where prefetching is harmless."""

    def execute(self, requests: list[Request]) -> None: ...


class DirectScheduler:
    """First come, first served, one request an execution, over the idle instances in turn."""

    def __init__(self, refuse: Refuse) -> None:
        self.queue: deque[Request] = deque()
        self.workers: list[Worker] = []
        self.refuse = refuse
        self._turn = 0

    def submit(self, request: Request) -> None:
        """Run `request` at once where an instance is idle, else queue it."""
        if not self.queue:
            worker = self._idle(request)
            if worker is not None:
                worker.execute([request])
                return
        request.owner = self
        self.queue.append(request)

    def _idle(self, request: Request | None = None) -> Worker | None:
        """The next worker in turn that has room; an idle one before one that would prefetch."""
        workers = self.workers
        count = len(workers)
        best, most = None, 0
        for step in range(count):
            worker = workers[(self._turn + step) % count]
            if request is not None and request.steer and worker.name != request.steer:
                continue
            room = worker.room()
            if room > most:
                best, most = worker, room
                if room >= FULL_ROOM:
                    break
        if best is not None:
            self._turn = (self._turn + 1) % count
        return best

    def dispatch(self) -> None:
        """Give queued requests to the instances that have room."""
        while self.queue:
            worker = self._idle(self.queue[0])
            if worker is None:
                self._dispatch_steered()
                return
            request = self.queue.popleft()
            request.owner = None
            worker.execute([request])

    def _dispatch_steered(self) -> None:
        # A request steered to a busy instance must not hold up those that any instance may serve.
        if not self.queue or not self.queue[0].steer:
            return
        for request in list(self.queue):
            worker = self._idle(request)
            if worker is not None:
                self.queue.remove(request)
                request.owner = None
                worker.execute([request])

    def cancel(self, request: Request) -> None:
        """Take a queued request out and answer it as cancelled."""
        try:
            self.queue.remove(request)
        except ValueError:
            return
        request.owner = None
        self.refuse(request, cancelled(request), "CANCELED")

    def give_back(self, requests: list[Request]) -> None:
        """Put requests that an instance never began back in front."""
        for request in reversed(requests):
            request.owner = self
            self.queue.appendleft(request)

    def fail_all(self, error: InferError) -> None:
        """Answer everything that waits with `error`."""
        waiting, self.queue = self.queue, deque()
        for request in waiting:
            request.owner = None
            self.refuse(request, error, "OTHER")

    def close(self) -> None:
        """End timers, if any."""

    def __len__(self) -> int:
        return len(self.queue)


FULL_ROOM = 4
"""`Worker.room()` of an instance with nothing to do; less means that it would queue in the stub."""


class DynamicBatcher(DirectScheduler):
    """Collects requests into batches as the real server's dynamic batcher does.

    A batch closes when it has the largest preferred size, when the next request does not fit
    (too large, or another shape in an input that is not ragged), or when its oldest request has
    waited `max_queue_delay_microseconds`; with no delay set, whatever waits goes at once.
    """

    def __init__(
        self,
        refuse: Refuse,
        *,
        max_batch_size: int,
        preferred: tuple[int, ...],
        delay_us: int,
        max_queue_size: int = 0,
        timeout_us: int = 0,
        allow_timeout_override: bool = False,
        reject_timed_out: bool = True,
    ) -> None:
        super().__init__(refuse)
        self._max = max_batch_size
        self._preferred = frozenset(preferred)
        self._largest = max(preferred, default=max_batch_size)
        self._delay = delay_us * 1000
        self._max_queue = max_queue_size
        self._timeout = timeout_us * 1000
        self._override = allow_timeout_override
        self._reject = reject_timed_out
        self._timer: asyncio.TimerHandle | None = None
        self._timed = bool(timeout_us or allow_timeout_override)

    def submit(self, request: Request) -> None:
        if self._max_queue and len(self.queue) >= self._max_queue:
            raise InferError(f"{request.label()}Exceeds maximum queue size", Code.UNAVAILABLE)
        request.owner = self
        self.queue.append(request)
        self.dispatch()

    def dispatch(self) -> None:
        while self.queue:
            worker = self._idle()
            if worker is None:
                return
            if self._timed:
                self._expire()
            batch, wait = self._collect()
            if wait:
                self._wake_in(wait)
                return
            if not batch:
                return
            for request in batch:
                request.owner = None
            worker.execute(batch)

    def _collect(self) -> tuple[list[Request], int]:
        """The next batch, taken off the queue, or the nanoseconds to wait for more of it."""
        total, count, best = 0, 0, 0
        key, full = None, False
        for request in self.queue:
            size = request.batch_size
            if count:
                if total + size > self._largest and not best:
                    best = count
                if total + size > self._max or request.fit_key != key:
                    full = True
                    break
            else:
                key = request.fit_key
            total += size
            count += 1
            if total in self._preferred:
                best = count
        now = time.monotonic_ns()
        overdue = bool(self._delay) and now - self.queue[0].times.queue_start >= self._delay
        if best and not overdue:
            return self._take(best), 0
        if full or overdue or not self._delay or total >= self._largest:
            return self._take(count), 0
        return [], self.queue[0].times.queue_start + self._delay - now

    def _take(self, count: int) -> list[Request]:
        return [self.queue.popleft() for _ in range(count)]

    def _wake_in(self, nanoseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(nanoseconds / 1e9, self.dispatch)

    def _expire(self) -> None:
        """Refuse (or, with DELAY, put last) what has waited longer than its timeout."""
        now = time.monotonic_ns()
        late = [request for request in self.queue if self._is_late(request, now)]
        for request in late:
            self.queue.remove(request)
            if self._reject:
                request.owner = None
                self.refuse(
                    request,
                    InferError(f"{request.label()}Request timeout expired", Code.UNAVAILABLE),
                    "REJECTED",
                )
            else:
                request.timeout = 0
                self.queue.append(request)

    def _is_late(self, request: Request, now: int) -> bool:
        limit = self._timeout
        if self._override and request.timeout:
            limit = min(limit, request.timeout * 1000) if limit else request.timeout * 1000
        return bool(limit) and now - request.times.queue_start > limit

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
