"""Recorded requests as perf_analyzer's input data, as a pytest case, as a curl line: all tried."""

import json
import subprocess
import sys

import numpy as np
import pytest

from devkit.contract import recording
from devkit.contract.recording import Record, Reply, request_wire, response_wire, rows_of
from devkit.errors import InferError
from devkit.tools import exporters, real_server
from devkit.tools.exporters import ExportFormatError
from devkit.tools.inspection import Captures
from tests.support.live import ROOT, live, write_model
from tests.support.models import PASSER
from tests.support.repository import python_config, tensor
from tests.support.shown import SHOWING

TYPES = ("FP32", "FP16", "INT64", "BOOL", "STRING", "UINT8")
VALUES = {
    "IN_FP32": np.array([[1.5, np.nan], [-2, 3]], np.float32),
    "IN_FP16": np.array([[0.5], [1]], np.float16),
    "IN_INT64": np.array([[2**62], [-1]]),
    "IN_BOOL": np.array([[True, False], [False, True]]),
    "IN_STRING": np.array([["plain ö".encode(), b"x"], [b"", b"\xff\x00"]], object),
    "IN_UINT8": np.array([[1, 2, 3], [4, 5, 6]], np.uint8),
}


def passer_config(dims):
    return python_config(
        *(tensor("input", f"IN_{name}", name, dims(name)) for name in TYPES),
        *(tensor("output", f"OUT_{name}", name, dims(name)) for name in TYPES),
        "max_batch_size: 4\n",
    )


@pytest.fixture(scope="module")
def runtime():
    with live(models={"shown": SHOWING}) as one:
        write_model(one.repository, "passer", PASSER, passer_config(lambda name: "-1"))
        fixed = passer_config(lambda name: str(VALUES[f"IN_{name}"].shape[1]))
        write_model(one.repository, "fixed", PASSER, fixed)
        client = one.client()
        client.load("passer")
        client.load("fixed")
        yield one


@pytest.fixture
def client(runtime):
    made = runtime.client()
    made.forget_captures()
    made.capture_settings(rate=0.0)
    return made


def record(inputs, outputs=None, model="m", **more):
    replies = ()
    if outputs is not None:
        replies = (Reply(response_wire(model, "1", rows_of(outputs))),)
    return Record(1, model, "", 0.0, 0.0, request_wire(rows_of(inputs), **more), replies)


def test_a_batch_becomes_rows_and_large_or_odd_values_base64():
    one = record(
        {"A": np.arange(6, dtype=np.int32).reshape(2, 3), "B": np.array([[np.inf], [1.0]])}
    )
    data = json.loads(exporters.perf_analyzer([one], batching=True))["data"]
    assert data[0]["A"] == {"content": [0, 1, 2], "shape": [3]}
    assert "b64" in data[0]["B"]["content"]
    assert data[1]["B"] == {"content": [1.0], "shape": [1]}


def test_a_sequence_is_one_stream():
    x = {"X": np.array([1], np.int32)}
    told = [record(x, parameters={"sequence_id": n}) for n in (7, 8, 7)]
    data = json.loads(exporters.perf_analyzer(told, batching=False))["data"]
    assert [len(stream) for stream in data] == [2, 1]
    with pytest.raises(ExportFormatError, match="sequences"):
        exporters.perf_analyzer([*told, record(x)], batching=False)


def test_requests_of_several_models_go_into_no_file():
    x = {"X": np.array([1], np.int32)}
    with pytest.raises(ExportFormatError, match="several models"):
        exporters.perf_analyzer([record(x), record(x, model="n")], batching=False)


@pytest.mark.skipif(real_server.unsupported() is not None, reason="perf_analyzer does not run here")
@pytest.mark.parametrize(("model", "expect"), [("passer", False), ("fixed", True)])
def test_perf_analyzer_takes_every_type(client, runtime, tmp_path, model, expect):
    """It compares answers of models only whose outputs have fixed shapes."""
    client.infer(model, VALUES)
    (one,) = client.captures(model)
    file = tmp_path / "data.json"
    file.write_text(exporters.perf_analyzer([one], batching=True, outputs=expect))
    shapes = [f"--shape=IN_{name}:{VALUES[f'IN_{name}'].shape[1]}" for name in TYPES]
    client.forget_captures()
    analyzer = real_server.ensure().perf_analyzer()
    done = subprocess.run(
        [analyzer.program, "-m", model, "-u", client.runtime.url("http"), f"--input-data={file}",
         *shapes, "--request-count=8", "-b", "1", "--measurement-interval=500"],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
        env=analyzer.environ(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    asked = client.captures(model)
    assert asked
    for each in asked:
        told = {held.name: held.array()[0] for held in each.request.held("inputs")}
        matching = [
            number for number in (0, 1)
            if all(_equal(told[name], VALUES[name][number]) for name in VALUES)
        ]  # fmt: skip
        assert matching, told


def _equal(one, other):
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def test_a_curl_line_is_answered(client, tmp_path):
    client.infer("passer", {**VALUES, "IN_FP16": np.zeros((2, 1), np.float16)}, id="it's")
    client.infer("shown", {"X": np.array([1, 2], np.float32)}, parameters={"a": 1})
    for each in Captures.of(client):
        line = each.curl()
        done = subprocess.run(line, shell=True, capture_output=True, check=False)
        again = client.captures()[-1]
        assert done.returncode == 0
        for before, now in zip(
            each.record.request.held("inputs"), again.request.held("inputs"), strict=True
        ):
            np.testing.assert_array_equal(before.array(), now.array())
        assert again.id == each.info.id
    assert json.loads(done.stdout)["outputs"][0]["data"] == [2.0, 4.0]
    assert line.count("\n") == 0


def test_python_lines_are_answered(client, runtime):
    client.infer("passer", {**VALUES, "IN_FP16": np.zeros((2, 1), np.float16)}, id="it's")
    client.infer("shown", {"X": np.arange(1000, dtype=np.float32)}, parameters={"a": 1})
    short, long = Captures.of(client)
    assert long.python() == f"import devkit\ndevkit.replay({long.number})"
    for each in (short, long):
        subprocess.run(
            [sys.executable, "-c", each.python()], cwd=runtime.workspace,
            env=runtime.environment(), check=True,
        )  # fmt: skip
        again = client.captures()[-1]
        for before, now in zip(
            each.record.request.held("inputs"), again.request.held("inputs"), strict=True
        ):
            np.testing.assert_array_equal(before.array(), now.array())
        assert again.id == each.info.id


def test_a_generated_test_passes_and_notices_a_change(client, runtime, tmp_path):
    client.infer("shown", {"X": np.array([1, np.nan], np.float32)}, id="a")
    with pytest.raises(InferError):
        client.infer("shown", {"X": np.array([-1], np.float32)})
    text, beside = exporters.pytest_case(client.captures("shown"))
    assert not beside
    assert run_tests(tmp_path, text, runtime.repository).returncode == 0
    wrong = run_tests(tmp_path, text.replace("[2.0, ", "[2.5, "), runtime.repository)
    assert wrong.returncode == 1
    assert "1 failed, 1 passed" in wrong.stdout


def test_large_tensors_lie_in_a_file_beside_the_test(client, runtime, tmp_path):
    client.infer("shown", {"X": np.arange(1000, dtype=np.float32)})
    records = client.captures("shown")
    with pytest.raises(ExportFormatError, match="too large"):
        exporters.pytest_case(records)
    text, beside = exporters.pytest_case(records, file="test_it.recording")
    assert beside
    with (tmp_path / "test_it.recording").open("wb") as stream:
        recording.write(stream, records)
    done = run_tests(tmp_path, text, runtime.repository)
    assert done.returncode == 0, done.stdout


def run_tests(folder, text, repository):
    file = folder / "test_it.py"
    file.write_text(text)
    lint = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select=E,F,W,I",
        "--line-length=200",
    ]
    checked = subprocess.run([*lint, str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + text
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file),
         f"--model-repository={repository}", f"--rootdir={folder}"],
        capture_output=True, text=True, check=False, cwd=folder, env=with_devkit(),
    )  # fmt: skip


def with_devkit():
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
