"""`import devkit`: recorded requests, tensors and failures from Python, and what widgets get."""

import json

import numpy as np
import pytest

import devkit
from devkit import workbench
from devkit.errors import InferError
from tests.support.live import in_folder, live
from tests.support.shown import SHOWING


@pytest.fixture(scope="module")
def workspace():
    with live(models={"shown": SHOWING}) as one, in_folder(one.folder / "run"):
        devkit.connect(one.workspace).capture_settings(rate=0.0)
        yield one
        workbench.disconnect()


def test_from_a_result_to_what_went_wrong(workspace, tmp_path):
    result = devkit.infer("shown", {"X": np.array([1, 2], np.float32)}, id="good")
    assert devkit.inspect(result)["Y"].summary.maximum == 4.0
    assert devkit.inspect(result["Y"]).values("1") == 4.0
    with pytest.raises(InferError):
        devkit.infer("shown", {"X": np.array([-1, 2], np.float32)}, id="bad")
    good, bad = devkit.captures("shown")
    assert devkit.inspect(good.number)["half"].values().tolist() == [0.5, 1.0]
    assert devkit.compare(result, good).same
    assert devkit.compare(good.number, bad.number)["X"].where == (0,)
    assert devkit.replay(good.number).verdict == "same"
    (failure,) = devkit.failures()
    assert failure.details.frames[-1].function == "fail"
    assert devkit.inspect(failure)["X"].values().tolist() == [-1, 2]
    assert devkit.replay(failure)[0].error
    devkit.captures(failed=True).save(tmp_path / "f.recording")
    again = devkit.captures(file=tmp_path / "f.recording")
    assert again[0].info.id == "bad"
    assert devkit.replay(tmp_path / "f.recording").verdict == "same"


def test_a_widget_gets_plain_values_of_every_view(workspace):
    arrays = {
        "image": np.zeros((16, 16, 3), np.uint8), "series": np.arange(5000.0),
        "table": np.eye(4), "text": np.array([b"a", "ö".encode()], object),
        "scalar": np.float32(3), "values": np.zeros((2, 3, 4)),
    }  # fmt: skip
    shown = devkit.inspect(arrays).to_dict()
    for one in json.loads(json.dumps(shown, allow_nan=False))["tensors"]:
        assert one["view"] == one["name"]
        key = {"image": "picture", "text": "texts"}.get(one["view"], one["view"])
        assert one["view"] in ("scalar", "values") or one[key]
    assert len(json.dumps(shown)) < 100_000


def test_a_gigabyte_is_looked_at_by_a_sample_that_says_so():
    large = np.zeros(1 << 28, np.float32)  # untouched pages: the zeros take no memory
    large[-1] = np.inf
    found = devkit.inspect(large).summary
    assert (found.bytes, found.infinite) == (1 << 30, 1)
    assert found.looked_at < found.count
    assert "in evenly spaced runs" in found.note
