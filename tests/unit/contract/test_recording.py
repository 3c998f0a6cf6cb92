"""Recordings: what is written is read again, and goes over the wire as a client would send it."""

import io

import numpy as np
import pytest

from devkit.contract import recording
from devkit.contract.recording import Record, RecordingError, Reply, Wire


def sample(number=1):
    arrays = {"X": np.arange(6, dtype=np.float32).reshape(2, 3), "S": np.array([b"a", b"bc"])}
    request = recording.request_wire(recording.rows_of(arrays), ["Y"], id="r7", parameters={"k": 1})
    answer = recording.response_wire("m", "1", recording.rows_of({"Y": arrays["X"] * 2}))
    replies = (Reply(answer), Reply(Wire(0, b""), "late error", 1))
    return Record(number, "m", "1", 12.5, 0.25, request, replies)


def test_a_file_holds_what_was_put_in():
    stream = io.BytesIO()
    assert recording.write(stream, [sample(1), sample(2)]) == 2
    stream.seek(0)
    assert recording.read(stream) == [sample(1), sample(2)]


def test_tensors_come_back_as_arrays():
    record = sample()
    assert record.id == "r7"
    assert record.error == "late error"
    np.testing.assert_array_equal(record.inputs()["X"], [[0, 1, 2], [3, 4, 5]])
    assert record.inputs()["S"].tolist() == [b"a", b"bc"]
    np.testing.assert_array_equal(record.outputs()["Y"], [[0, 2, 4], [6, 8, 10]])


def test_the_header_is_what_a_client_sends():
    header = sample().request.header
    assert header["inputs"][0] == {
        "name": "X",
        "shape": [2, 3],
        "datatype": "FP32",
        "parameters": {"binary_data_size": 24},
    }
    assert header["outputs"] == [{"name": "Y", "parameters": {"binary_data": True}}]


def test_all_outputs_are_asked_for_in_binary_where_none_is_named():
    wire = recording.request_wire(recording.rows_of({"X": np.zeros(1, np.int8)}))
    assert wire.header["parameters"] == {"binary_data_output": True}
    assert "outputs" not in wire.header


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_file_cut_short_is_refused_whole(cut):
    stream = io.BytesIO()
    recording.write(stream, [sample()])
    short = stream.getvalue()[:-cut]
    with pytest.raises(RecordingError):
        recording.read(io.BytesIO(short))


def test_another_file_is_no_recording():
    with pytest.raises(RecordingError, match="not a recording"):
        recording.read(io.BytesIO(b"hello\nworld\n"))


def test_a_type_that_triton_lacks_is_refused():
    with pytest.raises(RecordingError, match="complex64"):
        recording.rows_of({"X": np.zeros(1, np.complex64)})
