"""Threads for what may take long: calls of the runtime, replays, a verification.

They are daemons and few: a call that waits (a request that stands at a breakpoint) keeps neither
the screen nor the end of the program waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Task = Callable[[], None]


class Workers:
    """Threads that are kept, since a client has one connection for each."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def do(self, task: Task) -> None:
        """Run the task soon, in a thread that is free or a new one."""
        self._tasks.put(task)
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._run, name="devkit-work", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._tasks.get()()
            self._idle.release()
