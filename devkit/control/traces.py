"""Control calls about traces: `/traces` starts a session, `/traces/NUMBER` fetches and stops it.

Sessions are the tracer's (`observe.traces`); they leave the trace extension's settings alone.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request
from starlette.responses import Response

from devkit.control import messages
from devkit.control.gauges import Call, reply
from devkit.core.engine import Engine
from devkit.errors import ControlError
from devkit.observe.traces import Session, Tracer

LONGEST_WAIT = 30.0
"""Seconds that one call waits at most for a session's end."""


def routes(engine: Engine) -> list[Call]:
    """The calls of this module."""

    def tracer() -> Tracer:
        if engine.traces is None:
            raise ControlError("this runtime takes no traces")
        found: Tracer = engine.traces
        return found

    async def start(request: Request) -> Response:
        try:
            asked = messages.from_json(messages.StartTraces, await request.body() or b"{}")
        except ValueError as problem:
            raise ControlError(f"the call cannot be understood: {problem}") from problem
        session = tracer().start(asked.model, asked.count, tensors=asked.tensors)
        return reply(_shown(tracer(), session))

    async def sessions(request: Request) -> Response:
        return reply([_shown(tracer(), one) for one in tracer().sessions()])

    async def wait(request: Request) -> Response:
        """How far a session is, after `wait` seconds or when it has ended."""
        session = tracer().session(_number(request))
        try:
            seconds = min(float(request.query_params.get("wait", "0")), LONGEST_WAIT)
        except ValueError:
            raise ControlError("'wait' is not a number") from None
        if seconds > 0 and session.running:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(session.ended.wait(), seconds)
        return reply(_shown(tracer(), session))

    async def stop(request: Request) -> Response:
        session = tracer().stop(_number(request))
        shown = _shown(tracer(), session, traces=True)
        text = await asyncio.to_thread(messages.to_json, shown)
        return Response(text, media_type="application/json")

    return [
        ("POST", "/traces", start),
        ("GET", "/traces", sessions),
        ("GET", "/traces/{number}", wait),
        ("DELETE", "/traces/{number}", stop),
    ]


def _number(request: Request) -> int:
    text = request.path_params["number"]
    try:
        return int(text)
    except ValueError:
        raise ControlError(f"'{text}' is not a trace session") from None


def _shown(tracer: Tracer, session: Session, *, traces: bool = False) -> messages.TraceSession:
    return messages.TraceSession(
        session.number, session.model, session.count, session.running, session.begun,
        session.collected, tracer.pid, tracer.offset, tuple(session.traces) if traces else (),
    )  # fmt: skip
