"""Control calls about failures: what raised or died, and all that is known of it. Runtime side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from devkit.control import calls, messages, snapshots
from devkit.errors import ControlError

if TYPE_CHECKING:
    from devkit.control.calls import Row
    from devkit.observe.failures import Failure, Failures


def routes(failures: Failures) -> list[Row]:
    """What can be asked."""
    topic = _Failures(failures)
    return [
        ("GET", "/failures", topic.list),
        ("DELETE", "/failures", topic.forget),
        ("GET", "/failures/{number:int}", topic.show),
    ]


class _Failures:
    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    async def list(self, request: Request) -> Response:
        model = request.query_params.get("model", "")
        return calls.reply([_info(one) for one in self._failures.failures(model)])

    async def forget(self, request: Request) -> Response:
        count = self._failures.clear(request.query_params.get("model", ""))
        return JSONResponse({"removed": count})

    async def show(self, request: Request) -> Response:
        number: int = request.path_params["number"]
        found = await self._failures.failure(number)
        if found is None:
            raise ControlError(
                f"there is no failure {number} any more",
                remedy="`devkit failures` lists those kept",
            )
        return calls.reply(_post_mortem(found))


def _info(one: Failure) -> messages.FailureInfo:
    return messages.FailureInfo(
        one.number, one.time, one.kind, one.model, one.version, one.instance, one.pid, one.error,
        one.line or "", one.ending, len(one.requests), one.repeats,
    )  # fmt: skip


def _post_mortem(one: Failure) -> messages.PostMortem:
    return messages.PostMortem(
        _info(one),
        one.traceback or "",
        tuple(_frame(each) for each in one.frames),
        tuple(snapshots.capture_info(each) for each in one.requests),
        tuple(snapshots.log_line(each) for each in one.lines),
    )


def _frame(told: dict[str, Any]) -> messages.KeptFrame:
    source = tuple(messages.SourceLine(number, text) for number, text in told.get("source", ()))
    return messages.KeptFrame(told["file"], told["line"], told["function"], source, told["locals"])
