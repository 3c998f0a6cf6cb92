"""A tensor in numbers, in parts and as a picture; two of them compared."""

import struct
import zlib

import numpy as np
import pytest

from devkit.contract import differences, inspection, pictures
from devkit.contract.inspection import Held, InspectionError
from devkit.transport import dtypes, sampling


def held(array, name="x"):
    return Held.of(name, np.asarray(array))


def test_the_numbers_are_numpys():
    array = np.random.default_rng(0).normal(size=(3, 50, 7)).astype(np.float32)
    found = inspection.summarise(held(array))
    assert (found.datatype, found.shape, found.strides) == ("FP32", (3, 50, 7), (1400, 28, 4))
    assert (found.bytes, found.count, found.looked_at, found.note) == (4200, 1050, 1050, "")
    assert found.minimum == float(array.min())
    assert found.maximum == float(array.max())
    assert found.mean == pytest.approx(array.mean(dtype=np.float64))
    assert found.std == pytest.approx(array.std(dtype=np.float64))
    assert found.distinct == len(np.unique(array))
    counts, edges = np.histogram(array.astype(np.float64), len(found.histogram.counts))
    assert sum(found.histogram.counts) == 1050
    assert np.allclose(found.histogram.edges, edges)
    assert list(found.histogram.counts) == counts.tolist()


def test_what_is_no_number_is_counted_and_left_out():
    found = inspection.summarise(held([1.0, np.nan, np.inf, -np.inf, 0.0, 3.0]))
    assert (found.nan, found.infinite, found.zeros) == (1, 2, 1)
    assert (found.minimum, found.maximum, found.mean) == (0.0, 3.0, pytest.approx(4 / 3))


@pytest.mark.parametrize(
    "array",
    [
        np.array([], np.float32), np.zeros((0, 4), np.int8), np.array(7, np.int64),
        np.full(3, np.nan), np.array([True, False]), np.array([2**64 - 1, 0], np.uint64),
        np.array([1e308, -1e308]), np.array([1 + 2j]), np.array([], object),
    ],
)  # fmt: skip
def test_odd_tensors_have_numbers_too(array):
    found = inspection.summarise(held(array))
    assert found.count == array.size
    assert isinstance(found.line, str)
    if array.dtype == np.uint64:
        assert found.maximum == 2**64 - 1


def test_bf16_is_read_as_the_numbers_it_means():
    bits = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    found = inspection.summarise(Held("b", "BF16", (2,), bits.tobytes()))
    assert (found.dtype, found.minimum, found.maximum, found.bytes) == ("bfloat16", -2.0, 1.5, 4)


def test_texts_are_shown_and_measured():
    data = dtypes.encode_bytes(np.array([b"hi", "Grüße".encode(), b"\xff", b""], object))
    found = inspection.summarise(Held("t", "BYTES", (4,), data))
    assert found.first == ("hi", "Grüße", "\\xff", "")
    assert (found.minimum, found.maximum, found.zeros, found.view) == (0, 7, 1, "text")


def test_of_a_large_tensor_a_sample_is_looked_at_and_it_says_so(monkeypatch):
    monkeypatch.setattr(inspection, "LOOK", 1000)
    array = np.arange(100_000, dtype=np.int32)
    found = inspection.summarise(held(array))
    assert found.looked_at <= 1000
    assert "of 100,000 values" in found.note
    assert (found.minimum, found.maximum) == (0, 99_999)  # the first and the last are in it
    assert found.distinct_more
    exact = inspection.summarise(held(array), exact=True)
    assert (exact.looked_at, exact.mean, exact.note) == (100_000, 49_999.5, "")
    strided = inspection.summarise(held(array.reshape(1000, 100).T))
    assert strided.looked_at <= 1000


@pytest.mark.parametrize(("count", "limit"), [(10, 100), (1000, 100), (10**9, 4096), (7, 1)])
def test_runs_are_in_order_and_within_the_limit(count, limit):
    runs = sampling.runs(count, limit)
    assert sum(stop - start for start, stop in runs) <= max(limit, 1)
    assert runs == sorted(runs)
    assert all(0 <= start < stop <= count for start, stop in runs)


def test_slices_are_numpys():
    array = np.arange(24).reshape(2, 3, 4)
    assert inspection.cut(held(array), "1, :, 1:3").tolist() == array[1, :, 1:3].tolist()
    assert inspection.cut(held(array), "..., -1").tolist() == array[..., -1].tolist()
    for wrong in ("9", "a", "1:2:3:4", "0,0,0,0"):
        with pytest.raises(InspectionError):
            inspection.cut(held(array), wrong)


def test_a_series_keeps_the_extremes_of_what_it_leaves_out():
    array = np.zeros(10_001)
    array[5_003] = 9
    found = inspection.series(held(array), 100)
    assert len(found.lowest) <= 102
    assert max(found.highest) == 9
    assert inspection.series(held([1.0, np.nan])).lowest == (1.0, None)


def test_a_table_is_the_upper_left():
    found = inspection.table(held(np.arange(1000).reshape(2, 10, 50)), rows=2, columns=3)
    assert (found.rows, found.columns, found.index) == (10, 50, "0")
    assert found.cells == (("0", "1", "2"), ("50", "51", "52"))


# --- pictures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [
        ((224, 224, 3), "uint8", "HWC"), ((3, 224, 224), "float32", "CHW"),
        ((8, 3, 32, 32), "float32", "NCHW"), ((2, 32, 32, 1), "uint8", "NHWC"),
        ((28, 28), "uint8", "HW"), ((28, 28), "float32", ""), ((4, 5), "uint8", ""),
        ((128, 768), "float32", ""), ((1, 128, 768), "float32", ""), ((1, 28, 28), "float32", "CHW"), ((10,), "uint8", ""),
    ],
)  # fmt: skip
def test_a_picture_is_known_by_its_shape(shape, dtype, kind):
    assert pictures.layout(shape, dtype) == kind


def decoded(png):
    """Pixels of an unfiltered 8-bit PNG."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, _, colour = struct.unpack(">IIBB", png[16:26])
    size = struct.unpack(">I", png[33:37])[0]
    raw = zlib.decompress(png[41 : 41 + size])
    channels = {0: 1, 2: 3, 6: 4}[colour]
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    return rows[:, 1:].reshape(height, width, channels)


def test_pixels_arrive_as_they_are():
    image = np.random.default_rng(0).integers(0, 255, (20, 30, 3)).astype(np.uint8)
    assert (decoded(pictures.picture(image).png) == image).all()
    scaled = image.transpose(2, 0, 1).astype(np.float32) / 255
    made = pictures.picture(scaled)
    assert made.layout == "CHW"
    assert (decoded(made.png) == image).all()


def test_a_batch_is_a_sheet_and_a_large_picture_is_thinned():
    batch = pictures.picture(np.zeros((40, 16, 16, 3), np.uint8))
    assert (batch.shown, batch.count, batch.width) == (16, 40, 4 * 17 - 1)
    large = pictures.picture(np.zeros((3000, 2000, 3), np.uint8))
    assert large.step == 6
    assert max(large.width, large.height) <= 512


# --- two of them --------------------------------------------------------------------------------


def test_neighbouring_floats_are_one_ulp_apart():
    for dtype in (np.float16, np.float32, np.float64):
        one = np.array([1, -1, 0, 3], dtype)
        other = np.nextafter(one, dtype(9))
        found = differences.compare(held(one), held(other))
        assert (found.ulps, found.unequal) == (1, 4)
    across = differences.compare(held(np.float32([-0.0])), held(np.float32([0.0])))
    assert across.verdict == "same"


def test_where_and_how_much():
    one = np.zeros((4, 5), np.float32)
    other = one.copy()
    other[2, 3], other[0, 1] = 7, 0.5
    found = differences.compare(held(one), held(other), names=("before", "after"))
    assert (found.verdict, found.unequal, found.largest) == ("differs", 2, 7.0)
    assert (found.where, found.first) == ((2, 3), (0, 1))
    assert "at [2, 3] 0.0 (before), 7.0 (after)" in found.detail


def test_a_nan_equals_a_nan_and_nothing_else():
    one, other = np.array([np.nan, np.nan, 1.0]), np.array([np.nan, 2.0, np.inf])
    assert differences.compare(held(one), held(one)).verdict == "same"
    found = differences.compare(held(one), held(other))
    assert (found.unequal, found.nonfinite, found.verdict) == (2, 2, "differs")


def test_large_integers_do_not_round_away():
    one = np.array([2**64 - 1], np.uint64)
    found = differences.compare(held(one), held(one - np.uint64(1)))
    assert (found.verdict, found.largest) == ("differs", 1.0)


def test_a_sample_is_compared_with_the_same_part_of_the_whole():
    whole = np.arange(1000, dtype=np.int32)
    runs = sampling.runs(1000, 50)
    data = b"".join(whole[start:stop].tobytes() for start, stop in runs)
    sample = Held("x", "INT32", (1000,), data, runs)
    assert differences.compare(held(whole), sample).verdict == "same"
    changed = whole.copy()
    changed[-1] = 5
    found = differences.compare(held(changed), sample)
    assert (found.where, found.unequal) == ((999,), 1)
    assert "of 1,000 values" in found.note


def test_what_cannot_be_compared_says_why():
    assert "shape" in differences.compare(held([1]), held([1, 2])).detail
    assert "type" in differences.compare(held([1]), held([1.0])).detail
    text = differences.compare(held(np.array([b"a", b"b"], object)), held(np.array(["a", "c"])))
    assert (text.verdict, text.where) == ("differs", (1,))
