"""The pytest plugin as its user sees it: a project of its own, run by pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(pytester, write, monkeypatch):
    """A project with a model `double`, and a way to run its tests in a pytest of their own."""
    write("double")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini(f"[pytest]\nmodel_repository = {pytester.path}/models\n")
    # `write` has its own temporary folder, which is pytester's too where both are asked for.
    (pytester.path / "models").exists() or (pytester.path / "models").symlink_to(
        write("double").parent
    )

    def run(code, *options):
        pytester.makepyfile(code)
        return pytester.runpytest_subprocess(
            "-p", "devkit.testing.plugin", "-p", "no:cacheprovider", *options
        )

    return run


def test_a_marked_test_gets_its_model_in_process(project):
    result = project("""
        import os, pytest
        ended = []

        @pytest.mark.triton_model("double", model_name="twice")
        def test_it_doubles(triton_model):
            assert triton_model.infer({"X": [1.0, 2.0]})["Y"].tolist() == [2, 4]
            assert triton_model.name == "twice"
            type(triton_model.instance).finalize = lambda self: ended.append(os.getpid())

        def test_it_was_finalized_here():
            assert ended == [os.getpid()]
    """)
    result.assert_outcomes(passed=2)


def test_models_are_loaded_by_name_with_fakes_for_others(project, write):
    write(
        "asks",
        """
        def execute(self, requests):
            asked = pb_utils.InferenceRequest(
                model_name="double", requested_output_names=["Y"], inputs=requests[0].inputs()
            )
            return [pb_utils.InferenceResponse(asked.exec().output_tensors())]
        """,
    )
    result = project("""
        def test_both(load_triton_model):
            real = load_triton_model("asks")
            assert real.infer({"X": [1]})["Y"] == [2]
            faked = load_triton_model("asks", bls={"double": lambda inputs: {"Y": inputs["X"]}})
            assert faked.infer({"X": [1]})["Y"] == [1]
    """)
    result.assert_outcomes(passed=1)


def test_a_live_model_is_served_and_nothing_of_it_stays(project, pytester):
    result = project("""
        import pathlib, pytest, urllib.request
        pytestmark = pytest.mark.triton_model("double")

        def test_it_serves(live_model):
            assert live_model.infer({"X": [1.0]})["Y"] == [2]
            url = f"http://{live_model.runtime.http_url}/v2/models/double/ready"
            assert urllib.request.urlopen(url).status == 200

        def test_the_runtime_is_the_same(live_model, live_runtime):
            assert live_model.runtime is live_runtime
            pathlib.Path("pid").write_text(str(live_runtime.client.runtime.pid))
    """)
    result.assert_outcomes(passed=2)
    pid = int((pytester.path / "pid").read_text())
    assert not psutil.pid_exists(pid)
    assert list(Path("/dev/shm").glob(f"devkit-{pid}-*")) == []


def test_a_live_model_that_does_not_load_says_why(project, write):
    write("bad", "def initialize(self, args):\n    raise ValueError('boom here')\n")
    result = project("""
        import pytest

        @pytest.mark.triton_model("bad")
        def test_it(live_model):
            pass

        @pytest.mark.triton_model("double")
        def test_others_serve(live_model):
            assert live_model.infer({"X": [1.0]})["Y"] == [2]
    """)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*load failed for model 'bad'*ValueError: boom here*"])


def test_contract_warnings_are_in_pytests_summary_and_can_be_errors(project, write):
    home = write("silent", "def execute(self, requests):\n    return [None for _ in requests]\n")
    code = """
        import pytest

        @pytest.mark.triton_model("silent")
        def test_it(triton_model):
            triton_model.execute(triton_model.request({"X": [1]}))
    """
    result = project(code)
    result.assert_outcomes(passed=1, warnings=1)
    line = (
        (home / "1" / "model.py").read_text().splitlines().index("    def execute(self, requests):")
    )
    result.stdout.fnmatch_lines(
        [f"*/silent/1/model.py:{line + 1}: ContractWarning: execute left 1 of 1 requests without*"]
    )
    result = project(code, "-W", "error::devkit.testing.ContractWarning")
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("", "does not say which model: mark it with @pytest.mark.triton_model"),
        ('@pytest.mark.triton_model("nobody")', "no model 'nobody' in"),
    ],
    ids=["no mark", "no model"],
)
def test_a_test_that_names_no_model_is_told_what_to_do(project, mark, words):
    result = project(f"import pytest\n{mark}\ndef test_it(triton_model):\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*"])


def test_the_repository_can_be_given_on_the_command_line(project, pytester, write):
    (pytester.path / "empty").mkdir()
    code = """
        import pytest

        @pytest.mark.triton_model("double")
        def test_it(triton_model):
            assert triton_model.infer({"X": [1]})["Y"] == [2]
    """
    project(code, "--model-repository=empty").assert_outcomes(errors=1)
    project(code, "--model-repository=empty", "--model-repository=models").assert_outcomes(passed=1)
    result = project(code, "--model-repository=nothing")
    result.stdout.fnmatch_lines(["*the model repository */nothing is not a folder*"])


def test_the_plugin_costs_a_run_without_models_nothing(project):
    result = project("""
        import sys

        def test_it():
            assert "devkit.testing.plugin" in sys.modules
            heavy = {"numpy", "grpc", "tritonclient", "devkit.testing.model", "devkit.control"}
            assert not heavy & set(sys.modules)
    """)
    result.assert_outcomes(passed=1)


def test_pb_utils_is_typed_for_checkers(tmp_path):
    """As mypy sees a model: names, arguments and results of the module that models import."""
    (tmp_path / "model.py").write_text(
        "import numpy as np\n"
        "import triton_python_backend_utils as pb_utils\n"
        "tensor = pb_utils.Tensor('Y', np.zeros(1))\n"
        "reveal_type(tensor.as_numpy())\n"
        "reveal_type(pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n"
        "pb_utils.Tensor('Y', 3)\n"
        "pb_utils.get_input_tensor_by_name(5, 'X')\n"
    )
    paths = os.pathsep.join((str(ROOT / "devkit" / "shim"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=",
         f"--cache-dir={tmp_path}/cache", "model.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "MYPYPATH": paths},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert "ndarray" in lines[0], done.stdout
    assert lines[1].rstrip('"').endswith("int")
    assert 'Argument 2 to "Tensor" has incompatible type "int"' in lines[2]
    assert 'Argument 1 to "get_input_tensor_by_name" has incompatible type "int"' in lines[3]
    assert len(lines) == 5, done.stdout
