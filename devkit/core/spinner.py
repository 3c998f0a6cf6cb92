"""Keeps the event loop awake for a moment while a fast model's answer is on its way.

Going to sleep and being woken costs 40-60 us across cores, several times what a small request costs
in all; an answer that comes within the moment finds the loop awake. Never for models that are slow,
and never on a single core, where the stub needs it.
"""

from __future__ import annotations

import asyncio
import os
import time

MOMENT_NS = 100_000
"""How long to stay awake for one answer; models slower than this are not waited for awake."""


class Spinner:
    """One for an event loop; its users tell it when they begin to wait and when they have got."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._until = 0
        self._turning = False
        self.enabled = (os.cpu_count() or 1) > 1

    def wait(self, now: int) -> None:
        """Something is on its way since `now` (CLOCK_MONOTONIC ns)."""
        self._waiting += 1
        self._until = now + MOMENT_NS
        if not self._turning and self.enabled:
            self._turning = True
            self._loop.call_soon(self._turn)

    def got(self) -> None:
        """It has come, or is not to be waited for any more."""
        self._waiting -= 1

    def _turn(self) -> None:
        if self._waiting > 0 and time.monotonic_ns() < self._until:
            self._loop.call_soon(self._turn)
        else:
            self._turning = False
