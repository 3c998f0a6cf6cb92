"""The client's calls about traces, and `Traces`: what they bring, ready to be shown or saved.

A part of `Client`, apart so that each can be read in one sitting.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.contract import trace_forms, trace_words, tracing
from devkit.contract.tracing import Span, Trace
from devkit.control import messages
from devkit.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = ("chrome", "triton", "otlp")
_WAIT = 5.0


class Traces:
    """Traced requests.

    Attributes:
        traces: one `Trace` for each request, and for each that it caused.
        runtime: pid of the runtime that took them.
        offset: what makes nanoseconds since 1970 of their times.
    """

    def __init__(self, traces: tuple[Trace, ...], runtime: int, offset: int) -> None:
        self.traces = tuple(sorted(traces, key=lambda one: one.id))
        self.runtime = runtime
        self.offset = offset

    def __len__(self) -> int:
        """How many requests of clients there are; those they caused are not counted."""
        return len(tracing.families(self.traces))

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.traces)

    def __repr__(self) -> str:
        return f"<{len(self)} traced requests, {len(self.spans)} spans>"

    @cached_property
    def spans(self) -> list[Span]:
        """Every span, ordered by start: requests and their phases, batches, the model's own."""
        return tracing.timeline(self.traces, self.runtime)

    def summary(self) -> str:
        """Where the time went, in words."""
        return trace_words.summary(self.traces)

    def text(self, format: str) -> str:
        """The content of a file in one of `FORMATS`."""
        if format == "chrome":
            return trace_forms.chrome(self.traces, self.runtime)
        if format == "triton":
            return trace_forms.triton(self.traces)
        if format == "otlp":
            return json.dumps(self.otlp())
        raise ControlError(f"'{format}' is no format of traces", remedy=f"one of {FORMATS}")

    def otlp(self) -> dict[str, Any]:
        """An OpenTelemetry export request, as JSON has it."""
        return trace_forms.otlp(self.traces, self.runtime, self.offset)

    def save(self, path: str | Path, format: str = "chrome") -> Path:
        """Write a file in one of `FORMATS`; where it is."""
        target = Path(path)
        target.write_text(self.text(format), encoding="utf-8")
        return target

    def to_chrome(self, path: str | Path) -> Path:
        """Write a file for Perfetto, speedscope and Chrome."""
        return self.save(path, "chrome")

    def to_triton(self, path: str | Path) -> Path:
        """Write a file for Triton's `trace_summary.py`."""
        return self.save(path, "triton")

    def to_otlp(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Send them to an OpenTelemetry collector: `http://localhost:4318`. ControlError."""
        import httpx

        target = url if url.rstrip("/").endswith("/v1/traces") else url.rstrip("/") + "/v1/traces"
        try:
            answer = httpx.post(target, json=self.otlp(), headers=dict(headers or {}), timeout=30.0)
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise ControlError(f"{target} does not take the traces: {problem}") from problem
        if answer.is_error:
            raise ControlError(
                f"{target} does not take the traces: {answer.status_code} {answer.text[:200]}"
            )


class TraceRun:
    """Traces under way; a `with` block around requests takes theirs.

    Attributes:
        result: the traces, once it was stopped.
    """

    def __init__(self, client: Tracing, session: messages.TraceSession) -> None:
        self._client = client
        self.session = session
        self.result: Traces | None = None

    def __enter__(self) -> TraceRun:
        return self

    def __exit__(self, *_: object) -> None:
        if self.result is None:
            self.stop()

    def wait(self, seconds: float) -> bool:
        """Wait until as many requests as were asked for are over; False if they are not in time."""
        self.session = self._client._trace_state(self.session.number, seconds)
        return not self.session.running

    def stop(self) -> Traces:
        """End it; the traces of the requests that are over."""
        if self.result is None:
            self.result = self._client._trace_stop(self.session.number)
        return self.result


class Tracing:
    """Mixed into `Client`, which brings `_call`."""

    if TYPE_CHECKING:

        def _call(
            self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
        ) -> Any: ...

    def start_trace(self, model: str = "", count: int = 0, *, tensors: bool = False) -> TraceRun:
        """Begin to trace the next `count` requests to `model`, or all until it is stopped."""
        asked = messages.StartTraces(model, count, tensors)
        answer = self._call("POST", "/traces", asked)
        return TraceRun(self, messages.from_plain(messages.TraceSession, answer))

    def trace(
        self,
        model: str = "",
        count: int = 20,
        *,
        timeout: float | None = None,
        tensors: bool = False,
        progress: Callable[[messages.TraceSession], None] | None = None,
    ) -> Traces:
        """Trace the next `count` requests to `model`, and wait for them.

        After `timeout` seconds or Ctrl-C, what came until then. `progress` is told how far it is.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self.start_trace(model, count, tensors=tensors) as run:
            try:
                while True:
                    left = _WAIT if until is None else min(_WAIT, until - time.monotonic())
                    if run.wait(max(left, 0.0)) or left <= 0:
                        break
                    if progress is not None:
                        progress(run.session)
            except KeyboardInterrupt:
                pass  # enough seen
            return run.stop()

    def trace_sessions(self) -> list[messages.TraceSession]:
        """The traces that are being taken now, without them."""
        rows = self._call("GET", "/traces")
        return [messages.from_plain(messages.TraceSession, row) for row in rows]

    def _trace_state(self, number: int, seconds: float) -> messages.TraceSession:
        answer = self._call("GET", f"/traces/{number}", query={"wait": seconds})
        return messages.from_plain(messages.TraceSession, answer)

    def _trace_stop(self, number: int) -> Traces:
        answer = self._call("DELETE", f"/traces/{number}")
        session = messages.from_plain(messages.TraceSession, answer)
        return Traces(session.traces, session.runtime, session.offset)
