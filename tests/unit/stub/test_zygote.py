"""The forking process: what it forks is a stub like any other, and it refuses where it must."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import devkit
from devkit.transport import messages
from devkit.transport.channel import Channel

STUB = Path(devkit.__file__).parent / "stub" / "__main__.py"
MODEL = """
def initialize(self, args):
    import random
    self.numbers = [random.random(), float(np.random.rand())]
def execute(self, requests):
    a = np.ones((300, 300))
    assert (a @ a)[0, 0] == 300  # OpenBLAS starts its threads again
    return [answer(np.array(self.numbers))]
"""


class ZygoteProcess:
    """The launcher's side of a zygote."""

    def __init__(self, stub_process_type):
        self._make = stub_process_type
        self.socket, theirs = socket.socketpair()
        command = [sys.executable, "-Xfrozen_modules=off", str(STUB), "--zygote"]
        self.popen = subprocess.Popen(
            [*command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.environ.get("ZYGOTE_PATH", "")},
        )
        theirs.close()
        self.channel = Channel(self.socket)

    def hear(self):
        received = self.channel.receive()
        assert received is not None, "the zygote ended"
        return messages.parse_json(received[1])

    def preload(self, *modules):
        self.channel.send(
            messages.json_frame(messages.CONTROL, {"op": "preload", "modules": list(modules)})
        )
        return self.hear()

    def fork(self, folder, call=1, streams=()):
        pairs = [socket.socketpair() for _ in range(3)]
        request = messages.json_frame(messages.CONTROL, {"op": "fork", "call": call})
        theirs = [pair[1].fileno() for pair in pairs]
        socket.send_fds(self.socket, [request], [*theirs, *streams])
        for _, end in pairs:
            end.close()
        return self.hear(), self._make(folder, None, [Channel(ours) for ours, _ in pairs])

    def close(self):
        self.channel.close()
        try:
            return self.popen.wait(10)
        finally:
            self.popen.kill()
            self.popen.wait()


@pytest.fixture
def zygote(stub_process):
    made = ZygoteProcess(stub_process)
    yield made
    made.close()


def test_forked_stubs_serve_and_their_end_is_told(zygote, write_model):
    folder = write_model(MODEL)
    assert zygote.preload("numpy")["usable"] is True
    stubs, pids = [], set()
    for call in (1, 2):
        answer, stub = zygote.fork(folder, call)
        assert (answer["op"], answer["call"]) == ("forked", call)
        pids.add(answer["pid"])
        ready = stub.initialize()
        assert ready["pid"] == answer["pid"]
        stub.plan(0, {})
        stubs.append(stub)
    first, second = (stub.arrays(stub.infer().responses[0])["Y"] for stub in stubs)
    assert not np.isin(first, second).any()  # each its own random numbers
    ended = set()
    for stub in stubs:
        stub.finalize()
        told = zygote.hear()
        assert (told["op"], told["status"]) == ("exited", 0)
        ended.add(told["pid"])
        stub.close()
    assert ended == pids


def test_a_forked_stub_sees_what_a_spawned_one_sees(zygote, start, write_model):
    body = """
    def execute(self, requests):
        import json, os, signal, sys
        found = [sys.argv, sys.path, __name__, os.getcwd(), sys.flags.dev_mode,
                 os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
                 threading.active_count(), sys.gettrace() is None]
        return [answer(np.array([json.dumps(found)], dtype=object))]
    """
    spawned = start(body)
    zygote.preload("numpy")
    _, forked = zygote.fork(spawned.model_dir)
    seen = []
    for stub in (spawned, forked):
        stub.initialize()
        stub.plan(0, {})
        seen.append(stub.arrays(stub.infer().responses[0])["Y"][0])
    forked.close()
    assert seen[0].replace(b"false, true, 2", b"true, true, 2") == seen[1]


def test_output_goes_where_the_launcher_says(zygote, write_model):
    zygote.preload()
    read, write = os.pipe()
    folder = write_model("def initialize(self, args):\n    print('hello from the fork')\n")
    _, stub = zygote.fork(folder, streams=(write, write))
    os.close(write)
    stub.initialize()
    stub.finalize()
    stub.close()
    with open(read, "rb") as stream:
        assert stream.read() == b"hello from the fork\n"


def test_a_killed_stub_is_told_with_its_signal(zygote, write_model):
    zygote.preload()
    answer, stub = zygote.fork(write_model("def execute(self, requests):\n    pass\n"))
    stub.initialize()
    os.kill(answer["pid"], 9)
    assert zygote.hear() == {"op": "exited", "pid": answer["pid"], "status": -9}
    stub.close()


def test_the_zygotes_end_ends_its_stubs(zygote, write_model):
    zygote.preload()
    _, stub = zygote.fork(write_model("def execute(self, requests):\n    pass\n"))
    stub.initialize()
    assert zygote.close() == 0
    assert stub.data.receive() is None
    stub.close()


def test_a_module_that_cannot_be_imported_is_told(zygote):
    answer = zygote.preload("does_not_exist_xyz")
    assert list(answer["failed"]) == ["does_not_exist_xyz"]
    assert answer["usable"] is True


def test_a_module_that_leaves_a_thread_makes_it_unusable(tmp_path, monkeypatch, request):
    (tmp_path / "leaves_a_thread.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("ZYGOTE_PATH", str(tmp_path))
    zygote = request.getfixturevalue("zygote")
    answer = zygote.preload("leaves_a_thread")
    assert answer["usable"] is False
    assert answer["reason"] == "the imports left 1 threads running"
    refused, stub = zygote.fork(tmp_path)
    assert refused == {"op": "refused", "call": 1, "reason": answer["reason"]}
    assert stub.data.receive() is None  # the descriptors were closed
    stub.close()


def test_grpc_makes_it_unusable(zygote):
    pytest.importorskip("grpc")
    answer = zygote.preload("grpc")
    assert answer["usable"] is False
    assert "gRPC" in answer["reason"]
