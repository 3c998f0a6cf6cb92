"""Recorded requests sent again: to this runtime, to any KServe v2 server, to the real Triton.

Each answer is compared with the one that was recorded. A request goes out byte for byte as it was
kept, over HTTP, or over gRPC where the model is decoupled or the address says `grpc://`. What
counts as the same is `contract.differences`' business.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from devkit.contract import differences, recording
from devkit.contract.differences import CLOSE, DIFFERS, SAME, Difference
from devkit.contract.inspection import Held
from devkit.contract.recording import Record, Wire
from devkit.control.client import Client
from devkit.errors import DevkitError
from devkit.tools import compare, real_server
from devkit.tools.export import export
from devkit.tools.real_server import Consent, RealServer
from devkit.transport import dtypes

REAL = "real"
"""The address that stands for the real Triton server, started for this."""

SECONDS = 120.0
LOAD_SECONDS = 300.0
_STYLE = {SAME: "green", CLOSE: "yellow", DIFFERS: "bold red"}
_ORDER = (SAME, CLOSE, DIFFERS)
_HERE_ONLY = "binary_data_output"  # a parameter of HTTP alone


class ReplayError(DevkitError):
    """A request cannot be sent again, or nobody answers at the address; `remedy` says why."""


@dataclass(frozen=True)
class Got:
    """One response: tensors, or an error."""

    tensors: tuple[Held, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Replayed:
    """One request that was sent again.

    Attributes:
        got: its responses now.
        differences: from the recorded ones, an entry per tensor; one without a name is about the
            answer as a whole.
    """

    record: Record
    got: tuple[Got, ...]
    seconds: float
    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> str:
        """`same`, `close` or `differs`."""
        return max((one.verdict for one in self.differences), key=_ORDER.index, default=SAME)

    @property
    def error(self) -> str:
        """The first error now, empty where there is none."""
        return next((one.error for one in self.got if one.error), "")

    def outputs(self) -> dict[str, Any]:
        """Arrays of the first response that has any, by name; BF16 as FP32."""
        for one in self.got:
            if one.tensors:
                return {held.name: held.array() for held in one.tensors}
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values."""
        return {
            "number": self.record.number, "model": self.record.model, "id": self.record.id,
            "verdict": self.verdict, "seconds": self.seconds,
            "recorded_seconds": self.record.seconds, "error": self.error,
            "recorded_error": self.record.error,
            "differences": [asdict(one) for one in self.differences],
        }  # fmt: skip


@dataclass(frozen=True)
class ReplayReport:
    """What became of the requests at `target`."""

    target: str
    requests: tuple[Replayed, ...]

    @property
    def verdict(self) -> str:
        """`same`, `close` or `differs`, of the worst."""
        return max((one.verdict for one in self.requests), key=_ORDER.index, default=SAME)

    @property
    def exit_code(self) -> int:
        """What a command that replays ends with."""
        return 1 if self.verdict == DIFFERS else 0

    def __iter__(self) -> Iterator[Replayed]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, index: int) -> Replayed:
        return self.requests[index]

    def outputs(self) -> dict[str, Any]:
        """Outputs of the first request, by name."""
        return self.requests[0].outputs() if self.requests else {}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values, as JSON says it."""
        rows = [one.to_dict() for one in self.requests]
        return {"target": self.target, "verdict": self.verdict, "requests": rows}

    def __rich__(self) -> RenderableType:
        table = Table(title=f"sent again to {self.target}", title_justify="left")
        for column in ("request", "model", "output", "verdict", "seconds", "was", "what"):
            table.add_column(column, overflow="fold")
        for one in self.requests:
            head = [str(one.record.number), one.record.model]
            tail = [f"{one.seconds:.4f}", f"{one.record.seconds:.4f}"]
            for difference in one.differences:
                verdict = Text(difference.verdict, _STYLE[difference.verdict])
                table.add_row(*head, difference.name, verdict, *tail, Text(difference.detail))
                head, tail = ["", ""], ["", ""]
        return Group(table, Text(self.summary(), _STYLE[self.verdict]))

    def summary(self) -> str:
        """One sentence."""
        count = len(self.requests)
        unlike = sum(one.verdict == DIFFERS for one in self.requests)
        asked = f"{count} request{'' if count == 1 else 's'}"
        if unlike:
            return f"{unlike} of {asked} answered otherwise than recorded."
        within = " within rounding" if self.verdict == CLOSE else ""
        return f"{asked} answered as recorded{within}."

    def text(self, width: int | None = None) -> str:
        """The table and the sentence, as plain text."""
        console = Console(width=width, color_system=None, highlight=False, force_jupyter=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text(width=110))


def replay(
    records: Iterable[Record],
    to: str = "",
    *,
    client: Client | None = None,
    model: str = "",
    version: str | None = None,
    times: int = 1,
    together: bool = False,
    pace: bool = False,
    timeout: float = SECONDS,
    repository: Path | str | None = None,
    consent: Consent | None = None,
    progress: Callable[[str], None] | None = None,
) -> ReplayReport:
    """Send recorded requests again and compare the answers with the recorded ones.

    `to` is `host:port`, a URL (`http://`, `https://`, `grpc://`), `real` for the real Triton
    server, or empty for the runtime of `client`. `model` and `version` replace the recorded ones.
    `together` sends them all at once, as requests of a batch; `pace` with the recorded pauses.
    The real server serves what `client` exports, or the models of `repository`; it is fetched
    after `consent`.
    """
    chosen = list(records) * max(1, times)
    if not chosen:
        raise ReplayError("there is no request to send", remedy="`devkit captures` lists them")
    for record in chosen:
        if not record.whole:
            raise ReplayError(
                f"of request {record.number} only a sample was kept",
                model=record.model,
                remedy="record larger requests whole: `devkit record --largest 2GiB`",
            )
    names = sorted({model or record.model for record in chosen})
    with contextlib.ExitStack() as ends:
        if to == REAL:
            doors = _real(ends, client, names, repository, consent, progress or (lambda _: None))
            title = f"the real Triton server {real_server.SERVER_VERSION}"
        else:
            doors = _Doors(*_addresses(to, client), timeout)
            title = to or "this runtime"
        ends.callback(doors.close)

        def send(record: Record) -> Replayed:
            name = model or record.model
            asked = record.version if version is None else version
            started = time.monotonic()
            got = doors.door(name).infer(name, asked, record.request)
            seconds = time.monotonic() - started
            return Replayed(record, got, seconds, tuple(_compare(record, got)))

        if together and len(chosen) > 1:
            with ThreadPoolExecutor(min(64, len(chosen))) as threads:
                rows = list(threads.map(send, chosen))
        else:
            rows = list(_in_turn(chosen, send, pace))
    return ReplayReport(title, tuple(rows))


def _in_turn(
    records: Sequence[Record], send: Callable[[Record], Replayed], pace: bool
) -> Iterator[Replayed]:
    started, first = time.monotonic(), records[0].time
    for record in records:
        if pace:
            time.sleep(max(0.0, record.time - first - (time.monotonic() - started)))
        yield send(record)


# --- comparing ----------------------------------------------------------------------------------


def _compare(record: Record, got: Sequence[Got]) -> Iterator[Difference]:
    before = [Got(error=reply.error) if reply.error
              else Got(tuple(reply.wire.held("outputs")) if reply.wire.data else ())
              for reply in record.replies]  # fmt: skip
    if len(before) + record.dropped != len(got):
        detail = f"{len(before) + record.dropped} responses recorded, {len(got)} now"
        if got and got[0].error:
            detail = f"error now: {_head(got[0].error)}"
        yield Difference("", DIFFERS, detail)
        return
    for number, (old, new) in enumerate(zip(before, got, strict=False)):
        label = f"response {number + 1}: " if len(before) > 1 else ""
        yield from _compare_one(old, new, label)


def _head(error: str) -> str:
    # Behind "At:" come paths and lines of the model's file, which an export or an edit moves.
    return error.split("\n\nAt:\n")[0]


def _compare_one(old: Got, new: Got, label: str) -> Iterator[Difference]:
    if old.error or new.error:
        if _head(old.error) == _head(new.error):
            yield Difference("", SAME, f"{label}the same error: {_head(old.error)}")
        else:
            was, now = (_head(one.error) or "an answer" for one in (old, new))
            yield Difference("", DIFFERS, f"{label}{was!r} recorded, {now!r} now")
        return
    left = {held.name: held for held in old.tensors}
    right = {held.name: held for held in new.tensors}
    if not left and not right:
        yield Difference("", SAME, f"{label}no outputs on both")
    for name in dict.fromkeys([*left, *right]):
        if name in left and name in right:
            names = (f"{label}recorded", "now")
            yield differences.compare(left[name], right[name], exact=True, names=names)
        else:
            side = "recorded" if name in left else "now"
            yield Difference(name, DIFFERS, f"{label}there {side} only")


# --- doors --------------------------------------------------------------------------------------


class _Door(Protocol):
    def infer(self, model: str, version: str, wire: Wire) -> tuple[Got, ...]:
        """The responses to a request in wire form."""

    def close(self) -> None:
        """Close what is open."""


class _Doors:
    """Both doors of a server: HTTP, and gRPC for what HTTP cannot do."""

    def __init__(self, http_url: str, grpc_url: str, timeout: float) -> None:
        self._http = _Http(http_url, timeout) if http_url else None
        self._grpc_url = grpc_url
        self._timeout = timeout
        self._grpc: GrpcStream | None = None
        self._chosen: dict[str, _Door] = {}

    def door(self, model: str) -> _Door:
        """The one for a model."""
        if model not in self._chosen:
            streams = self._http is None or self._http.is_decoupled(model)
            found = self._stream(model) if streams else self._http
            assert found is not None
            self._chosen[model] = found
        return self._chosen[model]

    def _stream(self, model: str) -> _Door:
        if not self._grpc_url:
            raise ReplayError(
                f"'{model}' is decoupled: it answers on a gRPC stream only",
                model=model,
                remedy="name the server's gRPC address: grpc://HOST:8001",
            )
        if self._grpc is None:
            self._grpc = GrpcStream(self._grpc_url, self._timeout)
        return self._grpc

    def close(self) -> None:
        """Close what is open."""
        if self._grpc is not None:
            self._grpc.close()


def _addresses(to: str, client: Client | None) -> tuple[str, str]:
    """HTTP and gRPC address of where `to` leads."""
    if not to:
        if client is None:
            raise ReplayError("there is no runtime", remedy="start one, or name an address")
        runtime = client.runtime
        if not runtime.url("http") and not runtime.url("grpc"):
            raise ReplayError(
                "the runtime serves neither HTTP nor gRPC", remedy="start it with --allow-http"
            )
        return runtime.url("http"), runtime.url("grpc")
    if to.startswith("grpc://"):
        return "", to.removeprefix("grpc://").rstrip("/")
    return to.rstrip("/"), ""


class _Http:
    """HTTP; a connection a request, since either side may drop idle ones."""

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ReplayError(f"'{url}' is no address", remedy="host:port, http:// or grpc://")
        self._secure = parts.scheme == "https"
        self._address = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        self._timeout = timeout

    def is_decoupled(self, model: str) -> bool:
        """What the model's config says; False where the server does not tell."""
        status, _, body = self._exchange("GET", f"/v2/models/{quote(model)}/config", None, {})
        if status != 200:
            return False
        with contextlib.suppress(ValueError, AttributeError):
            policy = json.loads(body).get("model_transaction_policy") or {}
            return bool(policy.get("decoupled"))
        return False

    def infer(self, model: str, version: str, wire: Wire) -> tuple[Got, ...]:
        """The answer to a request in wire form."""
        path = f"/v2/models/{quote(model)}" + (f"/versions/{version}" if version else "")
        headers = {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(wire.header_length),
        }
        status, length, body = self._exchange("POST", f"{path}/infer", wire.data, headers)
        answer = compare.answer_of_http(status, length, body)
        if status != 200:
            return (Got(error=answer.error or f"status {status}"),)
        return (Got(tuple(_held(one) for one in answer.outputs.values())),)

    def load(self, model: str) -> None:
        """Have a model loaded; raises ReplayError where it is not."""
        path = f"/v2/repository/models/{quote(model)}/load"
        status, _, body = self._exchange("POST", path, b"", {}, LOAD_SECONDS)
        if status != 200:
            error = compare.answer_of_http(status, None, body).error
            raise ReplayError(f"'{model}' does not load there: {error}", model=model)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str],
        timeout: float = 0.0,
    ) -> tuple[int, int | None, bytes]:  # fmt: skip
        wait = timeout or self._timeout
        connection: http.client.HTTPConnection
        if self._secure:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._address, timeout=wait, context=context)
        else:
            connection = http.client.HTTPConnection(self._address, timeout=wait)
        try:
            connection.request(method, self._prefix + path, body, headers)
            response = connection.getresponse()
            length = response.getheader("Inference-Header-Content-Length")
            return response.status, int(length) if length else None, response.read()
        except (OSError, http.client.HTTPException) as problem:
            raise ReplayError(
                f"no answer from {self._address} to {method} {path}: {problem}",
                remedy="is a server there, and does the model end?",
            ) from problem
        finally:
            connection.close()

    def close(self) -> None:
        """Nothing stays open."""


def _held(tensor: compare.Tensor) -> Held:
    if tensor.datatype == "BYTES":
        return Held(tensor.name, "BYTES", tensor.shape, None, array=tensor.array)
    return Held(tensor.name, tensor.datatype, tensor.shape, dtypes.to_data(tensor.array))


class GrpcStream:
    """A gRPC stream a request: right for every kind of model."""

    def __init__(self, address: str, timeout: float) -> None:
        import grpc
        from tritonclient.grpc import service_pb2_grpc

        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._address = address
        self._timeout = timeout
        self._channel = grpc.insecure_channel(address, options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def infer(self, model: str, version: str, wire: Wire) -> tuple[Got, ...]:
        """Every response of the stream."""
        import grpc

        got = []
        try:
            asked = iter([_grpc_request(model, version, wire)])
            for answer in self._stub.ModelStreamInfer(asked, timeout=self._timeout):
                if answer.error_message:
                    got.append(Got(error=answer.error_message))
                else:
                    got.append(Got(tuple(_grpc_tensors(answer.infer_response))))
        except grpc.RpcError as problem:
            code = problem.code() if hasattr(problem, "code") else ""
            detail = problem.details() if hasattr(problem, "details") else problem
            raise ReplayError(f"{self._address} does not answer: {code} {detail}") from problem
        return tuple(got)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _grpc_request(model: str, version: str, wire: Wire) -> Any:
    from tritonclient.grpc import service_pb2

    header = wire.header
    request = service_pb2.ModelInferRequest(
        model_name=model, model_version=version, id=str(header.get("id", ""))
    )
    for name, value in (header.get("parameters") or {}).items():
        if name != _HERE_ONLY:
            _set_parameter(request.parameters[name], name, value)
    offset = wire.header_length
    for row in header["inputs"]:
        tensor = request.inputs.add(name=row["name"], datatype=row["datatype"])
        tensor.shape.extend(row["shape"])
        size = row["parameters"]["binary_data_size"]
        request.raw_input_contents.append(wire.data[offset : offset + size])
        offset += size
    for row in header.get("outputs", ()):
        request.outputs.add(name=row["name"])
    return request


def _set_parameter(parameter: Any, name: str, value: Any) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int) and name == "priority":
        parameter.uint64_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = str(value)


def _grpc_tensors(response: Any) -> Iterator[Held]:
    for output, data in zip(response.outputs, response.raw_output_contents, strict=False):
        yield Held(output.name, output.datatype, tuple(output.shape), data)


def _real(
    ends: contextlib.ExitStack,
    client: Client | None,
    names: Sequence[str],
    repository: Path | str | None,
    consent: Consent | None,
    say: Callable[[str], None],
) -> _Doors:
    """The real server, running, over the models as they are served now."""
    if repository is None:
        if client is None:
            raise ReplayError(
                "there is no runtime to take the model from",
                remedy="start one, or name a folder that `devkit export` has written",
            )
        folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="devkit-replay-"))
        repository = Path(folder)
        for name in _with_steps(client, names):
            export(client, name, repository)
    installation = real_server.ensure(consent=consent)
    say(f"starting the real Triton server {real_server.SERVER_VERSION}")
    flags = ["--model-control-mode=explicit"]
    server = ends.enter_context(RealServer(Path(repository), installation, arguments=flags))
    address = f"{server.host}:{server.http_port}"
    for name in names:
        say(f"loading {name}")
        _Http(address, SECONDS).load(name)
    return _Doors(address, f"{server.host}:{server.grpc_port}", SECONDS)


def _with_steps(client: Client, names: Sequence[str]) -> list[str]:
    """The models and those that ensembles among them are made of."""
    found: list[str] = []
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            steps = (client.config(name).get("ensemble_scheduling") or {}).get("step") or []
            waiting += [step["model_name"] for step in steps]
    return found


def read(path: Path | str) -> list[Record]:
    """The records of a recording file."""
    try:
        with Path(path).open("rb") as stream:
            return recording.read(stream)
    except OSError as problem:
        raise ReplayError(
            f"{path}: {problem.strerror}", remedy="`devkit record` makes one"
        ) from None
