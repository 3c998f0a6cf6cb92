"""Types in all their spellings, and arrays to bytes and back."""

from __future__ import annotations

import numpy as np
import pytest

from devkit.transport import dtypes


@pytest.mark.parametrize("datatype", sorted(dtypes.ALL))
def test_config_spelling_and_back(datatype):
    assert dtypes.from_config(dtypes.to_config(datatype)) == datatype


def test_the_odd_spellings():
    assert dtypes.to_config("BYTES") == "TYPE_STRING"
    assert dtypes.from_config("TYPE_STRING") == "BYTES"


@pytest.mark.parametrize("datatype", sorted(set(dtypes.NUMPY) - {"BYTES"}))
def test_numbers_round_trip(datatype):
    array = np.arange(6).astype(dtypes.NUMPY[datatype]).reshape(2, 3)
    data = bytes(dtypes.to_data(array))
    assert len(data) == 6 * dtypes.SIZES[datatype]
    back = dtypes.to_array(datatype, (2, 3), data)
    np.testing.assert_array_equal(back, array)
    assert dtypes.datatype_of(array) == datatype


def test_bytes_round_trip():
    array = np.array([[b"", b"a" * 300], ["ü", 5]], dtype=object)
    data = dtypes.to_data(array)
    back = dtypes.to_array("BYTES", (2, 2), data)
    assert back.tolist() == [[b"", b"a" * 300], ["ü".encode(), b"5"]]


@pytest.mark.parametrize("data", [b"\x05\0\0\0abc", b"\x01\0", b"\x01\0\0\0ab"])
def test_broken_bytes(data):
    with pytest.raises(ValueError, match="BYTES"):
        dtypes.decode_bytes(data)


def test_other_layouts_are_brought_to_c_order_and_little_endian():
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    assert bytes(dtypes.to_data(array)) == np.arange(6, dtype="<i4").tobytes()
    assert dtypes.to_data(np.zeros((0, 3), np.int8)) == b""


def test_types_triton_has_not():
    assert dtypes.datatype_of(np.zeros(1, np.complex64)) is None
    assert dtypes.datatype_of(np.array(["x"])) == "BYTES"
    assert dtypes.element_count(()) == 1
    assert dtypes.element_count((2, 0, 3)) == 0
