"""Control calls about numbers over time: `/history`, and what a model or instance has done.

The numbers are `observe.history`'s and the core's counters; here they become messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from devkit.control import messages
from devkit.control.watch import Watch, count_of
from devkit.observe.history import POINTS, STEP, UNITS

Call = tuple[str, str, Callable[[Request], Awaitable[Response]]]
"""Method, path and endpoint."""


def routes(watch: Watch) -> list[Call]:
    """The calls of this module."""

    async def history(request: Request) -> Response:
        query = request.query_params
        seconds = count_of(query, "seconds", int(POINTS * STEP))
        return reply(told(watch, query.get("model", ""), seconds))

    return [("GET", "/history", history)]


def told(watch: Watch, model: str = "", seconds: float = POINTS * STEP) -> messages.History:
    """The history as a message."""
    lines = watch.history.lines(model, seconds)
    return messages.History(
        watch.history.end,
        STEP,
        tuple(
            messages.Series(
                key[3], UNITS[key[3]], *key[:3],
                values=tuple(None if one is None else round(one, 3) for one in values),
            )
            for key, values in lines.items()
        ),
    )  # fmt: skip


def reply(message: Any) -> Response:
    """A message, or several, as the answer."""
    return Response(messages.to_json(message), media_type="application/json")
