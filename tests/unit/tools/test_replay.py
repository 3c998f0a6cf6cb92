"""Recorded requests sent again: to the runtime, over HTTP and gRPC, to the real server."""

import json

import numpy as np
import pytest

from devkit.errors import InferError
from devkit.tools import real_server
from devkit.tools.inspection import Captures, FailureList, compare, inspect, records_of
from devkit.tools.replay import ReplayError, read, replay
from tests.support.live import live, write_model
from tests.support.models import COUNTER
from tests.support.shown import SHOWING

here = pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)
COUNTER_CONFIG = """
backend: "python"
input [{ name: "N" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "I" data_type: TYPE_INT32 dims: [1] }]
model_transaction_policy { decoupled: true }
"""


@pytest.fixture(scope="module")
def runtime():
    with live(models={"shown": SHOWING}) as one:
        write_model(one.repository, "counter", COUNTER, COUNTER_CONFIG)
        client = one.client()
        client.load("counter")
        yield one


@pytest.fixture
def client(runtime):
    made = runtime.client()
    made.forget_captures()
    made.forget_failures()
    made.capture_settings(rate=0.0)
    return made


def ask(client, *values, **more):
    return client.infer("shown", {"X": np.array(values, np.float32)}, **more)


@pytest.mark.parametrize("door", ["", "http", "grpc"])
def test_the_same_answer_over_every_door(client, door):
    ask(client, 1, 2, id="one", parameters={"lang": "en", "n": 3, "on": True})
    url = client.runtime.url(door) if door else ""
    to = f"{door}://{url}" if door else ""
    report = Captures.of(client).replay(to)
    assert (report.verdict, report.exit_code, len(report)) == ("same", 0, 1)
    assert report.outputs()["Y"].tolist() == [2.0, 4.0]
    again = client.captures()[-1]
    assert again.id == "one"
    parameters = again.request.header["parameters"]
    assert {key: parameters[key] for key in ("lang", "n", "on")} == {
        "lang": "en",
        "n": 3,
        "on": True,
    }
    json.dumps(report.to_dict())
    assert "as recorded" in report.text(100)


def test_yesterdays_failing_request_from_a_file(client, runtime, tmp_path):
    with pytest.raises(InferError):
        ask(client, -1, 7, id="yesterday")
    file = tmp_path / "failing.recording"
    FailureList.of(client)[0].requests.save(file)
    report = replay(read(file), client=client)
    assert report[0].error.startswith("Failed to process the request(s)")
    assert report.verdict == "same"
    assert len(client.failures()) == 1
    fixed = SHOWING.replace("if x.size and x.flat[0] == -1", "if False")
    try:
        write_model(runtime.repository, "shown", fixed)
        client.reload("shown")
        report = replay(read(file), client=client)
    finally:
        write_model(runtime.repository, "shown", SHOWING)
        client.reload("shown")
    assert report.exit_code == 1
    assert report.outputs()["Y"].tolist() == [-2.0, 14.0]
    assert "an answer" in report.text(200)


def test_a_stream_goes_over_grpc(client):
    answers = [
        one["I"].tolist() for one in client.stream("counter", {"N": np.array([3], np.int32)})
    ]
    assert answers == [[0], [1], [2]]
    report = Captures.of(client, "counter").replay()
    assert report.verdict == "same"
    assert len(report[0].got) == 3
    (record,) = client.captures("counter", last=1)
    with pytest.raises(ReplayError, match="decoupled"):
        replay([record], client.runtime.url("http"))


def test_several_times_and_together(client):
    ask(client, 1)
    ask(client, 2)
    report = Captures.of(client).replay(times=3, together=True)
    assert (len(report), report.verdict) == (6, "same")


def test_what_cannot_be_sent_says_why(client):
    with pytest.raises(ReplayError, match="no request"):
        replay([], client=client)
    client.capture_settings(largest=100)
    try:
        client.infer("shown", {"X": np.zeros(1 << 20, np.float32)})
        with pytest.raises(ReplayError, match="only a sample"):
            Captures.of(client, last=1).replay()
    finally:
        client.capture_settings(largest=16 << 20)
    ask(client, 1)
    (record,) = client.captures(last=1)
    with pytest.raises(ReplayError, match="no answer from"):
        replay([record], "127.0.0.1:1")
    with pytest.raises(ReplayError, match="is no address"):
        replay([record], "ftp://x")


def test_results_requests_and_versions_are_compared(client):
    first, second = ask(client, 1, 2), ask(client, 1, 2.5)
    one, other = Captures.of(client)
    found = compare(one, other)
    assert [each.name for each in found] == ["X", "half", "Y"]
    assert found["Y"].where == (1,)
    assert compare(one.number, other.number, client=client).to_dict()["verdict"] == "differs"
    assert compare(first, one).same
    assert compare(first["Y"], second["Y"])[""].largest == 1.0
    assert compare(one.replay(version="1"), one).same
    shown = inspect(one)
    assert shown["half"].summary.maximum == 1.0
    assert json.loads(json.dumps(shown.to_dict()))["tensors"][1]["name"] == "half"
    assert "half" in shown.text()
    assert len(records_of([one, other.number], client)) == 2


@here
def test_the_real_server_answers_the_same_without_devkit(client, tmp_path):
    """It has the calls of `probe` and `span`, and a devkit of a few lines."""
    ask(client, 1, 2)
    with pytest.raises(InferError):
        ask(client, -1)
    report = Captures.of(client).replay("real")
    assert [one.verdict for one in report] == ["same", "same"]
    list(client.stream("counter", {"N": np.array([2], np.int32)}))
    report = Captures.of(client, "counter").replay("real")
    assert (report.verdict, len(report[0].got)) == ("same", 2)
