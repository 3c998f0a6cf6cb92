"""An exported repository asked of the real Triton server and of devkit, and both compared.

The requests are those recorded while working, or made up from the config where there are none;
devkit's answers come from the runtime that serves the model, from the recording, or from a runtime
started on the export for this purpose. What counts as the same is said in `compare`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from devkit.contract import config as contract
from devkit.contract import recording
from devkit.contract.differences import CLOSE, DIFFERS, SAME
from devkit.contract.recording import Record, Wire
from devkit.control import client as control
from devkit.errors import ConfigError, ControlError, DevkitError, UnknownModelError
from devkit.tools import compare, real_server
from devkit.tools.compare import Answer, OutputCheck, worst
from devkit.tools.export import is_current
from devkit.tools.real_server import Consent, RealServer
from devkit.tools.samples import sample_requests

LOAD_SECONDS = 300.0
ANSWER_SECONDS = 120.0
_CHANGED = (
    "it has changed since this export, so devkit's answers come from the export too; "
    "`devkit export --force` writes what is served now"
)
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
    recorded: Answer | None = None


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
) -> VerifyReport:
    """Ask the real server what devkit was asked, over the exported repository or model at `path`.

    `captures` are recorded requests, or a file of them; without any, those of `client`, which is
    the runtime of this workspace if none is given and one runs. Devkit's answers come from it
    where it serves the model as it was exported, else from the recording, else from a runtime
    started on the export.

    `consent` is asked before anything is downloaded (None: agreed); how far a download is shows on
    `console` (stderr), and `progress` is told each step. `arguments` are further flags for the
    real server.
    """
    started = time.monotonic()
    say = progress or (lambda _: None)
    repository, names = models_at(Path(path))
    client = client or _running_client()
    records = _records(captures, client, names)
    installation = real_server.ensure(cache, consent=consent, console=console)
    flags = ["--model-control-mode=explicit", *arguments]
    say(f"starting the real Triton server {real_server.SERVER_VERSION}")
    with (
        RealServer(repository, installation, arguments=flags) as server,
        _Devkit(repository, client, names) as devkit,
    ):
        checks = []
        for name in names:
            say(f"verifying {name}")
            checks.append(_verify_model(name, repository, records.get(name, []), server, devkit))
    seconds = time.monotonic() - started
    return VerifyReport(Path(path), real_server.SERVER_VERSION, tuple(checks), seconds)


def _running_client() -> control.Client | None:
    try:
        return control.connect(start=False)
    except ControlError:
        return None


def models_at(path: Path) -> tuple[Path, list[str]]:
    """The repository and the names of the models meant by `path`: a repository, or one model."""
    path = path.expanduser().resolve()
    if (path / "config.pbtxt").is_file():
        return path.parent, [path.name]
    names = sorted(file.parent.name for file in path.glob("*/config.pbtxt"))
    if not names:
        raise VerifyError(
            f"{path} holds no exported model",
            remedy="name the folder given to `devkit export`, or one model's folder in it",
        )
    return path, names


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
        self._client = client
        self._served: set[str] = set()
        self.changed: set[str] = set()
        if client is not None and client.runtime.url("http"):
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

    def url(self, name: str) -> str:
        """`host:port` of a runtime that serves the model."""
        if self._client is not None and self.serves(name):
            return self._client.runtime.url("http")
        if self._own is None:
            self._own = self._start()
        return self._own.runtime.url("http")

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


def _verify_model(
    name: str, repository: Path, records: list[Record], server: RealServer, devkit: _Devkit
) -> ModelCheck:
    try:
        missing = _missing_code(repository / name)
    except ConfigError as problem:  # says line and column, which the real server's answer does not
        return ModelCheck(name, error=problem.message)
    if missing:  # the real server would hang for good
        return ModelCheck(name, error=missing)
    real = _Door(f"{server.host}:{server.http_port}")
    status, body = real.post(f"/v2/repository/models/{name}/load", timeout=LOAD_SECONDS)
    if status != 200:
        why = real_server.explain(server.log()) if status == 500 else _error_text(body)
        return ModelCheck(name, error=why)
    config = contract.from_json(real.get(f"/v2/models/{name}/config").decode())
    if contract.is_decoupled(config):
        return ModelCheck(name, skipped="decoupled: it answers on a gRPC stream only")
    asked = list(_asked(config, records))
    live = _against(name, asked, devkit)
    ours = _Door(devkit.url(name)) if live != "recorded" else None
    metadata = _compare_metadata(name, real, ours) if ours is not None else ""
    checks = [_ask(name, one, real, ours, live) for one in asked]
    note = _CHANGED if name in devkit.changed else ""
    return ModelCheck(name, note=note, metadata=metadata, requests=tuple(checks))


def _missing_code(folder: Path) -> str:
    config = contract.parse(
        (folder / "config.pbtxt").read_text("utf-8"), str(folder / "config.pbtxt")
    )
    if config.platform == "ensemble":
        return ""
    file = config.default_model_filename or "model.py"
    versions = [path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()]
    if not versions:
        return f"{folder} has no version folder"
    lacking = [str(path / file) for path in versions if not (path / file).is_file()]
    return f"{', '.join(lacking)} does not exist" if lacking else ""


def _asked(config: contract.ModelConfig, records: list[Record]) -> Iterator[_Asked]:
    for record in records:
        if record.replies:
            first = record.replies[0]
            reply = compare.answer_of_record(first) if first.wire.whole else None
            yield _Asked(record.request, record.version, "recorded", record.number, reply)
    if not records:
        for number, wire in enumerate(sample_requests(config), 1):
            yield _Asked(wire, "", "made up", number)


def _against(name: str, asked: list[_Asked], devkit: _Devkit) -> str:
    if devkit.serves(name):
        return "live"
    if name in devkit.changed:  # what was recorded may be another version's answer
        return "export"
    return "recorded" if asked and all(one.recorded for one in asked) else "export"


def _ask(name: str, one: _Asked, real: _Door, ours: _Door | None, against: str) -> RequestCheck:
    version = f"/versions/{one.version}" if one.version else ""
    path = f"/v2/models/{name}{version}/infer"
    theirs = real.infer(path, one.wire)
    mine = ours.infer(path, one.wire) if ours is not None else one.recorded
    assert mine is not None  # "recorded" is only said where every request has its answer
    outputs = tuple(compare.compare(theirs, mine))
    return RequestCheck(name, one.origin, one.number, against, theirs.status, mine.status, outputs)


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

    def infer(self, path: str, wire: Wire) -> Answer:
        """The answer to a request in wire form."""
        headers = {"Inference-Header-Content-Length": str(wire.header_length)}
        status, length, body = self._exchange("POST", path, wire.data, headers, ANSWER_SECONDS)
        return compare.answer_of_http(status, length, body)

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
