"""An exported repository asked of the real Triton server and of devkit, and both compared.

The requests are those recorded while working, or made up from the config where there are none;
devkit's answers come from the runtime that serves the model, from the recording, or from a runtime
started on the export for this purpose. What counts as the same is said in `compare`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from devkit.contract import config as contract
from devkit.contract import recording
from devkit.contract.differences import CLOSE, DIFFERS, SAME
from devkit.contract.inspection import Held
from devkit.contract.recording import Record, Wire
from devkit.control import client as control
from devkit.errors import ConfigError, ControlError, DevkitError, UnknownModelError
from devkit.tools import compare, real_server, targets
from devkit.tools.compare import Answer, OutputCheck, worst
from devkit.tools.export import is_current
from devkit.tools.real_server import Consent
from devkit.tools.replay import GrpcStream, ReplayError
from devkit.tools.samples import edge_requests, sample_requests
from devkit.tools.targets import Target

LOAD_SECONDS = 300.0
ANSWER_SECONDS = 120.0
_CHANGED = (
    "it has changed since this export, so devkit's answers come from the export too; "
    "`devkit export --force` writes what is served now"
)
_VARIES = re.compile(r"#.*?\bdevkit:\s*varies\[([^\]]*)\]")
_STYLE = {SAME: "green", CLOSE: "yellow", DIFFERS: "bold red"}


class VerifyError(DevkitError):
    """There is nothing to verify at the path, or it can't be asked; `remedy` says what helps."""


@dataclass(frozen=True, slots=True)
class RequestCheck:
    """One request and what came of it on both sides.

    Attributes:
        origin: `recorded` or `made up`.
        number: of the recording, or in order.
        against: where devkit's answer came from: `live`, `recorded` or `export`.
    """

    model: str
    origin: str
    number: int
    against: str
    real_status: int
    devkit_status: int
    outputs: tuple[OutputCheck, ...]

    @property
    def verdict(self) -> str:
        """`same`, `close` or `differs`."""
        return worst([output.verdict for output in self.outputs])


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """One model of the export.

    Attributes:
        error: why the real server does not load it; then there are no requests.
        skipped: why nothing was asked, where nothing could be.
        note: what else should be known of the comparison.
        metadata: what differs between both servers' metadata, empty where nothing does.
    """

    name: str
    error: str = ""
    skipped: str = ""
    note: str = ""
    metadata: str = ""
    requests: tuple[RequestCheck, ...] = ()

    @property
    def verdict(self) -> str:
        """`same`, `close` or `differs`."""
        if self.error or self.metadata:
            return DIFFERS
        return worst([request.verdict for request in self.requests])


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What the real server and devkit said, request by request."""

    path: Path
    server: str
    models: tuple[ModelCheck, ...] = field(default_factory=tuple)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """`same`, `close` or `differs`."""
        return worst([model.verdict for model in self.models])

    @property
    def same(self) -> bool:
        """Whether the real server loads everything and answers alike, but for rounding."""
        return self.verdict != DIFFERS

    @property
    def exit_code(self) -> int:
        """What a command that verifies ends with."""
        return 0 if self.same else 1

    def to_plain(self) -> dict[str, Any]:
        """Everything, as JSON says it."""
        found = asdict(self)
        found["path"] = str(self.path)
        found["verdict"], found["same"] = self.verdict, self.same
        for shown, model in zip(found["models"], self.models, strict=True):
            shown["verdict"] = model.verdict
            for row, request in zip(shown["requests"], model.requests, strict=True):
                row["verdict"] = request.verdict
        return found

    def to_json(self) -> str:
        """Everything, as JSON text."""
        return json.dumps(self.to_plain(), indent=2) + "\n"

    def text(self, width: int | None = None) -> str:
        """The table and the sentence, as plain text."""
        console = Console(width=width, no_color=True, highlight=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How IPython shows it below a cell."""
        printer.text(self.text(width=110))

    def __rich__(self) -> RenderableType:
        table = Table(title=f"{self.path} on Triton {self.server}", title_justify="left")
        for column in ("model", "request", "output", "type", "verdict", "what"):
            table.add_column(column, overflow="fold")
        for row in self._rows():
            table.add_row(*row[:4], Text(row[4], _STYLE.get(row[4], "")), Text(row[5]))
        return Group(table, Text(self.summary(), _STYLE[self.verdict]))

    def summary(self) -> str:
        """One sentence."""
        count = sum(len(model.requests) for model in self.models)
        asked = f"{count} request{'' if count == 1 else 's'}, {self.seconds:.1f} s"
        if self.verdict == SAME:
            return f"The real server answers the same ({asked})."
        if self.verdict == CLOSE:
            return f"The real server answers the same within rounding ({asked})."
        return f"The real server does not agree ({asked})."

    def _rows(self) -> Iterator[tuple[str, str, str, str, str, str]]:
        for model in self.models:
            if model.error:
                yield model.name, "load", "", "", DIFFERS, model.error
            if model.metadata:
                yield model.name, "metadata", "", "", DIFFERS, model.metadata
            if model.skipped:
                yield model.name, "", "", "", "not asked", model.skipped
            if model.note:
                yield model.name, "", "", "", "note", model.note
            for request in model.requests:
                for output in request.outputs:
                    kind = f"{output.datatype} {list(output.shape)}" if output.datatype else ""
                    label = f"{request.origin} {request.number}"
                    yield model.name, label, output.name, kind, output.verdict, output.detail


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request to send: its wire form, and devkit's recorded answer if there is one."""

    wire: Wire
    version: str
    origin: str
    number: int
    recorded: tuple[Answer, ...] | None = None


def verify(
    path: Path | str,
    *,
    captures: Path | str | Iterable[Record] | None = None,
    client: control.Client | None = None,
    consent: Consent | None = None,
    progress: Callable[[str], None] | None = None,
    console: Console | None = None,
    cache: Path | None = None,
    arguments: Sequence[str] = (),
    generated: bool | None = None,
    url: str = "",
    grpc_url: str = "",
    docker: str = "",
    varies: Sequence[str] = (),
) -> VerifyReport:
    """Ask the real server what devkit was asked, over the exported repository or model at `path`.

    `captures` are recorded requests, or a file of them; without any, those of `client`, which is
    the runtime of this workspace if none is given and one runs. Devkit's answers come from it
    where it serves the model as it was exported, else from the recording, else from a runtime
    started on the export.

    `consent` is asked before anything is downloaded (None: agreed); how far a download is shows on
    `console` (stderr), and `progress` is told each step. `arguments` are further flags for the
    real server.

    Requests made up from the configs are asked where there are no recorded ones, or always with
    `generated`. The server is the wheel's, unless `url` (and `grpc_url`, for streams) names one
    that runs, or `docker` an image. `varies` are outputs (`model.OUTPUT`) whose values are not
    compared, as are those that a comment in the config names: `# devkit: varies[OUTPUT]`.
    """
    started = time.monotonic()
    say = progress or (lambda _: None)
    repository, names = models_at(Path(path))
    client = client or _running_client()
    records = _records(captures, client, names)
    with contextlib.ExitStack() as stack:
        if url:
            server = stack.enter_context(targets.running(url, grpc_url))
        elif docker:
            say(f"starting {docker}")
            server = stack.enter_context(targets.container(repository, docker, arguments))
        else:
            installation = real_server.ensure(cache, consent=consent, console=console)
            say(f"starting the real Triton server {real_server.SERVER_VERSION}")
            server = stack.enter_context(targets.wheel(repository, installation, arguments))
        devkit = stack.enter_context(_Devkit(repository, client, names))
        refused = _load_all(repository, names, server, say)
        checks = []
        for number, name in enumerate(names, 1):
            say(f"verifying {name} ({number} of {len(names)})")
            if name in refused:
                checks.append(ModelCheck(name, error=refused[name]))
                continue
            asked = _Asking(records.get(name, []), generated, _varying(repository, name, varies))
            checks.append(_verify_model(name, asked, server, devkit))
    return VerifyReport(Path(path), server.version, tuple(checks), time.monotonic() - started)


def _running_client() -> control.Client | None:
    try:
        return control.connect(start=False)
    except ControlError:
        return None


def models_at(path: Path) -> tuple[Path, list[str]]:
    """The repository and the names of the models meant by `path`: a repository, or one model."""
    path = path.expanduser().resolve()
    if _is_model(path):
        return path.parent, [path.name]
    names = sorted(folder.name for folder in path.glob("*") if _is_model(folder))
    if not names:
        raise VerifyError(
            f"{path} holds no exported model",
            remedy="name the folder given to `devkit export`, or one model's folder in it",
        )
    return path, names


def _is_model(folder: Path) -> bool:
    if (folder / "config.pbtxt").is_file():
        return True
    return any(one.parent.name.isdigit() for one in folder.glob("*/model.py"))


def _records(
    captures: Path | str | Iterable[Record] | None, client: control.Client | None, names: list[str]
) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {name: [] for name in names}
    if isinstance(captures, (str, Path)):
        with Path(captures).open("rb") as stream:
            captures = recording.read(stream)
    if captures is None and client is not None:
        captures = [record for name in names for record in client.captures(name)]
    for record in captures or ():
        if record.model in found:
            found[record.model].append(record)
    return found


class _Devkit:
    """Where devkit's answers come from when the recording has none: a runtime, asked over HTTP.

    The one of `client` for the models it serves as they were exported; for others one over the
    export, started when first needed and ended with the block.

    Attributes:
        changed: models that the runtime serves, but no longer as they were exported.
    """

    def __init__(
        self, repository: Path, client: control.Client | None, names: Sequence[str]
    ) -> None:
        self._repository = repository
        self._served: set[str] = set()
        self.changed: set[str] = set()
        # Asked, not read off `client.runtime`: that may be of before the ports were open.
        self._live = client.status().runtime if client is not None else None
        if client is not None and self._live is not None and self._live.url("http"):
            ready = {row.name for row in client.models() if row.state == "READY"}
            self._served = {
                name for name in ready.intersection(names)
                if is_current(client, name, repository / name)
            }  # fmt: skip
            self.changed = ready.intersection(names) - self._served
        self._ends = contextlib.ExitStack()
        self._own: control.Client | None = None

    def __enter__(self) -> _Devkit:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def serves(self, name: str) -> bool:
        """Whether the user's own runtime serves it as it was exported."""
        return name in self._served

    def url(self, name: str, protocol: str = "http") -> str:
        """`host:port` of a runtime that serves the model."""
        if self._live is not None and self.serves(name):
            return self._live.url(protocol)
        if self._own is None:
            self._own = self._start()
        return self._own.runtime.url(protocol)

    def _start(self) -> control.Client:
        workspace = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="devkit-verify-"))
        started = control.connect(
            workspace,
            repositories=[self._repository],
            flags=["--port=0", "--strict-readiness=false"],
        )

        def end() -> None:
            # It may have ended by itself; what matters is that it is gone.
            with contextlib.suppress(ControlError):
                started.shutdown()
            started.close()

        self._ends.callback(end)
        return started


@dataclass(frozen=True, slots=True)
class _Asking:
    """What to ask a model: recorded requests, made-up ones, and what varies by nature."""

    records: list[Record]
    generated: bool | None
    varies: frozenset[str]


def _varying(repository: Path, name: str, named: Sequence[str]) -> frozenset[str]:
    """Outputs whose values are another each time: as the caller says, or the config's comments."""
    found = {one.partition(".")[2] for one in named if one.partition(".")[0] == name}
    file = repository / name / "config.pbtxt"
    if file.is_file():
        for match in _VARIES.finditer(file.read_text("utf-8", "replace")):
            found |= {one.strip() for one in match[1].split(",")}
    return frozenset(found)


def _load_all(
    repository: Path, names: Sequence[str], server: Target, say: Callable[[str], None]
) -> dict[str, str]:
    """Load every model before any is asked, ensembles last; why each that is not there is not."""
    refused: dict[str, str] = {}
    if not server.loads:
        door = _Door(server.http)
        for name in names:
            if door.status(f"/v2/models/{name}/ready") != 200:
                refused[name] = f"the server at {server.http} does not serve it"
        return refused
    everything = [one.name for one in sorted(repository.iterdir()) if _is_model(one)]
    # A model may call any other: where one of them does, all are loaded, wanted or not.
    wanted = list(names)
    if any(_calls_others(repository / name) for name in names):
        wanted += [name for name in everything if name not in names]
    configs: dict[str, Any] = {}
    for name in wanted:
        try:
            configs[name] = _config_of(repository / name)
            missing = _missing_code(repository / name, configs[name])
        except ConfigError as problem:  # says line and column, which the real server does not
            refused[name] = problem.message
            continue
        if missing:  # the real server would hang for good
            refused[name] = missing
    real = _Door(server.http)
    for name in sorted(wanted, key=lambda one: _is_ensemble(configs.get(one))):
        if name in refused:
            continue
        say(f"loading {name}")
        status, body = real.post(f"/v2/repository/models/{name}/load", timeout=LOAD_SECONDS)
        if status != 200:
            log = server.log()
            refused[name] = real_server.explain(log) if status == 500 and log else _error_text(body)
    return refused


def _is_ensemble(config: Any) -> bool:
    return config is not None and config.HasField("ensemble_scheduling")


def _calls_others(folder: Path) -> bool:
    files = folder.glob("*/**/*.py")
    return any("InferenceRequest" in one.read_text("utf-8", "replace") for one in files)


def _config_of(folder: Path) -> Any:
    file = folder / "config.pbtxt"
    text = file.read_text("utf-8") if file.is_file() else ""
    return contract.parse(text, str(file))


def _verify_model(name: str, asking: _Asking, server: Target, devkit: _Devkit) -> ModelCheck:
    real = _Door(server.http)
    config = contract.from_json(real.get(f"/v2/models/{name}/config").decode())
    streams = contract.is_decoupled(config)
    if streams and not server.grpc:
        return ModelCheck(name, skipped="decoupled: name the server's gRPC address to ask it")
    asked = list(_asked(config, asking))
    live = _against(name, asked, devkit)
    ours = _Door(devkit.url(name)) if live != "recorded" else None
    metadata = _compare_metadata(name, real, ours) if ours is not None else ""
    with contextlib.ExitStack() as ends:
        their_stream = ends.enter_context(_stream(server.grpc)) if streams else None
        our_stream = (
            ends.enter_context(_stream(devkit.url(name, "grpc"))) if streams and ours else None
        )
        sides = (their_stream or real, our_stream or ours)
        checks = [_ask(name, one, sides, live, asking.varies) for one in asked]
    note = _CHANGED if name in devkit.changed else ""
    return ModelCheck(name, note=note, metadata=metadata, requests=tuple(checks))


@contextlib.contextmanager
def _stream(address: str) -> Iterator[_Streams]:
    door = GrpcStream(address, ANSWER_SECONDS)
    try:
        yield _Streams(door)
    finally:
        door.close()


def _raw(held: Held) -> Any:
    """The array as it travels: BF16 as its bits."""
    array = held.array()
    if held.datatype == "BF16":
        return (array.view(np.uint32) >> 16).astype(np.uint16)
    return array


class _Streams:
    """One server's gRPC stream: all responses to a request, in their order."""

    def __init__(self, door: GrpcStream) -> None:
        self._door = door

    def answers(self, model: str, version: str, wire: Wire) -> tuple[Answer, ...]:
        """The responses; an error is one, as it is on the stream."""
        try:
            found = self._door.infer(model, version, wire)
        except ReplayError as problem:
            raise VerifyError(problem.message, remedy=problem.remedy) from problem
        return tuple(
            Answer(500, error=one.error)
            if one.error
            else Answer(
                200,
                {
                    held.name: compare.Tensor(
                        held.name, held.datatype, tuple(held.shape), _raw(held)
                    )
                    for held in one.tensors
                },
            )
            for one in found
        )  # fmt: skip


def _missing_code(folder: Path, config: Any) -> str:
    if config.platform == "ensemble" or config.backend not in ("", "python") or config.platform:
        return ""
    file = config.default_model_filename or "model.py"
    versions = [path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()]
    if not versions:
        return f"{folder} has no version folder"
    lacking = [str(path / file) for path in versions if not (path / file).is_file()]
    return f"{', '.join(lacking)} does not exist" if lacking else ""


def _asked(config: contract.ModelConfig, asking: _Asking) -> Iterator[_Asked]:
    for record in asking.records:
        if record.replies:
            whole = all(one.wire.whole for one in record.replies) and not record.dropped
            replies = tuple(compare.answer_of_record(one) for one in record.replies)
            yield _Asked(
                record.request,
                record.version,
                "recorded",
                record.number,
                replies if whole else None,
            )
    if asking.generated or (asking.generated is None and not asking.records):
        made = sample_requests(config)
        if asking.generated:
            made += edge_requests(config)
        for number, wire in enumerate(made, 1):
            yield _Asked(wire, "", "made up", number)


def _against(name: str, asked: list[_Asked], devkit: _Devkit) -> str:
    if devkit.serves(name):
        return "live"
    if name in devkit.changed:  # what was recorded may be another version's answer
        return "export"
    return "recorded" if asked and all(one.recorded for one in asked) else "export"


def _ask(
    name: str,
    one: _Asked,
    sides: tuple[_Door | _Streams, _Door | _Streams | None],
    against: str,
    varies: frozenset[str],
) -> RequestCheck:
    real, ours = sides
    theirs = real.answers(name, one.version, one.wire)
    mine = ours.answers(name, one.version, one.wire) if ours is not None else one.recorded
    assert mine is not None  # "recorded" is only said where every request has its answer
    outputs = list(_compare_all(theirs, mine))
    outputs = [_forgiven(output, varies) for output in outputs]
    statuses = (theirs[0].status if theirs else 200, mine[0].status if mine else 200)
    return RequestCheck(name, one.origin, one.number, against, *statuses, tuple(outputs))


def _compare_all(theirs: Sequence[Answer], mine: Sequence[Answer]) -> Iterator[OutputCheck]:
    """Every response against the other side's at the same place."""
    if len(theirs) != len(mine):
        detail = f"{len(theirs)} responses on the real server, {len(mine)} here"
        yield OutputCheck("", DIFFERS, detail)
        return
    if not theirs:
        yield OutputCheck("", SAME, "no response on both")
    for number, (real, ours) in enumerate(zip(theirs, mine, strict=True), 1):
        for output in compare.compare(real, ours):
            if len(theirs) > 1:
                label = f"response {number}"
                detail = f"{label}: {output.detail}" if output.detail else label
                output = replace(output, detail=detail)
            yield output


def _forgiven(output: OutputCheck, varies: frozenset[str]) -> OutputCheck:
    """An output that is another each time, once its type and shape agree."""
    if output.verdict == DIFFERS and output.unequal and output.name in varies:
        return replace(output, verdict=SAME, detail="varies by nature: values not compared")
    return output


def _compare_metadata(name: str, real: _Door, ours: _Door) -> str:
    theirs, mine = (json.loads(door.get(f"/v2/models/{name}")) for door in (real, ours))
    parts = [
        f"{key}: {theirs.get(key)} on the real server, {mine.get(key)} here"
        for key in ("inputs", "outputs")
        if theirs.get(key) != mine.get(key)
    ]
    return "; ".join(parts)


class _Door:
    """One server's HTTP door; a connection a request, since either side may drop idle ones."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str) -> bytes:
        """The body of a successful GET."""
        status, _, body = self._exchange("GET", path, None, {}, ANSWER_SECONDS)
        if status == 404:
            raise UnknownModelError(_error_text(body))
        if status != 200:
            raise VerifyError(f"{path} answers {status}: {_error_text(body)}")
        return body

    def post(self, path: str, *, timeout: float) -> tuple[int, bytes]:
        """Status and body of a POST without a body."""
        status, _, body = self._exchange("POST", path, b"", {}, timeout)
        return status, body

    def status(self, path: str) -> int:
        """The status of a GET."""
        return self._exchange("GET", path, None, {}, ANSWER_SECONDS)[0]

    def answers(self, model: str, version: str, wire: Wire) -> tuple[Answer, ...]:
        """The one answer to a request in wire form."""
        path = f"/v2/models/{model}{f'/versions/{version}' if version else ''}/infer"
        headers = {"Inference-Header-Content-Length": str(wire.header_length)}
        status, length, body = self._exchange("POST", path, wire.data, headers, ANSWER_SECONDS)
        return (compare.answer_of_http(status, length, body),)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, int | None, bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=timeout)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            length = response.getheader("Inference-Header-Content-Length")
            return response.status, int(length) if length else None, response.read()
        except (OSError, http.client.HTTPException) as problem:
            raise VerifyError(
                f"no answer from {self._address} to {method} {path}: {problem}",
                remedy="where the real server hangs or ends, its log says why",
            ) from problem
        finally:
            connection.close()


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]).strip()
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")
