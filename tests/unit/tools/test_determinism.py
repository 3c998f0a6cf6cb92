"""Whether a model answers the same request the same way, and what to do where it does not."""

import json

import numpy as np
import pytest

from devkit.errors import ControlError
from devkit.tools.determinism import AGAIN, INSTANCES, TOGETHER, check, compare
from tests.support.live import live, write_model

CODE = """
import os
import random
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            y = {BODY}
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y.astype(np.float32))]))
        return answers
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
"""
TWO = CONFIG + "instance_group [{ count: 2 kind: KIND_CPU }]\n"
DYNAMIC = CONFIG + "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"
MODELS = {
    "steady": ("x * 2", TWO),
    "dice": ("x + random.random()", CONFIG),
    "process": ("x + os.getpid()", TWO),
    "crowd": ("x + np.float32(1e-6) * (len(requests) > 1)", DYNAMIC),
}


@pytest.fixture(scope="module")
def runtime():
    with live("--allow-grpc=false", "--allow-http=false") as one:
        client = one.client()
        for name, (body, config) in MODELS.items():
            write_model(one.repository, name, CODE.replace("{BODY}", body), config)
            client.load(name)
            for size in (2, 3):
                client.infer(name, {"X": np.ones((1, size), np.float32)})
        yield one


@pytest.fixture(scope="module")
def client(runtime):
    return runtime.client()


def test_a_steady_model_is_deterministic(client):
    report = check(client, "steady", repeats=4)
    assert report.deterministic
    assert report.requests == 2
    assert len(report.instances) == 2
    assert "bit by bit" in report.text()


def test_random_numbers_show_on_the_same_instance(client):
    report = check(client, "dice", repeats=3, requests=1)
    (found,) = report.differences
    assert (found.output, found.change) == ("Y", AGAIN)
    assert 0 < found.largest < 1
    assert any("random numbers: seed them" in hint for hint in report.hints)


def test_what_differs_between_instances_is_told_apart(client):
    report = check(client, "process", repeats=3, requests=1)
    (found,) = report.differences
    assert found.change == INSTANCES


def test_what_only_batches_change_is_told_apart(client):
    report = check(client, "crowd", repeats=6)
    assert {one.change for one in report.differences} == {TOGETHER}
    assert report.batched
    assert 0 < report.differences[0].ulps < 100


def test_without_recorded_requests_it_says_what_to_do(client, runtime):
    write_model(runtime.repository, "unasked", CODE.replace("{BODY}", "x"), CONFIG)
    client.load("unasked")
    with pytest.raises(ControlError, match="no answered request") as refused:
        check(client, "unasked")
    assert "send it a few" in refused.value.remedy


def test_the_command_says_so_and_exits_1(runtime):
    done = runtime.command("check-determinism", "dice", "-k", "2", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["deterministic"] is False
    assert runtime.command("check-determinism", "steady", "-k", "2").returncode == 0


def test_arrays_are_compared_bit_by_bit():
    nan = np.array([np.nan, 1.0], np.float32)
    assert compare(nan, nan.copy()) is None
    one = np.array([1.0, 2.0], np.float32)
    gap = compare(one, np.nextafter(one, np.float32(3)))
    assert (gap.unequal, gap.total, gap.ulps) == (2, 2, 1)
    assert compare(one, one[:1]).detail == "float32[1] instead of float32[2]"
    assert compare(np.array([b"a"], object), np.array([b"b"], object)).detail
