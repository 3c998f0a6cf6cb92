"""The debugger, as the client of a runtime has it: one method a call, one object a session."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from devkit.control import messages
from devkit.errors import DebugError

Message = TypeVar("Message")


class DebugCalls:
    """Mixed into `Client`, which brings `_call`: breakpoints and debug sessions."""

    if TYPE_CHECKING:

        def _call(
            self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
        ) -> Any: ...

    def debug(
        self,
        name: str,
        *,
        version: str = "",
        instance: str = "",
        take: str = "next",
        spare: bool = True,
        fresh: bool = False,
    ) -> Debugging:
        """Attach a debugger to an instance of a model; the others go on serving.

        The next request that stops somewhere stops there (`take="next"`), or only requests marked
        for the debugger do ("marked"), or "every" one. Where the instance is the only one, a
        second is started meanwhile. Raises DebugError.
        """
        asked = messages.Attach(name, version, instance, take, spare, fresh)
        told = self._call("POST", "/debug/sessions", asked)
        return Debugging(self, _read(messages.DebugSession, told))

    def debug_sessions(self) -> list[Debugging]:
        """The debuggers that are attached now."""
        rows = self._call("GET", "/debug/sessions")
        return [Debugging(self, _read(messages.DebugSession, row)) for row in rows]

    def breakpoints(self) -> messages.Breakpoints:
        """All breakpoints, and the exceptions to stop at."""
        return _read(messages.Breakpoints, self._call("GET", "/debug/breakpoints"))

    def set_breakpoint(
        self,
        path: str = "",
        line: int = 0,
        *,
        model: str = "",
        condition: str = "",
        hits: str = "",
        log: str = "",
        enabled: bool = True,
        id: int = 0,
    ) -> messages.Breakpoint:
        """Stop at a line of a file, or (`model`) at the beginning of a model's `execute`."""
        asked = messages.Breakpoint(id, path, line, model, condition, hits, log, enabled)
        return _read(messages.Breakpoint, self._call("POST", "/debug/breakpoints", asked))

    def set_breakpoints(
        self, path: str, breakpoints: Sequence[messages.Breakpoint]
    ) -> list[messages.Breakpoint]:
        """Make these the breakpoints of a file."""
        asked = messages.Breakpoints(tuple(breakpoints))
        rows = self._call("PUT", "/debug/breakpoints", asked, {"path": path})
        return [_read(messages.Breakpoint, row) for row in rows]

    def remove_breakpoint(self, number: int) -> None:
        """Take one breakpoint away."""
        self._call("DELETE", f"/debug/breakpoints/{number}")

    def clear_breakpoints(self) -> None:
        """Take all breakpoints away."""
        self._call("DELETE", "/debug/breakpoints")

    def stop_at_exceptions(
        self, *, raised: bool = False, uncaught: bool = False
    ) -> messages.Breakpoints:
        """Stop where an exception is raised, or where one leaves the model's own code."""
        asked = messages.Breakpoints(raised=raised, uncaught=uncaught)
        return _read(messages.Breakpoints, self._call("PUT", "/debug/exceptions", asked))


class Debugging:
    """One debug session, as a face has it; other faces may have it, too.

    Attributes:
        told: what was last heard of it.
    """

    def __init__(self, client: DebugCalls, told: messages.DebugSession) -> None:
        self.told = told
        self._client = client

    def __enter__(self) -> Debugging:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    @property
    def id(self) -> int:
        """Number of the session."""
        return self.told.id

    def refresh(self) -> messages.DebugSession:
        """How it is now."""
        return self._heard(self._get(""))

    def wait(self, seconds: float = 60.0) -> messages.DebugSession:
        """How it is once something has changed, or when the time is over."""
        return self._heard(self._get("", turn=self.told.turn, seconds=seconds))

    def wait_stopped(self, seconds: float = 60.0) -> messages.DebugSession:
        """How it is once it stands. Raises DebugError where it does not in time, or has ended."""
        until = time.monotonic() + seconds
        told = self.refresh()
        while told.state != "stopped":
            left = until - time.monotonic()
            if told.state == "ended":
                raise DebugError(f"the debugger has ended: {told.reason}", model=told.model)
            if left <= 0:
                raise DebugError(
                    f"nothing has stopped within {seconds:g} s", model=told.model,
                    remedy="does a request come that way? `take` says which requests it gets",
                )  # fmt: skip
            told = self.wait(min(left, 30.0))
        return told

    def move(
        self, how: str, *, thread: int = 0, line: int = 0, into: str = ""
    ) -> messages.DebugSession:
        """Go on: `continue`, `next`, `step_in`, `step_out`, `pause`, `goto`."""
        return self._heard(self._post("/move", messages.Move(how, thread, line, into)))

    def resume(self) -> messages.DebugSession:
        """Let it run."""
        return self.move("continue")

    def step(self, how: str = "next", *, into: str = "") -> messages.DebugSession:
        """Take a step, and wait until it has been taken (or the request has been answered)."""
        turn = self.refresh().turn
        self.move(how, into=into)
        told = self.told
        until = time.monotonic() + 10.0
        while told.state != "stopped" or told.turn <= turn:
            if told.state == "ended" or time.monotonic() > until:
                break
            if told.state == "running" and not told.requests:
                break  # the answer is out
            told = self.wait(max(until - time.monotonic(), 0.01))
        return told

    def take(self, which: str) -> messages.DebugSession:
        """Choose which requests the instance gets: `marked`, `next` or `every`."""
        return self._heard(self._post("/take", messages.Take(which)))

    def detach(self) -> None:
        """End the session for every face; the instance serves as before."""
        try:
            self._heard(self._client._call("DELETE", f"/debug/sessions/{self.id}"))
        except DebugError:
            return  # it has ended already

    # -- looking ---------------------------------------------------------------------------------

    def threads(self) -> list[messages.DebugThread]:
        """The threads of the process."""
        return [_read(messages.DebugThread, row) for row in self._get("/threads")]

    def stack(self, thread: int = 0, levels: int = 0) -> list[messages.Frame]:
        """The frames of the stopped thread, the innermost first."""
        rows = self._get("/stack", thread=thread, levels=levels)
        return [_read(messages.Frame, row) for row in rows]

    def scopes(self, frame: int) -> list[messages.Scope]:
        """The groups of variables of a frame."""
        return [_read(messages.Scope, row) for row in self._get("/scopes", frame=frame)]

    def variables(
        self, reference: int, *, start: int = 0, count: int = 0, frame: int = 0
    ) -> list[messages.Variable]:
        """What is inside a scope or a value."""
        rows = self._get("/variables", reference=reference, start=start, count=count, frame=frame)
        return [_read(messages.Variable, row) for row in rows]

    def locals(self, frame: int = 0) -> dict[str, messages.Variable]:
        """The local variables of a frame, of the innermost by default, by name."""
        number = frame or self.stack(levels=1)[0].id
        scope = self.scopes(number)[0]
        found = self.variables(scope.reference, frame=number)
        return {each.name: each for each in found}

    def evaluate(
        self, expression: str, *, frame: int = 0, context: str = "repl"
    ) -> messages.Variable:
        """The value of an expression there; a statement is run."""
        asked = messages.Evaluate(expression, frame, context)
        return _read(messages.Variable, self._post("/evaluate", asked))

    def set(self, name: str, value: str, *, frame: int = 0) -> messages.Variable:
        """Give a local variable another value, written as an expression."""
        number = frame or self.stack(levels=1)[0].id
        reference = self.scopes(number)[0].reference
        asked = messages.SetVariable(reference, name, value)
        return _read(messages.Variable, self._post("/variables", asked))

    def tensor(
        self, expression: str, *, start: int = 0, count: int = 1000, frame: int = 0
    ) -> tuple[messages.TensorSummary, npt.NDArray[Any]]:
        """What a tensor is, and some of its elements, flat."""
        number = frame or self.stack(levels=1)[0].id
        asked = messages.Evaluate(expression, number)
        path = f"/debug/sessions/{self.id}/tensor"
        found = self._client._call("POST", path, asked, {"start": start, "count": count})
        summary = _read(messages.TensorSummary, found)
        if "items" in found:
            return summary, np.asarray(found["items"], dtype=np.object_)
        kind = np.dtype(summary.dtype) if summary.dtype != "bfloat16" else np.dtype(np.uint16)
        return summary, np.frombuffer(base64.b64decode(found["data"]), kind)

    def complete(self, text: str, *, column: int = 0, frame: int = 0) -> list[messages.Completion]:
        """Ways to go on with what was typed."""
        asked = messages.Complete(text, column or len(text) + 1, frame)
        return [_read(messages.Completion, row) for row in self._post("/complete", asked)]

    def exception(self) -> str:
        """The exception it stands at."""
        return str(self._get("/exception")["text"])

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """A request of the Debug Adapter Protocol itself."""
        found: dict[str, Any] = self._post("/dap", messages.AskDebugger(command, arguments))
        return found

    def _get(self, path: str, **query: Any) -> Any:
        return self._client._call("GET", f"/debug/sessions/{self.id}{path}", None, query)

    def _post(self, path: str, asked: Any) -> Any:
        return self._client._call("POST", f"/debug/sessions/{self.id}{path}", asked)

    def _heard(self, value: Any) -> messages.DebugSession:
        self.told = _read(messages.DebugSession, value)
        return self.told


def _read(kind: type[Message], value: Any) -> Message:
    return messages.from_plain(kind, value)
