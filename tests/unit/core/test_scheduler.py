"""Which requests run together, when, and on which instance."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from devkit.core import scheduler as core
from devkit.core.request import Description, Request, TensorSpec
from devkit.core.scheduler import (
    FULL_ROOM,
    ONE_BY_ONE,
    DirectScheduler,
    DynamicBatcher,
    QueuePolicy,
)
from devkit.errors import Code, InferError


class Bench:
    """A worker that records what it is given and is idle again when told so."""

    def __init__(self, name: str = "m_0") -> None:
        self.name = name
        self.batches: list[list[str]] = []
        self.free = True

    def room(self) -> int:
        return FULL_ROOM if self.free else 0

    steered_room = room

    def execute(self, requests: list[Request], reason: int = ONE_BY_ONE) -> None:
        self.free = False
        self.reason = reason
        self.batches.append([request.id for request in requests])


def request(name: str, size: int = 1, key: tuple[object, ...] = (), **extra: object) -> Request:
    made = Request("m", Description((TensorSpec("X", "FP32", (1,)),)), [b""], lambda _: None)
    made.id, made.batch_size, made.fit_key = name, size, key
    made.times.queue_start = made.times.request_start
    for field, value in extra.items():
        setattr(made, field, value)
    return made


class Refused(list[tuple[str, Code, str]]):
    def __call__(self, request: Request, error: InferError, reason: str) -> None:
        self.append((request.id, error.code, reason))


def finish(scheduler: DirectScheduler, worker: Bench) -> None:
    worker.free = True
    scheduler.dispatch()


def test_direct_runs_one_at_a_time_in_order() -> None:
    scheduler, worker = DirectScheduler(Refused()), Bench()
    scheduler.workers = [worker]
    for name in "abc":
        scheduler.submit(request(name))
    assert worker.batches == [["a"]]
    finish(scheduler, worker)
    finish(scheduler, worker)
    assert worker.batches == [["a"], ["b"], ["c"]]


def test_requests_spread_over_idle_instances() -> None:
    scheduler = DirectScheduler(Refused())
    workers = [Bench("m_0"), Bench("m_1"), Bench("m_2")]
    scheduler.workers = list(workers)
    for name in "abcd":
        scheduler.submit(request(name))
    assert [worker.batches for worker in workers] == [[["a"]], [["b"]], [["c"]]]
    assert len(scheduler) == 1


def test_idle_instances_take_turns() -> None:
    scheduler = DirectScheduler(Refused())
    workers = [Bench("m_0"), Bench("m_1")]
    scheduler.workers = list(workers)
    for name in "abcd":
        scheduler.submit(request(name))
        for worker in workers:
            worker.free = True
    assert [worker.batches for worker in workers] == [[["a"], ["c"]], [["b"], ["d"]]]


def test_a_steered_request_waits_for_its_instance_and_holds_nobody_up() -> None:
    scheduler = DirectScheduler(Refused())
    first, second = Bench("m_0"), Bench("m_1")
    scheduler.workers = [first, second]
    first.free = False
    scheduler.submit(request("steered", steer="m_0"))
    scheduler.submit(request("free"))
    scheduler.dispatch()
    assert second.batches == [["free"]]
    finish(scheduler, first)
    assert first.batches == [["steered"]]


def test_a_queued_request_that_is_cancelled_runs_all_the_same() -> None:
    refused = Refused()
    scheduler, worker = DirectScheduler(refused), Bench()
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    waiting = request("b")
    scheduler.submit(waiting)
    scheduler.cancel(waiting)
    finish(scheduler, worker)
    assert (worker.batches, refused) == ([["a"], ["b"]], [])


def test_a_steered_request_that_is_cancelled_is_taken_out() -> None:
    refused = Refused()
    scheduler, worker = DirectScheduler(refused), Bench("m_0")
    worker.free = False
    scheduler.workers = [worker]
    waiting = request("a", steer="m_0")
    scheduler.submit(waiting)
    scheduler.cancel(waiting)
    assert refused == [("a", Code.CANCELLED, "CANCELED")]


def test_withdrawing_a_queued_request_answers_it() -> None:
    refused = Refused()
    scheduler, worker = DirectScheduler(refused), Bench()
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    waiting = request("b")
    scheduler.submit(waiting)
    scheduler.withdraw(waiting)
    assert refused == [("b", Code.CANCELLED, "CANCELED")]
    finish(scheduler, worker)
    assert worker.batches == [["a"]]


def test_given_back_requests_come_first() -> None:
    scheduler, worker = DirectScheduler(Refused()), Bench()
    worker.free = False
    scheduler.workers = [worker]
    scheduler.submit(request("late"))
    scheduler.give_back([request("first"), request("second")])
    for _ in range(3):
        finish(scheduler, worker)
    assert worker.batches == [["first"], ["second"], ["late"]]


def batcher(refused: Refused | None = None, **options: object) -> DynamicBatcher:
    given = {"max_batch_size": 8, "preferred": (8,), "delay_us": 0, **options}
    return DynamicBatcher(Refused() if refused is None else refused, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        # Two batches are made up ahead, the second one begun with a single request.
        ({"max_batch_size": 2, "preferred": ()}, ["d", "e"]),
        ({"max_batch_size": 1, "preferred": ()}, ["c", "d", "e"]),
        # None is, where the queue has a policy or priorities.
        ({"max_batch_size": 2, "preferred": (), "levels": 2, "default_level": 1}, list("abcde")),
        ({"max_batch_size": 2, "preferred": (), "policy": QueuePolicy(max_size=9)}, list("abcde")),
    ],
)
def test_cancelling_takes_out_what_no_batch_has_yet(
    options: dict[str, Any], left: list[str]
) -> None:
    refused = Refused()
    for name in "abcde":
        scheduler, worker = batcher(refused, **options), Bench()
        worker.free = False
        scheduler.workers = [worker]
        waiting = {each: request(each) for each in "abcde"}
        for each in waiting.values():
            scheduler.submit(each)
        scheduler.cancel(waiting[name])
    assert [name for name, *_ in refused] == left


def fill(scheduler: DynamicBatcher, worker: Bench, *requests: Request) -> None:
    """Queue requests behind a busy worker, then free it."""
    worker.free = False
    scheduler.workers = [worker]
    for each in requests:
        scheduler.submit(each)
    finish(scheduler, worker)


def test_without_delay_what_waits_goes_at_once() -> None:
    scheduler, worker = batcher(), Bench()
    fill(scheduler, worker, *(request(name) for name in "abc"))
    assert worker.batches == [["a", "b", "c"]]


def test_a_batch_never_exceeds_the_maximum() -> None:
    scheduler, worker = batcher(), Bench()
    fill(scheduler, worker, request("a", 5), request("b", 3), request("c", 1))
    assert worker.batches == [["a", "b"]]
    finish(scheduler, worker)
    assert worker.batches[1] == ["c"]


def test_a_request_that_does_not_fit_closes_the_batch() -> None:
    scheduler, worker = batcher(), Bench()
    fill(scheduler, worker, request("a", 5), request("b", 4))
    assert worker.batches == [["a"]]


def test_the_largest_reachable_preferred_size_wins() -> None:
    scheduler, worker = batcher(preferred=(2, 4)), Bench()
    fill(scheduler, worker, *(request(name) for name in "abcde"))
    assert worker.batches == [["a", "b", "c", "d"]]


def test_other_shapes_do_not_share_a_batch() -> None:
    scheduler, worker = batcher(), Bench()
    fill(scheduler, worker, request("a", key=(1,)), request("b", key=(1,)), request("c", key=(2,)))
    assert worker.batches == [["a", "b"]]


async def test_the_oldest_request_waits_no_longer_than_the_delay() -> None:
    scheduler, worker = batcher(delay_us=20_000), Bench()
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    scheduler.submit(request("b"))
    assert worker.batches == []
    while not worker.batches:
        await asyncio.sleep(0.002)
    assert worker.batches == [["a", "b"]]


async def test_a_full_batch_does_not_wait_for_the_delay() -> None:
    scheduler, worker = batcher(delay_us=60_000_000, max_batch_size=2, preferred=(2,)), Bench()
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    scheduler.submit(request("b"))
    assert worker.batches == [["a", "b"]]
    scheduler.close()


def test_a_full_queue_refuses() -> None:
    scheduler, worker = batcher(policy=QueuePolicy(max_size=1)), Bench()
    worker.free = False
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    with pytest.raises(
        InferError, match=r"\[request id: b\] Exceeds maximum queue size"
    ) as refused:
        scheduler.submit(request("b"))
    assert refused.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize("reject", [True, False])
def test_a_request_past_its_timeout_is_refused_or_put_last(reject: bool) -> None:
    refused = Refused()
    scheduler = batcher(
        refused, max_batch_size=1, preferred=(1,),
        policy=QueuePolicy(override=True, reject=reject),
    )  # fmt: skip
    worker = Bench()
    late = request("late", timeout=1)
    late.times.queue_start -= 1_000_000
    fill(scheduler, worker, late, request("b"))
    assert worker.batches == [["b"]]
    if reject:
        assert refused == [("late", Code.UNAVAILABLE, "REJECTED")]
    else:
        finish(scheduler, worker)
        assert worker.batches[1] == ["late"]


def levels(refused: Refused | None = None, **options: object) -> DynamicBatcher:
    """Three priority levels, the second for requests that name none."""
    given = {"levels": 3, "default_level": 2, "max_batch_size": 1, "preferred": (1,), **options}
    return batcher(refused, **given)


def drain(scheduler: DynamicBatcher, worker: Bench) -> list[str]:
    while scheduler.queue:
        finish(scheduler, worker)
    return [name for batch in worker.batches for name in batch]


def test_lower_priority_levels_run_first() -> None:
    scheduler, worker = levels(), Bench()
    fill(
        scheduler, worker,
        *(
            request(name, priority=priority)
            for name, priority in (("c", 3), ("b0", 0), ("b2", 2), ("a", 1), ("b9", 9), ("a1", 1))
        ),
    )  # fmt: skip
    # A level that does not exist is the default one.
    assert drain(scheduler, worker) == ["a", "a1", "b0", "b2", "b9", "c"]


def test_a_batch_takes_from_several_levels() -> None:
    scheduler, worker = levels(max_batch_size=3, preferred=(3,)), Bench()
    fill(
        scheduler, worker, request("c", priority=3), request("b", priority=2),
        request("a", priority=1), request("d", priority=3),
    )  # fmt: skip
    assert worker.batches == [["a", "b", "c"]]


def test_each_level_has_its_own_policy() -> None:
    refused = Refused()
    scheduler, worker = (
        levels(refused, policies={1: QueuePolicy(max_size=1), 3: QueuePolicy(timeout_us=1000)}),
        Bench(),
    )
    late = request("late", priority=3)
    patient = request("patient")
    for each in (late, patient):
        each.times.queue_start -= 10_000_000
    worker.free = False
    scheduler.workers = [worker]
    scheduler.submit(late)
    scheduler.submit(patient)
    scheduler.submit(request("a", priority=1))
    with pytest.raises(InferError, match="Exceeds maximum queue size"):
        scheduler.submit(request("a2", priority=1))
    assert drain(scheduler, worker) == ["a", "patient"]
    assert refused == [("late", Code.UNAVAILABLE, "REJECTED")]


def test_the_shorter_timeout_counts() -> None:
    policy = QueuePolicy(timeout_us=1000, override=True)
    assert policy.limit(request("a", timeout=5000)) == 1_000_000
    assert policy.limit(request("b", timeout=10)) == 10_000
    assert QueuePolicy(timeout_us=1000).limit(request("c", timeout=10)) == 1_000_000
    assert QueuePolicy().limit(request("d", timeout=10)) == 0


def test_late_requests_that_are_put_back_run_in_order_after_those_in_time() -> None:
    scheduler, worker = (
        batcher(
            max_batch_size=1, preferred=(1,), policy=QueuePolicy(timeout_us=1000, reject=False)
        ),
        Bench(),
    )
    late = [request(name, timeout=7) for name in "ab"]
    for each in late:
        each.times.queue_start -= 10_000_000
    fill(scheduler, worker, *late, request("c"), request("d"))
    assert drain(scheduler, worker) == ["c", "d", "a", "b"]
    assert late[0].timeout == 7  # the model is told what the client asked for


def test_nobody_is_told_to_be_late_while_every_instance_is_busy() -> None:
    refused = Refused()
    scheduler, worker = batcher(refused, policy=QueuePolicy(timeout_us=1)), Bench()
    worker.free = False
    scheduler.workers = [worker]
    late = request("late")
    late.times.queue_start -= 1_000_000
    scheduler.submit(late)
    assert refused == []
    finish(scheduler, worker)
    assert refused == [("late", Code.UNAVAILABLE, "REJECTED")]
    assert worker.batches == []


async def test_a_timeout_shorter_than_the_delay_is_kept() -> None:
    refused = Refused()
    scheduler = batcher(refused, delay_us=60_000_000, policy=QueuePolicy(timeout_us=20_000))
    worker = Bench()
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    while not refused:
        await asyncio.sleep(0.002)
    assert worker.batches == []
    assert not scheduler.queue


def test_a_refused_request_may_make_its_client_send_another() -> None:
    scheduler, worker = batcher(policy=QueuePolicy(timeout_us=1)), Bench()
    late = request("late")
    late.times.queue_start -= 1_000_000
    again = request("again")
    again.times.queue_start += 60_000_000_000
    scheduler.refuse = lambda *_: scheduler.submit(again)
    fill(scheduler, worker, late)
    assert worker.batches == [["again"]]


@pytest.mark.parametrize(
    ("options", "waiting", "reason"),
    [
        ({}, [request("a", 8), request("b")], core.FULL),
        ({}, [request("a"), request("b")], core.NOTHING_MORE),
        ({}, [request("a", 5), request("b", 4)], core.TOO_LARGE),
        ({}, [request("a", key=(1,)), request("b", key=(2,))], core.OTHER_SHAPE),
        ({"preferred": (2,)}, [request("a"), request("b"), request("c")], core.PREFERRED),
    ],
)
def test_a_batch_notes_why_it_closed(options, waiting, reason) -> None:  # type: ignore[no-untyped-def]
    scheduler, worker = batcher(**options), Bench()
    fill(scheduler, worker, *waiting)
    assert worker.reason == reason


async def test_a_batch_that_waited_long_enough_notes_it() -> None:
    scheduler, worker = batcher(delay_us=1000), Bench()
    scheduler.workers = [worker]
    scheduler.submit(request("a"))
    while not worker.batches:
        await asyncio.sleep(0.002)
    assert worker.reason == core.DELAYED
