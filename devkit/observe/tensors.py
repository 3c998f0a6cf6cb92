"""Tensors that were kept, looked at in side threads: bounded work, and never in the loop's way.

Two threads; what is asked beyond a queue's worth is refused rather than piled up. Which numbers
there are is `contract.inspection`'s business; here is who computes them, and when not.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from devkit.contract.inspection import Held
from devkit.contract.recording import Record
from devkit.errors import ControlError

THREADS = 2
WAITING = 32
REMEMBERED = 256

Answer = TypeVar("Answer")

PARTS = ("inputs", "outputs", "probes")


class Looker:
    """Runs looks at tensors, and remembers the last answers."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    async def look(self, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """The result of `work`, remembered under `key`; ControlError where too much waits."""
        if key is not None and key in self._known:
            self._known.move_to_end(key)
            known: Answer = self._known[key]
            return known
        if self._waiting >= WAITING:
            raise ControlError(
                f"{self._waiting} tensors are being looked at already", remedy="ask again later"
            )
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "devkit tensors")
        self._waiting += 1
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1
        if key is not None:
            self._known[key] = answer
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return answer

    def close(self) -> None:
        """End the threads; what runs is finished."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def tensors_of(record: Record, reply: int = 0) -> list[tuple[str, int, Held]]:
    """(part, reply, tensor) of everything a record holds: inputs, probes, outputs of each reply."""
    found = [("inputs", 0, held) for held in record.request.held("inputs")]
    found += [("probes", 0, probe.held()) for probe in record.probes]
    for number, answer in enumerate(record.replies):
        if answer.wire.data and (not reply or number == reply):
            found += [("outputs", number, held) for held in answer.wire.held("outputs")]
    return found


def find(record: Record, part: str, name: str, reply: int = 0, occurrence: int = 0) -> Held:
    """A tensor of a record; ControlError where it has none of that name.

    A name that a model has probed several times is told apart by `occurrence`.
    """
    there = tensors_of(record)
    chosen = [
        held for where, number, held in there
        if held.name == name and (not part or where == part) and number == reply
    ]  # fmt: skip
    if occurrence < len(chosen):
        return chosen[occurrence]
    names = ", ".join(dict.fromkeys(f"{where} '{held.name}'" for where, _, held in there))
    raise ControlError(f"the request has no tensor '{name}'", remedy=f"it has {names or 'none'}")
