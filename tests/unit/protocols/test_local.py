"""The local protocol: what a client may send, what happens to one that sends something else."""

import os
import socket
import threading

import numpy as np
import pytest

from devkit.control.fast import FastPath
from devkit.errors import ControlError, InferError
from devkit.transport import messages
from tests.support.live import DOUBLE, eventually, live

SLOW = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        until = time.monotonic() + 5
        while time.monotonic() < until and not requests[0].is_cancelled():
            time.sleep(0.01)
        print("cancelled", requests[0].is_cancelled(), flush=True)
        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])]
"""
X = np.array([1.0, 2.0], np.float32)


@pytest.fixture(scope="module")
def runtime():
    with live("--allow-grpc=false", models={"double": DOUBLE, "slow": SLOW}) as one:
        yield one


@pytest.fixture
def path(runtime):
    made = FastPath(runtime.client().runtime.local)
    yield made
    made.close()


def raw(runtime):
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(10)
    connected.connect(runtime.client().runtime.local)
    return connected


@pytest.mark.parametrize(
    "data",
    [
        messages.frame(200, b"what"),
        messages.frame(messages.EXECUTE, b"\1"),
        messages.frame(messages.PLAN, b"\0\0\0\0{not json"),
        messages.execute_frame(1, [messages.WireRequest(1, 77, [])]),
        messages.region_frame(2, "/etc/passwd"),
        messages.region_frame(2, "/dev/shm/../../etc/passwd"),
        messages.sequences_frame(messages.RELEASE, [5]),
        messages.slot_frame(messages.PLAN, 0, [[["X", "FP32", [2]]], [], {}, "double", ""])
        + messages.execute_frame(1, [messages.WireRequest(1, 0, [messages.Place(9, 0, 8)])]),
    ],
    ids=["kind", "short", "json", "plan", "path", "dots", "release", "region"],
)
def test_who_sends_something_else_is_hung_up_on_and_nobody_else_notices(runtime, path, data):
    with raw(runtime) as connected:
        connected.sendall(data)
        assert connected.recv(1) == b""
    np.testing.assert_array_equal(path.infer("double", {"X": X}).outputs["Y"], X * 2)


def test_a_frame_may_come_in_pieces(runtime):
    plan = [[["X", "FP32", [2]]], [], {}, "double", ""]
    request = messages.WireRequest(1, 0, [X.tobytes()])
    data = messages.slot_frame(messages.PLAN, 0, plan) + messages.execute_frame(1, [request])
    with raw(runtime) as connected:
        for byte in data:
            connected.sendall(bytes([byte]))
        assert connected.recv(4)


def test_a_caller_that_leaves_cancels_its_request(runtime, path):
    with pytest.raises(InferError, match="no answer within the timeout"):
        path.infer("slow", {"X": X}, timeout=0.1)
    eventually(lambda: "cancelled True" in runtime.log())
    np.testing.assert_array_equal(path.infer("double", {"X": X}).outputs["Y"], X * 2)


def test_many_callers_share_a_path(path):
    wrong = []

    def ask(number):
        data = np.full(number * 7000 + 1, number, np.float32)
        for _ in range(10):
            found = path.infer("double", {"X": data}).outputs["Y"]
            if not (found == data * 2).all():
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_leaves_no_shared_memory(runtime, path):
    path.infer("double", {"X": np.ones(100_000, np.float32)})
    own = f"devkit-{os.getpid()}-client"
    assert [name for name in os.listdir("/dev/shm") if name.startswith(own)]
    path.close()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(own)]


def test_a_path_that_leads_nowhere_says_so(tmp_path):
    with pytest.raises(ControlError, match="does not answer"):
        FastPath(str(tmp_path / "none")).infer("double", {"X": X})


def test_a_type_that_triton_lacks_is_refused_before_it_is_sent(path):
    with pytest.raises(InferError, match="no data type for NumPy's complex64"):
        path.infer("double", {"X": X.astype(np.complex64)})
    np.testing.assert_array_equal(path.infer("double", {"X": X}).outputs["Y"], X * 2)
