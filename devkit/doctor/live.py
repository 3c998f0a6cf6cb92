"""Rules about what a runtime has seen: contract warnings, deaths, loads, memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from devkit.contract.rules import RULES
from devkit.doctor.rules import ERROR, OBSERVED, WARNING, Hit, Place, rule
from devkit.doctor.subject import Model

SLOW_SECONDS = 30.0


@rule(
    "observed-answer",
    WARNING,
    "while it ran, the model did what production passes over in silence",
    why="an undeclared output, another type or shape, a missing response: the real server says "
    "nothing and clients get something else",
    fix="see the message; the line is the model's own",
    source=OBSERVED,
    scope="live",
)
def observed_answer(model: Model) -> Iterator[Hit]:
    for name, text, line, count in model.observed.warnings if model.observed else ():
        known = RULES.get(name)
        more = f" {known.remedy}" if known is not None else ""
        times = f" ({count} times)" if count > 1 else ""
        yield Hit(_place(model, line), f"{name}: {text}{times}.{more}")


def _place(model: Model, line: str) -> Place:
    file, _, number = line.rpartition(":")
    if file and number.isdigit():
        return Place(Path(file), int(number))
    return model.place


@rule(
    "instance-died",
    ERROR,
    "an instance's process ended while it served",
    why="the real server never starts it again: every later request to the instance fails",
    fix="`devkit failures` has its last words, the request and the signal",
    source=OBSERVED,
    scope="live",
)
def instance_died(model: Model) -> Iterator[Hit]:
    for words in model.observed.deaths if model.observed else ():
        yield Hit(model.place, words)


@rule(
    "slow-load",
    WARNING,
    "an instance takes long to load",
    why="the model is not ready meanwhile, a rollout waits for every instance, and Kubernetes may "
    "kill the pod before",
    fix="load less in `initialize`, share what instances have in common, raise the probe's limits",
    scope="live",
)
def slow_load(model: Model) -> Iterator[Hit]:
    seen = model.observed
    if seen is not None and seen.load_seconds > SLOW_SECONDS:
        yield Hit(model.place, f"{seen.load_seconds:.0f} s, for each of {seen.instances} instances")


@rule(
    "observed-shm",
    WARNING,
    "the model has used more shared memory than a container has",
    why="a container's /dev/shm is 64 MiB",
    fix="start it with `--shm-size`; `devkit export --deploy` writes the measured size",
    scope="live",
)
def observed_shm(model: Model) -> Iterator[Hit]:
    seen = model.observed
    if seen is not None and seen.shared_memory > model.target.shared_memory:
        yield Hit(
            model.place,
            f"{seen.shared_memory >> 20} MiB were in use; {model.target.shared_memory >> 20} MiB "
            "is what it would have",
        )
