"""The threads that bring news: the runtime's event stream, and that of a debug session.

A runtime may end and another come: the feed says so, looks for one every moment, and follows the
next. What is polled is bounded: at most a few calls a second, and only what a screen shows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from devkit.control import messages
from devkit.control.client import Client
from devkit.control.discovery import find
from devkit.errors import ControlError, DevkitError
from devkit.tui.store import LOG_LINES, Store

GAUGES = 1.0
PAUSE = 0.4
"""The shortest time between two calls that ask the same, and so between two redraws for it."""
HISTORY_SECONDS = 90
CAPTURES = 500

Apply = Callable[[Callable[[Store], None]], None]
"""Has a change of the store made where the widgets live."""


class Feed:
    """Follows the runtime of a workspace, whichever it is at the time.

    Attributes:
        client: of the runtime that answers now; None where none does.
        wants: the topics that the screen in sight shows.
    """

    def __init__(self, workspace: str, apply: Apply) -> None:
        self.client: Client | None = None
        self.wants: frozenset[str] = frozenset()
        self._workspace = workspace
        self._apply = apply
        self._ends = threading.Event()
        self._stale: set[str] = set()
        self._asked: dict[str, float] = {}
        self._work: int | None = None
        self._log = 0

    def start(self) -> None:
        """Begin; it ends with the process, or at `stop`."""
        threading.Thread(target=self._run, name="devkit-feed", daemon=True).start()

    def stop(self) -> None:
        """End at the next news."""
        self._ends.set()

    def stale(self, *topics: str) -> None:
        """Something of these topics was changed by the user: ask again soon."""
        self._stale.update(topics)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                runtime = find(self._workspace or None)
                if runtime is None or not runtime.endpoints:
                    self._lost("no runtime serves this folder")
                else:
                    self._follow(Client(runtime))
                    self._lost("the runtime has ended")
            except ControlError as problem:
                self._lost(problem.message)
            self._ends.wait(PAUSE)

    def _lost(self, why: str) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()
        if not self._ends.is_set():
            self._apply(lambda store: store.lost(why))

    def _follow(self, client: Client) -> None:
        client.on_note = lambda _: None
        self._log, self._work = 0, None
        self._stale = {"captures", "failures", "logs", "breakpoints"}
        self._asked.clear()
        self.client = client
        self._apply(Store.began)
        for news in client.events(gauges=GAUGES):
            if self._ends.is_set():
                return
            if isinstance(news, messages.Snapshot):
                self._snapshot(news)
            else:
                self._event(news)
            self._ask(client)

    def _snapshot(self, snapshot: messages.Snapshot) -> None:
        self._apply(lambda store: store.found(snapshot))
        self._stale.discard("snapshot")
        self._stale.add("history")
        work = sum(model.inferences + model.failures for model in snapshot.models)
        if work != self._work:
            self._work = work
            self._stale.add("captures")

    def _event(self, event: messages.Event) -> None:
        if event.kind == "log":
            self._stale.add("logs")
        elif event.kind == "failure":
            self._stale.update(("failures", "captures"))
        elif event.kind == "debug" and event.state == "breakpoints":
            self._stale.add("breakpoints")
        elif event.kind in ("model", "instance", "warning", "stage"):
            self._stale.add("snapshot")
            if event.kind == "instance" and event.state == "dead":
                self._stale.add("failures")

    def _ask(self, client: Client) -> None:
        now = time.monotonic()
        for topic in sorted(self._stale):
            wanted = topic in self.wants or topic in ("snapshot", "breakpoints", "failures")
            if not wanted or now - self._asked.get(topic, 0.0) < PAUSE:
                continue
            self._stale.discard(topic)
            self._asked[topic] = now
            try:
                self._fetch(client, topic)
            except ControlError:
                raise
            except DevkitError as problem:  # of this call alone: the next one may be answered
                told = problem.message
                self._apply(lambda store, told=told: store.debug.said.append(("bad", told)))  # type: ignore[misc]

    def _fetch(self, client: Client, topic: str) -> None:
        if topic == "snapshot":
            snapshot = client.status()
            self._apply(lambda store: store.found(snapshot))
        elif topic == "history":
            history = client.history(seconds=HISTORY_SECONDS)
            self._apply(lambda store: store.measured(history))
        elif topic == "captures":
            captures = client.capture_list(last=CAPTURES)
            self._apply(lambda store: store.recorded(captures))
        elif topic == "failures":
            failures = client.failures()
            self._apply(lambda store: store.failed(failures))
        elif topic == "logs":
            lines = client.logs(count=LOG_LINES, after=self._log)
            self._log = max([self._log, *(line.sequence for line in lines)])
            self._apply(lambda store: store.logged(lines))
        elif topic == "breakpoints":
            points = client.breakpoints()
            self._apply(lambda store: _set_breakpoints(store, points))


def _set_breakpoints(store: Store, points: messages.Breakpoints) -> None:
    store.debug.breakpoints = points
    store.changed("debug")


def follow_session(client: Client, session: int, changed: Callable[[], None]) -> None:
    """Look on at a debug session until it ends, in a thread of its own.

    The runtime ends the session soon after nobody looks on any more, so a workbench that is killed
    leaves no instance behind that stands.
    """

    def run() -> None:
        try:
            for news in client.events(kinds=["debug"], debugger=session):
                if isinstance(news, messages.Snapshot) or news.session == session:
                    changed()
                    if isinstance(news, messages.Event) and news.state == "ended":
                        return
        except ControlError:
            pass
        finally:
            changed()

    threading.Thread(target=run, name="devkit-debug-feed", daemon=True).start()
