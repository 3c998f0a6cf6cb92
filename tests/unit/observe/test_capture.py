"""The recorder's ring: what it keeps, what it drops, and that it copies."""

import pytest

from devkit.core.request import (
    Description,
    OutputSignature,
    Request,
    Response,
    SharedPlace,
    TensorSpec,
)
from devkit.core.taps import Taps
from devkit.errors import InferError
from devkit.observe.capture import Capture
from devkit.transport import memory
from devkit.transport.memory import Slab

SIGNATURE = OutputSignature((TensorSpec("Y", "FP32", (2,)),))


def description():
    return Description((TensorSpec("X", "FP32", (2,)),))


@pytest.fixture
def taps():
    return Taps()


@pytest.fixture
def capture(taps):
    made = Capture(rate=1e-9)  # nothing but the first of a description, and failures
    made.listen(taps)
    return made


def ask(about, data=b"\0" * 8, **more):
    return Request("m", about, [data], lambda _: None, **more)


def answer(taps, request, data=b"\1" * 8, **more):
    response = Response(request, "m", "1", **more)
    if not more.get("error") and not more.get("empty"):
        response.signature, response.buffers = SIGNATURE, [data]
    Taps.emit(taps.responses, request, response)


def test_the_first_request_of_each_description_is_kept(taps, capture):
    one, two = description(), description()
    for about in (one, one, two, two):
        answer(taps, ask(about, id="i"))
    assert [record.id for record in capture.records()] == ["i", "i"]


def test_a_failed_request_is_always_kept(taps, capture):
    about = description()
    answer(taps, ask(about))
    answer(taps, ask(about), error=InferError("no"))
    assert [record.error for record in capture.records()] == ["", "no"]


def test_a_rate_keeps_some_of_the_others(taps):
    capture = Capture(rate=1e9)
    capture.listen(taps)
    about = description()
    for _ in range(5):
        answer(taps, ask(about))
    assert len(list(capture.records())) == 5


def test_tensors_are_copied_before_their_memory_is_given_back(taps, capture):
    data = bytearray(b"\0\0\x80?\0\0\0@")
    answer(taps, ask(description(), memoryview(data)), memoryview(data))
    data[:] = b"\xff" * 8
    (record,) = capture.records()
    assert record.inputs()["X"].tolist() == [1.0, 2.0]
    assert record.outputs()["Y"].tolist() == [1.0, 2.0]


def test_inputs_in_shared_memory_are_read_from_there(taps, capture, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "DIRECTORY", tmp_path)
    slab = Slab("devkit-1-t", size=4096)
    block = slab.allocate(8)
    block.view()[:] = b"\0\0\x80?\0\0\0@"
    answer(taps, ask(description(), SharedPlace(slab, block.offset, 8, block)))
    assert next(capture.records()).inputs()["X"].tolist() == [1.0, 2.0]
    slab.unlink()


def test_a_region_that_is_gone_is_not_recorded(taps, capture, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "DIRECTORY", tmp_path)
    (tmp_path / "r").write_bytes(bytes(64))
    region = memory.Region(tmp_path / "r", size=64)
    region.close()
    answer(taps, ask(description(), SharedPlace(region, 0, 8)))
    answer(taps, ask(description()))
    assert len(list(capture.records())) == 1


def test_a_stream_of_responses_is_one_record(taps, capture):
    request = ask(description())
    answer(taps, request, final=False)
    answer(taps, request, final=False)
    assert list(capture.records()) == []
    answer(taps, request, empty=True)
    (record,) = capture.records()
    assert [reply.final for reply in record.replies] == [False, False]


def test_parameters_that_the_core_took_out_are_put_back(taps, capture):
    about = description()
    about.parameters["a"] = 1
    answer(taps, ask(about, correlation_id=5, flags=1, timeout=9))
    header = next(capture.records()).request.header
    assert header["parameters"] == {
        "a": 1,
        "sequence_id": 5,
        "sequence_start": True,
        "sequence_end": False,
        "timeout": 9,
        "binary_data_output": True,
    }


def test_the_ring_is_bounded_by_count_and_bytes(taps):
    for bounds in ({"count": 3}, {"bytes": 1500}):
        capture = Capture(rate=1e9, **bounds)
        capture.listen(taps)
        for number in range(20):
            answer(taps, ask(description(), id=str(number)))
        kept = list(capture.records())
        assert 0 < len(kept) <= 8
        assert kept[-1].id == "19"
        assert capture.used == sum(record.size for record in kept)
        capture.silence(taps)


def test_of_what_is_too_large_a_sample_is_kept(taps, monkeypatch):
    monkeypatch.setattr("devkit.observe.capture.SAMPLE", 400)
    capture = Capture(largest=10)
    capture.listen(taps)
    about = Description((TensorSpec("X", "FP32", (1000,)), TensorSpec("T", "BYTES", (200,))))
    text = b"\x02\0\0\0hi" * 200
    answer(taps, Request("m", about, [bytes(range(250)) * 16, text], lambda _: None))
    (record,) = capture.records()
    assert not record.whole
    assert capture.skipped == 1
    assert record.size < 2000
    sample, words = record.request.held("inputs")
    assert sample.shape == (1000,)
    assert 0 < sum(piece.size for piece in sample.pieces(None)) <= 100
    assert words.texts()[:2] == [b"hi", b"hi"]
    assert record.inputs() == {}


def test_what_a_model_shows_is_kept_with_its_request(taps):
    capture = Capture(rate=1e-9)
    capture.listen(taps)
    about = description()
    answer(taps, ask(about))
    request = ask(about, id="shown")
    told = {"name": "p", "datatype": "INT8", "shape": [3], "batch": True, "runs": []}
    Taps.emit(taps.probes, [request], told, b"\1\2\3")
    answer(taps, request)
    answer(taps, ask(about))
    shown = list(capture.records())[-1]
    assert shown.id == "shown"
    assert shown.probes[0].held().array().tolist() == [1, 2, 3]


def test_of_a_long_stream_the_beginning_is_kept(taps):
    capture = Capture(largest=20)
    capture.listen(taps)
    request = ask(description())
    for _ in range(5):
        answer(taps, request, final=False)
    answer(taps, request, empty=True)
    (record,) = capture.records()
    assert (len(record.replies), record.dropped) == (1, 4)


def test_a_slow_request_is_always_kept(taps):
    capture = Capture(rate=1e-9, slow=0.001)
    capture.listen(taps)
    about = description()
    answer(taps, ask(about))
    slow = ask(about, id="slow")
    slow.times.request_start -= 2_000_000
    answer(taps, ask(about))
    answer(taps, slow)
    assert [record.id for record in capture.records()] == ["", "slow"]


def test_records_are_found_and_forgotten_by_model(taps, capture):
    answer(taps, ask(description()))
    (record,) = capture.records("m")
    assert capture.record(record.number) is record
    assert list(capture.records("other")) == []
    assert capture.clear("other") == 0
    assert capture.clear() == 1
    assert capture.used == 0


def test_a_silenced_recorder_hears_nothing(taps, capture):
    capture.silence(taps)
    assert not taps.responses
