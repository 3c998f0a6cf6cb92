"""Recorded requests, tensors and failures at the command line, as a person uses them."""

import json

import pytest

from tests.support.live import live
from tests.support.shown import SHOWING


@pytest.fixture(scope="module")
def runtime():
    with live(models={"shown": SHOWING}) as one:
        one.client().capture_settings(rate=0.0)
        yield one


@pytest.fixture
def devkit(runtime):
    client = runtime.client()
    client.forget_captures()
    client.forget_failures()
    return runtime.command


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def asked(devkit, values, identity):
    devkit("infer", "shown", "-i", f"X={values}", "--id", identity)
    rows = told(devkit("captures", "--json"))["captures"]
    return next(row["number"] for row in rows if row["id"] == identity)


def test_list_look_and_compare(devkit, runtime):
    one, other = asked(devkit, "1,2,3", "one"), asked(devkit, "1,2,4", "two")
    listed = devkit("captures", "--id", "o*").stdout
    assert "one" in listed
    assert "two" not in listed
    shown = devkit("tensors", str(one)).stdout
    for part in ("inputs", "probes", "outputs", "half", "0.5 … 1.5"):
        assert part in shown
    assert devkit("tensors", str(one), "Y", "--slice", "1:").stdout == "[4. 6.]\n"
    values = told(devkit("tensors", str(one), "outputs/Y", "--json"))
    assert values["summary"]["maximum"] == 6.0
    assert devkit("tensors", str(one), "Z").returncode == 2
    assert devkit("tensors", str(one), "Y", "--save", "y.npy").returncode == 0
    assert (runtime.workspace / "y.npy").exists()
    compared = devkit("compare", str(one), str(other))
    assert compared.returncode == 1
    assert "at [2]" in compared.stdout
    assert devkit("compare", str(one), str(one)).returncode == 0


def test_record_and_replay_a_file(devkit, runtime):
    asked(devkit, "1,2", "kept")
    assert "1 requests" in devkit("record", "kept.recording", "--id", "kept").stdout
    devkit("captures", "--forget")
    done = devkit("replay", "kept.recording")
    assert done.returncode == 0, done.stderr
    assert "answered as recorded" in done.stdout
    url = f"http://{runtime.client().runtime.url('http')}"
    report = told(devkit("replay", "kept.recording", "--to", url, "--times", "2", "--json"))
    assert [one["verdict"] for one in report["requests"]] == ["same", "same"]
    assert devkit("tensors", "1", "--file", "missing").returncode == 1
    line = devkit("record", "-", "--from", "kept.recording", "--as", "curl").stdout
    assert line.startswith("curl -s http://localhost:8000/v2/models/shown/infer")
    loaded = devkit("record", "--load", "kept.recording")
    assert "1 requests loaded" in loaded.stdout
    assert "recording on, every request" in loaded.stdout
    assert devkit("record", "x", "--as", "nonsense").returncode == 2
    assert devkit("record", "--bytes", "lots").returncode == 2


def test_failures_are_listed_shown_saved_and_sent_again(devkit, runtime):
    assert "No execute has raised" in devkit("failures").stdout
    devkit("infer", "shown", "-i", "X=-1,5")
    (row,) = told(devkit("failures", "--json"))["failures"]
    number = str(row["number"])
    assert "asked to fail" in devkit("failures").stdout
    shown = devkit("failures", "show", number).stdout
    for part in ("ValueError: asked to fail", "in fail", "doubled", "[-2.0, 10.0]",
                 'raise ValueError("asked to fail")', "about to raise", "half"):  # fmt: skip
        assert part in shown
    assert "the same error" in devkit("failures", "replay", number).stdout
    assert devkit("failures", "save", number, "f.recording").returncode == 0
    assert devkit("replay", "f.recording").returncode == 0
    assert devkit("failures", "show", "999").returncode == 1
    assert told(devkit("failures", "--forget", "--json"))["removed"] >= 1
