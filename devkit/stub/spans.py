"""What `devkit.span` marks in a model, while requests are traced: kept here, sent before an answer.

Any thread and any coroutine may mark. Where no traced request is open, `devkit.span` costs one
look. A span belongs to the request that a coroutine works for, else to every traced request that is
open: to those of the batch, in a model that answers from `execute`.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Set, Tuple

from devkit.stub import bls
from devkit.transport import messages

if TYPE_CHECKING:
    from devkit.stub.outbox import Outbox
    from devkit.stub.requests import InferenceRequest

MOST = 10_000
"""Spans kept between two answers; more are dropped."""

_LONGEST = 200  # characters of an attribute

Row = Tuple[Tuple[int, ...], str, int, int, int, Dict[str, Any]]


class _Nothing:
    """What `span` gives while nobody wants to know."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _Nothing()


class _Span:
    """A part of the model's work, from `with` to its end."""

    __slots__ = ("_attributes", "_name", "_recorder", "_start")

    def __init__(self, recorder: Recorder, name: str, attributes: Dict[str, Any]) -> None:
        self._recorder = recorder
        self._name = name
        self._attributes = attributes
        self._start = 0

    def __enter__(self) -> None:
        self._start = time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        self._recorder.add(self._name, self._start, time.monotonic_ns(), self._attributes)


class Recorder:
    """The spans of one model instance.

    Attributes:
        open: numbers of the traced requests that have not been answered.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.open: Set[int] = set()
        self._outbox = outbox
        self._lock = threading.Lock()
        self._rows: List[Row] = []

    def install(self) -> None:
        """Make `devkit.span` record here."""
        # Not by an import: the package's other names reach far beyond this process.
        sys.modules["devkit"]._open_span = self.span  # type: ignore[attr-defined]

    def span(self, name: str, attributes: Dict[str, Any]) -> Any:
        """What `devkit.span(name, **attributes)` gives in this process."""
        if not self.open:
            return _NOTHING
        return _Span(self, str(name), attributes)

    def add(self, name: str, start: int, end: int, attributes: Dict[str, Any]) -> None:
        """Keep a span that has ended."""
        thread = threading.get_native_id()
        plain = {key: _plain(value) for key, value in attributes.items()}
        mine = bls.parent.get()
        with self._lock:
            sequences = (mine,) if mine in self.open else tuple(self.open)
            if sequences and len(self._rows) < MOST:
                self._rows.append((sequences, name, start, end, thread, plain))

    def begin(self, sequences: Iterable[int]) -> None:
        """`execute` gets these traced requests now."""
        with self._lock:
            self.open.update(sequences)

    def executed(self, requests: Iterable[InferenceRequest]) -> None:
        """`execute` has returned; its answers are about to be sent."""
        ended = [one._sequence for one in requests if one._sender is None or one._sender.closed]
        self._close(ended)

    def answered(self, sequence: int) -> None:
        """The last answer to a request is about to be sent."""
        self._close((sequence,))

    def _close(self, sequences: Iterable[int]) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
            self.open.difference_update(sequences)
            if rows:
                self._outbox.keep(messages.json_frame(messages.SPANS, rows))


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return str(value)[:_LONGEST]
