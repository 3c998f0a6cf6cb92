"""What counts as the same answer, and how much it differs where it does."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from devkit.contract.recording import Reply, Wire, response_wire
from devkit.errors import Code
from devkit.tools.compare import (
    CLOSE,
    DIFFERS,
    SAME,
    Answer,
    Tensor,
    answer_of_http,
    answer_of_record,
    compare,
    worst,
)

NAN = float("nan")


def answer(datatype: str, array: np.ndarray, name: str = "Y") -> Answer:
    return Answer(200, {name: Tensor(name, datatype, array.shape, array)})


def verdict(datatype: str, real: list[object], ours: list[object], dtype: object) -> str:
    pair = [answer(datatype, np.array(values, dtype)) for values in (real, ours)]
    (check,) = compare(*pair)
    return check.verdict


@pytest.mark.parametrize(
    ("datatype", "dtype", "real", "ours", "expected"),
    [
        ("FP32", np.float32, [1, NAN, np.inf], [1, NAN, np.inf], SAME),
        ("FP32", np.float32, [0.0], [-0.0], SAME),
        ("FP32", np.float32, [1.0], [1.000001], CLOSE),
        ("FP32", np.float32, [1.0], [1.01], DIFFERS),
        ("FP32", np.float32, [1.0], [NAN], DIFFERS),
        ("FP32", np.float32, [np.inf], [-np.inf], DIFFERS),
        ("FP32", np.float32, [np.inf], [1.0], DIFFERS),
        ("FP64", np.float64, [1.0], [1.0 + 1e-12], CLOSE),
        ("FP64", np.float64, [1.0], [1.0 + 1e-6], DIFFERS),
        ("FP16", np.float16, [1.0], [1.001], CLOSE),
        ("BF16", np.uint16, [0x3F80], [0x3F81], CLOSE),
        ("BF16", np.uint16, [0x3F80], [0x4080], DIFFERS),
        ("INT64", np.int64, [2**62], [2**62 + 1], DIFFERS),
        ("UINT64", np.uint64, [2**64 - 1], [0], DIFFERS),
        ("BOOL", np.bool_, [True], [False], DIFFERS),
        ("BYTES", np.object_, [b"a"], [b"a"], SAME),
        ("BYTES", np.object_, [b"a"], [b"b"], DIFFERS),
        ("FP32", np.float32, [], [], SAME),
    ],
)
def test_values_of_each_type(
    datatype: str, dtype: object, real: list[object], ours: list[object], expected: str
) -> None:
    assert verdict(datatype, real, ours, dtype) == expected


def test_how_much_and_where_is_told() -> None:
    real, ours = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
    ours[1, 0] = 0.5
    (check,) = compare(answer("FP32", real), answer("FP32", ours))
    assert (check.unequal, check.largest) == (1, 0.5)
    assert "at [1, 0] 0.0 on the real server, 0.5 here" in check.detail


def test_names_types_and_shapes() -> None:
    values = np.zeros(2, np.float32)
    (missing, extra) = compare(answer("FP32", values, "A"), answer("FP32", values, "B"))
    assert (missing.name, missing.detail) == ("B", "the real server does not send it")
    assert (extra.name, extra.detail) == ("A", "devkit does not send it")
    (types,) = compare(answer("FP64", values.astype(np.float64)), answer("FP32", values))
    assert types.detail == "FP64 on the real server, FP32 here"
    (shapes,) = compare(answer("FP32", values), answer("FP32", values.reshape(1, 2)))
    assert shapes.detail == "shape [2] on the real server, [1, 2] here"


def test_errors_are_the_same_wherever_the_model_lies() -> None:
    texts = [f"boom\n\nAt:\n  /{place}/1/model.py(3): execute\n" for place in ("a", "b")]
    (check,) = compare(Answer(500, error=texts[0]), Answer(500, error=texts[1]))
    assert check.verdict == SAME
    (check,) = compare(Answer(500, error="boom"), Answer(500, error="bang"))
    assert check.verdict == DIFFERS
    (check,) = compare(Answer(200), Answer(400, error="no"))
    assert check.detail == "status 200 on the real server, 400 here: no"


def test_an_answer_read_from_http() -> None:
    wire = response_wire("m", "1", [("Y", "FP32", (2,), struct.pack("<2f", 1, 2))])
    binary = answer_of_http(200, wire.header_length, wire.data)
    outputs = [{"name": "Y", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]
    plain = answer_of_http(200, None, json.dumps({"outputs": outputs}).encode())
    assert compare(binary, plain)[0].verdict == SAME
    assert answer_of_http(400, None, b'{"error":"no"}') == Answer(400, error="no")
    assert answer_of_http(502, None, b"<html>") == Answer(502, error="<html>")


def test_a_recorded_answer() -> None:
    refused = answer_of_record(Reply(Wire(0, b""), "gone", int(Code.UNAVAILABLE)))
    assert refused == Answer(503, error="gone")
    wire = response_wire("m", "1", [("Y", "INT8", (1,), b"\x05")])
    assert answer_of_record(Reply(wire)).outputs["Y"].array.tolist() == [5]


def test_the_worst_part_decides() -> None:
    assert worst([]) == SAME
    assert worst([SAME, CLOSE, SAME]) == CLOSE
    assert worst([DIFFERS, CLOSE]) == DIFFERS


def test_an_output_without_its_bytes_is_told_and_not_raised() -> None:
    row = {"name": "Y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 0}}
    head = json.dumps({"outputs": [row]}).encode()
    empty = answer_of_http(200, len(head), head)
    assert "without its data" in empty.error
    (check,) = compare(empty, answer("FP32", np.zeros(2, np.float32)))
    assert (check.verdict, "without its data" in check.detail) == (DIFFERS, True)
