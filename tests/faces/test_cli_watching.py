"""What `devkit top`, `batches`, `why`, `profile`, `stack` and `status` show a person."""

import json

import numpy as np
import pytest

from tests.support.live import DOUBLE, live, write_model

ODD = DOUBLE.replace('pb_utils.Tensor("Y", x * 2)', 'pb_utils.Tensor("Y", x.astype("float64"))')
SEQUENCE = """
backend: "python"
max_batch_size: 1
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
sequence_batching { }
"""


@pytest.fixture(scope="module")
def runtime():
    with live("--allow-grpc=false", models={"double": DOUBLE, "odd": ODD}) as one:
        client = one.client()
        for _ in range(3):
            client.infer("double", {"X": np.ones(4, np.float32)}, id="seen")
        client.infer("odd", {"X": np.ones(4, np.float32)})
        yield one


def shown(runtime, *words):
    done = runtime.command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_top_shows_models_processes_and_memory(runtime):
    text = shown(runtime, "top", "--once")
    for word in ("double 1", "double_0", "INFER/S", "PSS", "/dev/shm", "READY"):
        assert word in text
    found = json.loads(shown(runtime, "top", "--json"))
    assert found["snapshot"]["models"][0]["work"]["executions"] == 3
    assert found["history"]["step"] == 1.0


def test_batches_say_why(runtime):
    text = shown(runtime, "batches", "double")
    assert "100% of 3 executions" in text
    assert "max_batch_size is 0" in text
    assert "seen X[4]" in text
    assert json.loads(shown(runtime, "batches", "double", "--json"))["reasons"]


def test_why_tells_of_the_load(runtime):
    text = shown(runtime, "why", "double")
    assert "'double' version 1 loaded in" in text
    assert "start the instances" in text
    assert "loaded in" in shown(runtime, "logs")


def test_status_shows_contract_warnings_with_the_line(runtime):
    text = shown(runtime, "status")
    assert "warning: odd: output 'Y' is FP64, but the configuration declares FP32" in text
    assert "odd/1/model.py:6" in text


def test_a_stack_and_a_profile_are_taken(runtime):
    assert "double_0 (pid " in shown(runtime, "stack", "double")
    file = runtime.workspace / "p.svg"
    shown(runtime, "profile", "double/0", "--seconds", "1", "--idle", "--out", str(file))
    assert "<svg" in file.read_text()
    assert runtime.command("profile", "double", "--out", "p.png").returncode == 2
    done = runtime.command("stack", "double/9")
    assert done.returncode == 1
    assert "double_0" in done.stderr


def test_sequences_and_streams_are_listed(runtime):
    write_model(runtime.repository, "chain", DOUBLE, SEQUENCE)
    client = runtime.client()
    client.load("chain")
    one = {"X": np.ones((1, 1), np.float32)}
    client.infer("chain", one, sequence_id=5, sequence_start=True, sequence_end=True)
    text = shown(runtime, "sequences", "chain")
    assert "chain_0" in text
    assert "ended" in text
    assert shown(runtime, "streams") == ""
