"""What the runtime and the faces say to each other: frozen dataclasses, to and from JSON.

The second of the two seams (the first is `transport.messages`). A snapshot is a frozen picture,
an event says what changed since; both carry a sequence number from one counter, so that a reader
who missed something knows it. Unknown fields are ignored and missing ones take their default, so
a face and a runtime of neighbouring versions understand each other; `VERSION` changes only when
that no longer holds. Nothing here opens a socket, and nothing here reaches into the runtime.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

VERSION = 1
"""Version of this protocol: the `/v1` of every path, and `version` in every snapshot."""

Message = TypeVar("Message")


# --- what is shown ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a model; `shape` has the batch dimension (-1) where there is one."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """What the operating system says of one process; bytes, and -1 where it does not say."""

    pid: int
    rss: int = -1
    pss: int = -1
    uss: int = -1
    cpu_percent: float = 0.0
    threads: int = 0
    open_files: int = -1


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a model, which is one process.

    Attributes:
        state: `starting`, `ready`, `busy`, `dead`, `restarting` or `stopped`.
        started: how it was started: `warm`, `spawn` or `shared`.
        load_seconds: from its start until it was ready.
        executes: calls of `execute` since then.
        last_words: signal, and the end of stderr, where an instance before it died.
    """

    name: str
    model: str
    version: str = ""
    pid: int = 0
    state: str = "starting"
    kind: str = "CPU"
    device: int = 0
    started: str = ""
    load_seconds: float = 0.0
    restarts: int = 0
    executes: int = 0
    in_flight: int = 0
    process: Process | None = None
    last_words: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the repository, loaded or not.

    Attributes:
        state: `READY`, `LOADING`, `UNLOADING`, `UNAVAILABLE`, or empty where it was never loaded.
        reason: why it is not ready.
        file: its `model.py`; empty for an ensemble.
        files: the files of its own that it has loaded.
        scratch: whether it was made by a cell, in the workspace's own repository.
        assumed: what was taken from sample requests because no config says it, a sentence each.
        unlearned: whether its config still waits for a sample request (see `Learn`).
        error: traceback of the last load that failed, also while an older version serves.
    """

    name: str
    version: str = ""
    versions: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""
    platform: str = "python"
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    max_batch_size: int = 0
    decoupled: bool = False
    folder: str = ""
    file: str = ""
    files: tuple[str, ...] = ()
    scratch: bool = False
    assumed: tuple[str, ...] = ()
    unlearned: bool = False
    error: str = ""
    instances: tuple[Instance, ...] = ()
    pending: int = 0
    inferences: int = 0
    executions: int = 0
    failures: int = 0
    loaded_at: float = 0.0
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Owner:
    """Bytes of a slab that belong to one owner."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Slab:
    """One shared-memory region of this runtime; all numbers are bytes except `blocks`."""

    name: str
    size: int
    used: int = -1
    free: int = -1
    high_water: int = -1
    blocks: int = -1
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """`/dev/shm` as a whole, and our part of it."""

    total: int = 0
    free: int = 0
    slabs: tuple[Slab, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a protocol is served."""

    protocol: str
    address: str
    port: int

    @property
    def url(self) -> str:
        """`host:port`, as `tritonclient` takes it; a wildcard address becomes loopback."""
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self.address, self.address)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """One runtime: also what the discovery file holds."""

    pid: int
    workspace: str
    started: float
    control: str
    local: str
    endpoints: tuple[Endpoint, ...] = ()
    repositories: tuple[str, ...] = ()
    scratch: str = ""
    log_file: str = ""
    python: str = ""
    devkit: str = ""
    server_version: str = ""
    version: int = VERSION

    def url(self, protocol: str) -> str:
        """`host:port` of `http`, `grpc` or `metrics`; empty where it is not served."""
        return next((e.url for e in self.endpoints if e.protocol == protocol), "")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All there is to show, as of event number `sequence`."""

    sequence: int
    runtime: Runtime
    live: bool = True
    ready: bool = False
    models: tuple[Model, ...] = ()
    process: Process | None = None
    memory: SharedMemory = field(default_factory=SharedMemory)
    time: float = 0.0
    version: int = VERSION


# --- what happens -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened; `sequence` grows by one from event to event, over all kinds.

    Attributes:
        kind: `model`, `instance`, `log`, `warning` (of the contract), `failure` (of an `execute`)
            or `reload`.
        state: the new state of a model or instance; the level of a log line.
        text: the line, the reason, the message.
        line: `path:line` in the user's files, where there is one.
        rule: name of the rule that a contract warning is about.
    """

    sequence: int
    time: float
    kind: str
    model: str = ""
    version: str = ""
    instance: str = ""
    pid: int = 0
    state: str = ""
    text: str = ""
    line: str = ""
    rule: str = ""
    traceback: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log or of a model's output.

    `stream` is `stdout`, `stderr`, or the level of a Logger line.
    """

    sequence: int
    time: float
    stream: str
    text: str
    model: str = ""
    instance: str = ""
    pid: int = 0
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call was refused or failed; `kind` is the name of the error in `devkit.errors`."""

    error: str
    kind: str = "DevkitError"
    model: str | None = None
    instance: str | None = None
    line: str | None = None
    remedy: str | None = None
    traceback: str | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """One recorded request, without its bytes."""

    number: int
    model: str
    version: str
    id: str
    time: float
    seconds: float
    request_bytes: int
    response_bytes: int
    responses: int
    error: str = ""


# --- what is asked ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model; `config` replaces its config, `files` (base64) its files, for this load."""

    config: dict[str, Any] | None = None
    files: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Unload a model, and with `dependents` the models only its ensemble needed."""

    dependents: bool = False


@dataclass(frozen=True, slots=True)
class ScaleModel:
    """Change how many instances a model has."""

    count: int


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a cell says about its model; becomes a `config.pbtxt` where it brings none.

    Attributes:
        config: the whole text of a `config.pbtxt`, which then rules alone.
        parameters: the config's `parameters`, strings.
    """

    instances: int | None = None
    kind: str | None = None
    max_batch_size: int | None = None
    dynamic_batching: bool = False
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int | None = None
    preserve_ordering: bool = False
    decoupled: bool = False
    parameters: dict[str, str] = field(default_factory=dict)
    config: str | None = None


@dataclass(frozen=True, slots=True)
class PutModel:
    """Write a model into the workspace's scratch repository and serve it.

    `files` are texts by their path in the model's folder, such as `1/model.py`. A model that is
    there already keeps the files that are not named, and is swapped without losing a request.
    """

    files: dict[str, str]
    options: ModelOptions = field(default_factory=ModelOptions)


@dataclass(frozen=True, slots=True)
class Learn:
    """Sample tensors of a model whose config names none, to make its config of."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] = ()


# --- JSON ---------------------------------------------------------------------------------------


def to_plain(message: Any) -> Any:
    """A message as dicts, lists and scalars."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        return {f.name: to_plain(getattr(message, f.name)) for f in dataclasses.fields(message)}
    if isinstance(message, (tuple, list)):
        return [to_plain(item) for item in message]
    if isinstance(message, dict):
        return {key: to_plain(value) for key, value in message.items()}
    return message


def to_json(message: Any) -> str:
    """A message as JSON text."""
    return json.dumps(to_plain(message), separators=(",", ":"))


def from_plain(kind: type[Message], value: Any) -> Message:
    """The message of type `kind` that `value` describes; ValueError where it describes none."""
    result = _read(kind, value, kind.__name__)
    return typing.cast(Message, result)


def from_json(kind: type[Message], text: str | bytes) -> Message:
    """The message of type `kind` in JSON `text`; ValueError where there is none."""
    return from_plain(kind, json.loads(text))


_FIELDS: dict[type[Any], dict[str, tuple[Any, bool]]] = {}  # (type, required), by message


def _fields(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    known = _FIELDS.get(kind)
    if known is None:
        hints = typing.get_type_hints(kind)
        missing = dataclasses.MISSING
        known = _FIELDS[kind] = {
            f.name: (hints[f.name], f.default is missing and f.default_factory is missing)
            for f in dataclasses.fields(kind)
        }
    return known


def _read(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _read_message(typing.cast("type[Any]", hint), value, where)
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (inner,) = (one for one in typing.get_args(hint) if one is not type(None))
        return _read(inner, value, where)
    if origin is tuple:
        _check(isinstance(value, list), where, "a list")
        inner = typing.get_args(hint)[0]
        return tuple(_read(inner, item, where) for item in value)
    if origin is dict:
        _check(isinstance(value, dict), where, "an object")
        inner = typing.get_args(hint)[1]
        return {str(key): _read(inner, item, f"{where}.{key}") for key, item in value.items()}
    if hint is float:
        _check(isinstance(value, (int, float)) and not isinstance(value, bool), where, "a number")
        return float(value)
    if hint is int:
        _check(isinstance(value, int) and not isinstance(value, bool), where, "an integer")
    else:
        _check(isinstance(value, hint), where, f"a {hint.__name__}")
    return value


def _read_message(kind: type[Any], value: Any, where: str) -> Any:
    _check(isinstance(value, dict), where, "an object")
    arguments = {}
    for name, (hint, required) in _fields(kind).items():
        if name in value:
            arguments[name] = _read(hint, value[name], f"{where}.{name}")
        elif required:
            raise ValueError(f"{where}: '{name}' is missing")
    return kind(**arguments)


def _check(holds: bool, where: str, expected: str) -> None:
    if not holds:
        raise ValueError(f"{where} must be {expected}")
