"""Response senders: from `execute`, from other threads, from coroutines; and what they refuse."""

from __future__ import annotations

import os

import numpy as np
import pytest

from devkit.transport import memory, messages
from devkit.transport.messages import Place

INPUT = {"X": ("INT32", [1])}
SEND = """
def execute(self, requests):
    for r in requests:
        sender = r.get_response_sender()
        for n in range(X(r)[0]):
            sender.send(answer(np.array([n], np.int32)))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    return None
"""


def number(n):
    return np.array([n], np.int32)


def decoupled(serve, body):
    stub = serve(body, decoupled=True)
    stub.plan(0, INPUT)
    return stub


def values(stub):
    return [
        int(stub.arrays(r)["Y"][0]) if r.kind == messages.OK else r.error or None for r in stub.sent
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_responses_and_the_final_flag(serve, count):
    stub = decoupled(serve, SEND)
    batch = stub.infer(number(count))
    assert batch.responses == []
    assert values(stub) == [*range(count), None]
    assert [r.flags for r in stub.sent] == [0] * count + [messages.FINAL]
    assert stub.sent[-1].kind == messages.NOTHING
    assert {r.sequence for r in stub.sent} == {1}


def test_the_last_response_may_be_the_final_one(serve):
    stub = decoupled(
        serve,
        """
        def execute(self, requests):
            requests[0].get_response_sender().send(answer(X(requests[0])), 1)
        """,
    )
    stub.infer(number(5))
    assert [(r.kind, r.flags) for r in stub.sent] == [(messages.OK, messages.FINAL)]


def test_other_threads_send_after_execute_returned(serve):
    stub = decoupled(
        serve,
        """
        def execute(self, requests):
            for r in requests:
                threading.Thread(target=self.work, args=(r,)).start()
        def work(self, request):
            sender = request.get_response_sender()
            for n in range(X(request)[0]):
                sender.send(answer(np.array([n], np.int32)))
            sender.send(flags=1)
        """,
    )
    stub.execute(*[stub.request(number(20)) for _ in range(5)])
    stub.result()
    stub.wait_for(lambda: sum(r.flags == messages.FINAL for r in stub.sent) == 5)
    for sequence in range(1, 6):
        mine = [r for r in stub.sent if r.sequence == sequence]
        assert [int(stub.arrays(r)["Y"][0]) for r in mine[:-1]] == list(range(20))


def test_coroutines_share_one_loop_and_run_side_by_side(serve):
    stub = decoupled(
        serve,
        """
        def initialize(self, args):
            self.gate = None
        async def execute(self, requests):
            self.gate = self.gate or asyncio.Event()
            sender = requests[0].get_response_sender()
            if X(requests[0])[0] == 0:
                await self.gate.wait()
            else:
                self.gate.set()
            loop = np.array([id(asyncio.get_running_loop()) % 1000], np.int32)
            sender.send(answer(loop), flags=1)
        """,
    )
    stub.infer(number(0))  # waits for the second
    stub.infer(number(1))
    stub.wait_for(lambda: len(stub.sent) == 2)
    assert len(set(values(stub))) == 1


def test_an_exception_in_execute_fails_the_batch(serve):
    stub = decoupled(serve, "def execute(self, requests):\n    raise ValueError('boom')\n")
    assert stub.infer(number(1)).error.startswith("ValueError: boom\n\nAt:\n")


def test_an_exception_in_a_coroutine_is_logged_and_warned_about(serve):
    stub = decoupled(serve, "async def execute(self, requests):\n    raise ValueError('boom')\n")
    assert stub.infer(number(1)).failure is None
    reports = [stub.report(), stub.report()]
    assert [r["op"] for r in reports] == ["log", "warning"]
    assert "ValueError: boom" in reports[0]["message"]
    assert reports[1]["rule"] == "lost-exception"


def test_a_returned_list_is_refused(serve):
    stub = decoupled(serve, "def execute(self, requests):\n    return [answer(X(requests[0]))]\n")
    assert stub.infer(number(1)).error == (
        "Python model 'm_0' is using the decoupled mode and the execute function must return None."
    )


REFUSED = [
    ("sender.send(flags=1); sender.send(flags=1)", "Unable to send response. Response sender has "
     "been closed."),
    ("sender.send()", "Inference Response object must be provided when the response flags is set "
     "to zero."),
    ("sender.send(flags=7)", "Unable to send response. Unsupported flag provided."),
]  # fmt: skip


@pytest.mark.parametrize(("body", "text"), REFUSED)
def test_what_a_sender_refuses(serve, body, text):
    stub = decoupled(
        serve,
        f"def execute(self, requests):\n    sender = requests[0].get_response_sender()\n    {body}\n",
    )
    assert stub.infer(number(1)).error.startswith(f"TritonModelException: {text}\n\nAt:\n")


def test_error_responses(serve):
    stub = decoupled(
        serve,
        """
        def execute(self, requests):
            sender = requests[0].get_response_sender()
            error = pb_utils.TritonError("late", pb_utils.TritonError.UNAVAILABLE)
            sender.send(pb_utils.InferenceResponse(error=error), flags=1)
        """,
    )
    stub.infer(number(1))
    assert [(r.error, r.code, r.flags) for r in stub.sent] == [("late", 4, messages.FINAL)]


def test_cancellation_reaches_request_and_sender(serve):
    stub = decoupled(
        serve,
        """
        def execute(self, requests):
            self.request = requests[0]
            self.thread = threading.Thread(target=self.work)
            self.thread.start()
        def work(self):
            sender = self.request.get_response_sender()
            sender.send(answer(np.array([0], np.int32)))
            while not self.request.is_cancelled():
                time.sleep(0.001)
            assert sender.is_cancelled()
            cancelled = pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)
            sender.send(pb_utils.InferenceResponse(error=cancelled), flags=1)
        """,
    )
    stub.infer(number(0))
    stub.tell(op="cancel", sequences=[1])
    stub.wait_for(lambda: len(stub.sent) == 2)
    assert stub.sent[-1].code == 7


def test_a_default_model_may_use_the_sender(serve):
    stub = serve("""
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        if X(requests[0])[0] == 0:
            sender.send(flags=1)
        sender.send(answer(X(requests[0])), flags=1)
        return [answer(X(requests[0]))] if X(requests[0])[0] == 2 else None
    """)
    stub.plan(0, INPUT)
    assert stub.infer(number(1)).responses == []
    assert values(stub) == [1]
    assert "cannot send complete final before sending a response" in stub.infer(number(0)).error
    assert stub.infer(number(2)).responses == []  # answered already
    assert stub.report()["rule"] == "answered-twice"


def test_inputs_are_held_while_a_thread_works_on_them(serve):
    slab = memory.Slab(f"devkit-{os.getpid()}-test-decoupled", size=1 << 20)
    try:
        stub = decoupled(
            serve,
            """
            def execute(self, requests):
                self.go = threading.Event() if X(requests[0])[0] else self.go
                threading.Thread(target=self.work, args=(requests[0], self.go)).start()
                if not X(requests[0])[0]:
                    self.go.set()
            def work(self, request, go):
                go.wait()
                request.get_response_sender().send(answer(X(request)), flags=1)
            """,
        )
        stub.plan(0, {"X": ("FP32", [2000])})
        stub.data.send(messages.region_frame(2, str(slab.path)))
        ones = np.ones(2000, np.float32)
        for offset, array in ((0, ones), (8192, ones * 0)):
            slab.view(offset, array.nbytes)[:] = array.tobytes()
        assert stub.infer(Place(2, 0, ones.nbytes)).holds == (1,)
        stub.infer(Place(2, 8192, ones.nbytes))
        stub.wait_for(lambda: len(stub.sent) == 2 and 1 in stub.dropped)
        first = next(r for r in stub.sent if r.sequence == 1)
        np.testing.assert_array_equal(stub.arrays(first)["Y"], ones)
    finally:
        slab.unlink()
