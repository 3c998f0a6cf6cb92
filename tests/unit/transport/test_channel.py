"""The blocking end of a socket pair."""

from __future__ import annotations

import socket
import threading

import pytest

from devkit.errors import TransportError
from devkit.transport import messages
from devkit.transport.channel import Channel


@pytest.fixture
def ends():
    pair = socket.socketpair()
    made = [Channel(end) for end in pair]
    yield made
    for channel in made:
        channel.close()


def frame(n, size=0):
    return messages.frame(n, bytes([n]) * size)


def test_frames_come_in_order_and_several_at_once(ends):
    ours, theirs = ends
    ours.send(b"".join(frame(n, n) for n in range(1, 20)))
    assert theirs.at_hand is False
    assert theirs.pending() is True
    for n in range(1, 20):
        kind, payload = theirs.receive()
        assert (kind, bytes(payload)) == (n, bytes([n]) * n)
    assert theirs.at_hand is False
    assert theirs.pending() is False


def test_large_frames_from_several_threads_stay_whole(ends):
    ours, theirs = ends
    threads = [
        threading.Thread(target=lambda n=n: [ours.send(frame(n, 300_000)) for _ in range(5)])
        for n in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    kinds = []
    for _ in range(20):
        kind, payload = theirs.receive()
        assert bytes(payload) == bytes([kind]) * 300_000
        kinds.append(kind)
    for thread in threads:
        thread.join()
    assert sorted(kinds) == sorted([1, 2, 3, 4] * 5)


@pytest.mark.parametrize("spin", [0, 50_000])
def test_receive_waits_for_a_late_frame(spin):
    ours, theirs = socket.socketpair()
    receiver = Channel(theirs, spin=spin)
    waiting = threading.Event()

    def late():
        waiting.wait()
        ours.sendall(frame(3))

    thread = threading.Thread(target=late)
    thread.start()
    waiting.set()
    assert receiver.receive()[0] == 3
    thread.join()
    ours.close()
    receiver.close()


def test_the_end_of_the_peer(ends):
    ours, theirs = ends
    ours.send(frame(1))
    ours.close()
    assert theirs.receive()[0] == 1
    assert theirs.receive() is None
    assert theirs.ended is True
    with pytest.raises(TransportError, match="gone"):
        theirs.send(frame(1))
    theirs.post(frame(2))  # says nothing


def test_a_post_in_the_middle_of_a_send_leaves_with_the_next(ends):
    ours, theirs = ends
    with ours._send_lock:  # as garbage collection finds it
        ours.post(frame(1))
    assert theirs.pending() is False
    ours.send(frame(2))
    assert [theirs.receive()[0] for _ in range(2)] == [1, 2]
    ours.post(frame(3))
    assert theirs.receive()[0] == 3
