"""Why, and how much: what the control API says of batches, streams, loads, memory and stacks."""

import json
import threading
import time

import numpy as np
import pytest

from devkit.errors import ControlError, InferError
from tests.support.live import DOUBLE, eventually, live, write_model

BATCHED = """
backend: "python"
max_batch_size: 4
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
"""
DYNAMIC = BATCHED + "dynamic_batching { max_queue_delay_microseconds: 200000 }\n"
ODD = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            first = float(x.flat[0])
            if first == -1: raise ValueError("asked to fail")
            if first == -2: stuck()
            y = x.astype(np.float64) if first == -3 else x
            y = y[0] if first == -4 else y
            outputs = [pb_utils.Tensor("Y", y)]
            if first == -5: outputs.append(pb_utils.Tensor("Z", x))
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers

def stuck():
    time.sleep(3)
"""
STREAM = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(3):
                y = pb_utils.Tensor("Y", np.array([number], np.float32))
                sender.send(pb_utils.InferenceResponse([y]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
STREAM_CONFIG = """
backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
model_transaction_policy { decoupled: true }
"""
SEQUENCE_CONFIG = """
backend: "python"
max_batch_size: 2
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
sequence_batching { max_sequence_idle_microseconds: 300000 }
"""
X = {"X": np.ones((1, 2), np.float32)}


def odd(first):
    return {"X": np.full((1, 2), first, np.float32)}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    with live("--allow-grpc=false", "--allow-http=false", "--devkit-metrics") as one:
        for name, code, config in (
            ("odd", ODD, BATCHED), ("dynamic", ODD, DYNAMIC), ("stream", STREAM, STREAM_CONFIG),
            ("sequence", ODD, SEQUENCE_CONFIG), ("large", DOUBLE, ""),
        ):  # fmt: skip
            write_model(one.repository, name, code, config)
        write_model(one.repository, "large", DOUBLE)
        client = one.client()
        for name in ("odd", "dynamic", "stream", "sequence", "large"):
            client.load(name)
        yield one


@pytest.fixture(scope="module")
def client(runtime):
    return runtime.client()


def test_a_model_without_a_batcher_says_why_it_runs_one_by_one(client):
    client.infer("odd", X, id="a")
    found = client.batches("odd")
    assert found.reasons[0].reason == "one-by-one"
    assert "no dynamic_batching in the config" in found.reasons[0].why
    assert "dynamic_batching { }" in found.advice[0]
    (request,) = found.batches[-1].requests
    assert (request.id, request.inputs[0].shape, request.outcome) == ("a", (1, 2), "answered")


def test_a_batch_says_what_it_was_made_of_and_why_it_closed(client):
    threads = [
        threading.Thread(target=client.infer, args=("dynamic", X), kwargs={"id": f"r{number}"})
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.infer("dynamic", X, id="alone")
    full, alone = client.batches("dynamic").batches[-2:]
    assert (full.reason, full.size) == ("full", 4)
    assert {one.id for one in full.requests} == {"r0", "r1", "r2", "r3"}
    assert (alone.reason, alone.size) == ("delay-over", 1)
    assert "200000" in alone.why
    assert alone.requests[0].queue_us > 100_000


def test_a_failed_batch_is_marked_and_counted(client):
    with pytest.raises(InferError):
        client.infer("odd", odd(-1), id="bad")
    batch = client.batches("odd").batches[-1]
    assert batch.failed
    assert batch.requests[0].outcome == "failed"
    (instance,) = client.model("odd").instances
    assert instance.work.failed >= 1
    assert instance.work.busy_ns > 0


def test_every_response_of_a_stream_is_told_with_its_flags(client):
    answers = list(client.stream("stream", {"X": np.ones(1, np.float32)}, id="s"))
    assert len(answers) == 3
    stream = client.streams("stream")[-1]
    assert (stream.id, stream.state, stream.count) == ("s", "ended", 4)
    assert [one.final for one in stream.responses] == [False, False, False, True]
    assert stream.responses[-1].empty


def test_requests_that_nobody_waits_for_are_marked(client):
    def give_up(first, name, timeout):
        with pytest.raises(Exception, match=r"timed out|no answer|Timeout|seconds"):
            client.infer("odd", odd(first), id=name, timeout=timeout)

    running = threading.Thread(target=give_up, args=(-2, "running", 0.6))
    running.start()
    eventually(lambda: client.batches("odd").open)
    give_up(1, "queued", 0.1)
    running.join()
    eventually(lambda: any(one.id == "queued" for one in client.batches("odd").gone))
    (left,) = eventually(
        lambda: [one for one in client.batches("odd").open if one.state == "abandoned"]
    )
    assert left.id == "running"
    eventually(lambda: not client.batches("odd").open)
    states = {one.id: one.state for one in client.batches("odd").gone}
    assert states == {"queued": "cancelled", "running": "cancelled"}
    assert client.batches("odd").batches[-1].requests[0].outcome == "cancelled"


def test_sequences_have_a_lane_each_and_silent_ones_are_evicted(client):
    mark = client.status().sequence
    client.infer("sequence", X, sequence_id=7, sequence_start=True)
    client.infer("sequence", X, sequence_id=7, sequence_end=True)
    client.infer("sequence", X, sequence_id=8, sequence_start=True)
    lanes = eventually(
        lambda: (
            {
                one.correlation_id: one
                for one in client.sequences("sequence")
                if one.state != "running"
            }
            if len([one for one in client.sequences("sequence") if one.ended]) == 2
            else None
        )
    )
    assert lanes["7"].state == "ended"
    assert lanes["8"].state == "evicted"
    assert lanes["8"].instance == "sequence_0"
    states = []
    for event in client.events(kinds=["sequence"], since=mark):
        states.append((event.text, event.state))
        if event.state == "evicted":
            break
    assert states[:3] == [("7", "started"), ("7", "placed"), ("7", "ended")]


def test_large_outputs_are_seen_in_the_slab_of_their_instance(client):
    client.infer("large", {"X": np.zeros(1 << 20, np.float32)})
    slabs = {one.name: one for one in client.memory().slabs}
    (name,) = [one for one in slabs if "large_0" in one and one.endswith("responses")]
    assert slabs[name].high_water >= 4 << 20
    assert slabs[name].free == slabs[name].size - slabs[name].used


def test_a_load_leaves_its_stages_its_cause_and_its_end(client, runtime):
    client.reload("odd")
    last = eventually(
        lambda: next(
            (one for one in client.operations("odd") if one.kind == "swap" and not one.blocks), None
        )
    )
    assert last.state == "done"
    assert last.cause == "reload request"
    assert [one.name for one in last.stages][-1] == "start the instances"
    assert "swapped in" in last.text
    assert any("'odd' version 1 swapped" in line.text for line in client.logs())


def test_a_load_that_fails_says_in_which_stage_and_at_which_line(client, runtime):
    folder = write_model(runtime.repository, "broken", "raise RuntimeError('no weights')\n")
    with pytest.raises(Exception, match="no weights"):
        client.load("broken")
    (last,) = client.operations("broken")
    assert last.state == "failed"
    assert last.stages[-1].name == "auto_complete_config"
    assert last.line == f"{folder}/1/model.py:1"


def test_what_blocks_an_old_version_is_told(client):
    thread = threading.Thread(target=client.infer, args=("odd", odd(-2)))
    thread.start()
    eventually(lambda: client.batches("odd").open)
    client.reload("odd")
    blocked = client.operations("odd")[-1]
    assert "the old version still runs 1 requests" in blocked.blocks
    thread.join()
    eventually(lambda: not client.operations("odd")[-1].blocks)


def test_a_stuck_instance_shows_its_stack(client):
    thread = threading.Thread(target=client.infer, args=("odd", odd(-2)), kwargs={"id": "slow"})
    thread.start()
    eventually(lambda: client.batches("odd").open)
    (found,) = client.stack("odd", "0")
    thread.join()
    assert found.running == ("slow",)
    main = next(one for one in found.threads if one.name == "MainThread")
    assert "in stuck" in main.stack
    assert "devkit/stub" not in main.stack
    with pytest.raises(ControlError, match="no instance '9'"):
        client.stack("odd", "9")


def test_history_keeps_a_value_a_second(client):
    client.infer("odd", X)
    found = eventually(
        lambda: {
            one.name: one.values
            for one in client.history("odd").series
            if one.model == "odd" and not one.instance
        }.get("inferences")
    )
    assert len(found) >= 1
    machine = {one.name for one in client.history(seconds=5).series if not one.model}
    assert {"rss", "cpu", "shm_free", "shm_ours"} <= machine


def test_unlike_the_config_is_a_warning_with_the_models_line(client):
    client.reload("odd")
    for first in (-3, -4, -5):
        client.infer("odd", odd(first))
    warned = eventually(
        lambda: (
            {one.rule: one for one in client.model("odd").warnings}
            if len(client.model("odd").warnings) >= 3
            else None
        )
    )
    assert {"output-datatype", "output-shape", "undeclared-output"} <= warned.keys()
    assert warned["output-datatype"].line.endswith("/odd/1/model.py:7")
    client.reload("odd")
    assert client.model("odd").warnings == ()


def test_metrics_have_the_same_numbers_where_asked_for(client):
    import urllib.request

    url = client.runtime.url("metrics") or client.status().runtime.url("metrics")
    with urllib.request.urlopen(f"http://{url}/metrics") as page:
        text = page.read().decode()
    assert 'devkit_batch_size_bucket{model="dynamic",version="1",le="4"}' in text
    assert 'devkit_instance_exec_count{instance="odd_0",model="odd",version="1"}' in text
    assert "devkit_shm_free_bytes " in text


def test_a_profile_is_taken_while_it_serves(client):
    stop = time.monotonic() + 2.5

    def ask():
        while time.monotonic() < stop:
            client.infer("large", {"X": np.zeros(1 << 16, np.float32)})

    thread = threading.Thread(target=ask)
    thread.start()
    found = json.loads(client.profile("large", seconds=1, idle=True))
    thread.join()
    assert found["profiles"]
    assert b"<svg" in client.profile("large", "0", seconds=1, format="flamegraph", idle=True)


def test_strict_makes_errors_of_them():
    with live("--allow-grpc=false", "--allow-http=false", "--strict") as one:
        write_model(one.repository, "odd", ODD, BATCHED)
        client = one.client()
        client.load("odd")
        client.infer("odd", X)
        for first, rule in (
            (-3, "output 'Y' is FP64, but the configuration declares FP32"),
            (-4, "output 'Y' has shape"),
            (-5, "output 'Z' is not in the model's configuration"),
        ):
            with pytest.raises(InferError, match=f"strict mode: .*{rule}"):
                client.infer("odd", odd(first))
        client.infer("odd", X)
