"""The sequence batcher: every request of a sequence goes to the same instance, in order.

Each instance has a lane of slots; a sequence holds one from its START until its END (or until it
has been silent for too long), and waits in the backlog while none is free. How a lane makes batches
is `core.lanes`' business, what the control tensors hold is `core.controls`'.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from devkit.core.checks import cancelled
from devkit.core.controls import END, START, Controls
from devkit.core.lanes import DirectLane, Lane, OldestLane, Sequence
from devkit.core.request import NullRequest, Request
from devkit.core.scheduler import DirectScheduler, Worker
from devkit.errors import InferError


class Host(Protocol):
    """What the sequence batcher asks of its model."""

    name: str
    max_batch_size: int
    counters: Any
    open_requests: int

    def refuse(self, request: Request, error: InferError, reason: str) -> None: ...


class SequenceBatcher(DirectScheduler):
    """Slots, backlog and idle sequences of one model.

    Attributes:
        queue: every request that waits here, in the order it came; only for looking at.
    """

    def __init__(self, host: Host, settings: Any, controls: Controls) -> None:
        super().__init__(host.refuse)
        self.max_batch_size = host.max_batch_size
        self.iterative = bool(settings.iterative_sequence)
        self._host = host
        self._controls = controls
        self._idle_ns = settings.max_sequence_idle_microseconds * 1000
        self._settings = settings
        self._lanes: dict[str, Lane] = {}
        self._free: list[tuple[int, int, Lane]] = []
        self._active: dict[int | str, Sequence] = {}
        self._backlog: deque[Sequence] = deque()
        self._of: dict[Request, Sequence] = {}
        self._rescheduled: set[Request] = set()
        self._lost: set[Request] = set()
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self.on_change: Callable[[Sequence, str], None] | None = None
        """Called when a sequence starts, waits for a slot, gets one, ends, or is evicted."""

    # -- requests in -----------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Queue `request` in its sequence. Raises InferError where it belongs to none."""
        name = self._host.name
        if request.batch_size != 1:
            raise InferError(
                f"inference request to model '{name}' must specify batch-size 1 due to "
                "requirements of sequence batcher"
            )
        if not request.correlation_id:
            if not self.iterative:
                raise InferError(
                    f"inference request to model '{name}' must specify a non-zero or non-empty "
                    "correlation ID"
                )
            request.correlation_id = next(self._numbers)
            request.flags |= START
        sequence = self._active.get(request.correlation_id)
        if sequence is None:
            if not request.flags & START:
                raise InferError(
                    f"inference request for sequence {request.correlation_id} to model '{name}' "
                    "must specify the START flag on the first request of the sequence"
                )
            sequence = self._active[request.correlation_id] = Sequence(request.correlation_id)
            self._backlog.append(sequence)
            self._tell(sequence, "started")
        sequence.last = time.monotonic_ns()
        sequence.queue.append(request)
        if request.flags & END:
            self._end(sequence)
        request.owner = self
        self._of[request] = sequence
        self._fill_slots()
        lane = sequence.lane
        if lane is not None:
            if sequence.queue:
                lane.add(sequence, request)
            lane.dispatch()
        self._watch_idle()

    def _tell(self, sequence: Sequence, state: str) -> None:
        if self.on_change is not None:
            self.on_change(sequence, state)

    def _end(self, sequence: Sequence) -> None:
        sequence.ended = True
        if self._active.get(sequence.identity) is sequence:
            del self._active[sequence.identity]

    # -- slots -----------------------------------------------------------------------------------

    def _lane_of(self, worker: Worker) -> Lane:
        """The lane of the instance of that name; a restarted instance goes on with its lane."""
        lane = self._lanes.get(worker.name)
        if lane is not None:
            lane.worker = worker
            return lane
        order = len(self._lanes)
        if self._settings.HasField("oldest"):
            slots = max(self._settings.oldest.max_candidate_sequences, 1)
            lane = OldestLane(worker, slots, order, self, self._settings.oldest)
        else:
            slots = max(self.max_batch_size, 1)
            lane = DirectLane(worker, slots, order, self, self._settings.direct)
        self._lanes[worker.name] = lane
        for slot in range(slots):
            heapq.heappush(self._free, (slot, order, lane))
        return lane

    def _fill_slots(self) -> None:
        """Give free slots to the backlog: the lowest slots first, so that instances share."""
        for worker in self.workers:
            self._lane_of(worker)
        while self._free and self._backlog:
            sequence = self._backlog.popleft()
            if sequence.over():
                continue
            if any(request.cancelled for request in sequence.queue):
                self.give_up(sequence)
                continue
            slot, _, lane = heapq.heappop(self._free)
            sequence.lane, sequence.slot = lane, slot
            lane.slots[slot] = sequence
            self._tell(sequence, "placed")
            self._expire(sequence, time.monotonic_ns())

    def _leave(self, sequence: Sequence) -> None:
        """A sequence that is over gives its slot back."""
        lane = sequence.lane
        if lane is None:
            return
        lane.slots[sequence.slot] = None
        if not sequence.evicted:
            self._tell(sequence, "ended")
        sequence.lane = None
        if self._lanes.get(lane.worker.name) is lane:
            heapq.heappush(self._free, (sequence.slot, lane.order, lane))

    # -- executions ------------------------------------------------------------------------------

    def null(self, like: Request) -> NullRequest:
        """A request that fills an empty slot beside `like`."""
        self._host.open_requests += 1  # it will be finished like any other
        return self._controls.null(like, self._host)

    def execute(self, worker: Worker, batch: list[Request], reason: int) -> None:
        """Run `batch` with its control tensors."""
        problem = self._controls.problem(batch)
        if problem is not None:
            asyncio.get_running_loop().call_soon(self._refuse_all, worker, batch, problem)
            return
        # The instance packs a batch before `execute` returns; from then on a request is again what
        # its client sent, for whoever looks at it (captures, a second iteration).
        plain = [(request.description, request.buffers) for request in batch]
        for request in batch:
            request.owner = None
            request.description, request.buffers = self._controls.dressed(request)
        worker.execute(batch, reason)
        for request, (description, buffers) in zip(batch, plain, strict=True):
            request.description, request.buffers = description, buffers

    def _refuse_all(self, worker: Worker, batch: list[Request], error: InferError) -> None:
        for request in batch:
            if type(request) is not NullRequest:
                self.refuse(request, error, "BACKEND")
            else:
                self._host.open_requests -= 1
        self.over(worker, batch)
        self.dispatch()

    def reschedule(self, request: Request) -> bool:
        """The model wants `request` again (iterative sequences). False where that cannot be."""
        if not self.iterative:
            return False
        if request.flags & END:
            # The real server has given the sequence up by now and never answers.
            self._lost.add(request)
            request.owner = self
            return False
        self._rescheduled.add(request)
        return True

    def over(self, worker: Worker, batch: Iterable[Request]) -> None:
        """An execution has ended: its sequences may go on, or are over."""
        for request in batch:
            sequence = self._of.get(request)
            if sequence is None:
                continue
            if sequence.running is request:
                sequence.running = None
            if request in self._rescheduled:
                self._rescheduled.discard(request)
                request.flags &= ~START
                request.owner = self
                sequence.queue.appendleft(request)
                sequence.last = time.monotonic_ns()
            else:
                del self._of[request]
                if self.iterative:
                    self._end(sequence)
                    if request.done:
                        # The real server counts the end of an iterative request as cancelled.
                        self._host.counters.failed(request, "CANCELED")
            lane = sequence.lane
            if sequence.queue and lane is not None:
                lane.add(sequence, sequence.queue[0])
            if sequence.over():
                self._leave(sequence)
        self._fill_slots()

    def dispatch(self) -> None:
        self._fill_slots()
        for worker in self.workers:
            self._lane_of(worker).dispatch()
        self._watch_idle()

    def give_back(self, requests: list[Request]) -> None:
        """Requests that a dead instance never began run first when it is there again."""
        for request in reversed(requests):
            sequence = self._of.get(request)
            if sequence is None:
                continue
            if sequence.running is request:
                sequence.running = None
            request.owner = self
            sequence.queue.appendleft(request)

    def died(self, requests: Iterable[Request]) -> None:
        """Requests that a dead instance had begun: they are answered, their sequences go on."""
        for request in requests:
            sequence = self._of.pop(request, None)
            if sequence is None:
                continue
            if sequence.running is request:
                sequence.running = None
            if self.iterative:
                self._end(sequence)
            if sequence.over():
                self._leave(sequence)

    def forget(self, names: set[str]) -> None:
        """Instances that are no more: their sequences move to others."""
        for name in names & self._lanes.keys():
            lane = self._lanes.pop(name)
            lane.close()
            self._free = [free for free in self._free if free[2] is not lane]
            heapq.heapify(self._free)
            for sequence in lane.slots:
                if sequence is not None:
                    sequence.lane = None
                    waits = sequence.running
                    if waits is not None and waits.owner is self:
                        sequence.queue.appendleft(waits)
                        sequence.running = None
                    self._backlog.append(sequence)
                    self._tell(sequence, "moved")

    def stood(self, worker: Worker, now: int) -> None:
        """An instance stood in a debugger until now: its sequences were not silent meanwhile."""
        for sequence in self._active.values():
            if sequence.lane is not None and sequence.lane.worker is worker:
                sequence.last = now

    # -- idle sequences --------------------------------------------------------------------------

    def _expire(self, sequence: Sequence, now: int) -> None:
        if self._idle_ns and now - sequence.last >= self._idle_ns and not sequence.ended:
            self._end(sequence)
            sequence.evicted = True
            self._tell(sequence, "evicted")
            if sequence.over():
                self._leave(sequence)

    def _watch_idle(self) -> None:
        if self._timer is not None or not self._idle_ns:
            return
        held = [sequence.last for sequence in self._active.values() if sequence.lane is not None]
        if held:
            wait = min(held) + self._idle_ns - time.monotonic_ns()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait, 0) / 1e9 + 0.0005, self._end_idle)

    def _end_idle(self) -> None:
        """End the sequences that were silent for too long; the backlog gets their slots."""
        self._timer = None
        now = time.monotonic_ns()
        for sequence in list(self._active.values()):
            if sequence.lane is not None:
                self._expire(sequence, now)
        self.dispatch()

    # -- looking, cancelling, ending -------------------------------------------------------------

    @property
    def queue(self) -> deque[Request]:
        return deque(self._waiting())

    @queue.setter
    def queue(self, empty: deque[Request]) -> None:
        """Set by the base class once, before there is anything."""

    def _waiting(self) -> Iterator[Request]:
        return (request for request in self._of if request.owner is self)

    def __len__(self) -> int:
        return sum(1 for _ in self._waiting())

    def cancel(self, request: Request) -> None:
        """Nothing at once: the sequence is given up when the turn of `request` has come."""
        sequence = self._of.get(request)
        lane = sequence.lane if sequence is not None else None
        if request in self._lost:
            self._lost.discard(request)
            self.refuse(request, cancelled(), "CANCELED")
        elif sequence is None or sequence.running is not request:
            self.dispatch()
        elif isinstance(lane, OldestLane) and lane.dynamic.may_withdraw(request):
            self.withdraw(request)

    def give_up(self, sequence: Sequence) -> None:
        """A request of it was cancelled before it ran: as in the real server, the sequence ends
        here, and what follows is answered in the same way."""
        waiting = list(sequence.queue)
        sequence.queue.clear()
        self._end(sequence)
        for request in waiting:
            self._of.pop(request, None)
            request.owner = None
        if sequence.lane is not None and sequence.over():
            self._leave(sequence)
            asyncio.get_running_loop().call_soon(self.dispatch)
        for request in waiting:
            self.refuse(request, cancelled(), "CANCELED")

    def withdraw(self, request: Request) -> None:
        """Take a queued request out and answer it as cancelled; its sequence goes on."""
        sequence = self._of.pop(request, None)
        if sequence is None:
            return
        if sequence.running is request:
            sequence.running = None
            if isinstance(sequence.lane, OldestLane):
                sequence.lane.dynamic.queue.remove(request)
        else:
            sequence.queue.remove(request)
        request.owner = None
        if self.iterative and not sequence.queue:
            self._end(sequence)
        if sequence.over():
            self._leave(sequence)
        self.refuse(request, cancelled(), "CANCELED")
        self.dispatch()

    def fail_all(self, error: InferError) -> None:
        waiting = [*self._waiting(), *self._lost]
        self._lost.clear()
        for lane in self._lanes.values():
            if isinstance(lane, OldestLane):
                lane.dynamic.queue.clear()
        for request in waiting:
            sequence = self._of.pop(request, None)
            if sequence is not None:
                sequence.queue.clear()
                if sequence.running is request:
                    sequence.running = None
                self._end(sequence)
                self._leave(sequence)
        self._backlog.clear()
        for request in waiting:
            request.owner = None
            self.refuse(request, error, "OTHER")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for lane in self._lanes.values():
            lane.close()
