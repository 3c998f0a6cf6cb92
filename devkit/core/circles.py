"""BLS calls that wait for each other in a circle, which no instance can ever leave.

The real backend blocks there for good. Here the circle is found when the call is queued: an
instance is stuck when each of its open calls waits for instances that are stuck themselves.
Nothing is decided here about what to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from devkit.core.ensemble import Ensemble

if TYPE_CHECKING:
    from devkit.core.instance import Instance
    from devkit.core.request import Request

Calls = Mapping["Instance", Iterable["Request"]]


def _open(calls: Iterable[Request]) -> Iterable[Request]:
    """The calls themselves, and for those to an ensemble the steps that run for them."""
    for call in calls:
        if isinstance(call.model, Ensemble):
            yield from _open(call.model.steps_of(call))
        elif not call.done:
            yield call


def _may_serve(call: Request) -> list[Instance]:
    """The instances that could answer: the one that has it, or all that may take it."""
    owner = call.owner
    if owner in call.model.instances:
        return [owner]  # type: ignore[list-item]  # one of its instances
    return list(call.model.instances)


def find(start: Instance, calls: Calls) -> list[Instance]:
    """The instances of the circle that `start` is stuck in, in calling order; [] where it is not.

    `calls` are the open calls of every instance that has any.
    """
    stuck = {instance for instance, made in calls.items() if any(True for _ in _open(made))}

    def moves(instance: Instance) -> bool:
        return any(
            not _may_serve(call)  # nobody yet: it is being started
            or any(other not in stuck for other in _may_serve(call))
            for call in _open(calls[instance])
        )

    while True:
        free = {instance for instance in stuck if moves(instance)}
        if not free:
            break
        stuck -= free
    return _walk(start, calls, lambda instance: instance in stuck) if start in stuck else []


def _walk(start: Instance, calls: Calls, is_stuck: Callable[[Instance], bool]) -> list[Instance]:
    path = [start]
    while True:
        call = next(iter(_open(calls[path[-1]])))
        following = next(each for each in _may_serve(call) if is_stuck(each))
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


def describe(circle: list[Instance]) -> str:
    """The chain in words: `a_0 -> b_0 -> a_0`, with how many instances each model has."""
    chain = " -> ".join(instance.name for instance in circle)
    models = {instance.model.name: len(instance.model.instances) for instance in circle}
    counts = ", ".join(f"'{name}' has {count}" for name, count in models.items())
    return (
        f"BLS calls wait for each other and can never be served: {chain} (instances: {counts}). "
        "Give the model that is called more instances than calls can be open, or do not call back."
    )
