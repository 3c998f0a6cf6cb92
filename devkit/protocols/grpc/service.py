"""GRPCInferenceService over an engine: what each RPC does, whatever server carries the bytes.

Runs on the engine's loop. `Unary` and `Stream` are the inference calls, `Calls` everything else.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import service_pb2 as pb

from devkit.contract import config
from devkit.core.request import Request, Response, SharedPlace
from devkit.core.steering import MARKED
from devkit.errors import Code, DevkitError, InferError
from devkit.protocols.grpc import codec
from devkit.protocols.requests import (
    forward,
    give_up,
    normal_version,
    output_places,
    read_labels,
)
from devkit.protocols.settings import FORMATS, Settings

SERVICE = "inference.GRPCInferenceService"
STATUS = {
    Code.UNKNOWN: 2, Code.INTERNAL: 13, Code.NOT_FOUND: 5, Code.INVALID_ARG: 3,
    Code.UNAVAILABLE: 14, Code.UNSUPPORTED: 12, Code.ALREADY_EXISTS: 6, Code.CANCELLED: 1,
}  # fmt: skip
"""gRPC's numbers for Triton's codes."""

DECOUPLED = "ModelInfer RPC doesn't support models with decoupled transaction policy"
NO_REPOSITORY = "'repository_name' specification is not supported"
NO_RESPONSE = "expected a single response, got 0"

DEBUG_KEY = "devkit-debug"
"""The metadata that asks for the instance a debugger has."""

Finish = Callable[["bytes | None", "InferError | None"], None]
"""Takes an encoded answer, or why there is none."""


def steer_of(value: str | bytes) -> str:
    """Where a request with this value of DEBUG_KEY goes."""
    return MARKED if value in ("1", "true", b"1", b"true") else ""


def details(problem: DevkitError) -> str:
    """The text of an error as gRPC can send it: what is no UTF-8 is replaced."""
    return problem.message.encode("utf-8", "replace").decode("utf-8")


class Unary:
    """One ModelInfer."""

    __slots__ = ("_done", "_engine", "_finish", "_model", "_places", "_plan", "_request")

    def __init__(
        self, engine: Any, decoder: codec.Decoder, data: bytes, finish: Finish, steer: str = "",
        forwarded: Sequence[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        """Decode and queue. Raises InferError where the request is refused."""
        began = time.monotonic_ns() if engine.tracer is not None else 0
        self._engine = engine
        self._finish = finish
        self._done = False
        self._places: dict[str, SharedPlace] | None = None
        decoded = decode(engine, decoder, data)
        plan = self._plan = decoded.plan
        self._model = engine.model(plan.name, plan.version)
        if self._model.decoupled:
            raise InferError(DECOUPLED, Code.UNSUPPORTED)
        buffers = codec.inputs(decoded, engine.regions)
        if plan.shared:
            self._places = output_places(plan.header, engine.regions)
        self._request = codec.request(decoded, buffers, self.respond)
        self._request.steer = steer
        if forwarded:
            forward(self._request, forwarded, decoder.descriptions)
        if began:
            self._request.arrival = ("GRPC", began, self._request.times.request_start)
        try:
            engine.infer(self._request)
        except InferError:
            give_up(self._request)
            raise

    def cancel(self) -> None:
        """The client is gone."""
        if not self._done:
            self._done = True
            self._engine.cancel(self._request)

    def respond(self, response: Response) -> None:
        """The engine's answer."""
        if self._done:
            response.release()
            return
        error = response.error
        if response.empty:
            if not response.final:
                return
            error = InferError(NO_RESPONSE, Code.INTERNAL)
        self._done = True
        data = None
        trace = response.request.trace
        if trace is not None:
            trace.sending()
        if error is None:
            try:
                data = encode(response, self._plan, self._model, self._places)
            except InferError as problem:
                error = problem
        response.release()
        self._finish(data, error)
        if trace is not None:
            trace.sent()


def decode(engine: Any, decoder: codec.Decoder, data: bytes) -> codec.Decoded:
    """Decode a message; an unknown model is refused before anything else that is wrong with it."""
    try:
        return decoder.decode(data)
    except DecodeError as problem:
        raise InferError(f"failed to parse the request: {problem}", Code.INTERNAL) from problem
    except InferError:
        message = pb.ModelInferRequest.FromString(data)
        model = engine.model(message.model_name, normal_version(message.model_version))
        if model.decoupled:
            raise InferError(DECOUPLED, Code.UNSUPPORTED) from None
        raise


def encode(
    response: Response,
    plan: codec.Plan,
    model: Any,
    places: dict[str, SharedPlace] | None,
    extra: bytes = b"",
) -> bytes:
    """A response without an error as bytes."""
    encoding = plan.header.encoding
    if encoding.plain:
        return codec.encode(response, encoding, extra=extra)
    return codec.encode(
        response, encoding, extra=extra, places=places, labels=read_labels(model, encoding),
        batched=model.max_batch_size > 0,
    )  # fmt: skip


class Stream:
    """One ModelStreamInfer: its requests run side by side, their responses leave as they come.

    `send` takes each encoded ModelStreamInferResponse, `fail` ends the stream with an error.
    """

    def __init__(
        self,
        engine: Any,
        decoder: codec.Decoder,
        send: Callable[[bytes], None],
        fail: Callable[[InferError], None],
        *,
        errors_end: bool = False,
        steer: str = "",
        forwarded: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._engine = engine
        self._decoder = decoder
        self._send = send
        self._fail = fail
        self._errors_end = errors_end
        self._steer = steer
        self._forwarded = forwarded
        self._open: set[Request] = set()
        self._closed = False
        self.on_idle: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        """Whether every request has had its last response."""
        return not self._open

    def cancel(self) -> None:
        """The client is gone, or the stream has failed."""
        self._closed = True
        running, self._open = self._open, set()
        for request in running:
            self._engine.cancel(request)

    def feed(self, data: bytes) -> None:
        """The client's next request."""
        identity = ""
        request = None
        began = time.monotonic_ns() if self._engine.tracer is not None else 0
        try:
            decoded = self._decode(data)
            identity = decoded.id
            plan = decoded.plan
            model = self._engine.model(plan.name, plan.version)
            buffers = codec.inputs(decoded, self._engine.regions)
            places = output_places(plan.header, self._engine.regions) if plan.shared else None

            def respond(response: Response) -> None:
                self._respond(response, plan, model, places)

            request = codec.request(decoded, buffers, respond)
            request.steer = self._steer
            if self._forwarded:
                forward(request, self._forwarded, self._decoder.descriptions)
            if began:
                request.arrival = ("GRPC", began, request.times.request_start)
            self._open.add(request)
            self._engine.infer(request)
        except InferError as problem:
            if request is not None:
                self._open.discard(request)
                give_up(request)
            self._send(
                codec.stream_response(codec.named("", identity or _id(data)), problem.message)
            )
            self._settle()

    def _decode(self, data: bytes) -> codec.Decoded:
        try:
            return self._decoder.decode(data)
        except DecodeError as problem:
            raise InferError(f"failed to parse the request: {problem}", Code.INTERNAL) from problem

    def _respond(
        self, response: Response, plan: codec.Plan, model: Any,
        places: dict[str, SharedPlace] | None,
    ) -> None:  # fmt: skip
        request = response.request
        if self._closed:
            response.release()
            return
        if request.trace is not None:
            request.trace.sending()
        error = response.error
        final = codec.FINAL[response.final]
        data = None
        if response.empty:
            if plan.empty_final:
                data = codec.stream_response(codec.named(response.model_name, request.id, final))
        elif error is None:
            try:
                data = codec.stream_response(encode(response, plan, model, places, final))
            except InferError as problem:
                error = problem
        response.release()
        if response.final:
            self._open.discard(request)
        if error is not None:
            if self._errors_end:
                self.cancel()
                self._fail(error)
                return
            data = codec.stream_response(
                codec.named(response.model_name, request.id, final), error.message
            )
        if data is not None:
            self._send(data)
        if request.trace is not None:
            request.trace.sent()
        self._settle()

    def _settle(self) -> None:
        if not self._open and self.on_idle is not None:
            self.on_idle()


def _id(data: bytes) -> str:
    try:
        return str(pb.ModelInferRequest.FromString(data).id)
    except DecodeError:
        return ""


class Calls:
    """The other RPCs. Each takes a message and returns one, or an awaitable of one."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._settings = Settings.of(engine)
        self.table: dict[str, tuple[type[Message], Callable[[Any], Any]]] = {
            "ServerLive": (pb.ServerLiveRequest, self.server_live),
            "ServerReady": (pb.ServerReadyRequest, self.server_ready),
            "ModelReady": (pb.ModelReadyRequest, self.model_ready),
            "ServerMetadata": (pb.ServerMetadataRequest, self.server_metadata),
            "ModelMetadata": (pb.ModelMetadataRequest, self.model_metadata),
            "ModelConfig": (pb.ModelConfigRequest, self.model_config),
            "ModelStatistics": (pb.ModelStatisticsRequest, self.model_statistics),
            "RepositoryIndex": (pb.RepositoryIndexRequest, self.repository_index),
            "RepositoryModelLoad": (pb.RepositoryModelLoadRequest, self.load),
            "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest, self.unload),
            "SystemSharedMemoryStatus": (pb.SystemSharedMemoryStatusRequest, self.system_status),
            "SystemSharedMemoryRegister": (
                pb.SystemSharedMemoryRegisterRequest,
                self.system_register,
            ),
            "SystemSharedMemoryUnregister": (
                pb.SystemSharedMemoryUnregisterRequest,
                self.system_unregister,
            ),
            "CudaSharedMemoryStatus": (pb.CudaSharedMemoryStatusRequest, self.cuda_status),
            "CudaSharedMemoryRegister": (pb.CudaSharedMemoryRegisterRequest, self.cuda_register),
            "CudaSharedMemoryUnregister": (
                pb.CudaSharedMemoryUnregisterRequest,
                self.cuda_unregister,
            ),
            "TraceSetting": (pb.TraceSettingRequest, self.trace),
            "LogSettings": (pb.LogSettingsRequest, self.log),
        }

    async def call(self, name: str, data: bytes) -> bytes:
        """Run one RPC on encoded messages. Raises InferError or LoadError."""
        kind, function = self.table[name]
        try:
            message = kind.FromString(data)
        except DecodeError as problem:
            raise InferError(f"failed to parse the request: {problem}", Code.INTERNAL) from problem
        answer = function(message)
        if isinstance(answer, Awaitable):
            answer = await answer
        return bytes(answer.SerializeToString())

    # -- health and metadata -------------------------------------------------------------------

    def server_live(self, message: Any) -> Any:
        return pb.ServerLiveResponse(live=self._engine.live())

    def server_ready(self, message: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._engine.ready())

    async def model_ready(self, message: Any) -> Any:
        version = normal_version(message.version)
        ready = self._engine.model_ready(message.name, version)
        if ready:
            ready = await self._engine.model(message.name, version).is_ready()
        return pb.ModelReadyResponse(ready=ready)

    def server_metadata(self, message: Any) -> Any:
        engine = self._engine
        return pb.ServerMetadataResponse(
            name=engine.server_name, version=engine.server_version, extensions=engine.extensions
        )

    def model_metadata(self, message: Any) -> Any:
        model = self._engine.model(message.name, normal_version(message.version))
        served = [model.version_text] if message.version else model.versions
        body = config.metadata(model.config, served)
        return pb.ModelMetadataResponse(
            name=body["name"],
            versions=body["versions"],
            platform=body["platform"],
            inputs=[pb.ModelMetadataResponse.TensorMetadata(**each) for each in body["inputs"]],
            outputs=[pb.ModelMetadataResponse.TensorMetadata(**each) for each in body["outputs"]],
        )

    def model_config(self, message: Any) -> Any:
        model = self._engine.model(message.name, normal_version(message.version))
        return pb.ModelConfigResponse(config=model.config)

    def model_statistics(self, message: Any) -> Any:
        version = normal_version(message.version)
        return pb.ModelStatisticsResponse(
            model_stats=self._engine.statistics(message.name, version)
        )

    # -- repository ----------------------------------------------------------------------------

    def repository_index(self, message: Any) -> Any:
        _no_repository(message)
        answer = pb.RepositoryIndexResponse()
        for entry in self._engine.index(message.ready):
            answer.models.add(
                name=entry.name, version=str(entry.version), state=entry.state, reason=entry.reason
            )
        return answer

    async def load(self, message: Any) -> Any:
        _no_repository(message)
        configuration: str | None = None
        files: dict[str, bytes] = {}
        for key, value in message.parameters.items():
            kind = value.WhichOneof("parameter_choice")
            if key == "config":
                if kind != "string_param":
                    raise _load_type(key, "string_param")
                configuration = value.string_param
            elif key.startswith("file:"):
                if kind != "bytes_param":
                    raise _load_type(key, "bytes_param")
                files[key[len("file:") :]] = value.bytes_param
            else:
                raise InferError(f"unrecognized load parameter '{key}'.")
        self._engine.require_explicit_control()
        await self._engine.load(message.model_name, configuration, files or None)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, message: Any) -> Any:
        _no_repository(message)
        dependents = False
        if "unload_dependents" in message.parameters:
            parameter = message.parameters["unload_dependents"]
            if parameter.WhichOneof("parameter_choice") != "bool_param":
                raise InferError(
                    "invalid value type for 'unload_dependents' parameter, expected bool_param."
                )
            dependents = parameter.bool_param
        self._engine.require_explicit_control()
        await self._engine.unload(message.model_name, dependents)
        return pb.RepositoryModelUnloadResponse()

    # -- shared memory -------------------------------------------------------------------------

    def system_status(self, message: Any) -> Any:
        answer = pb.SystemSharedMemoryStatusResponse()
        for row in self._engine.regions.status(message.name or None):
            shown = answer.regions[row.name]
            shown.name, shown.key = row.name, row.key
            shown.offset, shown.byte_size = row.offset, row.byte_size
        return answer

    def system_register(self, message: Any) -> Any:
        self._engine.regions.register(message.name, message.key, message.offset, message.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    def system_unregister(self, message: Any) -> Any:
        self._engine.regions.unregister(message.name or None)
        return pb.SystemSharedMemoryUnregisterResponse()

    def cuda_status(self, message: Any) -> Any:
        if message.name:
            raise InferError(
                f"Unable to find cuda shared memory region: '{message.name}'", Code.NOT_FOUND
            )
        return pb.CudaSharedMemoryStatusResponse()

    def cuda_register(self, message: Any) -> Any:
        raise InferError("failed to register shared memory region: invalid args")

    def cuda_unregister(self, message: Any) -> Any:
        return pb.CudaSharedMemoryUnregisterResponse()

    # -- settings ------------------------------------------------------------------------------

    def trace(self, message: Any) -> Any:
        self._settings.check_model(message.model_name)
        changes: dict[str, list[str] | None] = {}
        for key, setting in message.settings.items():
            values = list(setting.value)
            if key not in ("trace_level", "trace_file") and len(values) > 1:
                raise InferError(f"expect only 1 value for '{key}'")
            changes[key] = values or None
        self._settings.update_trace(changes, message.model_name)
        answer = pb.TraceSettingResponse()
        for key, value in self._settings.trace(message.model_name).items():
            answer.settings[key].value.extend([value] if isinstance(value, str) else value)
        return answer

    def log(self, message: Any) -> Any:
        changes: dict[str, Any] = {}
        given = message.settings
        if "log_file" in given:
            raise self._settings.refuse_log_file()
        for key in ("log_info", "log_warning", "log_error"):
            if key in given:
                changes[key] = _log_value(key, given[key], "boolean", "bool_param")
        if "log_verbose_level" in given:
            value = given["log_verbose_level"]
            changes["log_verbose_level"] = _log_value(
                "log_verbose_level", value, "int32", "uint32_param"
            )
        if "log_format" in given:
            name = _log_value("log_format", given["log_format"], "string", "string_param")
            if name not in FORMATS:
                raise InferError(f"invalid argument for log_format, got: {name}")
            changes["log_format"] = name
        self._settings.update_log(changes)
        answer = pb.LogSettingsResponse()
        for key, value in self._settings.log().items():
            if isinstance(value, bool):
                answer.settings[key].bool_param = value
            elif isinstance(value, int):
                answer.settings[key].uint32_param = value
            else:
                answer.settings[key].string_param = value
        return answer


def _no_repository(message: Any) -> None:
    if message.repository_name:
        raise InferError(NO_REPOSITORY, Code.UNSUPPORTED)


def _load_type(key: str, wanted: str) -> InferError:
    return InferError(f"invalid value type for load parameter '{key}', expected {wanted}.")


def _log_value(key: str, setting: Any, called: str, field: str) -> Any:
    if setting.WhichOneof("parameter_choice") != field:
        raise InferError(f"expect {called} for '{key}'")
    return getattr(setting, field)
