"""Who runs next: queues of one model version, and how requests become batches.

`DirectScheduler` gives an idle instance one request at a time (what the real server does for a
Python model without dynamic batching); `DynamicBatcher` collects them. Both run on the event loop
alone, so there is nothing to lock. Neither knows what an instance is made of. Sequences are
`core.sequence`'s, resources `core.rate_limiter`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from devkit.core.checks import cancelled
from devkit.core.request import Request
from devkit.errors import Code, InferError

Refuse = Callable[[Request, InferError, str], None]

# Why a batch closed: noted on every batch as a small number, put into words by `observe.explain`.
ONE_BY_ONE = 0  # no batcher: one request an execution
FULL = 1  # the largest batch size
PREFERRED = 2  # a preferred size
DELAYED = 3  # its oldest request had waited as long as it may
NOTHING_MORE = 4  # no delay is set, and nothing else waited
TOO_LARGE = 5  # the next request would not have fitted
OTHER_SHAPE = 6  # the next request has another shape, or other inputs
SLOTS = 7  # one request from every sequence of the instance that had one
SLOTS_DELAYED = 8  # too few sequences had a request, and the delay was over


class Worker(Protocol):
    """What a scheduler asks of an instance."""

    name: str

    def room(self) -> int:
        """Batches it can take now: 0 when busy, more than 1 only where prefetching is harmless."""

    def steered_room(self) -> int:
        """The same for a request that is meant for it alone."""

    def execute(self, requests: list[Request], reason: int = ONE_BY_ONE) -> None: ...


class DirectScheduler:
    """First come, first served, one request an execution, over the idle instances in turn."""

    def __init__(self, refuse: Refuse) -> None:
        self.queue: deque[Request] = deque()
        self.steered: deque[Request] = deque()
        """Requests meant for one instance: they wait for it, and hold nobody up."""
        self.workers: list[Worker] = []
        self.refuse = refuse
        self._turn = 0

    def submit(self, request: Request) -> None:
        """Run `request` at once where an instance is idle, else queue it."""
        if request.steer:
            self.steer(request)
            return
        if not self.queue:
            worker = self._idle()
            if worker is not None:
                worker.execute([request])
                return
        request.owner = self
        self.queue.append(request)

    def steer(self, request: Request) -> None:
        """Run `request` on the instance it is meant for, now or when that is idle."""
        request.owner = self
        self.steered.append(request)
        self._dispatch_steered()

    def unsteer(self, name: str) -> None:
        """The instance of that name is a debugger's no more: any may run what waits for it."""
        freed = [request for request in self.steered if request.steer == name]
        for request in freed:
            self.steered.remove(request)
            request.steer = ""
            request.owner = None
            self.submit(request)

    def _idle(self) -> Worker | None:
        """The next worker in turn that has room; an idle one before one that would prefetch."""
        workers = self.workers
        count = len(workers)
        best, most = None, 0
        for step in range(count):
            worker = workers[(self._turn + step) % count]
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
        if self.steered:
            self._dispatch_steered()
        while self.queue:
            worker = self._idle()
            if worker is None:
                return
            request = self.queue.popleft()
            request.owner = None
            worker.execute([request])

    def _dispatch_steered(self) -> None:
        for request in list(self.steered):
            worker = next((each for each in self.workers if each.name == request.steer), None)
            if worker is not None and worker.steered_room():
                self.steered.remove(request)
                request.owner = None
                worker.execute([request])

    def cancel(self, request: Request) -> None:
        """Nothing: as in the real server, a queued request runs all the same, and may ask.

        One that is meant for a debugger's instance is taken out.
        """
        if request.steer:
            self.withdraw(request)

    def withdraw(self, request: Request) -> None:
        """Take a queued request out and answer it as cancelled."""
        waiting = self.steered if request.steer else self.queue
        try:
            waiting.remove(request)
        except ValueError:
            return
        request.owner = None
        self.refuse(request, cancelled(), "CANCELED")

    def give_back(self, requests: list[Request]) -> None:
        """Put requests that an instance never began back in front."""
        for request in reversed(requests):
            request.owner = self
            (self.steered if request.steer else self.queue).appendleft(request)

    def fail_all(self, error: InferError) -> None:
        """Answer everything that waits with `error`."""
        waiting, self.queue = [*self.steered, *self.queue], deque()
        self.steered.clear()
        for request in waiting:
            request.owner = None
            self.refuse(request, error, "OTHER")

    def close(self) -> None:
        """End timers, if any."""

    def __len__(self) -> int:
        return len(self.queue) + len(self.steered)


FULL_ROOM = 4
"""`Worker.room()` of an instance with nothing to do; less means that it would queue in the stub."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How long a queue may be, and what becomes of a request that waits too long in it.

    Attributes:
        timeout_us: the longest wait, 0 for no limit.
        override: whether a request's own timeout counts where it is the shorter one.
        reject: refuse a late request; otherwise it runs when nothing in time waits.
        max_size: refuse what comes when so many wait, 0 for no limit.
    """

    timeout_us: int = 0
    override: bool = False
    reject: bool = True
    max_size: int = 0

    @property
    def timed(self) -> bool:
        return bool(self.timeout_us or self.override)

    def limit(self, request: Request) -> int:
        """Nanoseconds that `request` may wait, 0 for no limit."""
        limit = self.timeout_us
        if self.override and request.timeout and (not limit or request.timeout < limit):
            limit = request.timeout
        return limit * 1000


NO_POLICY = QueuePolicy()

# The real server's batcher makes up batches before an instance is free for them: two for each.
_AHEAD = 2


class DynamicBatcher(DirectScheduler):
    """Collects requests into batches as the real server's dynamic batcher does.

    A batch closes when it has the largest preferred size, when the next request does not fit
    (too large, or another shape in an input that is not ragged), or when its oldest request has
    waited `max_queue_delay_microseconds`; with no delay set, whatever waits goes at once.

    `queue` is in the order in which requests run: by priority level (1 first), within a level
    those that are late and were only put back (`timeout_action: DELAY`) last. Whether a request is
    late is asked when its turn has come, not before: while every instance is busy, nobody is told.
    """

    def __init__(
        self,
        refuse: Refuse,
        *,
        max_batch_size: int,
        preferred: tuple[int, ...],
        delay_us: int,
        policy: QueuePolicy = NO_POLICY,
        levels: int = 0,
        default_level: int = 0,
        policies: Mapping[int, QueuePolicy] | None = None,
    ) -> None:
        super().__init__(refuse)
        self._max = max_batch_size
        self._preferred = frozenset(preferred)
        self._largest = max(preferred, default=max_batch_size)
        self._delay = delay_us * 1000
        self._policy = policy
        self._levels = levels
        self._default_level = default_level
        self._policies = dict(policies or {})
        self._delayed: set[Request] = set()
        self._reason = NOTHING_MORE  # of the batch collected last
        self._timer: asyncio.TimerHandle | None = None
        every = (policy, *self._policies.values())
        self._timed = any(each.timed for each in every)
        self._bounded = any(each.max_size for each in every)
        self._ahead = 0 if self._timed or self._bounded or levels else _AHEAD

    def submit(self, request: Request) -> None:
        if request.steer:
            self.steer(request)
            return
        self.put(request)
        self.dispatch()

    def put(self, request: Request) -> None:
        """Queue `request` without running anything. Raises InferError where the queue is full."""
        if self._bounded:
            self._check_size(request)
        request.owner = self
        self._insert(request)

    def _insert(self, request: Request) -> None:
        queue = self.queue
        if not self._levels and not self._delayed:
            queue.append(request)
            return
        rank = self._rank(request)
        place = len(queue)
        while place and self._rank(queue[place - 1]) > rank:
            place -= 1
        queue.insert(place, request)

    def _level(self, request: Request) -> int:
        """The request's level; one that names none, or none there is, has the default's."""
        if 1 <= request.priority <= self._levels:
            return request.priority
        return self._default_level

    def _rank(self, request: Request) -> tuple[int, bool]:
        return self._level(request), request in self._delayed

    def _policy_of(self, request: Request) -> QueuePolicy:
        if not self._policies:
            return self._policy
        return self._policies.get(self._level(request), self._policy)

    def _check_size(self, request: Request) -> None:
        limit = self._policy_of(request).max_size
        if not limit:
            return
        level = self._level(request)
        waiting = len(self.queue)
        if self._levels:
            waiting = sum(self._level(other) == level for other in self.queue)
        if waiting >= limit:
            raise InferError(f"{request.label()}Exceeds maximum queue size", Code.UNAVAILABLE)

    def dispatch(self) -> None:
        if self.steered:
            self._dispatch_steered()
        while self.queue:
            worker = self._idle()
            if worker is None:
                return
            late = self._set_late_aside(self._max) if self._timed else []
            batch, wait = self._collect() if self.queue else ([], 0)
            if batch and self._timed:
                late += self._set_late_aside(1)
            for request in batch:
                request.owner = None
            if self._delayed:
                self._delayed.difference_update(batch)
            if batch:
                worker.execute(batch, self._reason)
            for request in late:
                # No prefix here, unlike the refusals that come before the queue.
                error = InferError("Request timeout expired", Code.UNAVAILABLE)
                self.refuse(request, error, "REJECTED")
            if wait:
                self._wake_in(wait)
                return
            if not batch and not late:
                return

    def _collect(self) -> tuple[list[Request], int]:
        """The next batch, taken off the queue, or the nanoseconds to wait for more of it."""
        count, wait = self._measure(self.queue)
        return self._take(count), wait

    def _measure(self, queue: deque[Request]) -> tuple[int, int]:
        """How many of `queue` are the next batch; if none, the nanoseconds to wait for more."""
        total, count, best = 0, 0, 0
        key, full, other, exact = None, False, False, 0
        oldest = queue[0].times.queue_start
        for request in queue:
            size = request.batch_size
            if count:
                if total + size > self._largest and not best:
                    best = count
                if total + size > self._max or request.fit_key != key:
                    full = True
                    other = request.fit_key != key
                    break
            else:
                key = request.fit_key
            total += size
            count += 1
            if self._levels and request.times.queue_start < oldest:
                oldest = request.times.queue_start
            if total in self._preferred:
                best, exact = count, total
        now = time.monotonic_ns()
        overdue = bool(self._delay) and now - oldest >= self._delay
        if best and not overdue:
            filled = exact == self._max or (not self._preferred and total == self._max)
            self._reason = FULL if filled else PREFERRED if exact else TOO_LARGE
            return best, 0
        if full or overdue or not self._delay or total >= self._largest:
            self._reason = self._why(total, full, other, overdue)
            return count, 0
        wait = oldest + self._delay - now
        if self._timed:
            wait = min(wait, self._soonest_late(count, now))
        return 0, max(wait, 1)

    def _why(self, total: int, full: bool, other: bool, overdue: bool) -> int:
        if total >= self._max:
            return FULL
        if full:
            return OTHER_SHAPE if other else TOO_LARGE
        if overdue:
            return DELAYED
        return PREFERRED if total in self._preferred else NOTHING_MORE

    def _take(self, count: int) -> list[Request]:
        return [self.queue.popleft() for _ in range(count)]

    def _wake_in(self, nanoseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(nanoseconds / 1e9, self.dispatch)

    def _set_late_aside(self, count: int) -> list[Request]:
        """Take late requests off the first `count` places; returns those to refuse.

        What lies behind is asked when its turn comes.
        """
        now = time.monotonic_ns()
        queue, refused, place = self.queue, [], 0
        while place < min(count, len(queue)):
            request = queue[place]
            policy = self._policy_of(request)
            limit = policy.limit(request)
            if not limit or request in self._delayed or now - request.times.queue_start <= limit:
                place += 1
                continue
            del queue[place]
            if policy.reject:
                request.owner = None
                refused.append(request)
            else:
                self._delayed.add(request)
                self._insert(request)
        return refused

    def _soonest_late(self, count: int, now: int) -> int:
        """Nanoseconds until the first of the next `count` requests is late."""
        soonest = self._delay
        for _, request in zip(range(count), self.queue, strict=False):
            limit = self._policy_of(request).limit(request)
            if limit and request not in self._delayed:
                soonest = min(soonest, request.times.queue_start + limit + 1 - now)
        return soonest

    def cancel(self, request: Request) -> None:
        if self.may_withdraw(request):
            self.withdraw(request)

    def may_withdraw(self, request: Request) -> bool:
        """Whether cancelling takes a queued request out: not if it would be in a batch by now."""
        return bool(request.steer) or request not in self._batched()

    def _batched(self) -> set[Request]:
        """Requests that the real server would have in batches that wait for an instance.

        With no delay set, the last of those batches began with one request; more join it only when
        the first batch has gone. With a queue policy or priorities, none is made up ahead.
        """
        waiting, found = self.queue.copy(), set[Request]()
        most = self._ahead * len(self.workers)
        for place in range(most):
            count = self._measure(waiting)[0] if waiting else 0
            if not count:
                break
            if place == most - 1 and not self._delay:
                count = 1
            found.update(waiting.popleft() for _ in range(count))
        return found

    def withdraw(self, request: Request) -> None:
        self._delayed.discard(request)
        super().withdraw(request)

    def fail_all(self, error: InferError) -> None:
        self._delayed.clear()
        super().fail_all(error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
