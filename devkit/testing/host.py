"""What stands in the runtime's place for models of this process: `link.current`, and behind it.

Responses are handed to whoever waits for the request, log lines to the model under test and to
Python's logging, metrics are kept as the runtime keeps them. Loading and asking is `model`'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from devkit.core.custom_metrics import CustomMetrics
from devkit.errors import DevkitError
from devkit.stub import link
from devkit.stub.link import Link
from devkit.stub.requests import InferenceRequest
from devkit.stub.responses import InferenceResponse
from devkit.testing import findings, requests

if TYPE_CHECKING:
    from devkit.testing.bls import LocalClient

_LEVELS = {
    "VERBOSE": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}  # fmt: skip

METRICS = CustomMetrics()
"""One for the process, as a server has one for all its models."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """What a model wrote with `pb_utils.Logger`: level (`INFO`, ...), text, its file and line."""

    level: str
    message: str
    file: str
    line: int


class Sent(NamedTuple):
    """What a model answered at one time: a response, or only the word that it was the last."""

    response: InferenceResponse | None
    final: bool


class Exchange:
    """One request under way, and what came back."""

    def __init__(self, request: InferenceRequest, host: Host) -> None:
        self.request = request
        self.host = host
        self.sent: list[Sent] = []

    @property
    def final(self) -> bool:
        """Whether the last response has come."""
        return bool(self.sent) and self.sent[-1].final

    @property
    def responses(self) -> list[InferenceResponse]:
        """The responses so far."""
        return [one.response for one in self.sent if one.response is not None]


_open: dict[int, Exchange] = {}
_arrived = threading.Condition()


class Outbox:
    """Takes what response senders send, from any thread."""

    def send_response(
        self, sequence: int, plan: Any, response: InferenceResponse | None, flags: int
    ) -> None:
        """Hand a response to whoever waits for that request; nobody may wait any more."""
        with _arrived:
            exchange = _open.get(sequence)
            if exchange is not None:
                exchange.sent.append(Sent(response, bool(flags)))
            _arrived.notify_all()


class Control:
    """Takes what a model reports beside its answers."""

    def __init__(self, name: str, verbose: bool) -> None:
        self.verbose = int(verbose)
        self.lines: list[LogLine] = []
        self.holder: Any = self
        self._log = logging.getLogger(f"devkit.model.{name}")

    def log(self, level: str, message: str, file: str, line: int) -> None:
        """Keep a line, and show it as Python's logging is set up to."""
        self.lines.append(LogLine(level, message, file, line))
        number = _LEVELS[level]
        if self._log.isEnabledFor(number):
            made = self._log.makeRecord(self._log.name, number, file, line, message, (), None)
            self._log.handle(made)

    def warn(self, rule: str, message: str, line: str) -> None:
        """A contract warning of the stub's own checks."""
        findings.warn(rule, message, line)

    def send(self, message: dict[str, Any]) -> None:
        """A change of a metric."""
        METRICS.handle(self.holder, message)

    post = send

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the runtime would reply."""
        return METRICS.handle(self.holder, {**message, "call": 1}) or {}


class Host(Link):
    """What one model of this process finds as its link to the runtime."""

    def __init__(
        self,
        control: Control,
        bls: LocalClient,
        args: dict[str, str],
        version_dir: str,
        decoupled: bool,
    ) -> None:
        super().__init__(
            cast(Any, Outbox()), cast(Any, control), cast(Any, bls), args, version_dir, decoupled
        )
        self.cancelled = requests.cancelled
        self.failures: list[BaseException] = []

    def failed(self, problem: BaseException) -> None:
        """Something of the model's ended with an exception where nobody was waiting for it."""
        with _arrived:
            self.failures.append(problem)
            _arrived.notify_all()


chain: ContextVar[tuple[Host, ...]] = ContextVar("chain", default=())
"""The models whose `execute` this context is in, the outermost first."""

_hosts: list[Host] = []
_last: Host | None = None


class _Present(Link):
    """Stands for the host of the model that is running, whichever that is.

    A thread that a model started itself has no context: it belongs to the model asked last.
    """

    def __init__(self) -> None:
        pass  # everything is somebody else's

    def __getattr__(self, name: str) -> Any:
        running = chain.get()
        host = running[-1] if running else _last or _hosts[-1]
        if name == "decoupled" and not running:
            return any(each.host.decoupled for each in _open.values()) or host.decoupled
        return getattr(host, name)


_present = _Present()


def attach(host: Host) -> None:
    """Make a model's host known. Raises DevkitError inside a server."""
    if link.current not in (None, _present):
        raise DevkitError(
            "devkit.testing runs models in a test's process, and this is a served model's own",
            remedy="ask another model with pb_utils.InferenceRequest(...).exec()",
        )
    _hosts.append(host)
    link.current = _present


def detach(host: Host) -> None:
    """Forget a model's host; outside any, `pb_utils` has no server again."""
    global _last
    if host in _hosts:
        _hosts.remove(host)
    if _last is host:
        _last = None
    METRICS.ended(host.control.holder)  # type: ignore[attr-defined]
    if not _hosts:
        link.current = None


@contextmanager
def running(host: Host) -> Iterator[None]:
    """Whatever is called inside finds `host` as its link."""
    global _last
    if not chain.get():
        _last = host
    token = chain.set((*chain.get(), host))
    try:
        yield
    finally:
        chain.reset(token)


@contextmanager
def exchanges(host: Host, asked: list[InferenceRequest]) -> Iterator[list[Exchange]]:
    """Open an exchange for each request, for as long as the block lasts."""
    made = [Exchange(one, host) for one in asked]
    with _arrived:
        _open.update((each.request._sequence, each) for each in made)
    try:
        yield made
    finally:
        with _arrived:
            for each in made:
                _open.pop(each.request._sequence, None)


def wait(host: Host, awaited: list[Exchange], seconds: float) -> bool:
    """Wait until each has its last response, or the model failed; False when the time is up."""
    with _arrived:
        return _arrived.wait_for(
            lambda: bool(host.failures) or all(each.final for each in awaited), seconds
        )
