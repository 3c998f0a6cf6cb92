"""Everything of the HTTP API but inference: health, metadata, repository, statistics, settings,
shared memory.

Each endpoint is a function of its path's names and the body that returns what to answer, or an
awaitable of it; `Endpoints` turns them into routes. Nothing here is on the request's hot path.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from devkit.contract import config, generate, rapidjson
from devkit.errors import Code, DevkitError, InferError, LoadError
from devkit.protocols.http.routes import JSON, TEXT
from devkit.protocols.http.server import Connection, Head, Route
from devkit.protocols.requests import normal_version
from devkit.protocols.settings import FORMATS, LOG_FIELDS, Settings
from devkit.transport.memory import Block

log = logging.getLogger("devkit.http")

STATUS = {
    Code.UNKNOWN: 400, Code.INTERNAL: 500, Code.NOT_FOUND: 404, Code.INVALID_ARG: 400,
    Code.UNAVAILABLE: 503, Code.UNSUPPORTED: 501, Code.ALREADY_EXISTS: 400, Code.CANCELLED: 400,
}  # fmt: skip
"""What HTTP says for Triton's codes."""

NO_REPOSITORY = "'repository_name' specification is not supported"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answers."""

    body: bytes = b""
    status: int = 200
    content_type: str = JSON


Endpoint = Callable[[str, dict[str, str], memoryview], "Answer | Awaitable[Answer]"]


def refusal(problem: InferError | LoadError, content_type: str = JSON) -> Answer:
    """An error as an answer."""
    return Answer(generate.error(problem.message), STATUS[problem.code], content_type)


class Endpoints:
    """The cold endpoints of one engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._settings = Settings.of(engine)
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> dict[str, Callable[[str, dict[str, str]], Route]]:
        """Route makers by the names of `routes.TABLE`."""
        found: dict[str, Endpoint] = {
            "live": self.live, "ready": self.ready, "server": self.server,
            "metadata": self.metadata, "config": self.config, "model_ready": self.model_ready,
            "stats": self.stats, "all_stats": self.stats, "index": self.index,
            "control": self.control, "trace": self.trace, "logging": self.logging,
            "region_status": self.region_status, "register": self.register,
            "unregister": self.unregister,
        }  # fmt: skip
        return {name: self._maker(endpoint) for name, endpoint in found.items()}

    def _maker(self, endpoint: Endpoint) -> Callable[[str, dict[str, str]], Route]:
        def make(method: str, names: dict[str, str]) -> Route:
            def handle(
                connection: Connection, head: Head, body: memoryview, block: Block | None
            ) -> None:
                self._run(connection, endpoint, method, names, body)

            return Route(handle)

        return make

    def _run(
        self, connection: Connection, endpoint: Endpoint, method: str, names: dict[str, str],
        body: memoryview,
    ) -> None:  # fmt: skip
        try:
            answer = endpoint(method, names, body)
        except InferError as problem:
            answer = refusal(problem)
        if isinstance(answer, Answer):
            connection.reply(answer.status, answer.content_type, answer.body)
            return
        task = asyncio.ensure_future(self._later(connection, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _later(self, connection: Connection, answer: Awaitable[Answer]) -> None:
        try:
            result = await answer
        except (InferError, LoadError) as problem:
            result = refusal(problem)
        except DevkitError as problem:
            result = refusal(InferError(problem.message, Code.INTERNAL))
        if not connection.transport.is_closing():
            connection.reply(result.status, result.content_type, result.body)

    # -- health and metadata -------------------------------------------------------------------

    def live(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        return Answer(status=200 if self._engine.live() else 400, content_type=TEXT)

    def ready(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        return Answer(status=200 if self._engine.ready() else 400, content_type=TEXT)

    def server(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        engine = self._engine
        return Answer(
            orjson.dumps(
                {
                    "name": engine.server_name,
                    "version": engine.server_version,
                    "extensions": list(engine.extensions),
                }
            )
        )

    def model_ready(
        self, method: str, names: dict[str, str], body: memoryview
    ) -> Answer | Awaitable[Answer]:
        version = normal_version(names["version"])
        if not self._engine.model_ready(names["model"], version):
            return self._readiness(False)
        model = self._engine.model(names["model"], version)
        return self._ask_ready(model) if model.asks_ready else self._readiness(True)

    async def _ask_ready(self, model: Any) -> Answer:
        return self._readiness(await model.is_ready())

    @staticmethod
    def _readiness(ready: bool) -> Answer:
        if ready:
            return Answer(content_type=TEXT)
        return Answer(generate.error("Model version not ready"), 400, TEXT)

    def _model(self, names: dict[str, str]) -> Any:
        return self._engine.model(names["model"], normal_version(names["version"]))

    def metadata(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        model = self._model(names)
        served = [model.version_text] if names["version"] else model.versions
        return Answer(orjson.dumps(config.metadata(model.config, served)))

    def config(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        return Answer(config.to_json(self._model(names).config).encode("utf-8", "surrogateescape"))

    def stats(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        version = normal_version(names.get("version", ""))
        rows = self._engine.statistics(names.get("model", ""), version)
        return Answer(orjson.dumps({"model_stats": [_statistics(row) for row in rows]}))

    # -- repository ----------------------------------------------------------------------------

    def index(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        ready_only = False
        if len(body):
            document = rapidjson.parse(body)
            if type(document) is dict and "ready" in document:
                ready_only = rapidjson.boolean(document["ready"])
        entries = []
        for entry in self._engine.index(ready_only):
            shown = {"name": entry.name}
            for field in ("version", "state", "reason"):
                if getattr(entry, field):
                    shown[field] = str(getattr(entry, field))
            entries.append(shown)
        text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
        # A reason may hold what is no UTF-8; one model's must not hide the others from a client.
        return Answer(text.encode("utf-8", "replace"))

    def control(
        self, method: str, names: dict[str, str], body: memoryview
    ) -> Answer | Awaitable[Answer]:
        if names["repository"]:
            raise InferError(NO_REPOSITORY, Code.UNSUPPORTED)
        if names["action"] == "unload":
            return self._unload(names["model"], _unload_dependents(body))
        configuration, files = _load_parameters(body)
        return self._load(names["model"], configuration, files)

    async def _load(
        self, name: str, configuration: str | None, files: dict[str, bytes] | None
    ) -> Answer:
        self._engine.require_explicit_control()
        await self._engine.load(name, configuration, files)
        return Answer()

    async def _unload(self, name: str, dependents: bool) -> Answer:
        self._engine.require_explicit_control()
        await self._engine.unload(name, dependents)
        return Answer()

    # -- settings ------------------------------------------------------------------------------

    def trace(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        model = names.get("model", "")
        if method == "POST":
            self._settings.check_model(model)
            document = rapidjson.parse(body)
            if type(document) is dict:
                changes = {}
                for key, value in document.items():
                    if key == "trace_level":
                        levels = None if value is None else rapidjson.array(value)
                        changes[key] = levels and [rapidjson.string(each) for each in levels]
                    elif key in ("trace_rate", "trace_count", "log_frequency"):
                        changes[key] = None if value is None else [rapidjson.string(value)]
                    elif key == "trace_file":
                        changes[key] = None
                self._settings.update_trace(changes, model)
        return Answer(orjson.dumps(self._settings.trace(model)))

    def logging(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        if method == "POST":
            document = rapidjson.parse(body)
            if type(document) is dict:
                self._change_log(document)
        return Answer(orjson.dumps(self._settings.log()))

    def _change_log(self, document: dict[str, Any]) -> None:
        if "log_file" in document:
            raise self._settings.refuse_log_file()
        changes: dict[str, Any] = {}
        for field in LOG_FIELDS:
            value = document.get(field)
            if value is None:
                continue
            if field == "log_verbose_level":
                changes[field] = rapidjson.unsigned(value)
            elif field == "log_format":
                changes[field] = rapidjson.string(value)
                if value not in FORMATS:
                    raise InferError(
                        f"invalid argument for --log_format, got: {value}", Code.UNAVAILABLE
                    )
            else:
                changes[field] = rapidjson.boolean(value)
        self._settings.update_log(changes)

    # -- shared memory -------------------------------------------------------------------------

    def region_status(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        region = names["region"]
        if names["kind"] == "cuda":
            if region:
                raise InferError(
                    f"Unable to find cuda shared memory region: '{region}'", Code.NOT_FOUND
                )
            return Answer(b"[]")
        rows = [
            {"name": row.name, "key": row.key, "offset": row.offset, "byte_size": row.byte_size}
            for row in self._engine.regions.status(region or None)
        ]
        return Answer(orjson.dumps(rows))

    def register(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        document = rapidjson.parse(body)
        members = document if type(document) is dict else {}
        region = names["region"]
        if not region:
            raise InferError(
                f"'region name' is necessary to register {names['kind']} shared memory region"
            )
        if names["kind"] == "cuda":
            raise _no_cuda(members)
        for field in ("key", "byte_size"):
            if field not in members:
                raise InferError(f"Shared memory register request has no '{field}' field")
            if field == "key":
                key = rapidjson.string(members["key"])
        offset = rapidjson.unsigned(members.get("offset", 0))
        size = rapidjson.unsigned(members["byte_size"])
        self._engine.regions.register(region, key, offset, size)
        return Answer()

    def unregister(self, method: str, names: dict[str, str], body: memoryview) -> Answer:
        if names["kind"] == "system":
            self._engine.regions.unregister(names["region"] or None)
        return Answer()


def _no_cuda(members: dict[str, Any]) -> InferError:
    """The refusal of a CUDA region on a machine without a GPU."""
    for field in ("raw_handle", "byte_size", "device_id"):
        if field not in members:
            return InferError(f"Shared memory register request has no '{field}' field")
    handle = members["raw_handle"]
    text = handle.get("b64", "") if type(handle) is dict else ""
    try:
        decoded = base64.b64decode(rapidjson.string(text), validate=True)
    except binascii.Error:
        decoded = b""
    if len(decoded) != 64:  # bytes of a cudaIpcMemHandle_t
        return InferError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return InferError("failed to register CUDA shared memory region: no GPU", Code.INVALID_ARG)


def _load_parameters(body: memoryview) -> tuple[str | None, dict[str, bytes] | None]:
    """Config override and files of a load request."""
    document = rapidjson.parse(body) if len(body) else {}
    if type(document) is not dict or "parameters" not in document:
        return None, None
    parameters = document["parameters"]
    if type(parameters) is not dict:
        raise InferError("attempt to get members for non-object", Code.INTERNAL)
    configuration: str | None = None
    files: dict[str, bytes] = {}
    for key, value in parameters.items():
        text = rapidjson.string(value)
        if key == "config":
            configuration = text
        elif key.startswith("file:"):
            files[key[len("file:") :]] = _decode(text)
        else:
            raise InferError("unexpected error on creating Triton parameter", Code.INTERNAL)
    return configuration, files or None


def _decode(text: str) -> bytes:
    """Base64 up to the first character that is none, as the real server's decoder does."""
    raw = rapidjson.to_bytes(text)
    good = bytearray()
    for byte in raw:
        if not (chr(byte).isalnum() and byte < 128) and byte not in b"+/":
            break
        good.append(byte)
    if len(good) % 4 == 1:
        good.pop()
    return base64.b64decode(bytes(good) + b"=" * (-len(good) % 4))


def _unload_dependents(body: memoryview) -> bool:
    """The one parameter of an unload; anything else in its body is passed over."""
    try:
        document = rapidjson.parse(body) if len(body) else {}
    except InferError:
        return False
    parameters = document.get("parameters") if type(document) is dict else None
    return type(parameters) is dict and parameters.get("unload_dependents") is True


_DURATIONS = (
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit",
    "cache_miss",
)  # fmt: skip


def _duration(message: Any) -> dict[str, int]:
    return {"count": message.count, "ns": message.ns}


def _statistics(row: Any) -> dict[str, Any]:
    """A ModelStatistics message as the JSON the extension defines, with every zero."""
    stats = row.inference_stats
    responses = {
        key: {
            name: _duration(getattr(value, name))
            for name in (
                "compute_infer", "compute_output", "success", "fail", "empty_response", "cancel",
            )
        }
        for key, value in row.response_stats.items()
    }  # fmt: skip
    return {
        "name": row.name,
        "version": row.version,
        "last_inference": row.last_inference,
        "inference_count": row.inference_count,
        "execution_count": row.execution_count,
        "inference_stats": {name: _duration(getattr(stats, name)) for name in _DURATIONS},
        "response_stats": responses,
        "batch_stats": [
            {
                "batch_size": batch.batch_size,
                **{
                    name: _duration(getattr(batch, name))
                    for name in ("compute_input", "compute_infer", "compute_output")
                },
            }
            for batch in row.batch_stats
        ],
        "memory_usage": [
            {"type": each.type, "id": each.id, "byte_size": each.byte_size}
            for each in row.memory_usage
        ],
    }
