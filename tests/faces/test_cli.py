"""The command line as a user has it: a process, its two streams and its exit status."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.support.live import DOUBLE, ROOT, live

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

BROKEN = "raise RuntimeError('no such thing')\n"


@pytest.fixture(scope="module")
def runtime():
    with live("--allow-grpc=false", models={"double": DOUBLE, "broken": BROKEN}) as one:
        yield one


@pytest.fixture
def devkit(runtime):
    return runtime.command


def told(done):
    """What a command that must succeed wrote as JSON."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- what is there ------------------------------------------------------------------------------


def test_help_names_every_command(devkit):
    done = devkit("--help")
    assert done.returncode == 0
    for name in (
        "serve", "start", "status", "models", "infer", "load", "unload", "reload", "scale",
        "logs", "stop", "export", "verify", "config", "record", "captures",
        "replay", "failures", "tensors", "compare", "top", "batches", "streams",
        "sequences", "why", "profile", "stack", "check-determinism", "trace", "tui",
    ):  # fmt: skip
        assert f" {name} " in done.stdout


def test_help_brings_nothing_heavy():
    code = (
        "import sys\n"
        "from devkit.cli.app import run\n"
        "run(['--help'])\n"
        "print(','.join(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split(","))
    assert not loaded & {
        "numpy", "tritonclient", "grpc", "uvicorn", "starlette", "psutil", "torch", "textual",
        "httpx", "websockets", "debugpy", "orjson", "google.protobuf", "devkit.control.client",
    }  # fmt: skip
    assert not [name for name in loaded if name.startswith(("devkit.core", "devkit.runtime"))]


def test_an_unknown_command_is_a_usage_error(devkit):
    assert devkit("nonsense").returncode == 2


def test_status_shows_models_processes_and_memory(devkit, runtime):
    done = devkit("status")
    assert done.returncode == 0
    for word in (str(runtime.workspace), "double", "double_0", "READY", "/dev/shm", "http"):
        assert word in done.stdout


def test_status_as_json_is_a_snapshot(devkit, runtime):
    snapshot = told(devkit("status", "--json"))
    assert snapshot["runtime"]["pid"] == runtime.process.pid
    assert snapshot["version"] == 1


def test_models_tell_why_one_is_not_served(devkit):
    states = {one["name"]: one for one in told(devkit("models", "--json"))}
    assert states["double"]["state"] == "READY"
    assert states["broken"]["state"] == "UNAVAILABLE"
    assert "no such thing" in states["broken"]["error"]
    assert "UNAVAILABLE" in devkit("models").stdout


# --- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1,2,3", "[1,2,3]"])
def test_infer_takes_values(devkit, text):
    done = devkit("infer", "double", "--input", f"X={text}")
    assert done.returncode == 0
    assert done.stdout == "Y  FP32 [3]\n[2. 4. 6.]\n"


def test_infer_answers_in_json(devkit):
    answer = told(devkit("infer", "double", "-i", "X=1.5", "--json"))
    assert answer == {"outputs": [{"name": "Y", "datatype": "FP32", "shape": [1], "data": [3.0]}]}


def test_infer_reads_and_writes_arrays(devkit, runtime):
    np.save(runtime.workspace / "x.npy", np.arange(4, dtype=np.float32))
    done = devkit("infer", "double", "-i", "X=@x.npy", "--save", "out")
    assert done.returncode == 0
    np.testing.assert_array_equal(np.load(runtime.workspace / "out" / "Y.npy"), [0, 2, 4, 6])


def test_infer_reads_a_request_body(devkit, runtime):
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
    (runtime.workspace / "body.json").write_text(json.dumps(body))
    done = devkit("infer", "double", "--json-file", "body.json")
    assert done.stdout.endswith("[2. 4.]\n")


def test_a_refused_request_is_status_1_with_the_servers_text(devkit):
    done = devkit("infer", "double", "-i", "WRONG=1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "error: unexpected inference input 'WRONG' for model 'double'" in done.stderr


def test_an_unknown_model_is_status_1_and_json_says_so(devkit):
    done = devkit("infer", "nope", "-i", "X=1", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["kind"] == "UnknownModelError"


@pytest.mark.parametrize("text", ["X", "X=@missing.npy", "X=abc"])
def test_input_that_cannot_be_read_is_a_usage_error(devkit, text):
    assert devkit("infer", "double", "-i", text).returncode == 2


# --- control ------------------------------------------------------------------------------------


def test_scale_reload_unload_and_load(devkit):
    assert len(told(devkit("scale", "double", "2", "--json"))["instances"]) == 2
    assert told(devkit("reload", "double", "--json"))["state"] == "READY"
    assert devkit("scale", "double", "1").returncode == 0
    assert devkit("unload", "double").returncode == 0
    assert told(devkit("load", "double", "--json"))["state"] == "READY"


def test_a_load_that_fails_shows_the_traceback_and_the_line(devkit, runtime):
    done = devkit("load", "broken")
    assert done.returncode == 1
    assert "RuntimeError: no such thing" in done.stderr
    assert f"  at {runtime.repository}/broken/1/model.py:1" in done.stderr


def test_config_is_printed_as_text_and_json(devkit):
    assert 'name: "X"' in devkit("config", "double").stdout
    assert told(devkit("config", "double", "--json"))["name"] == "double"


def test_logs_show_the_last_lines(devkit):
    done = devkit("logs", "-n", "50")
    assert done.returncode == 0
    assert "Started HTTPService" in done.stdout


def test_a_recording_is_written(devkit, runtime):
    devkit("infer", "double", "-i", "X=1,2,3,4,5,6,7")
    done = devkit("record", "r.bin", "--model", "double")
    assert done.returncode == 0
    assert (runtime.workspace / "r.bin").read_bytes().startswith(b"devkit-recording 1\n")


def test_without_a_runtime_the_status_is_3(runtime, tmp_path):
    done = runtime.command("models", "--workspace", str(tmp_path))
    assert done.returncode == 3
    assert "no runtime serves" in done.stderr
    assert "devkit serve" in done.stderr


def test_a_runtime_is_started_in_the_background_and_stopped(runtime, tmp_path):
    where = ("-w", str(tmp_path))
    started = told(runtime.command("start", *where, "--json"))
    assert started["workspace"] == str(tmp_path)
    again = told(runtime.command("start", *where, "--json"))
    assert again["pid"] == started["pid"]
    assert told(runtime.command("stop", *where, "--json")) == {"stopped": started["pid"]}
    assert runtime.command("status", *where).returncode == 3
