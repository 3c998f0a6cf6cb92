"""What was kept, through the control API: recorded requests, their tensors, failures."""

import io
import threading

import numpy as np
import pytest

from devkit.contract import recording
from devkit.control.messages import TensorAddress
from devkit.errors import ControlError, DevkitError, InferError
from tests.support.live import live
from tests.support.shown import SHOWING


@pytest.fixture(scope="module")
def runtime():
    with live(models={"shown": SHOWING}) as one:
        yield one


@pytest.fixture
def client(runtime):
    made = runtime.client()
    made.forget_captures()
    made.forget_failures()
    made.capture_settings(rate=0.0, largest=16 << 20, count=1000, on=True, probes=True)
    return made


def ask(client, *values, **more):
    return client.infer("shown", {"X": np.array(values, np.float32)}, **more)["Y"]


def last(client):
    return client.capture_list()[-1].number


# --- recorded requests --------------------------------------------------------------------------


def test_requests_are_chosen_by_id_failure_number_and_age(client):
    for name in ("a1", "a2", "b1"):
        ask(client, 1, 2, id=name)
    with pytest.raises(InferError):
        ask(client, -1, id="bad")
    ids = lambda **choice: [one.id for one in client.capture_list("shown", **choice)]  # noqa: E731
    assert ids() == ["a1", "a2", "b1", "bad"]
    assert ids(id="a*") == ["a1", "a2"]
    assert ids(failed=True) == ["bad"]
    assert ids(last=2) == ["b1", "bad"]
    assert ids(slower=100.0) == []
    assert ids(numbers=[last(client)]) == ["bad"]
    assert client.capture_list("other") == []
    assert client.forget_captures(id="a*") == 2
    assert ids() == ["b1", "bad"]


def test_a_recording_goes_out_and_comes_back(client):
    ask(client, 1, 2, id="kept")
    data = client.recording("shown")
    client.forget_captures()
    (back,) = client.add_recording(data)
    assert back.id == "kept"
    (record,) = client.captures("shown")
    assert record.outputs()["Y"].tolist() == [2.0, 4.0]
    assert record.probes[0].held().array().tolist() == [0.5, 1.0]
    assert recording.read(io.BytesIO(data))[0].request == record.request


def test_settings_bound_the_ring_and_stop_it(client):
    for number in range(5):
        ask(client, number)
    assert client.capture_settings(count=2).kept == 2
    client.capture_settings(on=False)
    ask(client, 9)
    assert len(client.capture_list()) == 2
    with pytest.raises(ControlError, match="negative"):
        client.capture_settings(count=-1)


def test_probes_can_be_turned_off_and_stay_off_after_a_reload(client):
    def parts():
        ask(client, 3)
        return {row.address.part for row in client.tensors(last(client))}

    assert "probes" in parts()
    client.capture_settings(probes=False)
    assert "probes" not in parts()
    client.reload("shown")
    assert "probes" not in parts()
    client.capture_settings(probes=True)
    assert "probes" in parts()


# --- tensors ------------------------------------------------------------------------------------


def test_every_tensor_of_a_request_is_there(client):
    ask(client, *range(100))
    rows = client.tensors(last(client))
    assert [(row.address.part, row.address.name) for row in rows] == [
        ("inputs", "X"), ("probes", "half"), ("outputs", "Y"),
    ]  # fmt: skip
    half = client.tensor_summary(rows[1].address)
    assert (half.maximum, half.shape, half.datatype) == (49.5, (100,), "FP32")
    assert client.tensor_values(rows[2].address, "3:6").tolist() == [6, 8, 10]
    assert client.tensor_series(rows[0].address, points=10).step == 10
    found = client.compare_tensors(rows[0].address, rows[1].address)
    assert (found.verdict, found.where) == ("differs", (99,))


def test_what_is_not_there_is_said(client):
    ask(client, 1)
    with pytest.raises(ControlError, match="no tensor 'Z'"):
        client.tensor_summary(TensorAddress(last(client), name="Z"))
    with pytest.raises(ControlError, match="no recorded request 999999"):
        client.tensors(999999)
    with pytest.raises(ControlError, match="does not look like a picture"):
        client.tensor_picture(client.tensors(last(client))[0].address)
    with pytest.raises(DevkitError, match="is no index"):
        client.tensor_values(client.tensors(last(client))[0].address, "x")


def test_values_travel_only_up_to_a_bound(client):
    ask(client, *range(1000))
    at = client.tensors(last(client))[0].address
    with pytest.raises(ControlError, match="4,000 bytes"):
        client.tensor_values(at, limit=1000)
    assert client.tensor_values(at, limit=4000).size == 1000


def test_of_a_large_request_a_sample_is_kept_and_the_loop_goes_on(client):
    """Looking at it ships a few kilobytes, and other requests are answered meanwhile."""
    client.capture_settings(largest=1 << 20)
    large = np.zeros(32 << 20, np.float32)
    large[-1] = 7
    client.infer("shown", {"X": large})
    info = client.capture_list()[-1]
    assert not info.whole
    assert info.request_bytes < 4 << 20
    answered = []
    thread = threading.Thread(target=lambda: answered.append(ask(client, 1)))
    thread.start()
    for row in client.tensors(info.number):
        found = client.tensor_summary(row.address)
        assert found.count == 32 << 20
        assert found.looked_at < found.count
        assert "was not kept" in found.note
        assert found.maximum > 0  # the last value is in the sample
    thread.join()
    assert answered
    with pytest.raises(DevkitError, match="were kept"):
        client.tensor_values(row.address, "0")
    assert client.captures() != client.captures(samples=True)


# --- failures -----------------------------------------------------------------------------------


def test_what_raised_is_kept_with_frames_locals_request_and_lines(client):
    with pytest.raises(InferError):
        ask(client, -1, 5, id="bad")
    (info,) = client.failures("shown")
    assert (info.kind, info.requests) == ("raised", 1)
    found = client.failure(info.number)
    assert [frame.function for frame in found.frames] == ["execute", "fail"]
    outer, inner = found.frames
    assert inner.locals["doubled"] == "ndarray float32 (2,) [-2.0, 10.0]"
    assert outer.locals["big"].startswith("ndarray float64 (100,) min 0 max 99")
    assert outer.locals["request"] == "InferenceRequest 'bad': X FP32 [2]"
    line = next(one for one in inner.source if one.number == inner.line)
    assert line.text.strip() == 'raise ValueError("asked to fail")'
    assert "ValueError: asked to fail" in found.traceback
    assert "about to raise" in [one.text for one in found.log]
    (request,) = client.captures(failure=info.number)
    assert request.inputs()["X"].tolist() == [-1, 5]
    assert request.id == "bad"
    (tensor, probe) = client.tensors(failure=info.number)
    assert client.tensor_summary(tensor.address).minimum == -1
    assert probe.address.name == "half"


def test_what_died_is_kept_with_its_signal_and_last_words(client):
    with pytest.raises(InferError, match="not healthy"):
        ask(client, -2)
    (info,) = client.failures()
    found = client.failure(info.number)
    assert found.info.kind == "died"
    assert found.info.ending.startswith("ended by SIGSEGV")
    lines = [one.text for one in found.log]
    assert "about to die" in lines
    assert any("Segmentation fault" in line for line in lines)
    assert client.captures(failure=info.number)[0].inputs()["X"].tolist() == [-2]
    client.wait_ready("shown")


def test_the_same_failure_again_is_counted(client):
    for _ in range(5):
        with pytest.raises(InferError):
            ask(client, -1)
    kept = client.failures()
    assert sum(1 + one.repeats for one in kept) == 5
    assert len(kept) < 5
    assert client.forget_failures() == len(kept)
    with pytest.raises(ControlError, match="no failure"):
        client.failure(kept[0].number)
