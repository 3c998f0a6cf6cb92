"""What a face may ask of the debuggers: the endpoints under `/v1/debug`.

Calls are translated here, answered by `control.debugger`. What happens meanwhile comes as events of
kind `debug` on the one WebSocket, or by waiting for a session's next turn.
"""

from __future__ import annotations

import dataclasses

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from devkit.control import messages
from devkit.control.calls import Row, asked, number, reply
from devkit.control.debugger import Debuggee, Debuggers
from devkit.core.steering import TAKES
from devkit.errors import DebugError

LONGEST_WAIT = 60.0
_KEPT = ("disconnect", "terminate", "attach", "launch", "initialize", "configurationDone")
"""Requests of the protocol that would take the debugger from the other faces."""


def routes(debuggers: Debuggers) -> list[Row]:
    """The endpoints of this topic."""
    return DebugEndpoints(debuggers).rows()


class DebugEndpoints:
    """The endpoints of one runtime's debuggers."""

    def __init__(self, debuggers: Debuggers) -> None:
        self._debuggers = debuggers

    def rows(self) -> list[Row]:
        """Every endpoint."""
        session = "/debug/sessions/{id:int}"
        return [
            ("GET", "/debug/sessions", self._sessions),
            ("POST", "/debug/sessions", self._attach),
            ("GET", session, self._session),
            ("DELETE", session, self._detach),
            ("POST", f"{session}/take", self._take),
            ("POST", f"{session}/move", self._move),
            ("GET", f"{session}/threads", self._threads),
            ("GET", f"{session}/stack", self._stack),
            ("GET", f"{session}/scopes", self._scopes),
            ("GET", f"{session}/variables", self._variables),
            ("POST", f"{session}/variables", self._set),
            ("POST", f"{session}/evaluate", self._evaluate),
            ("POST", f"{session}/tensor", self._tensor),
            ("POST", f"{session}/complete", self._complete),
            ("GET", f"{session}/exception", self._exception),
            ("POST", f"{session}/dap", self._ask),
            ("GET", "/debug/breakpoints", self._breakpoints),
            ("POST", "/debug/breakpoints", self._put_breakpoint),
            ("PUT", "/debug/breakpoints", self._put_file),
            ("DELETE", "/debug/breakpoints", self._clear),
            ("DELETE", "/debug/breakpoints/{id:int}", self._remove_breakpoint),
            ("PUT", "/debug/exceptions", self._exceptions),
        ]

    # -- sessions --------------------------------------------------------------------------------

    async def _sessions(self, request: Request) -> Response:
        return reply([each.now() for each in self._debuggers.sessions.values()])

    async def _attach(self, request: Request) -> Response:
        session = await self._debuggers.attach(await asked(request, messages.Attach))
        return reply(session.now())

    async def _session(self, request: Request) -> Response:
        session = self._of(request)
        turn = request.query_params.get("turn")
        if turn is None:
            return reply(session.now())
        seconds = min(float(request.query_params.get("seconds", LONGEST_WAIT)), LONGEST_WAIT)
        return reply(await session.wait(int(turn), seconds))

    async def _detach(self, request: Request) -> Response:
        session = self._of(request)
        await self._debuggers.end(session)
        return reply(session.now())

    async def _take(self, request: Request) -> Response:
        session = self._of(request)
        take = (await asked(request, messages.Take)).take
        if take not in TAKES:
            raise DebugError(f"'{take}' is none of {', '.join(TAKES)}")
        if session.target is not None:
            session.target.take = take
        session.show("take", take=take)
        return reply(session.now())

    async def _move(self, request: Request) -> Response:
        session = self._of(request)
        what = await asked(request, messages.Move)
        standing = session.standing()
        if what.how == "continue":
            await standing.resume()
        elif what.how in ("next", "step_in", "step_out"):
            if what.into:
                await self._step_into_model(what.into)
                await standing.step("next", what.thread)
            else:
                await standing.step(what.how, what.thread)
        elif what.how == "pause":
            await standing.pause(what.thread)
        elif what.how == "goto":
            await standing.goto(what.line)
        else:
            raise DebugError(f"a debugger cannot '{what.how}'")
        return reply(session.now())

    async def _step_into_model(self, model: str) -> None:
        """Stop in the `execute` of a model that is about to be called."""
        await self._debuggers.attach(messages.Attach(model, take="marked"))
        if not self._debuggers.store.of_model(model):
            await self._debuggers.put(messages.Breakpoint(model=model))

    # -- looking ---------------------------------------------------------------------------------

    async def _threads(self, request: Request) -> Response:
        return reply(await self._of(request).standing().threads())

    async def _stack(self, request: Request) -> Response:
        session = self._of(request)
        frames = await session.standing().stack(
            number(request, "thread"), number(request, "start"), number(request, "levels")
        )
        to_user = session.sources.to_user
        shown = [dataclasses.replace(each, path=to_user(each.path)) for each in frames]
        folder = "" if session.instance is None else str(session.instance.model.model_dir)
        return reply([dataclasses.replace(each, own=_is_own(each, folder)) for each in shown])

    async def _scopes(self, request: Request) -> Response:
        frame = number(request, "frame")
        return reply(await self._of(request).standing().scopes(frame))

    async def _variables(self, request: Request) -> Response:
        found = await self._of(request).standing().variables(
            number(request, "reference"), number(request, "start"), number(request, "count"),
            number(request, "frame"),
        )  # fmt: skip
        return reply(found)

    async def _set(self, request: Request) -> Response:
        what = await asked(request, messages.SetVariable)
        standing = self._of(request).standing()
        return reply(await standing.set_variable(what.reference, what.name, what.value))

    async def _evaluate(self, request: Request) -> Response:
        what = await asked(request, messages.Evaluate)
        standing = self._of(request).standing()
        return reply(await standing.evaluate(what.expression, what.frame, what.context))

    async def _tensor(self, request: Request) -> Response:
        """A part of a tensor's elements; `expression` says which tensor."""
        what = await asked(request, messages.Evaluate)
        call = f"part({what.expression}, {number(request, 'start')}, {number(request, 'count')})"
        found = await self._of(request).standing().ask_helper(call, what.frame)
        if found is None:
            raise DebugError(f"'{what.expression}' is no tensor whose elements can be read")
        return JSONResponse(found)

    async def _complete(self, request: Request) -> Response:
        what = await asked(request, messages.Complete)
        standing = self._of(request).standing()
        return reply(await standing.complete(what.text, what.column, what.frame))

    async def _exception(self, request: Request) -> Response:
        text = await self._of(request).standing().exception()
        return JSONResponse({"text": text})

    async def _ask(self, request: Request) -> Response:
        what = await asked(request, messages.AskDebugger)
        if what.command in _KEPT:
            raise DebugError(f"'{what.command}' is the runtime's own: other faces look on, too")
        return JSONResponse(await self._of(request).standing().ask(what.command, what.arguments))

    # -- breakpoints -----------------------------------------------------------------------------

    async def _breakpoints(self, request: Request) -> Response:
        return reply(self._debuggers.store.all())

    async def _put_breakpoint(self, request: Request) -> Response:
        return reply(await self._debuggers.put(await asked(request, messages.Breakpoint)))

    async def _put_file(self, request: Request) -> Response:
        what = await asked(request, messages.Breakpoints)
        path = request.query_params.get("path", "")
        return reply(await self._debuggers.replace_file(path, what.breakpoints))

    async def _remove_breakpoint(self, request: Request) -> Response:
        await self._debuggers.remove(request.path_params["id"])
        return JSONResponse({})

    async def _clear(self, request: Request) -> Response:
        await self._debuggers.clear()
        return JSONResponse({})

    async def _exceptions(self, request: Request) -> Response:
        what = await asked(request, messages.Breakpoints)
        await self._debuggers.stop_at(what.raised, what.uncaught)
        return reply(self._debuggers.store.all())

    def _of(self, request: Request) -> Debuggee:
        return self._debuggers.get(request.path_params["id"])


def _is_own(frame: messages.Frame, folder: str) -> bool:
    return bool(folder) and frame.path.startswith(folder)
