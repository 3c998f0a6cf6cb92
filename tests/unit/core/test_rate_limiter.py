"""Instances that share resources: who runs, who waits, and what can never run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from devkit.contract.config import InstanceSpec
from devkit.contract.tensors import ResourceSpec
from devkit.core.rate_limiter import Amount, Permit, RateLimiter, parse_amounts
from devkit.errors import LoadError


class Model:
    """An instance with work to do, which it does when it may."""

    def __init__(
        self, limiter: RateLimiter, name: str, *resources: ResourceSpec, priority: int = 0,
        device: int = 0,
    ) -> None:  # fmt: skip
        self.name = name
        self.work = 0
        spec = InstanceSpec(
            name, "CPU", device, 0, 1, priority=priority, resources=tuple(resources)
        )
        self.permit: Permit = limiter.admit(spec, lambda: self.work > 0, self.run)

    def run(self) -> None:
        if self.work and self.permit.ask():
            self.work -= 1
            self.permit.take()

    def done(self) -> None:
        self.permit.give_back()


CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def shared(name: str = "R", count: int = 1) -> ResourceSpec:
    return ResourceSpec(name, count, is_global=True)


def ask(*models: Model) -> list[str]:
    """Give each model one more piece of work; names of those that run now."""
    for model in models:
        model.work += 1
        model.run()
    return [model.name for model in models if model.permit.held]


def test_amounts_are_named_counted_and_may_be_of_one_device() -> None:
    assert parse_amounts(["R1:4", "R2:1:0"]) == [Amount("R1", 4), Amount("R2", 1, 0)]
    with pytest.raises(ValueError, match="NAME:COUNT"):
        parse_amounts(["R1"])


def test_an_instance_without_needs_always_runs() -> None:
    assert ask(Model(RateLimiter(), "a")) == ["a"]


def test_what_is_given_bounds_how_many_run() -> None:
    limiter = RateLimiter([Amount("R", 2)])
    models = [Model(limiter, name, shared()) for name in "abc"]
    assert ask(*models) == ["a", "b"]
    models[0].done()
    assert models[2].permit.held


def test_with_nothing_given_there_is_as_much_as_the_most_needy_wants() -> None:
    limiter = RateLimiter()
    models = [Model(limiter, "a", shared()), Model(limiter, "b", shared(count=2))]
    assert limiter.total(("R", None)) == 2
    assert ask(*models) == ["a"]
    models[0].done()
    assert models[1].permit.held


def test_nobody_overtakes_the_first_in_line() -> None:
    limiter = RateLimiter([Amount("R", 2)])
    small, large, other = (
        Model(limiter, "a", shared()), Model(limiter, "b", shared(count=2)),
        Model(limiter, "c", shared()),
    )  # fmt: skip
    assert ask(small, large, other) == ["a"]
    small.done()
    assert large.permit.held
    assert not other.permit.held


def test_one_whose_work_is_gone_stands_in_nobodys_way() -> None:
    limiter = RateLimiter([Amount("R", 2)])
    small, large, other = (
        Model(limiter, "a", shared()), Model(limiter, "b", shared(count=2)),
        Model(limiter, "c", shared()),
    )  # fmt: skip
    ask(small, large)
    large.work = 0
    assert ask(other) == ["c"]


def test_a_priority_of_three_runs_a_third_as_often() -> None:
    limiter = RateLimiter()
    one = Model(limiter, "1", shared(), priority=1)
    three = Model(limiter, "3", shared(), priority=3)
    one.work = three.work = 12
    one.run()
    three.run()
    ran = []
    for _ in range(12):
        runs = one if one.permit.held else three
        ran.append(runs.name)
        runs.done()
    assert ran.count("1") == 9
    assert ran.count("3") == 3


def test_devices_have_their_own_amounts() -> None:
    limiter = RateLimiter([Amount("R", 1)])
    first = Model(limiter, "a", ResourceSpec("R", 1), device=0)
    second = Model(limiter, "b", ResourceSpec("R", 1), device=1)
    third = Model(limiter, "c", ResourceSpec("R", 1), device=1)
    assert ask(first, second, third) == ["a", "b"]


def test_what_could_never_run_does_not_load() -> None:
    limiter = RateLimiter([Amount("R", 2)])
    with pytest.raises(LoadError) as refused:
        Model(limiter, "a", shared(count=3))
    assert refused.value.message == (
        'Invalid argument: Resource count for "R" is limited to 2 which will prevent scheduling '
        "of one or more model instances, the minimum required count is 3"
    )
    with pytest.raises(LoadError, match=r"R9.*limited to 0"):
        Model(limiter, "a", shared("R9"))


def test_a_resource_is_global_or_of_devices() -> None:
    limiter = RateLimiter()
    Model(limiter, "a", shared())
    with pytest.raises(LoadError) as refused:
        Model(limiter, "b", ResourceSpec("R", 1))
    assert refused.value.message == (
        'Invalid argument: Resource "R" is present as both global and device-specific resource in '
        "the model configuration."
    )


def test_a_gone_instance_gives_everything_back() -> None:
    limiter = RateLimiter([Amount("R", 1)])
    first, second = Model(limiter, "a", shared()), Model(limiter, "b", shared())
    ask(first, second)
    first.permit.close()
    assert second.permit.held


async def test_two_models_that_share_one_resource_run_one_at_a_time(
    bench: Callable[..., Any],
) -> None:
    made = bench(rate_limit="execution_count")
    for name in ("first", "second"):
        made.write(
            name,
            CONFIG
            + "instance_group [ { count: 2 rate_limiter { resources "
            + '[ { name: "R" count: 1 global: true } ] } } ]',
        )
    await made.engine.start()
    running = [0]
    most = [0]
    permits = [i.permit for m in made.engine.models() for i in m.instances]
    asked = [made.send(name, [-3.0]) for name in ("first", "second", "first", "second")]
    pending = set(asked)
    while pending:
        running[0] = sum(permit.held for permit in permits)
        most[0] = max(most[0], running[0])
        _, pending = await asyncio.wait(pending, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
    assert most == [1]
    assert all(future.result().error is None for future in asked)
    assert not any(permit.held for permit in permits)
