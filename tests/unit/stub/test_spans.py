"""`devkit.span` in a stub: silent until a request is traced, and sent before the answer."""

from __future__ import annotations

import devkit
from devkit.stub.spans import Recorder
from devkit.transport import messages


class Kept:
    """Stands where the stub's outbox is; keeps the frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def keep(self, frame: bytes) -> None:
        self.frames.append(frame)

    def rows(self) -> list[list[object]]:
        found = []
        for frame in self.frames:
            for kind, payload in messages.FrameReader().feed(frame):
                assert kind == messages.SPANS
                found += messages.parse_json(payload)
        return found


def test_nothing_is_recorded_where_nothing_is_traced() -> None:
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    with recorder.span("a", {}):
        pass
    recorder.executed([])
    assert kept.frames == []
    with devkit.span("nobody records in this process", words=3):
        pass


def test_spans_go_to_every_open_request_and_only_once() -> None:
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    recorder.begin([7, 8])
    with recorder.span("a", {"n": 1, "what": object}):
        pass
    recorder.answered(7)
    with recorder.span("b", {}):
        pass
    recorder.answered(8)
    with recorder.span("c", {}):
        pass
    first, second = kept.rows()
    assert (sorted(first[0]), first[1]) == ([7, 8], "a")  # type: ignore[call-overload]
    assert first[5] == {"n": 1, "what": "<class 'object'>"}
    assert second[:2] == [[8], "b"]
    assert not recorder.open
