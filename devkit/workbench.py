"""The functions that `import devkit` offers: the runtime of this workspace, in a few words.

For notebooks and scripts. One connection per process, made at the first call, which starts a
runtime where none runs. Everything goes through `devkit.control.client`; no model runs here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from devkit.control.client import Client
from devkit.control.client import connect as _connect
from devkit.control.messages import Model
from devkit.errors import ControlError, DevkitError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from devkit.control.findings import ExportPlan
    from devkit.control.tracing import TraceRun, Traces
    from devkit.tools.adopt import Adoption
    from devkit.tools.diagnosis import Findings
    from devkit.tools.export import ExportReport
    from devkit.tools.inspection import Captures, Comparison, FailureList
    from devkit.tools.replay import ReplayReport
    from devkit.tools.verify import VerifyReport

_Answer = TypeVar("_Answer")

_client: Client | None = None

explain: Callable[[DevkitError], None] | None = None
"""Set by the notebook: makes an error show itself with the lines of the model's cell."""

note: Callable[[str], None] | None = None
"""Set by the notebook: shows what was assumed of a model; stderr gets it otherwise."""


def connect(workspace: str | Path | None = None) -> Client:
    """The client of this workspace's runtime, or of another's if one is named.

    A runtime is started when the workspace has none; it goes on when this process ends.
    """
    global _client
    if _client is None or workspace is not None:
        disconnect()
        _client = _connect(workspace)
        _client.on_note = note
    return _client


def disconnect() -> None:
    """Close the connection; the runtime and its models go on."""
    global _client
    client, _client = _client, None
    if client is not None:
        client.close()


def infer(
    name: str,
    inputs: Mapping[str, npt.ArrayLike],
    *,
    outputs: list[str] | None = None,
    version: str = "",
    **options: Any,
) -> dict[str, npt.NDArray[np.generic]]:
    """Run one inference and return its outputs as NumPy arrays by name.

    `inputs` are arrays, or what NumPy makes arrays of. A model that has no config yet gets one
    from them; what was assumed is said once. More `options`: `id`, `parameters`, `timeout`
    (seconds), `sequence_id`, `sequence_start`, `sequence_end`, `priority`.

    Raises InferError with the server's own text; in a notebook it shows the model's lines.
    """
    client = _client or connect()
    try:
        return client.infer(name, inputs, outputs=outputs, version=version, **options)
    except DevkitError as error:
        _explained(error)
        raise


def models() -> list[Model]:
    """Every model of the runtime's repositories and of this workspace's cells."""
    return _call(lambda client: client.models())


def load(name: str, config: dict[str, Any] | None = None) -> None:
    """Load a model of the repository; `config` replaces its own for this load."""
    _call(lambda client: client.load(name, config=config))


def unload(name: str, *, dependents: bool = False) -> None:
    """Unload a model: requests under way are served, then `finalize` runs."""
    _call(lambda client: client.unload(name, dependents=dependents))


def remove(name: str) -> None:
    """Unload a model that a notebook cell made, and delete its files."""
    _call(lambda client: client.remove_model(name))


def reload(name: str) -> None:
    """Load a model afresh and swap it without losing a request, also if no file has changed."""
    _call(lambda client: client.reload(name))


def scale(name: str, count: int) -> None:
    """Change how many instances a loaded model has; it serves on meanwhile."""
    _call(lambda client: client.scale(name, count))


def config(name: str) -> str:
    """The completed configuration of a model as readable `config.pbtxt` text."""
    return _call(lambda client: client.config_text(name))


def export(name: str, path: str | Path, *, force: bool = False) -> ExportReport:
    """Write the model to `path/name` as the real Triton server takes it; says what was written.

    What is there and differs is replaced only by `force`.
    """
    from devkit.tools.export import export as export_model

    return _call(lambda client: export_model(client, name, path, force=force))


def export_all(path: str | Path, *names: str, plan: bool = False, **options: Any) -> ExportPlan:
    """Write models (none named: all) and what goes with them to the repository at `path`.

    `plan` only says what would be written. `options`: `force`, `full`, `version` (a number or
    "next"), `warmup`, `client`, `requirements`, `perf`, `deploy`, `release`.
    """
    from devkit.control.findings import ExportAsked
    from devkit.tools import exporting

    asked = ExportAsked(str(Path(path).expanduser().resolve()), names, **options)
    work = exporting.plan if plan else exporting.write
    return _call(lambda client: work(client, asked))


def diagnose(name: str = "", *, release: str = "") -> Findings:
    """What works here and fails in production: of a model, or of all that are served.

    From their files, and from what the runtime has seen of them. `release` is Triton's: "25.03".
    """
    from devkit.tools.diagnosis import Findings

    return _call(lambda client: Findings.of(client.doctor(name, release=release)))


def adopt(path: str | Path, into: str | Path, **options: Any) -> Adoption:
    """Make a first model of a function, a PyTorch network, an ONNX file or a FastAPI handler.

    `options`: `name`, `entry`, `inputs` (`["X=FP32:4"]`), `weights`, `python`.
    """
    from devkit.tools.adopt import adopt as make

    return make(path, into, **options)


def verify(
    path: str | Path, *, download: bool | None = None, generated: bool | None = None
) -> VerifyReport:
    """Ask the real Triton server the requests recorded here, and compare what it answers.

    The real server is fetched once, into a cache of its own; `download` agrees to that (or not)
    beforehand, None asks. `generated` asks made-up requests too.
    """
    from devkit.tools.verify import verify as verify_export

    def consent(question: str) -> bool:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")

    return _call(
        lambda client: verify_export(
            path,
            client=client,
            generated=generated,
            consent=consent if download is None else lambda _: bool(download),
        )
    )


def trace(model: str = "", count: int = 20, *, timeout: float | None = None) -> Traces:
    """Trace the next `count` requests to a model (or any), whoever sends them, and wait for them.

    What comes back has `.summary()` (where the time went, in words), `.spans`, `.to_chrome(path)`.
    After `timeout` seconds, or Ctrl-C, it holds what came until then.
    """
    return _call(lambda client: client.trace(model, count, timeout=timeout))


def tracing(model: str = "", count: int = 0) -> TraceRun:
    """The same for the requests of a `with` block; its `result` has the traces afterwards.

    `with devkit.tracing("ocr") as run: devkit.infer("ocr", ...)`, then `run.result.summary()`.
    """
    return _call(lambda client: client.start_trace(model, count))


def captures(
    name: str = "",
    *,
    file: str | Path | None = None,
    id: str = "",
    failed: bool = False,
    slower: float = 0.0,
    last: int = 0,
) -> Captures:
    """The recorded requests of a model or of all, the oldest first; `file` reads a recording.

    `id` may end with `*`, `slower` is in seconds. Each has `.inspect()`, `.replay()`, `.curl()`,
    `.inputs()` and `.outputs()`; all of them `.save(path)`.
    """
    from devkit.tools.inspection import Captures

    choice: dict[str, Any] = {"id": id, "failed": failed, "slower": slower, "last": last}
    if file is not None:
        return Captures.read(file, name, **choice)
    return _call(lambda client: Captures.of(client, name, **choice))


def failures(name: str = "") -> FailureList:
    """Every `execute` that raised and every process that died, of a model or of all.

    Each shows its traceback with source and locals, and has `.inspect()`, `.replay()`, `.details`.
    """
    from devkit.tools.inspection import FailureList

    return _call(lambda client: FailureList.of(client, name))


def inspect(subject: Any) -> Any:
    """What a result, an array, a recorded request (or its number) or a failure holds, in numbers.

    One array gives a TensorView, anything else an Inspection of several; both show themselves and
    have `to_dict()`.
    """
    from devkit.tools.inspection import inspect as look

    if isinstance(subject, int) and not isinstance(subject, bool):
        return _call(lambda client: look(subject, client=client))
    return look(subject)


def compare(
    left: Any, right: Any, *, exact: bool = False, names: tuple[str, str] = ("left", "right")
) -> Comparison:
    """What differs between two of anything that `inspect` takes, or two that `replay` returned.

    `exact` looks at every value of large tensors; `names` is what to call the two.
    """
    from devkit.tools.inspection import compare as look

    if any(isinstance(one, int) for one in (left, right)):
        return _call(lambda client: look(left, right, client=client, exact=exact, names=names))
    return look(left, right, exact=exact, names=names)


def replay(subject: Any, to: str = "", **options: Any) -> ReplayReport:
    """Send recorded requests again and compare what is answered with what was recorded.

    `subject` is a recorded request or several, their numbers, a failure, or a file. `to` is empty
    for this runtime, `host:port`, a URL (`grpc://` too), or `"real"` for the real Triton server.
    `options`: `model`, `version`, `times`, `together`, `pace`, `timeout`, `repository`.
    """
    from devkit.tools.inspection import records_of
    from devkit.tools.replay import replay as send

    return _call(lambda client: send(records_of(subject, client), to, client=client, **options))


def _call(function: Callable[[Client], _Answer]) -> _Answer:
    """Call with the client, once more with a new one when the runtime has gone meanwhile."""
    try:
        try:
            return function(connect())
        except ControlError:
            if _client is None or _client.alive():
                raise
            disconnect()
            return function(connect())
    except DevkitError as error:
        _explained(error)
        raise


def _explained(error: DevkitError) -> None:
    if explain is not None:
        explain(error)
