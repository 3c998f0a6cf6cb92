"""The tracer on a real runtime: the trace extension's file, sessions, and what they hold."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devkit.control.client import Client
from devkit.errors import ControlError, InferError, UnknownModelError
from tests.support.live import DOUBLE, DOUBLE_CONFIG, Live, write_model

SPANS = """
import devkit
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            if x.as_numpy()[0] < 0:
                with devkit.span("doomed"):
                    raise ValueError("asked to fail")
            with devkit.span("outer", words=3, what=x):
                with devkit.span("inner"):
                    pass
            for trace in (request.trace(), None):
                call = pb_utils.InferenceRequest(
                    model_name="double", inputs=[x], requested_output_names=["Y"],
                    **({"trace": trace} if trace else {}))
                answer = call.exec()
            answers.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return answers
"""

STREAM = """
import threading
import devkit
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.run, args=(request,)).start()

    def run(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        sender = request.get_response_sender()
        for step in range(3):
            with devkit.span("step", n=step):
                response = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * step)])
            sender.send(response)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

CHAIN_CONFIG = """
platform: "ensemble"
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
ensemble_scheduling {
  step [
    { model_name: "double" model_version: -1
      input_map { key: "X" value: "X" } output_map { key: "Y" value: "between" } },
    { model_name: "double" model_version: -1
      input_map { key: "X" value: "between" } output_map { key: "Y" value: "Y" } }
  ]
}
"""
STREAM_CONFIG = DOUBLE_CONFIG + "model_transaction_policy { decoupled: true }\n"
ONE = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("t")
    started = Live(folder, ("--trace-config", f"triton,file={folder / 'trace.json'}"))
    write_model(started.repository, "double", DOUBLE)
    write_model(started.repository, "spans", SPANS)
    write_model(started.repository, "stream", STREAM, STREAM_CONFIG)
    chain = started.repository / "chain"
    (chain / "1").mkdir(parents=True)
    (chain / "config.pbtxt").write_text(CHAIN_CONFIG)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture(scope="module")
def client(runtime: Live) -> Client:
    return runtime.client()


def ask(client: Client, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"http://{client.runtime.url('http')}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=30) as answer:
        return json.load(answer)


def infer(client: Client, model: str, identity: str) -> None:
    row = {"name": "X", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    ask(client, f"/v2/models/{model}/infer", {"id": identity, "inputs": [row]})


def settings(client: Client, model: str = "", **values: Any) -> dict[str, Any]:
    place = f"/models/{model}" if model else ""
    found: dict[str, Any] = ask(client, f"/v2{place}/trace/setting", values)
    return found


def named(path: Path) -> list[str]:
    """Ids of the requests in a trace file."""
    return [
        one.get("request_id", "") for one in json.loads(path.read_text()) if "model_name" in one
    ]


# -- sessions --------------------------------------------------------------------------------------


def test_a_session_takes_what_a_model_does_through_all_processes(client: Client) -> None:
    with client.start_trace("spans", 1) as run:
        client.infer("spans", {"X": ONE}, id="mine")
        assert run.wait(10)
    assert run.result is not None
    root, handed_on, plain = sorted(run.result, key=lambda one: one.id)
    assert (root.model, root.request_id, root.protocol) == ("spans", "mine", "LOCAL")
    assert {(one.model, one.parent, one.protocol) for one in (handed_on, plain)} == {
        ("double", root.id, "BLS")
    }
    assert (handed_on.handed_on, plain.handed_on) == (True, False)
    pids = {one.name: one.pid for m in client.models() for one in m.instances}
    assert (root.pid, plain.pid) == (pids["spans_0"], pids["double_0"])
    inner, outer = root.spans
    assert (inner.name, outer.name, outer.attributes["words"]) == ("inner", "outer", 3)
    assert root.compute_input_end <= outer.start <= inner.start <= inner.end <= outer.end
    assert outer.end <= handed_on.request_start <= handed_on.request_end <= plain.request_start
    assert plain.request_end <= root.compute_output_start
    assert "infer" in run.result.summary()
    assert "call of double" in run.result.summary()


def test_nothing_stays_when_a_session_has_what_it_wanted(client: Client) -> None:
    before = settings(client)
    with client.start_trace("double", 2) as run:
        for number in range(4):
            client.infer("double", {"X": ONE}, id=str(number))
        assert run.wait(10)
        assert [one.running for one in client.trace_sessions()] == [False]
    assert run.result is not None
    assert [one.request_id for one in run.result] == ["0", "1"]
    assert client.trace_sessions() == []
    assert settings(client) == before


def test_an_ensembles_steps_are_its_children(client: Client) -> None:
    with client.start_trace("chain", 1, tensors=True) as run:
        client.infer("chain", {"X": ONE})
    assert run.result is not None
    root, first, second = sorted(run.result, key=lambda one: one.id)
    assert (first.parent, second.parent, first.protocol) == (root.id, root.id, "ENSEMBLE")
    assert not root.executed
    assert [(one.activity, one.name, one.data) for one in second.tensors] == [
        ("TENSOR_QUEUE_INPUT", "X", "2,2"), ("TENSOR_BACKEND_OUTPUT", "Y", "4,4"),
    ]  # fmt: skip


def test_a_model_in_the_middle_can_be_asked_for_alone(client: Client) -> None:
    with client.start_trace("double", 0) as run:
        client.infer("chain", {"X": ONE})
    assert run.result is not None
    assert [one.model for one in run.result] == ["double", "double"]
    assert len(run.result) == 2


def test_a_stream_has_the_time_of_every_response_and_its_threads_spans(client: Client) -> None:
    with client.start_trace("stream", 1) as run:
        assert len(list(client.stream("stream", {"X": ONE}))) == 3
        assert run.wait(10)
    assert run.result is not None
    (one,) = run.result
    assert len(one.responses) == 3
    assert [own.attributes["n"] for own in one.spans] == [0, 1, 2]
    assert {own.thread for own in one.spans}.isdisjoint({one.pid})


def test_a_failure_is_told_with_its_spans(client: Client) -> None:
    with client.start_trace("spans", 1) as run, pytest.raises(InferError):
        client.infer("spans", {"X": -ONE})
    assert run.result is not None
    (one,) = run.result
    assert "asked to fail" in one.error
    assert [own.name for own in one.spans] == ["doomed"]
    assert one.compute_input_end < one.compute_output_start


def test_files_for_other_programs(client: Client, tmp_path: Path) -> None:
    with client.start_trace("spans", 1) as run:
        infer(client, "spans", "x")
    assert run.result is not None
    events = json.loads(run.result.to_chrome(tmp_path / "c.json").read_text())["traceEvents"]
    pids = {one["pid"] for one in events}
    assert client.runtime.pid in pids
    assert len(pids) == 3
    assert named(run.result.to_triton(tmp_path / "t.json")) == ["x", "", ""]
    assert json.loads(run.result.save(tmp_path / "o.json", "otlp").read_text())["resourceSpans"]
    with pytest.raises(ControlError, match="is no format of traces"):
        run.result.text("svg")


def test_what_cannot_be_traced_is_refused(client: Client) -> None:
    with pytest.raises(UnknownModelError):
        client.start_trace("nope")
    with pytest.raises(ControlError, match="not a number of requests"):
        client.start_trace("double", -1)
    assert client.trace_sessions() == []


# -- the trace extension ---------------------------------------------------------------------------


def test_sampled_traces_go_to_numbered_files(runtime: Live, client: Client) -> None:
    file = runtime.folder / "trace.json"
    given = settings(
        client, trace_level=["TIMESTAMPS"], trace_rate="2", trace_count="3", log_frequency="2"
    )
    assert given["trace_file"] == str(file)
    for number in range(9):
        infer(client, "double", f"n{number}")
    assert settings(client)["trace_count"] == "0"
    cleared = settings(
        client, trace_level=None, trace_rate=None, trace_count=None, log_frequency=None
    )
    assert list(cleared.values()) == [["OFF"], "1000", "-1", "0", str(file), "triton"]
    assert named(Path(f"{file}.0")) == ["n1", "n3"]
    assert named(Path(f"{file}.1")) == ["n5"]


def test_a_models_own_settings_are_over_the_global_ones(runtime: Live, client: Client) -> None:
    file = runtime.folder / "trace.json"
    settings(client, "double", trace_level=["TIMESTAMPS"], trace_rate="1")
    assert settings(client)["trace_level"] == ["OFF"]
    infer(client, "chain", "not traced: its own level is off")
    infer(client, "double", "traced")
    cleared = settings(client, "double", trace_level=None, trace_rate=None)
    assert cleared == settings(client)
    assert named(file) == ["traced"]


def test_the_file_has_the_calls_that_were_handed_on(runtime: Live, client: Client) -> None:
    file = runtime.folder / "trace.json"
    settings(client, "spans", trace_level=["TIMESTAMPS", "TENSORS"], trace_rate="1")
    infer(client, "spans", "parent")
    settings(client, "spans", trace_level=None, trace_rate=None)
    rows = json.loads(file.read_text())
    parent = next(one for one in rows if one.get("request_id") == "parent")
    children = [one for one in rows if one.get("parent_id") == parent["id"]]
    assert [one["model_name"] for one in children] == ["double"]
    assert rows.index(children[0]) < rows.index(parent)
    stamps = {
        each["name"]: each["ns"]
        for one in rows
        if one["id"] == parent["id"]
        for each in one.get("timestamps", ())
    }
    order = [
        "HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START",
        "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END",
        "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip
    assert [stamps[name] for name in order] == sorted(stamps[name] for name in order)


def test_levels_exclude_each_other_in_the_real_servers_words(client: Client) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        settings(client, trace_level=["OFF", "TIMESTAMPS"])
    with refused.value as answer:
        assert json.load(answer) == {"error": "Expect only one trace level 'OFF' is specified"}


# -- ways out --------------------------------------------------------------------------------------


def test_a_collector_gets_them_by_http(client: Client) -> None:
    taken: list[tuple[str, Any]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((self.path, json.loads(body)))
            self.send_response(200 if len(taken) == 1 else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with client.start_trace("double", 1) as run:
        client.infer("double", {"X": ONE})
    assert run.result is not None
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        run.result.to_otlp(url)
        with pytest.raises(ControlError, match="does not take the traces: 503"):
            run.result.to_otlp(f"{url}/v1/traces")
        server.shutdown()
    assert [path for path, _ in taken] == ["/v1/traces", "/v1/traces"]
    assert len(taken[0][1]["resourceSpans"]) == 1
    with pytest.raises(ControlError, match="does not take the traces"):
        run.result.to_otlp(url)


def test_the_command_writes_a_file_and_says_where_the_time_went(
    runtime: Live, client: Client, tmp_path: Path
) -> None:
    done = threading.Event()

    def keep_asking() -> None:
        while not done.is_set():
            client.infer("double", {"X": ONE})

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        told = runtime.command("trace", "double", "--count", "3", "--out", str(tmp_path / "t.json"))
    finally:
        done.set()
        asking.join()
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("3 requests, ")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    quick = runtime.command("trace", "double", "--timeout", "0.1", "--json")
    assert json.loads(quick.stdout) == {"requests": 0, "traces": []}
    assert runtime.command("trace", "double", "--format", "svg").returncode == 2
