"""Events: numbered without a gap, never waited for."""

from devkit.control.stream import Stream


async def test_a_reader_gets_what_happens_after_it_came():
    stream = Stream()
    stream.emit("log", text="before")
    reader = stream.open()
    stream.emit("log", text="one")
    stream.emit("model", model="m")
    events = await reader.next()
    assert [(one.sequence, one.kind) for one in events] == [(2, "log"), (3, "model")]


async def test_kinds_are_chosen_and_numbers_stay():
    stream = Stream()
    reader = stream.open(frozenset({"model"}))
    stream.emit("log", text="x")
    stream.emit("model", model="m")
    assert [one.sequence for one in await reader.next()] == [2]


async def test_a_slow_reader_is_dropped_to_a_snapshot_and_goes_on():
    stream = Stream()
    reader = stream.open(limit=3)
    for _ in range(10):
        stream.emit("log")
    assert await reader.next() is None
    stream.emit("model")
    assert [one.sequence for one in await reader.next()] == [11]


async def test_nothing_new_is_an_empty_list_after_the_timeout():
    assert await Stream().open().next(timeout=0.01) == []


async def test_a_reader_that_left_gets_nothing():
    stream = Stream()
    reader = stream.open()
    reader.close()
    stream.emit("log")
    assert await reader.next(timeout=0.01) == []


def test_what_was_missed_is_there_while_it_is_kept():
    stream = Stream(history=3)
    for _ in range(5):
        stream.emit("log")
    assert [one.sequence for one in stream.since(3)] == [4, 5]
    assert stream.since(5) == []
    assert [one.sequence for one in stream.since(2)] == [3, 4, 5]
    assert stream.since(1) is None
    assert stream.since(99) is None
