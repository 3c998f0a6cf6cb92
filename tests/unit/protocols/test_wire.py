"""The wire format's own rules: numbers, strings, interning. What the server answers is recorded."""

from __future__ import annotations

import json
import math
import random
import struct

import numpy as np
import pytest

from devkit.contract import rapidjson, wire
from devkit.core.request import OutputSignature, TensorSpec
from devkit.errors import InferError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1e16, "10000000000000000.0"), (1.5e20, "150000000000000000000.0"),
        (1e21, "1e21"), (1e-5, "0.00001"), (1e-6, "0.000001"), (1e-7, "1e-7"), (1.25e-7, "1.25e-7"),
        (5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e308"), (0.1, "0.1"),
        (100.0, "100.0"), (12345.678, "12345.678"), (1e15, "1000000000000000.0"),
        (-1e100, "-1e100"), (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_rapidjson_does(value: float, text: str) -> None:
    assert rapidjson.number(value) == text.encode()
    assert rapidjson.numbers([value, 2.5]) == b"[" + text.encode() + b",2.5]"


def test_large_and_small_arrays_are_written_alike() -> None:
    rng = random.Random(1)
    values = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-30, 30) for _ in range(9000)]
    values += [math.nan, math.inf, -math.inf, 0.0, -0.0]
    data = struct.pack(f"<{len(values)}d", *values)
    whole = wire.unpack("FP64", data)
    assert whole == b"[" + b",".join(map(rapidjson.number, values)) + b"]"
    back = rapidjson.parse(whole)
    assert np.array_equal(np.array(back), np.array(values), equal_nan=True)


@pytest.mark.parametrize(
    "text",
    ["{}", "[1,2.5,-3e2,true,false,null]", '{"a":{"b":["c\\u00e9\\ud83d\\ude00"]}}', '"\\"\\\\"'],
)
def test_the_careful_reader_agrees_with_json(text: str) -> None:
    assert rapidjson._Reader(text.encode()).document() == json.loads(text)


def test_strings_may_hold_any_bytes() -> None:
    raw = bytes(range(256))
    assert rapidjson.to_bytes(rapidjson.parse(rapidjson.quote(raw))) == raw


def test_half_a_surrogate_pair_at_the_end_is_taken_as_the_server_takes_it() -> None:
    assert rapidjson.to_bytes(rapidjson.parse(b'"\\udc00"')) == b"\xed\xb0\x80"
    with pytest.raises(InferError, match="surrogate pair"):
        rapidjson.parse(b'"\\ud800"')


def test_depth_is_bounded() -> None:
    with pytest.raises(InferError, match=r"Invalid value\. at"):
        rapidjson.parse(b"[" * 100_000)


def test_deeply_nested_data_is_flattened() -> None:
    nested: object = [1.0, 2.0]
    for _ in range(900):
        nested = [nested, []]
    assert wire.pack("X", "FP32", nested, 2) == struct.pack("<2f", 1, 2)


def test_truncated_documents_are_always_refused() -> None:
    text = b'{"a":[1,-2.5e3,"x\\u00e9\\n",true,null,{"b":false}],"c":NaN}'
    rapidjson.parse(text)
    for end in range(len(text)):
        with pytest.raises(InferError, match=r"failed to parse the request JSON buffer: .* at \d+"):
            rapidjson.parse(text[:end])


def test_interned_keeps_what_is_used_and_stays_bounded() -> None:
    table: wire.Interned[int] = wire.Interned(10)
    for number in range(1000):
        table.put(number, number)
        assert table.get(0) == 0  # used all the time, so never forgotten
        assert len(table) <= 20
    assert table.get(500) is None


@pytest.mark.parametrize(
    ("header", "identity", "rest"),
    [
        (b'{"id":"a1","inputs":[]}', "a1", b'{"inputs":[]}'),
        (b'{"id":"","inputs":[]}', "", b'{"inputs":[]}'),
        (b'{"id":"a\\"b","inputs":[]}', "", b'{"id":"a\\"b","inputs":[]}'),
        (b'{"id":"x"}', "", b'{"id":"x"}'),
        (b'{"inputs":[],"id":"x"}', "", b'{"inputs":[],"id":"x"}'),
        (b'{"id":"\xff","inputs":[]}', "", b'{"id":"\xff","inputs":[]}'),
    ],
)
def test_the_id_is_cut_out_where_clients_write_it(
    header: bytes, identity: str, rest: bytes
) -> None:
    assert wire.split_id(header) == (identity, rest)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]), ("UINT8", [0, 255]), ("INT8", [-128, 127]), ("UINT16", [65535]),
        ("INT16", [-32768]), ("UINT32", [1 << 31]), ("INT32", [-5]), ("UINT64", [(1 << 64) - 1]),
        ("INT64", [-(1 << 63)]), ("FP32", [0.5, -2.0]), ("FP64", [0.1]),
        ("BYTES", ["a", "", "\u00e9"]),
    ],
)  # fmt: skip
def test_data_goes_in_and_out_as_json(datatype: str, values: list[object]) -> None:
    data = wire.pack("X", datatype, values, len(values))
    assert json.loads(wire.unpack(datatype, data)) == values


def test_a_reply_is_written_once_for_one_signature() -> None:
    signature = OutputSignature((TensorSpec("Y", "FP32", (2,)), TensorSpec("S", "BYTES", (1,))))
    wanted = wire.encoding(True)
    for text in (b"\x01\0\0\0a", b"\x03\0\0\0abc", b"\x01\0\0\0b"):
        for identity in ("", 'q"'):
            made = wire.reply(
                signature, [bytes(8), text], wanted, model="m", version="1", id=identity
            )
            document = json.loads(made.json)
            assert document.get("id", "") == identity
            sizes = [each["parameters"]["binary_data_size"] for each in document["outputs"]]
            assert sizes == [8, len(text)]
            assert made.tail == [bytes(8), text]


def test_classes_of_a_batch_with_labels() -> None:
    spec = TensorSpec("Y", "INT32", (2, 3))
    data = np.array([[1, 9, 4], [7, 7, 2]], np.int32).tobytes()
    packed, shape = wire.classify(spec, data, 2, ["a", "b", "c"], batched=True)
    assert shape == (2, 2)
    assert wire.strings(packed) == [b"9:1:b", b"4:2:c", b"7:0:a", b"7:1:b"]
