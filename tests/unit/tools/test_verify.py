"""An export proved on the real server: recorded requests, made-up ones, and what goes wrong."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from devkit.contract import recording
from devkit.contract.recording import Record, Reply, request_wire, response_wire
from devkit.tools import real_server
from devkit.tools.export import export
from devkit.tools.verify import VerifyError, VerifyReport, models_at, verify
from tests.support.models import LOADED_ON_REQUEST, NO_FILE, add_sub
from tests.support.repository import write_repository
from tests.support.session import Session

BROKEN = {model.name: model for model in LOADED_ON_REQUEST}
here = pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)


def vector(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


A, B = vector(*range(16)), vector(*([2.0] * 16))
SUM = vector(*(value + 2.0 for value in range(16)))
DIFFERENCE = vector(*(value - 2.0 for value in range(16)))


def record(number: int, total: bytes) -> Record:
    inputs = [("INPUT0", "FP32", (16,), A), ("INPUT1", "FP32", (16,), B)]
    outputs = [("OUTPUT0", "FP32", (16,), total), ("OUTPUT1", "FP32", (16,), DIFFERENCE)]
    reply = Reply(response_wire("add_sub", "1", outputs))
    return Record(number, "add_sub", "", 0.0, 0.0, request_wire(inputs), (reply,))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write_repository(tmp_path / "export", [add_sub()])


def test_a_repository_or_one_model_of_it(repository: Path) -> None:
    assert models_at(repository) == (repository, ["add_sub"])
    assert models_at(repository / "add_sub") == (repository, ["add_sub"])
    with pytest.raises(VerifyError, match="holds no exported model"):
        models_at(repository / "add_sub" / "1")


@here
def test_recorded_answers_are_held_against_the_real_server(repository: Path) -> None:
    off = vector(*(value + 2.5 for value in range(16)))
    report = verify(repository, captures=[record(1, SUM), record(2, off)])
    (model,) = report.models
    good, bad = model.requests
    assert (good.verdict, good.against, good.origin) == ("same", "recorded", "recorded")
    assert (bad.verdict, report.exit_code, report.same) == ("differs", 1, False)
    assert [output.verdict for output in bad.outputs] == ["differs", "same"]
    assert bad.outputs[0].largest == 0.5


@here
def test_a_recording_file(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "recording"
    with file.open("wb") as stream:
        recording.write(stream, [record(7, SUM)])
    report = verify(repository / "add_sub", captures=file)
    assert report.verdict == "same"
    assert report.models[0].requests[0].number == 7
    assert json.loads(report.to_json())["verdict"] == "same"
    assert "The real server answers the same (1 request" in report.text(200)


@here
def test_made_up_requests_are_asked_of_a_runtime_on_the_export(repository: Path) -> None:
    told: list[str] = []
    report = verify(repository, captures=[], progress=told.append)
    (request,) = report.models[0].requests
    assert (request.origin, request.against) == ("made up", "export")
    assert (request.verdict, report.exit_code) == ("same", 0)
    assert told


@here
def test_models_the_real_server_does_not_take(tmp_path: Path) -> None:
    names = ("broken_initialize", "broken_field")
    repository = write_repository(tmp_path, [*(BROKEN[name] for name in names), NO_FILE])
    report = verify(repository, captures=[])
    errors = {model.name: model.error for model in report.models}
    assert "ValueError: no weights" in errors["broken_initialize"]
    assert "nonsense" in errors["broken_field"]
    assert "does not exist" in errors["broken_no_file"]
    assert report.exit_code == 1


def test_the_table_names_what_differs() -> None:
    report = VerifyReport(Path("here"), "2.51.0")
    screen = io.StringIO()
    Console(file=screen, width=100).print(report)
    assert "The real server answers the same (0 requests" in screen.getvalue()


@here
def test_from_a_live_model_to_a_proved_export(repository: Path, tmp_path: Path) -> None:
    with Session("devkit", repository) as session, session.client() as client:
        arrays = {name: np.arange(16, dtype=np.float32) for name in ("INPUT0", "INPUT1")}
        client.infer("add_sub", arrays)
        exported = export(client, "add_sub", tmp_path / "production")
        assert exported.files == ("1/model.py", "config.pbtxt")
        report = verify(tmp_path / "production", client=client)
    (request,) = report.models[0].requests
    assert (request.origin, request.against, request.verdict) == ("recorded", "live", "same")


@here
def test_a_model_that_has_changed_since_is_not_held_against_its_export(
    repository: Path, tmp_path: Path
) -> None:
    with Session("devkit", repository) as session, session.client() as client:
        arrays = {name: np.arange(16, dtype=np.float32) for name in ("INPUT0", "INPUT1")}
        client.infer("add_sub", arrays)
        export(client, "add_sub", tmp_path / "production")
        code = repository / "add_sub" / "1" / "model.py"
        code.write_text(code.read_text() + "\nraise RuntimeError('half done')\n")
        report = verify(tmp_path / "production", client=client)
    (request,) = report.models[0].requests
    assert (request.origin, request.against, request.verdict) == ("recorded", "export", "same")
    assert "it has changed since this export" in report.text(200)
