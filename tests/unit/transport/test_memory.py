"""Slabs: whatever the order of taking and giving back, no byte is lost or lent twice."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys

import pytest

from devkit.errors import SharedMemoryError
from devkit.transport import memory

NAME = f"devkit-{os.getpid()}-test-slab"


@pytest.fixture
def slab():
    made = memory.Slab(NAME, size=1 << 16, step=1 << 16)
    yield made
    made.unlink()
    assert not (memory.DIRECTORY / NAME).exists()


@pytest.mark.parametrize("seed", range(20))
def test_blocks_never_overlap_and_everything_comes_back(slab, seed):
    chance = random.Random(seed)
    live = {}
    for step in range(400):
        if live and chance.random() < 0.45:
            number = chance.choice(list(live))
            block = live.pop(number)
            assert bytes(block.view()) == bytes([number % 256]) * block.size
            block.release()
        else:
            block = slab.allocate(chance.choice([0, 1, 63, 64, 65, 1000, 20_000]), f"o{step % 3}")
            block.view()[:] = bytes([step % 256]) * block.size
            live[step] = block
        spans = sorted((b.offset, b.offset + b.size) for b in live.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert all(start % memory.ALIGNMENT == 0 for start, _ in spans)
    usage = slab.usage()
    assert usage.blocks == len(live)
    assert usage.used == sum(size for _, size in usage.owners)
    assert usage.used <= usage.high_water <= usage.size
    for block in live.values():
        block.release()
    assert slab.usage().used == 0
    assert slab._free == [(0, slab.size)]  # one piece again


def test_a_retained_block_needs_every_release(slab):
    block = slab.allocate(10)
    block.retain().retain()
    block.release()
    block.release()
    assert slab.usage().blocks == 1
    block.release()
    assert slab.usage().blocks == 0


def test_growth_keeps_what_is_there_and_old_views_valid(slab):
    first = slab.allocate(100)
    view = first.view()
    view[:] = b"a" * 100
    size = slab.size
    large = slab.allocate(1 << 17)
    assert slab.size == size + (1 << 17)  # the tail of the old size is used too
    assert large.view().nbytes == 1 << 17
    assert bytes(view) == bytes(first.view()) == b"a" * 100
    view[:1] = b"z"
    assert bytes(first.view(0, 1)) == b"z"


def test_another_mapping_sees_growth(slab):
    other = memory.Region(slab.path)
    block = slab.allocate(1 << 17)
    block.view()[:3] = b"abc"
    assert bytes(other.view(block.offset, 3)) == b"abc"
    other.close()


def test_a_region_with_offset_and_size(slab):
    slab.view(64, 4)[:] = b"abcd"
    region = memory.Region(slab.path, offset=64, size=4)
    assert region.size == 4
    assert bytes(region.view(1, 2)) == b"bc"
    region.close()


def test_a_region_that_its_owner_cuts_or_we_close_is_an_error_and_no_signal(slab):
    region = memory.Region(slab.path, offset=0, size=1 << 16)
    assert len(region.view(0, 1 << 16)) == 1 << 16
    os.truncate(slab.path, 4096)
    assert len(region.view(0, 4096)) == 4096
    with pytest.raises(SharedMemoryError, match="Invalid shared memory region"):
        region.view(4096, 1)
    region.close()
    assert region.closed
    with pytest.raises(SharedMemoryError, match="Invalid shared memory region"):
        region.view(0, 1)


def test_what_cannot_be_mapped(slab):
    with pytest.raises(SharedMemoryError, match="Unable to open shared memory region: '/nope'"):
        memory.Region(memory.region_path("/nope"))
    with pytest.raises(SharedMemoryError, match="Unable to open shared memory region"):
        memory.Region(memory.region_path("/no\0pe"))
    with pytest.raises(SharedMemoryError, match="Invalid shared memory region"):
        memory.Region(slab.path, offset=8, size=slab.size)


def test_no_room_is_an_error_with_a_remedy_and_no_leftovers():
    with pytest.raises(SharedMemoryError) as caught:
        memory.Slab(NAME + "-huge", size=1 << 50)
    assert "shm-size" in caught.value.remedy
    assert not (memory.DIRECTORY / (NAME + "-huge")).exists()


def test_no_room_to_grow_leaves_the_slab_as_it_was(slab):
    slab.step = 1 << 50
    with pytest.raises(SharedMemoryError):
        slab.allocate(1 << 17)
    assert slab.path.stat().st_size == 1 << 16
    slab.allocate(100).release()


def test_a_name_is_safe_as_a_file_name():
    assert memory.slab_name(7, "a/b;c", "requests") == "devkit-7-a_b_c-requests"


def test_sweeping_removes_what_the_dead_left_and_nothing_else(slab):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = memory.DIRECTORY / f"devkit-{gone.pid}-m-requests"
    other = memory.DIRECTORY / f"not-devkit-{gone.pid}-x"
    left.write_bytes(b"x")
    other.write_bytes(b"x")
    try:
        assert left.name in memory.sweep()
        assert not left.exists()
        assert other.exists()
        assert slab.path.exists()
    finally:
        other.unlink()
