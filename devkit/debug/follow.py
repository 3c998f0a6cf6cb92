"""Looking on at a debug session from a face's process: a thread that hears of every change.

As long as it looks on the session lives; when the face's process is gone, so is the session soon
after, and the instance goes on. What a face does with a change is its own affair.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from devkit.control.messages import DebugSession, Event
from devkit.errors import DebugError, DevkitError

_LOOK_SECONDS = 0.2  # a wait wakes this often, so that Ctrl-C is noticed


class Follower:
    """One look at one session.

    Attributes:
        told: how the session was when last heard of.
    """

    def __init__(
        self,
        client: Client,
        session: Debugging,
        on_change: Callable[[DebugSession], None] = lambda told: None,
        on_line: Callable[[Event], None] = lambda event: None,
        on_breakpoints: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` gets each change, `on_line` each line that its model logs; in a thread."""
        self.told = session.told
        self._client = client
        self._session = Debugging(client, session.told)
        self._on_change = on_change
        self._on_line = on_line
        self._on_breakpoints = on_breakpoints
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="devkit-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell nothing more; the thread ends at the next event."""
        self._closed = True

    def heard(self, told: DebugSession) -> None:
        """An answer to a call says how the session is: nothing older counts any more."""
        with self._changed:
            if told.turn >= self.told.turn and self.told.state != "ended":
                self.told = told
                self._changed.notify_all()

    def until(
        self, ready: Callable[[DebugSession], bool], seconds: float | None = None
    ) -> DebugSession | None:
        """How the session is once `ready` says so, or has ended; None when the time is over."""
        until = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while not ready(self.told) and self.told.state != "ended":
                if until is not None and time.monotonic() >= until:
                    return None
                self._changed.wait(_LOOK_SECONDS)
            return self.told

    def _run(self) -> None:
        number = self._session.id
        try:
            events = self._client.events(kinds=("debug", "log"), debugger=number)
            for each in events:
                if self._closed:
                    return
                if not isinstance(each, Event):
                    self._look()
                elif each.kind == "log":
                    if each.model == self.told.model:
                        self._on_line(each)
                elif each.session == number:
                    if each.state == "ended":
                        self._tell(_ended(self.told, each.text))
                        return
                    self._look()
                elif each.state == "breakpoints":
                    self._on_breakpoints()
                if self.told.state == "ended":
                    return
            self._tell(_ended(self.told, "the runtime has ended"))
        except DevkitError as problem:
            self._tell(_ended(self.told, problem.message))
        except OSError as problem:
            self._tell(_ended(self.told, f"the runtime does not answer: {problem}"))

    def _look(self) -> None:
        try:
            self._tell(self._session.refresh())
        except DebugError:  # it has ended meanwhile
            self._tell(_ended(self.told, "detached"))

    def _tell(self, told: DebugSession) -> None:
        with self._changed:
            ended = self.told.state == "ended"
            if ended or (told.turn < self.told.turn and told.state != "ended"):
                return
            self.told = told
            self._changed.notify_all()
        if not self._closed:
            self._on_change(told)


def _ended(told: DebugSession, reason: str) -> DebugSession:
    return dataclasses.replace(
        told, state="ended", reason=reason, thread=0, line="", function="", chain=(), callee=""
    )
