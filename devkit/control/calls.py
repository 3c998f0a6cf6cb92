"""What the endpoints of every topic share: reading a call, writing an answer. Knows no topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from devkit.control import messages
from devkit.errors import ControlError

Asked = TypeVar("Asked")
Endpoint = Callable[[Request], Awaitable[Response]]
Row = tuple[str, str, Endpoint]
"""(method, path below the version, endpoint)"""


def reply(message: Any) -> Response:
    """A message as an answer."""
    return Response(messages.to_json(message), media_type="application/json")


async def asked(request: Request, kind: type[Asked]) -> Asked:
    """The message in the body; ControlError where it is none of that kind."""
    body = await request.body()
    try:
        return messages.from_json(kind, body or b"{}")
    except ValueError as problem:
        raise ControlError(f"the call cannot be understood: {problem}") from problem


def number(request: Request, name: str, default: int = 0) -> int:
    """A whole number of the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ControlError(f"{name}={text} is not a number") from None


def real(request: Request, name: str, default: float = 0.0) -> float:
    """A number of the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise ControlError(f"{name}={text} is not a number") from None


def flag(request: Request, name: str) -> bool:
    """Whether the query says `name=1`."""
    return request.query_params.get(name, "") in ("1", "true", "True")
