"""What the machine says of processes and shared memory."""

import os
import subprocess
import sys

import pytest

from devkit.observe import gauges
from devkit.observe.gauges import Gauges, shared_memory
from devkit.transport import memory
from devkit.transport.memory import Slab


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "DIRECTORY", tmp_path)
    return tmp_path


def test_a_process_is_described():
    use = Gauges().sample([os.getpid()])[os.getpid()]
    assert use.rss > 1 << 20
    assert use.threads >= 1
    if sys.platform == "linux":
        assert 0 < use.uss <= use.pss <= use.rss * 1.1
        assert use.open_files > 2


def test_a_process_that_is_gone_is_left_out():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert Gauges().sample([ended.pid]) == {}


def test_cpu_use_is_since_the_last_look():
    found = Gauges()
    found.sample([os.getpid()])
    until = os.times().user + 0.05
    while os.times().user < until:
        pass
    assert found.sample([os.getpid()])[os.getpid()].cpu_percent > 0


def test_own_slabs_are_known_block_by_block_and_others_by_size(folder):
    slab = Slab("devkit-1-m-requests", size=1 << 16)
    slab.allocate(100, "m request 1")
    (folder / "devkit-1-m_0-responses").write_bytes(b"\0" * 4096)
    (folder / "devkit-2-x").write_bytes(b"\0")
    use = shared_memory([slab], 1)
    assert [one.name for one in use.slabs] == ["devkit-1-m-requests", "devkit-1-m_0-responses"]
    assert use.slabs[0].used == 128
    assert use.slabs[0].owners == (("m request 1", 128),)
    assert (use.slabs[1].size, use.slabs[1].used) == (4096, -1)
    assert use.total >= use.free > 0
    slab.unlink()


def test_a_full_folder_warns(folder, monkeypatch):
    monkeypatch.setattr(gauges, "WARN_BELOW", 1.1)
    assert "--shm-size" in shared_memory([], 1).warning


def test_no_folder_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "DIRECTORY", tmp_path / "gone")
    assert shared_memory([], 1).total == 0
