"""The doctor, adopt and export on the command line, as a person and a CI job see them."""

import json
import os
import subprocess
import sys

import pytest

from tests.faces.conftest import ROOT

MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            print(x)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""
CONFIG = """name: "other"
max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    (folder / "m" / "1").mkdir(parents=True)
    (folder / "m" / "1" / "model.py").write_text(MODEL)
    (folder / "m" / "config.pbtxt").write_text(CONFIG)
    return folder


def run(*words, cwd, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "devkit.cli", *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DEVKIT_RUNTIME_DIR": str(cwd / "run")},
    )


def test_findings_with_their_source_and_repairs(repository, tmp_path):
    done = run("doctor", repository, cwd=tmp_path)
    assert done.returncode == 1
    assert "error [name-not-folder] 'other' in the folder 'm'" in done.stdout
    assert '1 | name: "other"' in done.stdout
    assert "(--fix)" in done.stdout
    assert "1 error, 2 warnings" in done.stderr
    shown = run("doctor", repository, "--fix", "--dry-run", cwd=tmp_path)
    assert '+name: "m"' in shown.stderr
    assert (repository / "m" / "config.pbtxt").read_text() == CONFIG
    fixed = run("doctor", repository, "--fix", cwd=tmp_path)
    assert fixed.returncode == 0
    assert (repository / "m" / "config.pbtxt").read_text().endswith("dynamic_batching { }\n")
    assert run("doctor", repository, "--strict", cwd=tmp_path).returncode == 1


def test_the_forms_for_programs(repository, tmp_path):
    told = json.loads(run("doctor", "models", "--json", cwd=tmp_path).stdout)
    assert told["models"] == ["m"]
    assert {one["rule"] for one in told["findings"]} == {
        "name-not-folder", "no-batcher", "print-in-execute",
    }  # fmt: skip
    lines = run("doctor", "models", "--format", "github", cwd=tmp_path).stdout.splitlines()
    assert lines[0].startswith("::error file=models/m/config.pbtxt,line=1,col=7,")
    sarif = json.loads(run("doctor", "models", "--format", "sarif", cwd=tmp_path).stdout)
    assert sarif["version"] == "2.1.0"
    assert run("doctor", "models", "--rule", "nonsense", cwd=tmp_path).returncode == 2
    assert "does not exist" in run("doctor", "no/where", cwd=tmp_path).stderr
    assert "not in the table" in run("doctor", "models", "--triton", "30.01", cwd=tmp_path).stderr


def test_lint_for_editors(repository, tmp_path):
    file = "models/m/1/model.py"
    done = run("lint", file, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == (
        f"{file}:9:13: warning: print of values in the hot path [print-in-execute]\n"
    )
    text = MODEL.replace("print(x)", "pass").replace('"Y"', '"Z"')
    unsaved = run("lint", file, "--stdin", cwd=tmp_path, stdin=text)
    assert unsaved.returncode == 1
    assert "[undeclared-output]" in unsaved.stdout


def test_adopting_a_function(tmp_path):
    (tmp_path / "half.py").write_text("def half(x: float):\n    return {'Y': x / 2}\n")
    done = run("adopt", "half.py", "models", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "in  x FP32 [1]" in done.stdout
    assert run("doctor", "models", "--strict", cwd=tmp_path).returncode == 0
    again = run("adopt", "half.py", "models", cwd=tmp_path)
    assert again.returncode == 1
    assert "exists" in again.stderr


def test_export_and_doctor_of_what_is_served(workspace):
    folder = workspace.folder
    (folder / "cell.py").write_text(
        "import devkit\n"
        "from devkit.control.client import connect\n"
        f"code = {MODEL!r}\n"
        "from devkit.control import messages\n"
        f"config = {CONFIG.replace('other', 'm')!r}\n"
        "connect().put_model('m', {'1/model.py': code}, messages.ModelOptions(config=config))\n"
    )
    subprocess.run([sys.executable, "cell.py"], cwd=folder, check=True)

    def ask(*words):
        return subprocess.run(
            [sys.executable, "-m", "devkit.cli", *words],
            cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    told = ask("doctor", "m")
    assert "[print-in-execute]" in told.stdout
    plan = ask("export", "m", "out", "--diff")
    assert "out: new" in plan.stdout
    assert not (folder / "out").exists()
    done = json.loads(ask("export", "m", "out", "--client", "--json").stdout)
    assert (done["state"], done["models"]) == ("written", ["m"])
    assert (folder / "out" / "m" / "client.py").is_file()
    (folder / "out" / "m" / "client.py").write_text("# mine\n")
    refused = ask("export", "m", "out", "--client")
    assert refused.returncode == 1
    assert "--force" in refused.stderr
