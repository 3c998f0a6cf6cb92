"""The trace extension: both servers write the same names in the same order for the same settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devkit.tools.real_server import RealServerError
from tests.support.repository import ModelFiles, python_config, tensor, write_repository
from tests.support.session import Session

DOUBLE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x[0] < 0:
                raise ValueError("asked to fail")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]))
        return answers
"""
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            for more in ({"trace": request.trace()}, {}):
                call = pb_utils.InferenceRequest(
                    model_name="double", inputs=[x], requested_output_names=["Y"], **more)
                answer = call.exec()
            answers.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return answers
"""
IO = python_config(tensor("input", "X", "FP32", "-1"), tensor("output", "Y", "FP32", "-1"))
CHAIN = """
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
MODELS = [
    ModelFiles("double", DOUBLE, IO),
    ModelFiles("caller", CALLER, IO),
    ModelFiles("chain", None, CHAIN),
]
SETTINGS: list[dict[str, Any]] = [
    {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"},
    {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "1", "log_frequency": "2"},
    {"trace_level": ["TENSORS"], "trace_count": "3"},
    {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None},
    {"trace_level": ["OFF", "TENSORS"]},
    {"trace_level": ["TIMESTAMPS"], "trace_rate": "0"},
    {"trace_level": []},
]


def ask(session: Session, model: str, identity: str, first: float = 1.0) -> None:
    row = {"name": "X", "datatype": "FP32", "shape": [2], "data": [first, 2.0]}
    body = json.dumps({"id": identity, "inputs": [row]})
    session.http("POST", f"/v2/models/{model}/infer", body)


def set_traces(session: Session, values: dict[str, Any], model: str = "") -> tuple[int, Any]:
    place = f"/models/{model}" if model else ""
    answer = session.http("POST", f"/v2{place}/trace/setting", json.dumps(values))
    return answer.status, json.loads(answer.body)


def told(kind: str, folder: Path) -> dict[str, Any]:
    """Answers of one server to all settings, and what its trace files then hold."""
    file = folder / "trace.json"
    repository = write_repository(folder / "models", MODELS)
    (repository / "chain" / "1").mkdir(exist_ok=True)
    flags = ("--trace-config", f"triton,file={file}", "--trace-config", "rate=5")
    answers: list[Any] = []
    with Session(kind, repository, flags) as session:
        for values in SETTINGS:
            answers.append(set_traces(session, values))
            for model in ("double", "caller", "chain"):
                ask(session, model, f"{len(answers)} {model}")
            ask(session, "double", "fails", -1.0)
        answers.append(set_traces(session, {"trace_level": ["TIMESTAMPS"]}, "double"))
        answers.append(set_traces(session, {"trace_rate": "2"}, "double"))
        for number in range(4):
            ask(session, "double", f"own {number}")
            ask(session, "chain", "off")
        answers.append(set_traces(session, {"trace_level": None, "trace_rate": None}, "double"))
    files = {path.name: rows(path) for path in sorted(folder.glob("trace.json*"))}
    return {"answers": json.loads(json.dumps(answers).replace(str(folder), "")), "files": files}


def rows(path: Path) -> list[tuple[Any, list[str]]]:
    """Every trace of a file: its id and what is said of it, in order.

    The real server's threads race for whether a request's end or its sending comes first.
    """
    found: dict[int, list[str]] = {}
    for one in json.loads(path.read_text()):
        number = one.pop("id")
        for stamp in one.pop("timestamps", ()):
            found.setdefault(number, []).append(stamp["name"])
        if one:
            found.setdefault(number, []).append(json.dumps(one))
    return [(number, _in_order(names)) for number, names in found.items()]


def _in_order(names: list[str]) -> list[str]:
    sending = [name for name in names if name.startswith("HTTP_SEND")]
    return [name for name in names if name not in sending] + sending


def test_files_and_answers_are_the_same(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    if set(kinds) != {"real", "devkit"}:
        pytest.skip("needs both servers")
    try:
        real = told("real", tmp_path / "real")
    except RealServerError as problem:
        pytest.skip(problem.message)
    ours = told("devkit", tmp_path / "devkit")
    assert ours["answers"] == real["answers"]
    assert ours["files"] == real["files"]
