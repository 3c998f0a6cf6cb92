"""The terminal workbench: the frame around the screens, and what they all use.

Screens are panes, one module each; this module switches between them, has calls made in threads
and tells the screen in sight what has changed. No logic of the runtime lives here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import ContentSwitcher, Footer, Static

from devkit.control import starter
from devkit.control.client import Client
from devkit.errors import DevkitError
from devkit.tui import editor, themes, words
from devkit.tui.debug import DebugPane
from devkit.tui.dialogs import HELP_INDENT, Note, help_lines, plain
from devkit.tui.export import ExportPane
from devkit.tui.feed import Feed
from devkit.tui.lines import Lines
from devkit.tui.logs import LogsPane
from devkit.tui.memory import MemoryPane
from devkit.tui.models import ModelsPane
from devkit.tui.palette import Commands
from devkit.tui.pane import Pane
from devkit.tui.requests import RequestsPane
from devkit.tui.store import Store
from devkit.tui.tensors import TensorsPane
from devkit.tui.trace import TracePane
from devkit.tui.words import Line
from devkit.tui.work import Workers

T = TypeVar("T")

PANES: tuple[type[Pane], ...] = (
    ModelsPane, RequestsPane, TensorsPane, TracePane, MemoryPane, LogsPane, DebugPane, ExportPane,
)  # fmt: skip
NAMES = tuple(one.NAME for one in PANES)


class Workbench(App[None]):
    """The whole of it.

    Attributes:
        store: what is shown.
        feed: brings it; None where the store was filled by hand.
    """

    TITLE = "devkit"
    CSS_PATH = "workbench.tcss"
    COMMANDS = App.COMMANDS | {Commands}
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", tooltip="What the keys of this screen do"),
        Binding("ctrl+p", "command_palette", "Commands", show=False, priority=True,
                tooltip="Find any command by a few letters of it"),
        Binding("q,ctrl+q", "quit", "Quit", show=False, tooltip="Leave; the runtime goes on"),
        *(Binding(str(n), f"open('{one.NAME}')", one.TITLE, show=False)
          for n, one in enumerate(PANES, 1)),
        Binding("ctrl+t", "theme", "Theme", show=False, tooltip="Dark or light"),
        Binding("S", "start_runtime", "Start a runtime", show=False,
                tooltip="Start a runtime for this folder, where none runs"),
    ]  # fmt: skip

    class Done(Message):
        """Something to do where the widgets live."""

        def __init__(self, run: Callable[[], None]) -> None:
            super().__init__()
            self.run = run

    def __init__(
        self,
        workspace: str = "",
        *,
        screen: str = "models",
        theme: str = "dark",
        store: Store | None = None,
    ) -> None:
        super().__init__()
        for one in themes.THEMES.values():
            self.register_theme(one)
        self.theme = themes.THEMES[theme].name
        self.store = store or Store(workspace=workspace)
        self.feed = None if store is not None else Feed(workspace, self._apply)
        self._first = screen
        self._drawn = False
        self._trouble = ""
        self._threads = Workers()
        self._newest: dict[str, int] = {}
        self.store.listeners.append(self._changed)

    def compose(self) -> ComposeResult:
        """A bar, the tabs, the screens, the keys."""
        yield Lines(id="bar")
        yield TabStrip(id="tabs")
        yield Static(id="trouble", markup=False)
        with ContentSwitcher(initial=self._first, id="panes"):
            for one in PANES:
                yield one(id=one.NAME)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Draw once, and let the news in."""
        self.query_one("#bar").can_focus = False
        self._drawn = True
        self._draw_bar()
        self.action_open(self._first)
        if self.feed is not None:
            self.feed.start()

    def on_unmount(self) -> None:
        """No more news."""
        self._drawn = False
        if self.feed is not None:
            self.feed.stop()

    # -- screens ---------------------------------------------------------------------------------

    @property
    def pane(self) -> Pane:
        """The screen in sight."""
        switcher = self.query_one("#panes", ContentSwitcher)
        return self.query_one(f"#{switcher.current}", Pane)

    def action_open(self, name: str) -> None:
        """Bring a screen into sight."""
        self.query_one("#panes", ContentSwitcher).current = name
        pane = self.query_one(f"#{name}", Pane)
        self.query_one(TabStrip).draw(name)
        if self.feed is not None:
            self.feed.wants = pane.TOPICS
            self.feed.stale(*pane.TOPICS & {"history", "captures", "logs"})
        pane.draw()
        pane.start()
        pane.arrive()

    def action_help(self) -> None:
        """The keys of the screen in sight, and those of all."""
        pane = self.pane
        lines = help_lines(pane.ABOUT, [(pane.TITLE, pane.BINDINGS), ("Everywhere", self.BINDINGS)])
        lines += plain(
            "Tab goes from part to part, arrows (or j and k) move, Enter opens. The mouse works,\n"
            "too; hold Shift to mark text as the terminal does. NO_COLOR=1 leaves colours out."
        )
        self.push_screen(Note(f"Help: {pane.TITLE}", lines, HELP_INDENT))

    def action_theme(self) -> None:
        """From dark to light, and back."""
        dark = self.theme == themes.DARK.name
        self.theme = (themes.LIGHT if dark else themes.DARK).name

    # -- the store -------------------------------------------------------------------------------

    def _changed(self, topic: str) -> None:
        if not self._drawn:
            return
        if topic in ("snapshot", "connection", "debug", "model"):
            self._draw_bar()
        pane = self.pane
        if topic in pane.TOPICS or topic == "connection":
            pane.draw(topic)

    def _draw_bar(self) -> None:
        store, snapshot = self.store, self.store.snapshot
        place = snapshot.runtime.workspace if snapshot else store.workspace or str(Path.cwd())
        line: Line = [(" devkit ", "mark"), (" ", "")]
        line.append((words.tail(place, max(16, self.size.width - 64)), "bold"))
        if snapshot is not None and not store.trouble:
            runtime, memory = snapshot.runtime, snapshot.memory
            held = sum(slab.size for slab in memory.slabs)
            up = words.minutes(store.now() - runtime.started)
            line += [("  ● ", "good"), (f"pid {runtime.pid}, up {up}", "")]
            if store.debug.session is None or self.size.width >= 110:
                shared = f"  /dev/shm {words.size(held)}, {words.size(memory.free)} free"
                line.append((shared, "dim"))
            if memory.warning:
                line.append(("  ! shared memory runs low", "warn"))
        else:
            line.append(("  ✖ no runtime", "bad"))
        session = store.debug.session
        if session is not None:
            line.append((f"  ■ {session.model} {session.state}", "accent"))
        self.query_one("#bar", Lines).show([line])
        trouble = ""
        if store.trouble:
            trouble = f"{store.trouble}. It is looked for all the time; press S to start one here."
        if trouble != self._trouble:
            self._trouble = trouble
            self.set_class(bool(trouble), "trouble")
            self.query_one("#trouble", Static).update(trouble)

    def on_resize(self, event: events.Resize) -> None:
        """The bar says as much as there is room for."""
        if self._drawn:
            self.call_after_refresh(self._draw_bar)

    def _apply(self, change: Callable[[Store], None]) -> None:
        self.post(lambda: change(self.store))

    # -- calls -----------------------------------------------------------------------------------

    def post(self, run: Callable[[], None]) -> None:
        """Do something where the widgets live; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the screen with it
            self.post_message(self.Done(run))

    def on_workbench_done(self, event: Workbench.Done) -> None:
        """It is there now."""
        event.run()

    @property
    def client(self) -> Client | None:
        """Of the runtime that answers, None where none does."""
        return self.feed.client if self.feed is not None else None

    def call(
        self,
        task: Callable[[Client], T],
        then: Callable[[T], None] | None = None,
        *,
        newest: str = "",
        failed: Callable[[DevkitError], None] | None = None,
    ) -> None:
        """Ask the runtime in a thread; `then` gets the answer where the widgets live.

        With `newest` only the last call of that name counts. `failed` gets the error, which is
        shown otherwise.
        """
        client = self.client
        if client is None:
            self.tell(self.store.trouble or "there is no runtime", "warning")
            return
        self.work(lambda: task(client), then, newest=newest, failed=failed)

    def work(
        self,
        task: Callable[[], T],
        then: Callable[[T], None] | None = None,
        *,
        newest: str = "",
        failed: Callable[[DevkitError], None] | None = None,
    ) -> None:
        """Do something in a thread, as `call` does."""
        number = self._newest[newest] = self._newest.get(newest, 0) + 1

        def run() -> None:
            try:
                result = task()
            except DevkitError as problem:
                self.post(lambda problem=problem: (failed or self.show_problem)(problem))  # type: ignore[misc]
                return
            except Exception as problem:  # the edge of a thread: a bug must be seen, too
                told = f"{type(problem).__name__}: {problem}"
                self.post(lambda: self.tell(told, "error"))
                return
            if then is not None:
                self.post(
                    lambda: None if newest and self._newest[newest] != number else then(result)
                )

        self._threads.do(run)

    def tell(self, text: str, severity: str = "information") -> None:
        """A sentence in the corner."""
        self.notify(text, severity=cast("Any", severity), markup=False, timeout=6)

    def show_problem(self, problem: DevkitError) -> None:
        """An error: in the corner, or with its traceback in a window."""
        trace = getattr(problem, "traceback", None)
        if not trace:
            told = problem.message.strip()
            if problem.line:
                told += f"\nat {problem.line}"
            if problem.remedy:
                told += f"\n{problem.remedy}"
            self.tell(told, "error")
            return
        lines = [*plain(problem.message.strip(), "bad"), []]
        if problem.line:
            lines += [[("at ", "dim"), (problem.line, "accent")], []]
        self.push_screen(Note("It failed", [*lines, *plain(trace)]))

    def read(self, title: str, lines: Sequence[Line]) -> None:
        """Show something to read."""
        self.push_screen(Note(title, lines))

    def copy(self, text: str, what: str) -> None:
        """Put a text into the terminal's clipboard, and show it for terminals that have none."""
        self.copy_to_clipboard(text)
        hint = "In the clipboard, where the terminal allows it (in tmux: set-clipboard on)."
        self.read(f"Copied: {what}", [*plain(text), [], [(hint, "dim")]])

    def edit(self, path: str, line: int = 1) -> None:
        """Open the user's editor at a line; the workbench comes back when it ends."""
        if not path:
            self.tell("this has no file of its own", "warning")
            return
        try:
            with self.suspend():
                editor.edit(path, line)
        except DevkitError as problem:
            self.show_problem(problem)
        self.refresh(layout=True)

    def action_start_runtime(self) -> None:
        """Start a runtime where none runs."""
        if not self.store.trouble or self.feed is None:
            self.tell("a runtime runs already")
            return
        self.tell("starting a runtime")
        self.work(lambda: starter.start(self.store.workspace or None))


class TabStrip(Lines):
    """The names of the screens; a click opens one."""

    can_focus = False

    def draw(self, current: str) -> None:
        """Mark the one in sight."""
        line: Line = []
        for number, one in enumerate(PANES, 1):
            chosen = current == one.NAME
            line.append((f" {number} ", "here" if chosen else "dim"))
            line.append((f"{one.TITLE} ", "here" if chosen else ""))
        self.show([line])

    def on_click(self, event: events.Click) -> None:
        """Open the screen whose name is there."""
        left = 0
        for one in PANES:
            left += len(one.TITLE) + 4
            if event.x < left:
                cast("Workbench", self.app).action_open(one.NAME)
                return


def run(workspace: str = "", *, screen: str = "models", theme: str = "dark") -> None:
    """Run the workbench in this terminal until it is left."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # exported by a shell, they would fix the size for good
    Workbench(workspace, screen=screen, theme=theme).run()
