"""One debugger on one process: attach in the right order, know what stands, ask about it, leave.

Everything debugpy wants done just so is here. Paths are those of the running process; whose process
it is, and who looks on, is its owner's business.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from devkit.control.messages import (
    Completion,
    DebugThread,
    Frame,
    Scope,
    TensorSummary,
    Variable,
    from_plain,
)
from devkit.debug.dap import Body, Dap, answer
from devkit.errors import DebugError

ATTACH_SECONDS = 20.0
_STEPS = {"next": "next", "step_in": "stepIn", "step_out": "stepOut"}
_ARRAYS = ("Tensor", "ndarray", "Array", "ArrayImpl", "memmap", "Parameter")
_PRESENTATION = {"all": "hide", "special": "hide", "function": "hide", "class": "hide",
                 "protected": "inline"}  # fmt: skip
_NO_SUCH_VARIABLE = "there is nothing by that name here, or it cannot be set"


@dataclass(frozen=True, slots=True)
class Point:
    """A place to stop, in the running process's own terms."""

    line: int
    condition: str = ""
    hits: str = ""
    log: str = ""

    def plain(self) -> Body:
        """As DAP has it."""
        body: Body = {"line": self.line}
        if self.condition:
            body["condition"] = self.condition
        if self.hits:
            body["hitCondition"] = self.hits
        if self.log:
            body["logMessage"] = self.log
        return body


@dataclass(frozen=True, slots=True)
class Taken:
    """What the debugger made of a `Point`."""

    verified: bool
    line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Where and why a thread stands."""

    thread: int
    reason: str
    text: str = ""


class Session:
    """A debugger that is attached, or on its way there.

    Attributes:
        stop: the stop that is looked at, None while everything runs.
        on_stop: called with each `Stop`; `on_resume` when it runs again, whoever made it.
        on_output: called with (category, text) of what a log point or the process says.
        on_end: called when the debugger has gone, asked or not.
        on_event: called with every DAP event, for faces that speak it themselves.
    """

    def __init__(
        self,
        on_stop: Callable[[Stop], None],
        on_resume: Callable[[], None],
        on_output: Callable[[str, str], None],
        on_end: Callable[[], None],
        on_event: Callable[[str, Body], None] = lambda name, body: None,
    ) -> None:
        self.stop: Stop | None = None
        self.capabilities: Body = {}
        self.on_stop = on_stop
        self.on_resume = on_resume
        self.on_output = on_output
        self.on_end = on_end
        self.on_event = on_event
        self._dap = Dap(self._on_event, self._ended)
        self._initialized = asyncio.Event()
        self._set: set[str] = set()
        self._expressions: dict[int, tuple[str, int]] = {}
        self._leaving = False

    # -- coming and going ------------------------------------------------------------------------

    async def attach(
        self,
        port: int,
        points: dict[str, list[Point]],
        *,
        raised: bool = False,
        uncaught: bool = False,
        foreign: Sequence[str] = (),
    ) -> dict[str, list[Taken]]:
        """Attach with these places to stop at; what the debugger made of them. Raises DebugError.

        `foreign` are path patterns of code that is not the user's: steps go over it.
        """
        await self._dap.connect("127.0.0.1", port)
        self.capabilities = await self._dap.request(
            "initialize",
            {
                "clientID": "devkit", "adapterID": "debugpy", "pathFormat": "path",
                "linesStartAt1": True, "columnsStartAt1": True, "supportsVariableType": True,
                "supportsVariablePaging": True, "supportsRunInTerminalRequest": False,
            },
        )  # fmt: skip
        rules = [{"path": pattern, "include": False} for pattern in foreign]
        # Its answer comes last of all, after `configurationDone`.
        attached = self._dap.post(
            "attach",
            {"justMyCode": True, "subProcess": False, "redirectOutput": False, "rules": rules,
             "showReturnValue": True, "variablePresentation": _PRESENTATION},
        )  # fmt: skip
        await asyncio.wait_for(self._initialized.wait(), ATTACH_SECONDS)
        taken = {path: await self.set_points(path, some) for path, some in points.items()}
        await self.stop_at(raised=raised, uncaught=uncaught)
        await self._dap.request("configurationDone")
        await answer(attached, "attach", ATTACH_SECONDS)
        return taken

    async def leave(self) -> None:
        """Take everything back, let it run, and go. On Python 3.12 and later it stays slow if the
        debugger goes in another order."""
        self._leaving = True
        with contextlib.suppress(DebugError):
            for path in list(self._set):
                await self.set_points(path, [])
            await self.stop_at(raised=False, uncaught=False)
            if self.stop is not None:
                await self.resume()
            await self._dap.request("disconnect", {"terminateDebuggee": False})
        await self._dap.close()

    @property
    def attached(self) -> bool:
        """Whether the debugger is there."""
        return self._dap.connected

    # -- places to stop at -----------------------------------------------------------------------

    async def set_points(self, path: str, points: Sequence[Point]) -> list[Taken]:
        """Make these the places of a file."""
        if points:
            self._set.add(path)
        else:
            self._set.discard(path)
        body = await self._dap.request(
            "setBreakpoints",
            {"source": {"path": path}, "breakpoints": [point.plain() for point in points]},
        )
        return [
            Taken(bool(row.get("verified")), row.get("line") or 0, row.get("message") or "")
            for row in body.get("breakpoints", ())
        ]

    async def stop_at(self, *, raised: bool, uncaught: bool) -> None:
        """Choose the exceptions. What a model does not catch is caught below it, in the process
        that runs it; so its uncaught ones are those that leave the user's own code."""
        filters = ["raised"] if raised else []
        if uncaught:
            filters += ["uncaught", "userUnhandled"]
        await self._dap.request("setExceptionBreakpoints", {"filters": filters})

    # -- going on --------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Let it run. Raises DebugError where nothing stands: debugpy would never answer."""
        await self._go("continue", {})

    async def step(self, how: str, thread: int = 0) -> None:
        """`next`, `step_in` or `step_out`."""
        await self._go(_STEPS[how], {"granularity": "line"}, thread)

    async def _go(self, command: str, arguments: Body, thread: int = 0) -> None:
        stop = self._standing()
        number = thread or stop.thread
        # Before it is asked: the next stop may come before the answer.
        self._away()
        try:
            await self._dap.request(command, {"threadId": number, **arguments})
        except DebugError:
            if self.stop is None and self.attached:
                self.stop = stop
                self.on_stop(stop)
            raise

    def _away(self) -> None:
        self.stop = None
        self._expressions.clear()
        self.on_resume()

    async def pause(self, thread: int = 0) -> None:
        """Stop as soon as a line of Python runs."""
        if self.stop is None:
            await self._dap.request("pause", {"threadId": thread or 1})

    async def goto(self, line: int) -> None:
        """Go on from another line of the function it stands in."""
        stop = self._standing()
        frames = await self.stack(stop.thread, levels=1)
        if not frames:
            raise DebugError("it stands in no line of Python")
        body = await self._dap.request(
            "gotoTargets", {"source": {"path": frames[0].path}, "line": line}
        )
        targets = body.get("targets") or []
        if not targets:
            raise DebugError(f"the debugger cannot go to line {line}")
        self._away()
        await self._dap.request("goto", {"threadId": stop.thread, "targetId": targets[0]["id"]})

    def _standing(self) -> Stop:
        if self.stop is None:
            raise DebugError("nothing is stopped", remedy="wait for a breakpoint, or pause it")
        return self.stop

    # -- looking ---------------------------------------------------------------------------------

    async def threads(self) -> list[DebugThread]:
        """The threads of the process."""
        body = await self._dap.request("threads")
        stopped = self.stop is not None
        return [
            DebugThread(row["id"], row.get("name", ""), stopped) for row in body.get("threads", ())
        ]

    async def stack(self, thread: int = 0, start: int = 0, levels: int = 0) -> list[Frame]:
        """The frames of a stopped thread, the innermost first."""
        stop = self._standing()
        body = await self._dap.request(
            "stackTrace",
            {"threadId": thread or stop.thread, "startFrame": start, "levels": levels},
        )
        return [_frame(row) for row in body.get("stackFrames", ())]

    async def scopes(self, frame: int) -> list[Scope]:
        """The groups of variables of a frame."""
        self._standing()
        body = await self._dap.request("scopes", {"frameId": frame})
        return [
            Scope(row["name"], row["variablesReference"], bool(row.get("expensive")))
            for row in body.get("scopes", ())
        ]

    async def variables(
        self, reference: int, start: int = 0, count: int = 0, frame: int = 0
    ) -> list[Variable]:
        """What is inside a scope or a value; tensors say what they are where `frame` is given."""
        self._standing()
        known = self._expressions.get(reference)
        if count and known is not None:
            return await self._page(*known, start, count)
        body = await self._dap.request("variables", {"variablesReference": reference})
        found = [_variable(row) for row in body.get("variables", ())]
        self._remember(found, frame)
        if frame and any(_is_array(each) for each in found):
            summaries = await self._summaries(
                {each.expression: each.expression for each in found if _is_array(each)}, frame
            )
            found = [_with(each, summaries.get(each.expression)) for each in found]
        return found

    def _remember(self, found: Sequence[Variable], frame: int) -> None:
        for each in found:
            if each.reference and each.expression:
                self._expressions[each.reference] = (each.expression, frame)

    async def _page(self, expression: str, frame: int, start: int, count: int) -> list[Variable]:
        """Some of the elements of a value; debugpy itself shows the first hundred alone."""
        part = f"list(__import__('itertools').islice({expression}, {start}, {start + count}))"
        page = await self.evaluate(part, frame, "clipboard")
        if not page.reference:
            raise DebugError(page.value)
        body = await self._dap.request("variables", {"variablesReference": page.reference})
        rows = [_variable(row) for row in body.get("variables", ())]
        rows = [row for row in rows if row.name.isdigit()]
        found = [
            dataclasses.replace(row, name=str(start + number), expression="")
            for number, row in enumerate(rows)
        ]
        self._remember(found, frame)
        return found

    async def _summaries(self, expressions: dict[str, str], frame: int) -> dict[str, Any]:
        names = ", ".join(f"{name!r}: {text}" for name, text in expressions.items() if name)
        value = await self.ask_helper(f"described({{{names}}})", frame)
        return value if isinstance(value, dict) else {}

    async def ask_helper(self, call: str, frame: int) -> Any:
        """What a function of the stub's `inspecting` answers in a frame; None where it fails."""
        text = f"__import__('devkit.stub.inspecting', fromlist=['_']).{call}"
        try:
            body = await self._dap.request(
                "evaluate", {"expression": text, "frameId": frame, "context": "clipboard"}
            )
            shown = str(body.get("result", ""))
            return json.loads(_unquoted(shown))
        except (DebugError, ValueError, SyntaxError):
            return None

    async def evaluate(self, expression: str, frame: int = 0, context: str = "repl") -> Variable:
        """The value of an expression; statements run in the `repl` context."""
        frame = frame or await self._top()
        body = await self._dap.request(
            "evaluate", {"expression": expression, "frameId": frame, "context": context}
        )
        found = _variable({"name": expression, "value": body.get("result", ""), **body,
                           "evaluateName": expression})  # fmt: skip
        self._remember([found], frame)
        if _is_array(found):
            found = _with(found, (await self._summaries({"_": expression}, frame)).get("_"))
        return found

    async def set_variable(self, reference: int, name: str, value: str) -> Variable:
        """Give a variable another value."""
        self._standing()
        body = await self._dap.request(
            "setVariable", {"variablesReference": reference, "name": name, "value": value}
        )
        if "value" not in body:
            raise DebugError(_NO_SUCH_VARIABLE)
        return _variable({"name": name, **body})

    async def complete(self, text: str, column: int, frame: int = 0) -> list[Completion]:
        """Ways to go on with `text`."""
        frame = frame or await self._top()
        body = await self._dap.request(
            "completions", {"text": text, "column": column, "frameId": frame}
        )
        return [
            Completion(
                row["label"], row.get("text") or row["label"], int(row.get("start") or 0),
                int(row.get("length") or 0), str(row.get("type") or ""),
            )
            for row in body.get("targets", ())
        ]  # fmt: skip

    async def exception(self, thread: int = 0) -> str:
        """The exception it stands at, with its traceback."""
        stop = self._standing()
        body = await self._dap.request("exceptionInfo", {"threadId": thread or stop.thread})
        details = body.get("details") or {}
        head = f"{body.get('exceptionId', '')}: {body.get('description') or ''}"
        trace = str(details.get("stackTrace") or "")
        return f"{trace.rstrip()}\n{head}".lstrip() if trace else head

    async def ask(self, command: str, arguments: Body) -> Body:
        """A request of the protocol itself, as an editor makes it."""
        return await self._dap.request(command, arguments)

    async def _top(self) -> int:
        frames = await self.stack(levels=1)
        return frames[0].id if frames else 0

    # -- what comes ------------------------------------------------------------------------------

    def _on_event(self, name: str, body: Body) -> None:
        if name == "initialized":
            self._initialized.set()
        elif name == "stopped":
            texts = [str(body[key]) for key in ("text", "description") if body.get(key)]
            # Of an exception the one is its type, and the other what it says.
            text = ": ".join(texts if body.get("reason") == "exception" else texts[:1])
            self.stop = Stop(int(body.get("threadId") or 0), str(body.get("reason") or ""), text)
            self.on_stop(self.stop)
        elif name == "continued":
            if self.stop is not None:
                self.stop = None
                self.on_resume()
        elif name == "output" and body.get("category") in ("stdout", "stderr", "console", None):
            self.on_output(str(body.get("category") or "console"), str(body.get("output") or ""))
        self.on_event(name, body)

    def _ended(self) -> None:
        self._initialized.set()
        if self.stop is not None:
            self.stop = None
            self.on_resume()
        self.on_end()


def _frame(row: Body) -> Frame:
    source = row.get("source") or {}
    own = row.get("presentationHint") != "subtle"
    return Frame(
        row["id"], row.get("name", ""), source.get("path") or source.get("name") or "",
        row.get("line") or 0, row.get("column") or 0, own,
    )  # fmt: skip


def _variable(row: Body) -> Variable:
    return Variable(
        str(row.get("name", "")), str(row.get("value", "")), str(row.get("type") or ""),
        int(row.get("variablesReference") or 0), int(row.get("namedVariables") or 0),
        int(row.get("indexedVariables") or 0), str(row.get("evaluateName") or ""),
    )  # fmt: skip


def _is_array(variable: Variable) -> bool:
    return variable.type.rpartition(".")[2] in _ARRAYS and bool(variable.expression)


def _with(variable: Variable, about: Any) -> Variable:
    if not isinstance(about, dict):
        return variable
    return dataclasses.replace(variable, tensor=from_plain(TensorSummary, about))


def _unquoted(shown: str) -> str:
    """The text whose repr the debugger shows."""
    if shown[:1] in ("'", '"'):
        return str(ast.literal_eval(shown))
    return shown
