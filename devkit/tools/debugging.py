"""Requests for a debugger: made up from a model's config, or recorded ones, and failures.

Which request is meant is found out here, and it is sent; the debugger itself is the runtime's.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devkit.contract import config as contract
from devkit.contract.recording import Record
from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from devkit.control.messages import Breakpoint
from devkit.errors import DebugError, DevkitError
from devkit.tools.inspection import Captures, FailureList
from devkit.tools.samples import sample_requests

_FAILURE = re.compile(r"failure(?::(?P<number>\d+))?\Z")


def sample(client: Client, model: str) -> dict[str, Any]:
    """Input arrays that the model's config allows. Raises DebugError where it names no inputs."""
    config = contract.parse(client.config_text(model))
    made = sample_requests(config)
    if not made or not config.input:
        raise DebugError(
            f"the config of '{model}' names no inputs to make a request of", model=model,
            remedy="send one of your own: --input NAME=VALUES, or --send FILE",
        )  # fmt: skip
    return made[-1].arrays("inputs")


def recorded(client: Client, model: str, what: str) -> Record:
    """The recorded request that is meant: a number, an id, a file, `failure` or `failure:N`.

    A file of several means its first that failed, or else its first. Raises DebugError.
    """
    found = _FAILURE.match(what)
    if found is not None:
        return failed(client, model, int(found["number"] or 0))
    if what.isdigit():
        return _whole(Captures.of(client, numbers=[int(what)]).number(int(what)).record)
    if Path(what).is_file():
        records = Captures.read(what, model).records()
    else:
        records = Captures.of(client, model, id=what, last=1).records()
    if not records:
        raise DebugError(
            f"no recorded request of '{model}' is '{what}'", model=model,
            remedy="`devkit captures` lists numbers and ids; or name a file of `devkit record`",
        )  # fmt: skip
    return _whole(next((each for each in records if each.error), records[0]))


def failed(client: Client, model: str, number: int = 0) -> Record:
    """The request of a failure, of the last one where no number is given. Raises DebugError."""
    failures = FailureList.of(client, model)
    if not number and not failures:
        raise DebugError(
            f"no request to '{model}' has failed", model=model,
            remedy="`devkit captures` lists what can be replayed",
        )  # fmt: skip
    chosen = failures.number(number) if number else failures[-1]
    records = chosen.requests.records()
    if not records:
        raise DebugError(f"failure {chosen.number} has kept no request", model=model)
    return _whole(records[0])


def _whole(record: Record) -> Record:
    if not record.whole:
        raise DebugError(
            f"of request {record.number} only a sample is kept, it cannot be sent again",
            model=record.model, remedy="`devkit record --largest` keeps larger ones whole",
        )  # fmt: skip
    return record


def announce(client: Client, model: str, inputs: Mapping[str, Any] | None) -> None:
    """Before a debugger comes: have a model without a config take `inputs`.

    Raises DebugError where nothing says what it takes: no request could reach it.
    """
    found = client.model(model)
    if not found.unlearned:
        return
    if inputs:
        client.announce(model, inputs)
    elif not found.inputs:
        raise DebugError(
            f"'{model}' has no config yet, so no request can reach it", model=model,
            remedy=f'call it once (`devkit.infer("{model}", ...)`), or send its first request to '
            "the debugger with --send",
        )  # fmt: skip


class Places:
    """Places to stop at that are there for one debugger only, and are taken back after it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._set: set[int] = set()
        self._before: tuple[bool, bool] | None = None

    def add(self, asked: Breakpoint) -> Breakpoint:
        """Set one; if it was there before it stays afterwards."""
        known = self.numbers()
        kept = self._client.set_breakpoint(
            asked.path, asked.line, model=asked.model, condition=asked.condition,
            hits=asked.hits, log=asked.log, enabled=asked.enabled,
        )  # fmt: skip
        if kept.id not in known:
            self._set.add(kept.id)
        return kept

    def numbers(self) -> set[int]:
        """All breakpoints that there are, whoever set them."""
        return {each.id for each in self._client.breakpoints().breakpoints}

    def own_new(self, before: set[int]) -> None:
        """Those that came since `before` are here for the debugger only."""
        self._set |= self.numbers() - before

    def take_over(self, other: Places) -> None:
        """Take back here what another one set."""
        self._set |= other._set
        other._set = set()
        self._before = other._before if other._before is not None else self._before

    def exceptions(self, *, raised: bool, uncaught: bool) -> None:
        """Stop at exceptions."""
        if self._before is None:
            known = self._client.breakpoints()
            self._before = (known.raised, known.uncaught)
        self._client.stop_at_exceptions(raised=raised, uncaught=uncaught)

    def anywhere(self) -> bool:
        """Whether anything stops at all, whoever asked for it."""
        found = self._client.breakpoints()
        stopping = [each for each in found.breakpoints if each.enabled and not each.log]
        return bool(found.raised or found.uncaught or stopping)

    def undo(self) -> None:
        """Take them all back."""
        taken, self._set = self._set, set()
        for number in taken:
            with contextlib.suppress(DevkitError):
                self._client.remove_breakpoint(number)
        before, self._before = self._before, None
        if before is not None:
            with contextlib.suppress(DevkitError):
                self._client.stop_at_exceptions(raised=before[0], uncaught=before[1])


class Sent:
    """A request that was sent from a thread, and the answer it gets."""

    def __init__(
        self, ask: Callable[[], dict[str, Any]], on_answer: Callable[[Sent], None] | None = None
    ) -> None:
        self._found: dict[str, Any] | None = None
        self._problem: BaseException | None = None
        self._on_answer = on_answer
        self._ask = ask
        self._over = threading.Event()
        threading.Thread(target=self._run, name="devkit-send", daemon=True).start()

    def _run(self) -> None:
        try:
            self._found = self._ask()
        except Exception as problem:  # handed to whoever asks for the answer
            self._problem = problem
        self._over.set()
        if self._on_answer is not None:
            self._on_answer(self)

    @property
    def waits(self) -> bool:
        """Whether the answer is not there yet."""
        return not self._over.is_set()

    @property
    def error(self) -> str:
        """What went wrong, in words; empty where nothing did."""
        problem = self._problem
        return str(getattr(problem, "message", problem)) if problem is not None else ""

    def answer(self, seconds: float | None = None) -> dict[str, Any]:
        """The outputs, once they come. Raises what the request raised, or DebugError in time."""
        self._over.wait(seconds)
        if self._problem is not None:
            raise self._problem
        if self._found is None:
            raise DebugError(
                f"the request has not been answered within {seconds:g} s",
                remedy="it may stand in the debugger: continue it",
            )
        return self._found


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded request about to run again in a debugger; `ask` sends it and gives its outputs."""

    record: Record
    session: Debugging
    ask: Callable[[], dict[str, Any]]


def replay(client: Client, model: str, what: str, places: Places, *, version: str = "") -> Replay:
    """Put a debugger on a fresh instance for a recorded request (see `recorded`).

    It stops where one that failed raises, and where `execute` begins for any other. Raises
    DebugError.
    """
    record = recorded(client, model, what)
    chosen = version or record.version
    if record.error:
        raised = client.breakpoints().raised
        places.exceptions(raised=raised, uncaught=True)
    elif not places.anywhere():
        places.add(Breakpoint(model=record.model))
    inputs = record.inputs()
    announce(client, record.model, inputs)
    session = client.debug(record.model, version=chosen, fresh=True)
    parameters = record.request.header.get("parameters") or None
    return Replay(
        record, session,
        lambda: client.infer(
            record.model, inputs, version=chosen, id=record.id, parameters=parameters, debug=True
        ),
    )  # fmt: skip
