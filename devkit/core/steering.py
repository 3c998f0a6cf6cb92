"""Which instances of a model a debugger has, and which requests go to them.

A debugged instance is kept for the requests meant for it as long as others can serve the rest; so
one may stand in a debugger for minutes while clients notice nothing. Debuggers themselves, and what
they do, are not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from devkit.core.request import Request
from devkit.transport import messages

if TYPE_CHECKING:
    from devkit.core.instance import Instance
    from devkit.core.model import Model

MARKED = messages.DEBUGGED
"""`Request.steer` of a request that asks for a debugged instance, whichever that is."""

TAKES = ("marked", "next", "every")


class Target:
    """A debugger's hold on one instance.

    Attributes:
        take: which requests it gets: `marked` ones alone; also the `next` ones until one has
            stopped; or `every` one that finds it idle.
        stands_since: CLOCK_MONOTONIC nanoseconds since when it is stopped, 0 while it runs.
        on_answer: called when a request that it ran has had its last response.
    """

    def __init__(
        self, instance: Instance, take: str, on_answer: Callable[[], None] = lambda: None
    ) -> None:
        self.instance = instance
        self.take = take
        self.on_answer = on_answer
        self.stands_since = 0

    @property
    def reserved(self) -> bool:
        """Whether others serve what is not meant for it. Sequences stay where they are."""
        model = self.instance.model
        if model.sequences is not None:
            return False
        return any(other.debugger is None for other in model.instances)

    def stopped(self) -> None:
        """It stands: the clocks of what runs and waits here stand with it."""
        if not self.stands_since:
            self.stands_since = time.monotonic_ns()
        if self.take == "next":
            self.take = "marked"

    def resumed(self) -> None:
        """It runs again; the clocks go on from where they stood."""
        since, self.stands_since = self.stands_since, 0
        if not since:
            return
        instance = self.instance
        now = time.monotonic_ns()
        for batch in instance.batches:
            batch.stood += now - max(since, batch.sent)
        waiting = list(instance.model.scheduler.steered)
        if not self.reserved:
            waiting += instance.model.scheduler.queue
        for request in (*instance.pending.values(), *waiting):
            _shift(request, since, now)
        if instance.model.sequences is not None:
            instance.model.sequences.stood(instance, now)

    def wants(self, request: Request, marked: bool) -> bool:
        """Whether a request should come here now."""
        if marked or self.take == "every":
            return True
        return self.take == "next" and not self.stands_since and not self.instance.batches


def _shift(request: Request, since: int, now: int) -> None:
    """Move a request's clocks on by the time it stood."""
    times = request.times
    stood = now - max(since, times.request_start)
    for name in ("request_start", "queue_start", "compute_start", "compute_input_end"):
        value = getattr(times, name)
        if value:
            setattr(times, name, value + stood)


class Steering:
    """The debuggers of one model, while there are any."""

    def __init__(self, model: Model) -> None:
        self.targets: dict[str, Target] = {}
        self._model = model

    def aim(self, request: Request) -> None:
        """Say where `request` goes: `steer` becomes an instance's name, or empty."""
        if request.steer != MARKED and any(
            worker.name == request.steer for worker in self._model.scheduler.workers
        ):
            return  # it names its instance itself
        parent = request.parent
        marked = bool(request.steer) or (parent is not None and bool(parent.steer))
        request.steer = ""
        wanting = [target for target in self.targets.values() if target.wants(request, marked)]
        if not wanting:
            return
        idle = [each for each in wanting if each.instance.steered_room()]
        if idle:
            request.steer = idle[0].instance.name
        elif marked:
            request.steer = wanting[0].instance.name  # it waits for that one
