"""A value a second, kept for ten minutes, and the warning before shared memory is full."""

from types import SimpleNamespace

import pytest

from devkit.observe import gauges, history
from devkit.observe.gauges import Gpus
from devkit.observe.history import POINTS, History

MIB = 1 << 20


def engine(*models):
    return SimpleNamespace(models=lambda: list(models))


def lines(kept):
    return {key[3]: values for key, values in kept.lines().items() if not key[0]}


def test_it_holds_ten_minutes_and_no_more():
    kept = History(engine())
    for _ in range(POINTS + 5):
        kept.tick()
    assert len(lines(kept)["rss"]) == POINTS
    assert len(lines(kept)["cpu"]) == POINTS
    (short,) = [values for key, values in kept.lines(seconds=3).items() if key[3] == "rss"]
    assert len(short) == 3


def test_what_is_gone_leaves_a_gap_at_the_end(monkeypatch):
    kept = History(engine())
    kept.tick()
    monkeypatch.setattr(gauges, "free_memory", lambda: (0, 0))
    kept.tick()
    assert lines(kept)["shm_free"][-1] is None
    assert lines(kept)["rss"][-1] is not None


def test_low_memory_is_told_once_and_again_when_it_has_room(monkeypatch):
    kept, told = History(engine()), []
    kept.on_low.append(told.append)
    for free in (60, 15, 14, 40):
        monkeypatch.setattr(gauges, "free_memory", lambda free=free: (64 * MIB, free * MIB))
        kept.tick()
    assert len(told) == 2
    assert "15 of 64 MiB (what a container gets unless told otherwise) are free" in told[0]
    assert "--shm-size=1g" in told[0]
    assert told[1] == ""


@pytest.mark.parametrize(
    ("total", "free", "low"),
    [(64, 17, False), (64, 15, True), (8192, 900, False), (8192, 800, True)],
)
def test_what_counts_as_low(total, free, low):
    assert bool(gauges.low(total * MIB, free * MIB)) is low


def test_without_a_device_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(gauges, "_has_device", lambda: False)
    assert Gpus().devices() == ()
    assert Gpus().by_process() == {}


def test_a_device_that_cannot_be_asked_is_said_once(monkeypatch):
    pytest.importorskip("pynvml")
    if gauges._has_device():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(gauges, "_has_device", lambda: True)
    gpus = Gpus()
    assert gpus.devices() == ()
    assert gpus.by_process() == {}
    assert gpus.missing.startswith("GPU memory is not shown: ")


def test_units_are_known_of_every_number():
    kept = History(engine())
    kept.tick()
    kept.tick()
    assert {key[3] for key in kept.lines()} <= history.UNITS.keys()
