"""The control server: REST and one WebSocket for the faces, on a Unix socket of this user alone.

Everything a face can see or do comes through here; what is said is `control.messages`. A slow
reader never holds the runtime up: it is dropped to snapshots. Inference is not here, it has its
own doors. Runs inside the runtime's own event loop.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
import socket
import traceback as tracebacks
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from devkit.contract import config as contract
from devkit.control import (
    batches,
    captures,
    debugging,
    doctor,
    exporting,
    failures,
    gauges,
    messages,
    profile,
    snapshots,
    tensors,
    traces,
)
from devkit.control.calls import Row, flag
from devkit.control.debugger import Debuggers
from devkit.control.scratch import Draft, Scratch, assumptions, model_config
from devkit.control.snapshots import Photographer
from devkit.control.stream import Stream
from devkit.control.watch import Watch
from devkit.core import taps as core_taps
from devkit.core.engine import Engine
from devkit.errors import (
    Code,
    ConfigError,
    ControlError,
    DebugError,
    DevkitError,
    InferError,
    LoadError,
    UnknownModelError,
)
from devkit.observe.capture import Capture
from devkit.observe.failures import Failures
from devkit.observe.logs import Line, Log
from devkit.observe.tensors import Looker

log = logging.getLogger("devkit.control")

GAUGE_SECONDS = 2.0
_STATUS = {
    Code.NOT_FOUND: 404, Code.INVALID_ARG: 400, Code.ALREADY_EXISTS: 409, Code.UNAVAILABLE: 503,
    Code.UNSUPPORTED: 501, Code.CANCELLED: 499,
}  # fmt: skip

Asked = TypeVar("Asked")
Endpoint = Callable[[Request], Awaitable[Response]]


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers: the runtime has its own, and ends this server itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ControlServer:
    """The control API of one runtime.

    Attributes:
        stream: the events; whatever happens in the engine is put there by the taps.
        photographer: takes the snapshots.
    """

    def __init__(
        self,
        engine: Engine,
        photographer: Photographer,
        scratch: Scratch,
        capture: Capture,
        lines: Log,
        shut_down: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.photographer = photographer
        self.scratch = scratch
        self.stream = Stream()
        self._capture = capture
        self._lines = lines
        self.failures = Failures(lines, capture.probes_of)
        self.looker = Looker()
        self._shut_down = shut_down
        self._learning: dict[str, asyncio.Lock] = {}
        self.watch = Watch(engine, photographer, self.stream)
        options = engine.options
        self.debuggers = Debuggers(
            engine, self.stream, options.workspace, allowed=not options.no_debug
        )
        self._server: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    async def start(self, listener: socket.socket) -> None:
        """Serve on `listener` and listen at the engine's taps."""
        self._listen()
        self.watch.start()
        config = uvicorn.Config(
            self.application(),
            loop="none",
            http="httptools",
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
            access_log=False,
            ws_ping_interval=20.0,
            timeout_graceful_shutdown=1,
        )
        self._server = _Uvicorn(config)
        self._task = asyncio.get_running_loop().create_task(self._server.serve([listener]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """Close every connection; a call that runs has a second to end."""
        self.watch.stop()
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        await self.failures.close()
        self.looker.close()

    def application(self) -> Starlette:
        """The routes, all under the version of the protocol."""
        routes = [
            self._route("GET", "/runtime", self._runtime),
            self._route("GET", "/snapshot", self._snapshot),
            self._route("GET", "/ready", self._ready),
            self._route("GET", "/models", self._models),
            self._route("GET", "/models/{name}", self._model),
            self._route("PUT", "/models/{name}", self._put),
            self._route("DELETE", "/models/{name}", self._remove),
            self._route("GET", "/models/{name}/config", self._config),
            self._route("POST", "/models/{name}/load", self._load),
            self._route("POST", "/models/{name}/unload", self._unload),
            self._route("POST", "/models/{name}/reload", self._reload),
            self._route("POST", "/models/{name}/scale", self._scale),
            self._route("POST", "/models/{name}/learn", self._learn),
            self._route("GET", "/memory", self._memory),
            self._route("GET", "/statistics", self._statistics),
            self._route("GET", "/logs", self._logs),
            self._route("POST", "/shutdown", self._shutdown),
            *(self._route(*call) for call in gauges.routes(self.watch)),
            *(self._route(*call) for call in batches.routes(self.watch)),
            *(self._route(*call) for call in profile.routes(self.watch)),
            *(self._route(*call) for call in traces.routes(self.engine)),
            *(self._route(*call) for call in self._kept()),
            *(self._route(*call) for call in self._leaving()),
            *(self._route(*call) for call in debugging.routes(self.debuggers)),
            WebSocketRoute(f"/v{messages.VERSION}/events", self._events),
        ]
        return Starlette(routes=routes)

    def _kept(self) -> list[Row]:
        """What can be asked about recorded requests, their tensors, and failures."""
        capture, kept = self._capture, self.failures
        return [
            *captures.routes(self.engine, capture, kept),
            *tensors.routes(capture, kept, self.looker),
            *failures.routes(kept),
        ]

    def _leaving(self) -> list[Row]:
        """What can be asked about the way to production."""
        return [
            *doctor.routes(self.engine, self.photographer),
            *exporting.routes(self.engine, self.photographer, self._capture),
        ]

    def _route(self, method: str, path: str, endpoint: Endpoint) -> Route:
        async def guarded(request: Request) -> Response:
            try:
                return await endpoint(request)
            except DevkitError as problem:
                return _refusal(problem)
            except Exception as problem:  # the process's edge: a bug must not look like a refusal
                log.exception("the control call %s %s failed", method, path)
                return _bug(problem)

        return Route(f"/v{messages.VERSION}{path}", guarded, methods=[method])

    # -- what happens, as events -----------------------------------------------------------------

    def _listen(self) -> None:
        taps = self.engine.taps
        taps.models.append(self._on_model)
        taps.instances.append(self._on_instance)
        taps.warnings.append(self._on_warning)
        taps.failures.append(self._on_failure)
        self.failures.listen(taps)
        self._lines.listeners.append(self._on_line)

    def _on_model(self, event: core_taps.ModelEvent) -> None:
        picture = self.photographer
        if event.state == "failed":
            picture.errors[event.name] = event.traceback or event.reason
        elif event.state in ("ready", "swapped"):
            picture.errors.pop(event.name, None)
            self._note_draft(event.name)
            picture.loaded_at[event.name] = self._emit_model(event).time
            return
        self._emit_model(event)

    def _emit_model(self, event: core_taps.ModelEvent) -> messages.Event:
        return self.stream.emit(
            "model", model=event.name, version=event.version, state=event.state,
            text=event.reason, line=event.line, traceback=event.traceback, seconds=event.seconds,
        )  # fmt: skip

    def _on_instance(self, event: core_taps.InstanceEvent) -> None:
        if event.state == "dead":
            lines = self._lines.lines(instance=event.instance, count=20)
            tail = "\n".join(line.text for line in lines if line.stream == "stderr")
            self.photographer.last_words[event.instance] = tail or event.reason
        self.stream.emit(
            "instance", model=event.model, version=event.version, instance=event.instance,
            pid=event.pid, state=event.state, text=event.reason,
        )  # fmt: skip

    def _on_warning(self, event: core_taps.WarningEvent) -> None:
        self.stream.emit(
            "warning", model=event.model, instance=event.instance, text=event.message,
            line=event.line, rule=event.rule,
        )  # fmt: skip

    def _on_failure(self, event: core_taps.FailureEvent) -> None:
        self.stream.emit(
            "failure", model=event.model, version=event.version, instance=event.instance,
            text=event.error, line=event.line, traceback=event.traceback,
        )  # fmt: skip

    def _on_line(self, line: Line) -> None:
        place = f"{line.file}:{line.line}" if line.file else ""
        self.stream.emit(
            "log", model=line.model, instance=line.instance, pid=line.pid, state=line.stream,
            text=line.text, line=place,
        )  # fmt: skip

    # -- what is shown ---------------------------------------------------------------------------

    async def _runtime(self, request: Request) -> Response:
        return _reply(self.photographer.runtime)

    async def _snapshot(self, request: Request) -> Response:
        return _reply(await self.photographer.snapshot(self.stream.sequence))

    async def _ready(self, request: Request) -> Response:
        return JSONResponse({"live": self.engine.live(), "ready": self.engine.ready()})

    async def _models(self, request: Request) -> Response:
        await self.photographer.look()
        return _reply(self.photographer.models())

    async def _model(self, request: Request) -> Response:
        await self.photographer.look()
        return _reply(self._shown(_name(request)))

    def _shown(self, name: str, version: str = "") -> messages.Model:
        return self.photographer.model(name, version)

    async def _config(self, request: Request) -> Response:
        model = self.engine.model(_name(request), request.query_params.get("version", ""))
        if request.query_params.get("format") == "pbtxt":
            return PlainTextResponse(contract.to_pbtxt(model.config))
        return Response(model.config_text, media_type="application/json")

    async def _memory(self, request: Request) -> Response:
        await self.photographer.look()
        return _reply(self.photographer.memory())

    async def _statistics(self, request: Request) -> Response:
        from google.protobuf import json_format

        rows = self.engine.statistics(request.query_params.get("model", ""))
        return JSONResponse(
            [json_format.MessageToDict(row, preserving_proto_field_name=True) for row in rows]
        )

    async def _logs(self, request: Request) -> Response:
        query = request.query_params
        lines = self._lines.lines(
            model=query.get("model", ""),
            instance=query.get("instance", ""),
            after=_number(query.get("after", "0")),
            count=_number(query.get("count", "500")),
        )
        return _reply([snapshots.log_line(line) for line in lines])

    # -- what is asked ---------------------------------------------------------------------------

    async def _put(self, request: Request) -> Response:
        name = _name(request)
        asked = await _asked(request, messages.PutModel)
        await self._let_run(request, name)
        async with self._lock(name):
            serves = self.engine.model_ready(name)
            before = await asyncio.to_thread(self.scratch.before, name, asked.files)
            await asyncio.to_thread(self.scratch.put, name, asked.files, asked.options)
            try:
                await self.engine.reload(name, "put by a cell")
            except LoadError:
                if serves:
                    await asyncio.to_thread(self.scratch.restore, before)
                raise
        self._note_draft(name)
        await self.photographer.look()
        return _reply(self._shown(name))

    async def _let_run(self, request: Request, name: str) -> None:
        """With `force`, an instance that stands in a debugger goes on, and is in nobody's way."""
        if flag(request, "force"):
            await self.debuggers.let_run(name)

    async def _remove(self, request: Request) -> Response:
        name = _name(request)
        if not self.scratch.has(name):
            raise ControlError(
                f"'{name}' was not made by a cell, so its files are not removed",
                model=name,
                remedy=f"`devkit unload {name}` stops serving it",
            )
        await self.engine.unload(name)
        await asyncio.to_thread(self.scratch.remove, name)
        await self.engine.forget(name)
        return JSONResponse({})

    async def _load(self, request: Request) -> Response:
        name = _name(request)
        asked = await _asked(request, messages.LoadModel)
        config = None if asked.config is None else json.dumps(asked.config)
        await self._let_run(request, name)
        await self.engine.load(name, config, _decoded(asked.files))
        await self.photographer.look()
        return _reply(self._shown(name))

    async def _unload(self, request: Request) -> Response:
        asked = await _asked(request, messages.UnloadModel)
        name = _name(request)
        if name not in {row.name for row in self.engine.index()}:
            raise UnknownModelError(f"Request for unknown model: '{name}' is not found", model=name)
        await self._let_run(request, name)
        await self.engine.unload(name, asked.dependents)
        return JSONResponse({})

    async def _reload(self, request: Request) -> Response:
        name = _name(request)
        await self._let_run(request, name)
        await self.engine.reload(name)
        await self.photographer.look()
        return _reply(self._shown(name))

    async def _scale(self, request: Request) -> Response:
        asked = await _asked(request, messages.ScaleModel)
        if asked.count < 1:
            raise ControlError(
                f"{asked.count} is not a number of instances", remedy="give 1 or more"
            )
        name = _name(request)
        await self.engine.scale(name, asked.count)
        await self.photographer.look()
        return _reply(self._shown(name))

    async def _learn(self, request: Request) -> Response:
        name = _name(request)
        asked = await _asked(request, messages.Learn)
        async with self._lock(name):
            model = self.engine.model(name)
            if self.scratch.draft(name).given:
                raise ControlError(f"'{name}' has a config of its own", model=name)
            draft = await asyncio.to_thread(self.scratch.learn, name, asked.inputs, asked.outputs)
            if self.scratch.has(name):
                await self.engine.reload(model.name, "a sample request")
            else:
                await self.engine.load(name, _override(name, draft), reason="a sample request")
        self._note_draft(name)
        await self.photographer.look()
        return _reply(self._shown(name))

    def _note_draft(self, name: str) -> None:
        """Tell the photographer what is assumed of a model, and whether it still lacks a sample."""
        draft = self.scratch.draft(name)
        self.photographer.assumed[name] = assumptions(name, draft)
        self.photographer.unlearned.discard(name)
        with contextlib.suppress(InferError):  # not loaded: nothing to learn yet
            model = self.engine.model(name)
            lacking = draft.stale or not model.outputs
            if lacking and not draft.given and model.config.backend == "python":
                self.photographer.unlearned.add(name)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._learning.setdefault(name, asyncio.Lock())

    async def _shutdown(self, request: Request) -> Response:
        # After the answer is out: the caller wants to know that it was heard.
        asyncio.get_running_loop().call_later(0.05, self._shut_down)
        return JSONResponse({})

    # -- the event stream ------------------------------------------------------------------------

    async def _events(self, socket: WebSocket) -> None:
        """A snapshot, then events as they come; `gauges=S` adds a snapshot every S seconds.

        `since=N` replaces the first snapshot by the events after N, where they are still kept.
        """
        query = socket.query_params
        try:
            kinds = frozenset(filter(None, query.get("kinds", "").split(",")))
            gauges = float(query["gauges"]) if "gauges" in query else None
            since = int(query["since"]) if "since" in query else None
            looks_on = int(query["debugger"]) if "debugger" in query else None
        except ValueError:
            await socket.close(1008, "a query parameter is not a number")
            return
        await socket.accept()
        leave = self.debuggers.join(looks_on) if looks_on is not None else None
        reader = self.stream.open(kinds)
        sender = asyncio.ensure_future(self._send_events(socket, reader, since, gauges))
        try:
            while True:
                await socket.receive_text()  # nothing is expected: this notices the end
        except (WebSocketDisconnect, KeyError):
            return
        finally:
            if leave is not None:
                leave()
            reader.close()
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await sender

    async def _send_events(
        self, socket: WebSocket, reader: Any, since: int | None, gauges: float | None
    ) -> None:
        missed = self.stream.since(since) if since is not None else None
        if missed is None:
            await self._send_snapshot(socket)
        elif missed:
            await _send(socket, "events", [one for one in missed if reader.wants(one)])
        clock = asyncio.get_running_loop().time
        due = None if gauges is None else clock() + gauges
        while True:
            events = await reader.next(None if due is None else max(0.0, due - clock()))
            if events:
                await _send(socket, "events", events)
            late = due is not None and clock() >= due  # also where events never pause
            if late or events is None:  # time for new gauges, or it was too slow for the events
                await self._send_snapshot(socket)
                due = None if gauges is None else clock() + gauges

    async def _send_snapshot(self, socket: WebSocket) -> None:
        snapshot = await self.photographer.snapshot(self.stream.sequence)
        await _send(socket, "snapshot", snapshot)


async def _send(socket: WebSocket, kind: str, message: Any) -> None:
    await socket.send_text(messages.to_json({"type": kind, kind: messages.to_plain(message)}))


def _reply(message: Any) -> Response:
    return Response(messages.to_json(message), media_type="application/json")


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ControlError(f"'{text}' is not a number") from None


async def _asked(request: Request, kind: type[Asked]) -> Asked:
    body = await request.body()
    try:
        return messages.from_json(kind, body or b"{}")
    except ValueError as problem:
        raise ControlError(f"the call cannot be understood: {problem}") from problem


def _decoded(files: dict[str, str] | None) -> dict[str, bytes] | None:
    if files is None:
        return None
    try:
        return {path: base64.b64decode(text, validate=True) for path, text in files.items()}
    except binascii.Error as problem:
        raise ControlError(f"a file is not in base64: {problem}") from problem


def _override(name: str, draft: Draft) -> str:
    text: str = contract.to_json(model_config(name, draft))
    return text


def _refusal(problem: DevkitError) -> Response:
    code = getattr(problem, "code", None)
    if isinstance(problem, (ConfigError, ControlError, DebugError)):
        status = 400
    else:
        status = _STATUS.get(code, 500) if isinstance(code, Code) else 500
    failure = messages.Failure(
        problem.message,
        type(problem).__name__,
        problem.model,
        problem.instance,
        problem.line,
        problem.remedy,
        getattr(problem, "traceback", None),
        int(code) if isinstance(code, Code) else None,
    )
    return Response(messages.to_json(failure), status, media_type="application/json")


def _bug(problem: Exception) -> Response:
    failure = messages.Failure(
        f"{type(problem).__name__}: {problem}",
        "DevkitError",
        remedy="this is a bug of devkit; the runtime's log has it",
        traceback="".join(tracebacks.format_exception(problem)),
    )
    return Response(messages.to_json(failure), 500, media_type="application/json")
