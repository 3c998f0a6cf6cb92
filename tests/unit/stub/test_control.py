"""The control socket: logs, stacks, readiness, debugging, metrics."""

from __future__ import annotations

import json
import socket
import textwrap

import numpy as np
import pytest


def test_log_lines_carry_the_models_file_and_line(serve):
    stub = serve("""
    def execute(self, requests):
        pb_utils.Logger.log_info("info")
        pb_utils.Logger.log_warn("warn")
        pb_utils.Logger.log_error("error")
        pb_utils.Logger.log_verbose("never seen")
        pb_utils.Logger.log("plain")
        pb_utils.Logger.log("level", pb_utils.Logger.ERROR)
        return [answer(np.zeros(1))]
    """)
    stub.plan(0, {})
    stub.infer()
    levels = [("INFO", "info"), ("WARNING", "warn"), ("ERROR", "error"), ("INFO", "plain"),
              ("ERROR", "level")]  # fmt: skip
    seen = [stub.report() for _ in levels]
    assert [(line["level"], line["message"]) for line in seen] == levels
    assert {line["op"] for line in seen} == {"log"}
    assert [(line["file"], line["line"]) for line in seen] == [
        ("model.py", number) for number in (10, 11, 12, 14, 15)
    ]


def test_verbose_lines_come_when_asked_for(serve):
    stub = serve("""
    def execute(self, requests):
        while not pb_utils_verbose():
            time.sleep(0.001)
        pb_utils.Logger.log_verbose("seen")
        return [answer(np.zeros(1))]

    def initialize(self, args):
        global pb_utils_verbose
        from devkit.stub import link
        pb_utils_verbose = lambda: link.current.control.verbose
    """)
    stub.plan(0, {})
    stub.tell(op="verbose", level=1)
    stub.infer()
    assert stub.report()["level"] == "VERBOSE"


def test_the_stacks_of_a_busy_stub(serve):
    stub = serve("""
    def execute(self, requests):
        self.go = threading.Event()
        print("IN", flush=True)
        self.go.wait(60)
        return [answer(np.zeros(1))]
    """)
    stub.plan(0, {})
    stub.execute(stub.request())
    assert stub.popen.stdout.readline() == b"IN\n"
    main = {"stack": ""}
    while "self.go.wait(60)" not in main["stack"]:  # it may still be at the print
        stub.tell(op="stack", call=5)
        reply = stub.report()
        assert (reply["op"], reply["call"]) == ("reply", 5)
        (main,) = (t for t in reply["threads"] if t["thread"] == "MainThread")
    stub.popen.kill()


READY = [
    ("return True", True),
    ("return False", False),
    ("return 1", None),
    ("raise ValueError('no')", None),
]


@pytest.mark.parametrize(("body", "ready"), READY)
@pytest.mark.parametrize("prefix", ["", "async "])
def test_is_ready(start, body, ready, prefix):
    stub = start(
        f"def execute(self, requests):\n    pass\n{prefix}def is_ready(self):\n    {body}\n"
    )
    assert stub.initialize()["is_ready"] is True
    stub.tell(op="ready", call=1)
    reply = stub.report()
    assert reply.get("ready") is ready
    if ready is None:
        assert reply["error"] in (
            "ValueError: no", "TypeError: is_ready must return a bool, it returned int"
        )  # fmt: skip


def test_debugging_on_demand(serve):
    pytest.importorskip("debugpy")
    stub = serve("""
    def execute(self, requests):
        import sys
        return [answer(np.array(["debugpy" in sys.modules]))]
    """)
    stub.plan(0, {})
    assert not stub.arrays(stub.infer().responses[0])["Y"][0]
    stub.tell(op="debug", call=1)
    reply = stub.report()
    if "No module named 'debugpy'" in reply.get("error", ""):
        pytest.skip("the stub's interpreter has no debugpy")
    port = reply["port"]
    stub.tell(op="debug", call=2)
    assert stub.report()["port"] == port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        body = json.dumps({"seq": 1, "type": "request", "command": "initialize",
                           "arguments": {"adapterID": "test"}}).encode()  # fmt: skip
        client.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        assert b"Content-Length" in client.recv(1000)
    assert stub.infer().responses


METRICS = """
def initialize(self, args):
    self.said = []
    {body}

def execute(self, requests):
    return [answer(np.array([repr(self.said)], dtype=object))]
"""


def metrics(start, body, answer):
    """Initialize a model that uses metrics; `answer` answers each call. Returns messages, said."""
    stub = start(METRICS.format(body=textwrap.dedent(body).strip().replace("\n", "\n    ")))
    described = _initialize(stub)
    seen = []
    while True:
        message = stub.report()
        if message["op"] == "metric":
            seen.append(message)
            if "call" in message:
                stub.tell(op="reply", call=message["call"], **answer(message))
        elif message["op"] == "log":
            break
    received = stub.data.receive()
    assert received[0] == described, bytes(received[1])
    stub.plan(0, {})
    said = stub.arrays(stub.infer().responses[0])["Y"][0].decode()
    return seen, said


def _initialize(stub):
    """INITIALIZE without waiting for the answer, which comes after the metric calls."""
    from devkit.transport import messages

    receive, stub.data.receive = stub.data.receive, lambda: None
    stub.initialize()
    stub.data.receive = receive
    return messages.READY


def test_metrics_are_made_changed_and_deleted(start):
    seen, said = metrics(
        start,
        """
        family = pb_utils.MetricFamily("my_counter", "counts", pb_utils.MetricFamily.COUNTER)
        metric = family.Metric({"a": "b"})
        metric.increment(2)
        self.said.append(metric.value())
        del metric
        del family
        pb_utils.Logger.log("end")
        """,
        lambda message: {"value": 7.5} if message["action"] == "value" else {},
    )
    family, metric = seen[0]["id"], seen[1]["id"]
    calls = [{k: v for k, v in m.items() if k not in ("op", "call")} for m in seen]
    assert calls == [
        {"action": "family", "id": family, "name": "my_counter", "description": "counts",
         "kind": "COUNTER"},
        {"action": "create", "family": family, "id": metric, "labels": {"a": "b"},
         "buckets": None},
        {"action": "increment", "id": metric, "value": 2.0},
        {"action": "value", "id": metric},
        {"action": "delete_metric", "id": metric},
        {"action": "delete_family", "id": family},
    ]  # fmt: skip
    assert said == "[7.5]"


def test_what_the_runtime_refuses_is_the_models_exception(start):
    _, said = metrics(
        start,
        """
        try:
            pb_utils.MetricFamily("taken", "counts", pb_utils.MetricFamily.COUNTER)
        except pb_utils.TritonModelException as problem:
            self.said.append(str(problem))
        pb_utils.Logger.log("end")
        """,
        lambda message: {"error": "another kind"},
    )
    assert said == repr(
        ["Error when creating MetricFamily: Failed to process the request for model 'm_0', "
         "message: another kind"]
    )  # fmt: skip


def test_arrays_survive_as_they_came(serve):
    """Reports from other threads do not disturb the answers."""
    stub = serve("""
    def execute(self, requests):
        def work():
            for n in range(30):
                pb_utils.Logger.log_info(str(n))
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        return [answer(np.arange(3, dtype=np.int32))]
    """)
    stub.plan(0, {})
    response = stub.infer().responses[0]
    np.testing.assert_array_equal(stub.arrays(response)["Y"], [0, 1, 2])
    counts = [stub.report()["message"] for _ in range(120)]
    assert sorted(map(int, counts)) == sorted(list(range(30)) * 4)
