"""Exports of several models with what goes with them: planned, written, replaced, proved."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from devkit.contract import config as contract
from devkit.contract.releases import find, names
from devkit.control.client import Client
from devkit.control.findings import ExportAsked
from devkit.errors import ConfigError, ControlError
from devkit.tools import deploy, exporting, imports, inferentia, packing, real_server
from devkit.tools.export import ExportError
from devkit.tools.verify import verify
from devkit.tools.verify_page import page
from tests.support.live import DOUBLE, DOUBLE_CONFIG, Live, live, write_model

EXAMPLES = Path(__file__).parents[3] / "examples"
COMMENTED = "# Tuned by hand.\n" + DOUBLE_CONFIG
USES = """
import idna
import numpy as np
import shared_helper
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            size = len(idna.encode("x")) + shared_helper.ONE
            y = np.asarray(x + np.float32(size), dtype=np.float32)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return answers
"""
ENSEMBLE = """
platform: "ensemble"
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
ensemble_scheduling { step [
  { model_name: "commented" model_version: -1
    input_map { key: "X" value: "X" } output_map { key: "Y" value: "Z" } },
  { model_name: "uses" model_version: -1
    input_map { key: "X" value: "Z" } output_map { key: "Y" value: "Y" } }
] }
"""


@pytest.fixture(scope="module")
def runtime() -> Iterator[Live]:
    with live("--strict-readiness=false", models={}) as one:
        write_model(one.repository, "commented", DOUBLE, COMMENTED)
        folder = write_model(one.repository, "uses", USES)
        (folder / "1" / "shared_helper.py").write_text("ONE = 1\n")
        write_model(one.repository, "both", "", ENSEMBLE)
        (one.repository / "both" / "1" / "model.py").unlink()
        client = one.client()
        for name in ("commented", "uses", "both"):
            client.load(name)
        client.infer("commented", {"X": np.arange(3, dtype=np.float32)})
        client.infer("uses", {"X": np.arange(2, dtype=np.float32)})
        yield one


@pytest.fixture(scope="module")
def client(runtime: Live) -> Client:
    return runtime.client()


def files(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


def test_an_ensemble_brings_its_steps(client: Client, tmp_path: Path) -> None:
    asked = ExportAsked(str(tmp_path / "out"), ("both",))
    plan = exporting.plan(client, asked)
    assert (plan.state, set(plan.models)) == ("new", {"both", "commented", "uses"})
    assert list(tmp_path.iterdir()) == []
    done = exporting.write(client, asked)
    assert done.state == "written"
    assert files(tmp_path / "out") == {
        "both/config.pbtxt", "commented/config.pbtxt", "commented/1/model.py",
        "uses/config.pbtxt", "uses/1/model.py", "uses/1/shared_helper.py",
    }  # fmt: skip
    assert (tmp_path / "out" / "both" / "1").is_dir()
    assert (tmp_path / "out/commented/config.pbtxt").read_text() == COMMENTED
    assert exporting.write(client, asked).state == "unchanged"


def test_nothing_is_replaced_without_consent(client: Client, tmp_path: Path) -> None:
    asked = ExportAsked(str(tmp_path), ("commented",))
    (tmp_path / "other").mkdir()
    exporting.write(client, asked)
    model = tmp_path / "commented" / "1" / "model.py"
    model.write_text(DOUBLE + "# mine\n")
    plan = exporting.plan(client, asked)
    changed = {one.path: one for one in plan.files}["commented/1/model.py"]
    assert (plan.state, changed.state) == ("differs", "changed")
    assert "-# mine" in changed.diff
    with pytest.raises(ExportError, match=r"commented/1/model\.py would be changed"):
        exporting.write(client, asked)
    assert "# mine" in model.read_text()
    agreed = ExportAsked(str(tmp_path), ("commented",), force=True)
    assert exporting.write(client, agreed).state == "replaced"
    assert "# mine" not in model.read_text()
    assert sorted(os.listdir(tmp_path)) == ["commented", "other"]


def test_everything_that_can_go_with_it(client: Client, tmp_path: Path) -> None:
    asked = ExportAsked(
        str(tmp_path / "out"), ("uses",), warmup=True, client=True, requirements=True, perf=True,
        deploy=True, release="25.03",
    )  # fmt: skip
    done = exporting.write(client, asked)
    folder = tmp_path / "out"
    config = contract.parse((folder / "uses" / "config.pbtxt").read_text())
    (sample,) = config.model_warmup
    assert (sample.batch_size, list(sample.inputs["X"].dims)) == (1, [2])
    data = (folder / "uses" / "warmup" / sample.inputs["X"].input_data_file).read_bytes()
    assert np.frombuffer(data, np.float32).tolist() == [0, 1]
    assert "idna==" in (folder / "uses" / "requirements.txt").read_text()
    assert "numpy==" in (folder / "uses" / "requirements.lock").read_text()
    rows = json.loads((folder / "uses" / "perf_data.json").read_text())
    assert rows["data"][0]["X"]["content"] == [0.0, 1.0]
    ast.parse((folder / "uses" / "client.py").read_text())
    assert "tritonserver:25.03-py3" in (folder / "Dockerfile").read_text()
    assert "--shm-size=256m" in (folder / "docker-run.sh").read_text()
    assert "kind: InferenceService" in (folder / "kserve.yaml").read_text()
    assert "shm_size: 256m" in (folder / "compose.yaml").read_text()
    assert done.warnings == ()


def test_a_client_that_runs(client: Client, tmp_path: Path) -> None:
    exporting.write(client, ExportAsked(str(tmp_path / "out"), ("commented",), client=True))
    program = tmp_path / "out" / "commented" / "client.py"
    command = [sys.executable, str(program), client.runtime.url("http")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "Y [0. 2. 4.]", done.stderr


def test_a_client_that_reads_a_stream(runtime: Live, client: Client, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "square", runtime.repository / "square")
    (runtime.repository / "square" / "client.py").unlink()
    client.load("square")
    exporting.write(client, ExportAsked(str(tmp_path / "out"), ("square",), client=True))
    program = tmp_path / "out" / "square" / "client.py"
    command = [sys.executable, str(program), client.runtime.url("grpc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    client.unload("square")
    assert done.stdout.splitlines()[:2] == ["SQUARE [1]", "SQUARE [4]"], done.stderr
    assert done.returncode == 0


def test_another_version_beside_the_first(client: Client, tmp_path: Path) -> None:
    exporting.write(client, ExportAsked(str(tmp_path), ("commented",)))
    following = ExportAsked(str(tmp_path), ("commented",), version="next")
    assert exporting.write(client, following).state == "written"
    assert {"commented/1/model.py", "commented/2/model.py"} < files(tmp_path)
    chosen = ExportAsked(str(tmp_path / "new"), ("commented",), version="7")
    exporting.write(client, chosen)
    assert files(tmp_path / "new") == {"commented/7/model.py", "commented/config.pbtxt"}
    with pytest.raises(ExportError, match="is no version"):
        exporting.plan(client, ExportAsked(str(tmp_path), ("commented",), version="last"))


def test_a_config_with_every_field(client: Client, tmp_path: Path) -> None:
    exporting.write(client, ExportAsked(str(tmp_path), ("commented",), full=True))
    text = (tmp_path / "commented" / "config.pbtxt").read_text()
    assert "version_policy" in text
    assert "instance_group" in text


def test_a_release_with_an_older_numpy(client: Client, tmp_path: Path) -> None:
    asked = ExportAsked(str(tmp_path), ("uses",), requirements=True, release="24.10")
    done = exporting.write(client, asked)
    text = (tmp_path / "uses" / "requirements.txt").read_text()
    newer = int(np.__version__.partition(".")[0]) >= 2
    assert ("numpy<2" in text, bool(done.warnings)) == (newer, newer)


def test_faces_plan_and_write_over_the_control_api(client: Client, tmp_path: Path) -> None:
    asked = ExportAsked(str(tmp_path / "out"), ("both",))
    assert client.plan_export(asked).state == "new"
    assert not (tmp_path / "out").exists()
    assert client.write_export(asked).state == "written"
    assert (tmp_path / "out" / "uses" / "1" / "model.py").is_file()
    with pytest.raises(ControlError, match="not an absolute path"):
        client.plan_export(ExportAsked("out"))
    with pytest.raises(Exception, match="is served from"):
        client.plan_export(ExportAsked(str(Path(client.model("uses").folder).parent)))


def test_faces_ask_the_doctor(client: Client) -> None:
    told = client.doctor()
    assert set(told.models) >= {"both", "commented", "uses"}
    assert told.findings == ()
    source = USES.replace("y = np", "print(x)\n            y = np")
    (found,) = client.lint_text("uses", source)
    line = source.splitlines().index("            print(x)") + 1
    assert (found.rule, found.place.line) == ("print-in-execute", line)
    (found,) = client.lint_text("not_there_yet", source.replace("shared_helper", "json"))
    assert found.rule == "print-in-execute"
    broken = client.lint_text("uses", "backend: python\n", "config.pbtxt")
    assert broken[0].rule == "config-unreadable"
    told_of = client.config_help("max_ba", 1, 7)
    assert [one.label for one in told_of.suggestions] == ["max_batch_size"]
    with pytest.raises(ControlError, match="inside the model's folder"):
        client.lint_text("uses", "", "../../x.py")


def test_imports_and_paths_are_found_in_the_code(tmp_path: Path) -> None:
    data = tmp_path / "weights.bin"
    data.write_bytes(b"0")
    folder = tmp_path / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "helper.py").write_text("import yaml_like, os\n")
    (folder / "1" / "model.py").write_text(
        f"import json, helper, numpy.linalg\nimport devkit\nF = {str(data)!r}\n"
    )
    assert imports.third_party(folder) == ["numpy", "yaml_like"]
    ((file, line, path),) = imports.opened_outside(folder)
    assert (file.name, line, path) == ("model.py", 3, str(data))
    with data.open("rb"):
        assert data in imports.opened_by([os.getpid()], folder)


def test_the_table_of_releases() -> None:
    assert (find("24.10").python, find("24.10").numpy) == ("3.10", 1)
    assert (find("24.11").python, find("26.09").numpy) == ("3.12", 2)
    assert names()[-1] == "26.09"
    with pytest.raises(ConfigError, match="not in the table"):
        find("27.01")


def test_shared_memory_grows_with_what_was_used() -> None:
    assert deploy.shared_memory(0, 1) == 256 << 20
    assert deploy.shared_memory(300 << 20, 4) == 640 << 20


def test_for_neuron_cores(client: Client, tmp_path: Path) -> None:
    place, made = exporting.for_inferentia(client, "uses", tmp_path, cores="0:3", compiled=None)
    assert made == ["1/model.py", "config.pbtxt"]
    config = contract.parse((place / "config.pbtxt").read_text())
    assert config.parameters["NEURON_CORE_END_INDEX"].string_value == "3"
    assert "not run" in (place / "config.pbtxt").read_text()
    with pytest.raises(inferentia.NeuronError, match="no range"):
        inferentia.Cores.parse("3:0")


@pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)
def test_warmup_and_environment_on_the_real_server(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    exporting.write(client, ExportAsked(str(folder), ("uses", "commented"), warmup=True))
    installation = real_server.ensure()
    server = installation.server()
    monkeypatch.setenv("DEVKIT_USER_PACKAGES", server.environment["DEVKIT_USER_PACKAGES"])
    home = str(Path(sys.base_prefix, "bin"))
    # Packed by the interpreter that serves it there: its NumPy is what that stub takes.
    python = str(installation.environment / "bin" / "python")
    packing.pack(["idna", "numpy"], folder / "uses" / packing.ARCHIVE, python=python, home=home)
    config = folder / "uses" / "config.pbtxt"
    added = (
        f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{packing.VALUE}" }} }}'
    )
    config.write_text(config.read_text() + added + "\n")
    report = verify(folder, client=client, generated=True)
    assert (report.verdict, report.exit_code) == ("same", 0), report.text(200)
    assert {one.name for one in report.models} == {"uses", "commented"}
    assert "uses" in page(report)
    assert "<table>" in page(report)
