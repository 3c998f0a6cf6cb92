"""Control calls about recorded requests: list, settings, files in and out. Runtime side only."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from devkit.contract import recording
from devkit.contract.recording import Record
from devkit.control import calls, messages
from devkit.control.snapshots import capture_info
from devkit.errors import ControlError

if TYPE_CHECKING:
    from devkit.control.calls import Row
    from devkit.core.engine import Engine
    from devkit.observe.capture import Capture
    from devkit.observe.failures import Failures


def routes(engine: Engine, capture: Capture, failures: Failures) -> list[Row]:
    """What can be asked."""
    topic = _Captures(engine, capture, failures)
    return [
        ("GET", "/captures", topic.list),
        ("POST", "/captures", topic.add),
        ("DELETE", "/captures", topic.forget),
        ("GET", "/captures/settings", topic.settings),
        ("PUT", "/captures/settings", topic.change),
        ("GET", "/recording", topic.recording),
    ]


class _Captures:
    def __init__(self, engine: Engine, capture: Capture, failures: Failures) -> None:
        self._engine = engine
        self._capture = capture
        self._failures = failures
        self._probes = True

    def _chosen(self, request: Request) -> list[Record]:
        query = request.query_params
        failure = calls.number(request, "failure")
        if failure:
            found = next((one for one in self._failures.failures() if one.number == failure), None)
            if found is None:
                raise ControlError(f"there is no failure {failure}", remedy="`devkit failures`")
            return list(found.requests)
        numbers = None
        if query.get("numbers") or query.get("number"):
            text = query.get("numbers") or query["number"]
            try:
                numbers = [int(one) for one in text.split(",")]
            except ValueError:
                raise ControlError(f"numbers={text} are not numbers") from None
        return recording.matching(
            self._capture.records(query.get("model", "")),
            id=query.get("id", ""),
            failed=calls.flag(request, "failed"),
            slower=calls.real(request, "slower"),
            numbers=numbers,
            last=calls.number(request, "last"),
        )

    async def list(self, request: Request) -> Response:
        chosen = self._chosen(request)
        return calls.reply(await asyncio.to_thread(lambda: [capture_info(one) for one in chosen]))

    async def recording(self, request: Request) -> Response:
        samples = calls.flag(request, "samples")
        chosen = [one for one in self._chosen(request) if samples or one.whole]
        body = io.BytesIO()
        await asyncio.to_thread(recording.write, body, chosen)
        return Response(body.getvalue(), media_type="application/octet-stream")

    async def add(self, request: Request) -> Response:
        body = await request.body()
        records = await asyncio.to_thread(recording.read, io.BytesIO(body))
        added = [self._capture.add(one) for one in records]
        return calls.reply([capture_info(one) for one in added])

    async def forget(self, request: Request) -> Response:
        numbers = [one.number for one in self._chosen(request)]
        return JSONResponse({"removed": self._capture.clear(numbers=numbers)})

    # -- settings --------------------------------------------------------------------------------

    def _now(self) -> messages.CaptureSettings:
        capture = self._capture
        return messages.CaptureSettings(
            capture.on, capture.count, capture.bytes, capture.largest, capture.rate, capture.slow,
            self._probes, capture.used, len(capture),
        )  # fmt: skip

    async def settings(self, request: Request) -> Response:
        return calls.reply(self._now())

    async def change(self, request: Request) -> Response:
        asked = await calls.asked(request, messages.CaptureSettings)
        if min(asked.count, asked.bytes, asked.largest) < 0 or min(asked.rate, asked.slow) < 0:
            raise ControlError("a bound of the recorder cannot be negative")
        capture = self._capture
        capture.bound(count=asked.count, bytes=asked.bytes)
        capture.largest, capture.rate, capture.slow = asked.largest, asked.rate, asked.slow
        if asked.on:
            capture.listen(self._engine.taps)
        else:
            capture.silence(self._engine.taps)
        self._probes = asked.probes
        await self._tell_stubs()
        return calls.reply(self._now())

    async def _tell_stubs(self) -> None:
        """Those that run, and by the options those that are still to start."""
        capture = self._capture
        settings: dict[str, Any] = {
            "on": self._probes and capture.on,
            "every": int(1e9 / capture.rate) if capture.rate else 0,
            "largest": max(1 << 20, capture.largest),
        }
        self._engine.options.probes = settings
        running = [
            instance
            for model in self._engine.models()
            for instance in model.instances
            if instance.state == "ready"
        ]
        told = (instance.call("probes", timeout=2.0, **settings) for instance in running)
        await asyncio.gather(*told, return_exceptions=True)  # one that ends starts with them
