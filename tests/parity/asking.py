"""What a parity case is: something to ask, the same way of both servers, and what FACTS knows.

Cases are data. `ask` turns one into what a server answered, in a form that two servers can be
compared in and that a person can read: status, the headers that matter, the body.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2 as pb

from tests.support.session import HttpAnswer, Session, StreamAnswer

Answer = dict[str, Any]
Blur = Callable[[str], str]

HEADERS = (
    "content-type",
    "inference-header-content-length",
    "content-encoding",
    "accept-encoding",
    "transfer-encoding",
)


@dataclass(frozen=True)
class Http:
    """One HTTP request."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    door: str = "http"
    timeout: float = 30.0

    def ask(self, session: Session) -> Answer:
        port = session.server.metrics_port if self.door == "metrics" else None
        try:
            answer = session.http(
                self.method,
                self.path,
                self.body,
                dict(self.headers),
                port=port,
                timeout=self.timeout,
            )
        except TimeoutError:
            return {"status": 0, "body": f"no answer within {self.timeout:g} s"}
        except (ConnectionError, http.client.HTTPException) as problem:
            return {"status": 0, "body": f"the connection broke: {type(problem).__name__}"}
        return view_http(answer)


@dataclass(frozen=True)
class Grpc:
    """One unary gRPC call."""

    method: str
    message: Any
    metadata: tuple[tuple[str, str], ...] = ()
    timeout: float = 30.0

    def ask(self, session: Session) -> Answer:
        answer = session.grpc(
            self.method, self.message, metadata=self.metadata, timeout=self.timeout
        )
        shown: Answer = {"code": answer.code}
        if answer.code == "OK":
            shown["message"] = _message(answer.message)
        else:
            shown["details"] = answer.details
        return shown


@dataclass(frozen=True)
class Stream:
    """One ModelStreamInfer call, all requests sent at once."""

    requests: tuple[Any, ...]
    metadata: tuple[tuple[str, str], ...] = ()
    timeout: float = 15.0
    texts: bool = False  # show outputs as the texts they are

    def ask(self, session: Session) -> Answer:
        answer = session.stream(self.requests, metadata=self.metadata, timeout=self.timeout)
        shown = view_stream(answer)
        for message in shown["messages"] if self.texts else ():
            response = message.get("infer_response", {})
            if "raw_output_contents" in response:
                response["raw_output_contents"] = [
                    base64.b64decode(data)[4:].decode("utf-8", "backslashreplace")
                    for data in response["raw_output_contents"]
                ]
        return shown


@dataclass(frozen=True)
class Pause:
    """Time for what a server does after it has answered (ending stubs, unloading)."""

    seconds: float

    def ask(self, session: Session) -> Answer:
        time.sleep(self.seconds)
        return {}


@dataclass(frozen=True)
class Until:
    """Asks again until the answer's body contains `text`; shows the last answer."""

    request: Http
    text: str
    seconds: float = 10.0

    def ask(self, session: Session) -> Answer:
        deadline = time.monotonic() + self.seconds
        while True:
            answer = self.request.ask(session)
            if self.text in json.dumps(answer) or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)


@dataclass(frozen=True)
class Quiet:
    """A step whose own answer is no part of the comparison (making a state, clearing it)."""

    request: Any

    def ask(self, session: Session) -> Answer:
        self.request.ask(session)
        return {}


@dataclass(frozen=True)
class Together:
    """Several at once, each `gap` seconds after the one before; the answers in that order."""

    asked: tuple[Any, ...]
    gap: float = 0.05

    def ask(self, session: Session) -> Answer:
        _ = session.stub  # made before there are threads
        with ThreadPoolExecutor(len(self.asked)) as pool:
            answers = []
            for each in self.asked:
                answers.append(pool.submit(each.ask, session))
                time.sleep(self.gap)
            return {"together": [answer.result() for answer in answers]}


@dataclass(frozen=True)
class GivenUp:
    """A request whose client leaves once `started` is in the log; shows what is logged after it.

    `request` is an Http (the connection is closed), or a ModelInferRequest (the call is cancelled;
    `stream` sends it over a stream). The first of `ends` that the log has is shown.
    """

    request: Any
    started: str
    ends: tuple[str, ...]
    stream: bool = False
    seconds: float = 8.0

    def ask(self, session: Session) -> Answer:
        start = len(session.log())
        leave = self._send(session)
        shown: Answer = {"started": session.wait_for_log(self.started, since=start)}
        time.sleep(0.1)  # for a request that is to wait, which nothing tells of
        shown.update(leave())
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            written = session.log()[start:]
            found = [(written.index(end), end) for end in self.ends if end in written]
            if found:
                shown["ended"] = min(found)[1]
                return shown
            time.sleep(0.02)
        shown["ended"] = "none of them"
        return shown

    def _send(self, session: Session) -> Callable[[], Answer]:
        if isinstance(self.request, Http):
            connection = socket.create_connection(("127.0.0.1", session.server.http_port), 10)
            body = self.request.body or b""
            head = f"POST {self.request.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
            return lambda: connection.close() or {}
        if self.stream:
            call = session.stub.ModelStreamInfer(iter([self.request]))
        else:
            call = session.stub.ModelInfer.future(self.request)

        def cancel() -> Answer:
            call.cancel()
            return {"code": call.code().name}

        return cancel


@dataclass(frozen=True)
class Logged:
    """What the log has got since an earlier mark: the lines that match, with `blur` done."""

    asked: Any
    pattern: str
    count: int = 1

    def ask(self, session: Session) -> Answer:
        start = len(session.log())
        answer = self.asked.ask(session)  # the lines may come later: through pipes
        deadline = time.monotonic() + 3.0
        while True:
            lines = re.findall(self.pattern, session.log()[start:], re.MULTILINE)
            if len(lines) >= self.count or time.monotonic() > deadline:
                # Prints come through a pipe of their own: no order between them and the log.
                return {"asked": answer, "log": sorted(lines)}
            time.sleep(0.05)


@dataclass(frozen=True)
class Metrics:
    """The lines of /metrics that match, sorted: no order is promised."""

    pattern: str

    def ask(self, session: Session) -> Answer:
        body = session.metrics().body.decode()
        return {"metrics": sorted(re.findall(self.pattern, body, re.MULTILINE))}


class Asked(Protocol):
    """Whatever can be asked of a server."""

    def ask(self, session: Session) -> Answer:
        """What the server answers; {} where that is no part of the comparison."""


@dataclass(frozen=True)
class Case:
    """One row of FACTS.

    Attributes:
        name: id of the test and row of the report.
        asked: what to ask, in order.
        fact: section of FACTS that says what to expect.
        status: status (HTTP) or code (gRPC) of the last answer that FACTS gives.
        says: text that FACTS gives, somewhere in the last answer.
        logs: patterns each server's log must then match.
        blur: replaces what may differ (times, order) in each answer's text form.
        recorded: the real server's answer, where asking it would crash or hang it.
        differs: why devkit answers otherwise on purpose; the answers must then differ.
        setup: which pair of servers it is asked of.
        issue: 3 marks what the whole contract brings; `--parity-issue=2` leaves those out.
        alone: ask one server after the other: not both at once.
    """

    name: str
    asked: tuple[Asked, ...]
    fact: str
    status: int | str | None = None
    says: str = ""
    logs: tuple[str, ...] = ()
    blur: Blur | None = None
    recorded: Answer | None = None
    differs: str = ""
    setup: str = "serving"
    issue: int = 2
    alone: bool = False

    def ask(self, session: Session) -> Answer:
        """Ask it all; the answers that say something, and the log patterns that were missed."""
        start = len(session.log())
        answers = [shown for asked in self.asked if (shown := asked.ask(session))]
        answer: Answer = answers[0] if len(answers) == 1 else {"answers": answers}
        if self.logs:
            answer["log lacks"] = [p for p in self.logs if not _logged(session, p, start)]
        if self.blur is not None:
            answer = json.loads(self.blur(json.dumps(answer)))
        return answer

    def check(self, answer: Answer) -> None:
        """Whether an answer is what FACTS says."""
        last = answer["answers"][-1] if "answers" in answer else answer
        if self.status is not None:
            assert last.get("status", last.get("code")) == self.status, answer
        if self.says:
            assert self.says in json.dumps(last, ensure_ascii=False), answer
        assert not answer.get("log lacks"), answer


def _logged(session: Session, pattern: str, start: int, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while not re.search(pattern, session.log()[start:], re.MULTILINE):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def view_http(answer: HttpAnswer) -> Answer:
    shown: Answer = {"status": answer.status}
    shown.update({name: answer.headers[name] for name in HEADERS if name in answer.headers})
    body = answer.body
    if answer.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    elif answer.headers.get("content-encoding") == "deflate":
        body = zlib.decompress(body)
    shown["body"] = body.decode("utf-8", "backslashreplace")
    return shown


def view_stream(answer: StreamAnswer) -> Answer:
    return {
        "code": answer.code,
        "details": answer.details,
        "messages": [_message(message) for message in answer.messages],
    }


def _message(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


# Builders of what is asked


def get(path: str, **headers: str) -> Http:
    return Http("GET", path, None, headers)


def post(path: str, body: bytes | Any = b"", **headers: str) -> Http:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Http("POST", path, data, {name.replace("_", "-"): v for name, v in headers.items()})


def given(name: str, datatype: str, shape: Sequence[int], data: Any) -> dict[str, Any]:
    """One entry of `inputs` with its data in the JSON."""
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def infer(model: str, inputs: Any, *, version: str = "", **more: Any) -> Http:
    middle = f"/versions/{version}" if version else ""
    return post(f"/v2/models/{model}{middle}/infer", {"inputs": inputs, **more})


def action(text: str) -> dict[str, Any]:
    return given("ACTION", "BYTES", [1], [text])


X = given("X", "FP32", [2], [1.0, 2.0])


def act(text: str, model: str = "actor", **more: Any) -> Http:
    """Ask an actor for one action."""
    return infer(model, [action(text), X], **more)


def act_batch(text: str, model: str, batch: int = 1, **more: Any) -> Http:
    inputs = [
        given("ACTION", "BYTES", [batch, 1], [text] * batch),
        given("X", "FP32", [batch, 2], [1.0, 2.0] * batch),
    ]
    return infer(model, inputs, **more)


def evaluate(code: str) -> Http:
    """Ask the evaluator for the value of an expression inside `execute`."""
    return infer("evaluator", [given("CODE", "BYTES", [1], [code])])


def element(data: bytes) -> bytes:
    """One BYTES element with its length before it."""
    return struct.pack("<I", len(data)) + data


def binary(
    model: str,
    inputs: Sequence[tuple[str, str, Sequence[int], bytes]],
    *,
    sizes: Mapping[str, Any] | None = None,
    body: bytes | None = None,
    header_length: int | str | None = None,
    **more: Any,
) -> Http:
    """A request in the binary form; `sizes`, `body` and `header_length` make it a wrong one."""
    entries = [
        {
            "name": name,
            "datatype": datatype,
            "shape": list(shape),
            "parameters": {"binary_data_size": (sizes or {}).get(name, len(data))},
        }
        for name, datatype, shape, data in inputs
    ]
    header = json.dumps({"inputs": entries, **more}).encode()
    blob = b"".join(data for *_, data in inputs) if body is None else body
    length = len(header) if header_length is None else header_length
    headers = {"Inference-Header-Content-Length": str(length)}
    return Http("POST", f"/v2/models/{model}/infer", header + blob, headers)


def load(model: str, body: Any = b"") -> Http:
    return post(f"/v2/repository/models/{model}/load", body)


def unload(model: str, body: Any = b"") -> Http:
    return post(f"/v2/repository/models/{model}/unload", body)


CONTENTS = {
    "BOOL": "bool_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def message(
    model: str,
    inputs: Sequence[tuple[str, str, Sequence[int], Any]],
    *,
    raw: Sequence[bytes] | None = None,
    outputs: Sequence[str] = (),
    parameters: Mapping[str, tuple[str, Any]] | None = None,
    version: str = "",
    id: str = "",
) -> pb.ModelInferRequest:
    """A ModelInferRequest; data goes to `contents` unless `raw` is given."""
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name, datatype, shape, data in inputs:
        entry = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if data is not None:
            getattr(entry.contents, CONTENTS[datatype]).extend(data)
    request.raw_input_contents.extend(raw or ())
    for output in outputs:
        request.outputs.add(name=output)
    for name, (kind, value) in (parameters or {}).items():
        setattr(request.parameters[name], kind, value)
    return request


def act_message(text: str, model: str = "actor", **more: Any) -> pb.ModelInferRequest:
    inputs = [("ACTION", "BYTES", [1], [text.encode()]), ("X", "FP32", [2], [1.0, 2.0])]
    return message(model, inputs, **more)


def grpc_infer(request: pb.ModelInferRequest) -> Grpc:
    return Grpc("ModelInfer", request)


def run(model: str, code: str, **more: Any) -> Http:
    """Ask a script model (`tests.support.scripts`) to run `code` as its `execute`."""
    asked = infer(model, [given("CODE", "BYTES", [1], [code])], **more)
    return replace(asked, timeout=5.0)


def run_message(model: str, code: str, **more: Any) -> pb.ModelInferRequest:
    """The same as a gRPC message."""
    return message(model, [("CODE", "BYTES", [1], [code.encode()])], **more)


def run_stream(model: str, *codes: str, empty_final: bool = False, **more: Any) -> Stream:
    """The same for a decoupled model, one request for each of `codes`."""
    parameters = {EMPTY_FINAL: ("bool_param", True)} if empty_final else {}
    requests = [
        run_message(model, code, id=f"{number}", parameters=parameters, outputs=["RESULT"])
        for number, code in enumerate(codes)
    ]
    return Stream(tuple(requests), texts=True, **more)


EMPTY_FINAL = "triton_enable_empty_final_response"


# Blurs: what two servers may say differently


def replacing(*pairs: tuple[str, str]) -> Blur:
    """Replace patterns in the JSON text of an answer."""

    def blur(text: str) -> str:
        for pattern, replacement in pairs:
            text = re.sub(pattern, replacement, text)
        return text

    return blur


# FACTS 4: these lists are in hash order, so any order of the same names is the same answer.
def any_order_of_names(text: str) -> str:
    return re.sub(
        r"\[('[^]]*')\]", lambda found: f"[{','.join(sorted(found[1].split(',')))}]", text
    )


durations = replacing(
    (r'(\\"(?:ns|last_inference)\\"):\d+', r"\1:0"),
)
addresses = replacing((r"0x[0-9a-f]+", "0x0"))
# The real server's stub runs NumPy 1, whose scalars print without their type.
numpy_scalars = replacing((r"np\.float32\(([^)]*)\)", r"\1"))
