"""The control API end to end: a real runtime, the real client."""

import json
import os
import threading

import numpy as np
import pytest

from devkit.control import messages
from devkit.control.client import Client, connect
from devkit.control.messages import ModelOptions
from devkit.errors import (
    ConfigError,
    ControlError,
    InferError,
    LoadError,
    UnknownModelError,
)
from tests.support.live import DOUBLE, eventually, in_folder, live, write_model

QUIET = ["--port=0", "--allow-grpc=false"]
X = np.array([1.0, 2.5, -3.0], np.float32)

TWICE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() * 2)]
            )
            for r in requests
        ]
"""


# --- what there is ------------------------------------------------------------------------------


def test_a_snapshot_shows_models_instances_and_processes(client, runtime):
    snapshot = client.status()
    assert snapshot.ready
    assert snapshot.runtime.pid == runtime.process.pid
    assert snapshot.runtime.workspace == str(runtime.workspace)
    assert snapshot.process.rss > 0
    assert snapshot.memory.total > 0
    (model,) = (one for one in snapshot.models if one.name == "double")
    assert model.state == "READY"
    assert model.inputs == (messages.Tensor("X", "FP32", (-1,)),)
    assert model.file == str(runtime.repository / "double" / "1" / "model.py")
    assert not model.scratch
    (instance,) = model.instances
    assert instance.name == "double_0"
    assert instance.process.pss > 0
    os.kill(instance.pid, 0)


def test_ports_are_told(client):
    protocols = {one.protocol: one.port for one in client.runtime.endpoints}
    assert set(protocols) == {"http", "metrics"}
    assert all(protocols.values())


def test_a_config_comes_as_json_and_as_text(client):
    assert client.config("double")["input"][0]["name"] == "X"
    assert 'name: "X"' in client.config_text("double")


def test_statistics_count(client):
    client.infer("double", {"X": X})
    (row,) = client.statistics("double")
    assert int(row["inference_count"]) >= 1


def test_an_unknown_model_is_the_servers_own_error(client):
    for call in (
        lambda: client.model("nope"),
        lambda: client.config("nope"),
        lambda: client.unload("nope"),
        lambda: client.infer("nope", {"X": X}),
    ):
        with pytest.raises(
            UnknownModelError, match="Request for unknown model: 'nope' is not found"
        ):
            call()


def test_calls_from_many_threads_are_answered_each(client):
    found = []

    def ask(number):
        value = np.full(4, number, np.float32)
        for _ in range(20):
            found.append(bool((client.infer("double", {"X": value})["Y"] == number * 2).all()))
            found.append(client.model("double").name == "double")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 240


# --- inference ----------------------------------------------------------------------------------


def test_small_and_large_tensors_come_back(client):
    np.testing.assert_array_equal(client.infer("double", {"X": X})["Y"], X * 2)
    large = np.arange(300_000, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(client.infer("double", {"X": large})["Y"], large * 2)
    assert client.infer("double", {"X": np.zeros(0, np.float32)})["Y"].shape == (0,)


def test_outputs_may_be_written_to(client):
    found = client.infer("double", {"X": X})["Y"]
    found += 1
    large = client.infer("double", {"X": np.ones(100_000, np.float32)})["Y"]
    large += 1


def test_plain_values_take_the_models_own_type(client):
    np.testing.assert_array_equal(client.infer("double", {"X": [1, 2]})["Y"], [2.0, 4.0])


def test_a_refused_request_carries_the_servers_text(client):
    with pytest.raises(InferError, match="data-type is 'FP64', but model 'double' expects 'FP32'"):
        client.infer("double", {"X": X.astype(np.float64)})
    with pytest.raises(InferError, match="unexpected inference output 'NOPE'"):
        client.infer("double", {"X": X}, outputs=["NOPE"])
    np.testing.assert_array_equal(client.infer("double", {"X": X})["Y"], X * 2)


def test_the_memory_of_large_requests_is_given_back(client):
    client.infer("double", {"X": np.ones(500_000, np.float32)})
    used = [slab.used for slab in client.memory().slabs if "local" in slab.name]
    assert used == [0]


# --- control ------------------------------------------------------------------------------------


def test_scaling_reloading_and_unloading(client):
    before = client.model("double").instances[0].pid
    assert len(client.scale("double", 3).instances) == 3
    assert len(client.scale("double", 1).instances) == 1
    assert client.reload("double").instances[0].pid != before
    client.unload("double")
    with pytest.raises(UnknownModelError, match="has no available versions"):
        client.infer("double", {"X": X})
    assert client.model("double").state == "UNAVAILABLE"
    assert client.load("double").state == "READY"
    np.testing.assert_array_equal(client.infer("double", {"X": X})["Y"], X * 2)


def test_a_count_that_is_none_is_refused(client):
    with pytest.raises(ControlError, match="0 is not a number of instances"):
        client.scale("double", 0)


def test_a_model_of_a_cell_without_a_config_learns_from_its_first_request(runtime):
    client = runtime.client()
    said = []
    client.on_note = said.append
    model = client.put_model("cell", {"1/model.py": TWICE})
    assert model.scratch
    assert model.unlearned
    data = np.array([[1, 2, 3]], np.int32)
    np.testing.assert_array_equal(client.infer("cell", {"IN": data})["OUT"], data * 2)
    assert any("input IN: TYPE_INT32" in sentence for sentence in said)
    assert any("output OUT: TYPE_INT32" in sentence for sentence in said)
    model = client.model("cell")
    assert not model.unlearned
    assert [one.name for one in model.outputs] == ["OUT"]
    np.testing.assert_array_equal(client.infer("cell", {"IN": data})["OUT"], data * 2)
    client.remove_model("cell")


def test_a_first_request_that_fails_leaves_what_was_learned_before(client):
    client.put_model("moody", {"1/model.py": TWICE})
    data = np.array([1], np.int32)
    client.infer("moody", {"IN": data})
    client.put_model("moody", {"1/model.py": TWICE.replace("* 2", "* nothing")})
    with pytest.raises(InferError, match="'nothing' is not defined"):
        client.infer("moody", {"IN": data})
    assert [one.name for one in client.model("moody").outputs] == ["OUT"]
    assert client.model("moody").unlearned
    client.remove_model("moody")


def test_running_a_cell_again_swaps_the_model(client):
    options = ModelOptions(config=CONFIG)
    client.put_model("again", {"1/model.py": TWICE}, options)
    thrice = TWICE.replace("* 2", "* 3")
    data = np.array([1], np.int32)
    assert client.infer("again", {"IN": data})["OUT"] == [2]
    client.put_model("again", {"1/model.py": thrice}, options)
    assert client.infer("again", {"IN": data})["OUT"] == [3]
    client.remove_model("again")
    with pytest.raises(UnknownModelError):
        client.model("again")


CONFIG = """
backend: "python"
input [{ name: "IN" data_type: TYPE_INT32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [-1] }]
"""


def test_a_cell_that_does_not_load_keeps_the_old_one_and_says_where(client):
    client.put_model("broken", {"1/model.py": TWICE}, ModelOptions(config=CONFIG))
    bad = TWICE + "\n    def initialize(self, args):\n        raise ValueError('boom')\n"
    with pytest.raises(LoadError, match="ValueError: boom") as caught:
        client.put_model("broken", {"1/model.py": bad}, ModelOptions(config=CONFIG))
    assert caught.value.model == "broken"
    assert caught.value.line.endswith("model.py:14")
    assert "raise ValueError('boom')" in caught.value.traceback
    data = np.array([4], np.int32)
    assert client.infer("broken", {"IN": data})["OUT"] == [8]
    model = client.model("broken")
    assert model.state == "READY"
    assert "boom" in model.error
    client.remove_model("broken")


def test_a_config_that_cannot_be_read_names_the_line(client):
    with pytest.raises(ConfigError) as caught:
        client.put_model("bad", {"1/model.py": TWICE}, ModelOptions(config="max_batch_size: x"))
    assert caught.value.message


def test_only_models_of_cells_are_deleted(client):
    with pytest.raises(ControlError, match="not made by a cell"):
        client.remove_model("double")


# --- events, logs, captures ---------------------------------------------------------------------


def test_the_event_stream_begins_with_a_snapshot_and_goes_on_with_events(client):
    stream = client.events(kinds=["model"])
    first = next(stream)
    assert isinstance(first, messages.Snapshot)
    client.reload("double")
    seen = []
    for event in stream:
        seen.append(event)
        if event.state == "swapped":
            break
    stream.close()
    assert [one.model for one in seen] == ["double"] * len(seen)
    assert seen[0].sequence > first.sequence


def test_missed_events_are_replayed(client):
    sequence = client.status().sequence
    client.reload("double")
    stream = client.events(since=sequence, kinds=["model"])
    assert next(stream).sequence > sequence
    stream.close()


def test_gauges_come_as_snapshots(client):
    stream = client.events(kinds=["none"], gauges=0.05)
    assert [type(next(stream)) for _ in range(3)] == [messages.Snapshot] * 3
    stream.close()


def test_gauges_come_also_where_events_never_pause(client):
    enough = threading.Event()

    def make_events():
        while not enough.is_set():
            client.stop_at_exceptions()

    busy = threading.Thread(target=make_events)
    busy.start()
    stream = client.events(kinds=["debug"], gauges=0.2)
    try:
        seen = []
        while seen.count(messages.Snapshot) < 3:
            seen.append(type(next(stream)))
        assert messages.Event in seen
    finally:
        enough.set()
        busy.join()
        stream.close()


def test_what_a_model_prints_is_in_its_log(client):
    loud = (
        TWICE
        + "\n    def initialize(self, args):\n        print('hello from', args['model_name'])\n"
    )
    client.put_model("loud", {"1/model.py": loud}, ModelOptions(config=CONFIG))
    line = eventually(lambda: client.logs(model="loud"))[-1]
    assert (line.text, line.stream, line.instance) == ("hello from loud", "stdout", "loud_0")
    client.remove_model("loud")


def test_requests_are_recorded_with_their_answers(client):
    client.forget_captures()
    client.infer("double", {"X": np.ones(5, np.float32)}, id="rec")
    (record,) = client.captures("double")
    assert record.id == "rec"
    np.testing.assert_array_equal(record.outputs()["Y"], np.full(5, 2, np.float32))
    (row,) = client.capture_list("double")
    assert (row.id, row.responses, row.error) == ("rec", 1, "")


# --- finding and losing a runtime ---------------------------------------------------------------


def test_connecting_without_a_runtime_says_so(tmp_path):
    with in_folder(tmp_path), pytest.raises(ControlError, match="no runtime serves"):
        connect(tmp_path, start=False)


def test_a_runtime_of_another_protocol_is_refused(client):
    from dataclasses import replace

    with pytest.raises(ControlError, match="speaks version 99"):
        Client(replace(client.runtime, version=99))


def test_a_bad_call_is_answered_with_what_is_wrong(client):
    connection = client._connection(True)
    connection.request("POST", "/v1/models/double/scale", b'{"count":"x"}')
    answer = connection.getresponse()
    assert answer.status == 400
    assert "ScaleModel.count must be an integer" in json.loads(answer.read())["error"]


def test_one_is_started_where_none_runs_and_ends_when_told(tmp_path):
    write_model(tmp_path / "models", "double")
    said = []
    with in_folder(tmp_path / "run"):
        with connect(
            tmp_path, repositories=[tmp_path / "models"], flags=QUIET, progress=said.append
        ) as first:
            np.testing.assert_array_equal(first.infer("double", {"X": X})["Y"], X * 2)
            with connect(tmp_path) as second:
                assert second.runtime.pid == first.runtime.pid
            assert said
            first.shutdown()
        assert not first.alive()
        with pytest.raises(ControlError, match="does not answer"):
            first.status()


def test_one_that_cannot_start_says_why(tmp_path):
    with in_folder(tmp_path / "run"), pytest.raises(ControlError, match="unrecognized option"):
        connect(tmp_path, flags=["--nonsense"])


def test_a_killed_runtime_is_noticed_and_its_traces_are_removed():
    with live("--allow-grpc=false", models={"double": DOUBLE}) as runtime:
        client = runtime.client()
        client.infer("double", {"X": X})
        runtime.process.kill()
        runtime.process.wait()
        with pytest.raises(ControlError, match="does not answer"):
            client.infer("double", {"X": X})
        assert not client.alive()
        with in_folder(runtime.folder / "run"), pytest.raises(ControlError, match="no runtime"):
            connect(runtime.workspace, start=False)
        # The next start sweeps shared memory; here the test does.
        from devkit.transport.memory import sweep

        sweep()
