"""The screen Logs: what the server and the models say, by instance, as it comes; search in it."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from devkit.control import messages
from devkit.tui import words
from devkit.tui.lines import Lines
from devkit.tui.pane import Pane
from devkit.tui.words import Line, Run

_TONES = {"stderr": "warn", "WARNING": "warn", "ERROR": "bad", "CRITICAL": "bad", "FATAL": "bad",
          "VERBOSE": "dim", "DEBUG": "dim"}  # fmt: skip


class LogsPane(Pane):
    """The log."""

    NAME = "logs"
    TITLE = "Logs"
    TOPICS = frozenset({"logs", "snapshot"})
    ABOUT = "What the runtime logs and what models print, each line with the instance it is of."
    START = "#logs-lines"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow", tooltip="Stay at the newest line, or stand still"),
        Binding("i", "instance", "Whose", tooltip="Of the next model or instance; then of all"),
        Binding("a", "all", "All", tooltip="Of all again"),
        Binding("slash", "find", "Search", tooltip="Mark what is found; n and N go on"),
        Binding("n", "next(1)", "Next", tooltip="The next line that was found"),
        Binding("N", "next(-1)", "Before", show=False, tooltip="The one before"),
        Binding("e", "edit", "Edit", show=False, tooltip="Open the line's file in $EDITOR"),
        Binding("c", "copy", "Copy", show=False, tooltip="Copy the line"),
    ]  # fmt: skip

    follows = True
    whose = ("", "")

    def compose(self) -> ComposeResult:
        """The lines, and the search."""
        yield Lines(has_cursor=True, id="logs-lines", classes="box")
        yield Input(placeholder="search; Enter finds, Esc ends", id="logs-find", classes="find")

    # -- drawing ---------------------------------------------------------------------------------

    @property
    def shown(self) -> list[messages.LogLine]:
        """The lines of whom is chosen."""
        model, instance = self.whose
        return [
            one for one in self.store.logs
            if (not model or one.model == model) and (not instance or one.instance == instance)
        ]  # fmt: skip

    def draw(self, topic: str = "") -> None:
        """The lines."""
        if topic == "snapshot":
            return
        view = self.query_one("#logs-lines", Lines)
        shown = self.shown
        search = self.query_one("#logs-find", Input).value
        view.show([self._line(one, search) for one in shown], [one.sequence for one in shown])
        model, instance = self.whose
        view.entitle(instance or model or "Log")
        view.entitle(subtitle=self._subtitle(len(shown)))
        if self.follows and shown:
            self.call_after_refresh(view.point_at, shown[-1].sequence)

    def _subtitle(self, count: int) -> str:
        return "following" if self.follows else f"{count} lines, standing still: f follows"

    def _line(self, one: messages.LogLine, search: str) -> Line:
        tone = _TONES.get(one.stream.upper() if one.stream.isupper() else one.stream, "")
        line: Line = [(words.clock(one.time), "dim"), (" ", "")]
        if not self.whose[1]:
            who = one.instance or one.model or "runtime"
            line.append((f"{words.cut(who, 16):<16} ", "second"))
        line.append((f"{words.cut(one.stream, 7):<7} ", tone or "dim"))
        text = one.text.expandtabs(4)
        return [*line, *_marked(text, search, tone)]

    # -- what the user does ----------------------------------------------------------------------

    def only(self, model: str, instance: str = "") -> None:
        """Of this model or instance alone."""
        self.whose = (model, instance)
        self.draw()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """The user goes up: it stands still. To the end: it follows again."""
        view = event.lines
        if view.has_focus and view.keys:
            follows = view.key == view.keys[-1]
            if follows != self.follows:
                self.follows = follows
                view.entitle(subtitle=self._subtitle(len(view.keys)))

    def action_follow(self) -> None:
        """Follow, or not."""
        self.follows = not self.follows
        self.draw()

    def action_instance(self) -> None:
        """The next of all there is: all, a model, each of its instances, the next model…"""
        choices = [("", "")]
        for model in self.store.snapshot.models if self.store.snapshot else ():
            if model.state:
                choices.append((model.name, ""))
                if len(model.instances) > 1:
                    choices += [(model.name, one.name) for one in model.instances]
        at = choices.index(self.whose) if self.whose in choices else -1
        self.only(*choices[(at + 1) % len(choices)])

    def action_all(self) -> None:
        """Of all."""
        self.only("")

    def action_find(self) -> None:
        """Type what to search."""
        field = self.query_one("#logs-find", Input)
        field.add_class("on")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Mark it as it is typed."""
        self.follows = False
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the nearest one above."""
        self.query_one("#logs-lines").focus()
        self.action_next(-1)

    def on_key(self, event: events.Key) -> None:
        """Escape ends the search."""
        field = self.query_one("#logs-find", Input)
        if event.key == "escape" and field.has_class("on"):
            field.value = ""
            field.remove_class("on")
            self.query_one("#logs-lines").focus()

    def action_next(self, by: int) -> None:
        """The next found line, from the cursor on."""
        search = self.query_one("#logs-find", Input).value.lower()
        view = self.query_one("#logs-lines", Lines)
        found = [one.sequence for one in self.shown if search and search in one.text.lower()]
        if not found:
            self.bench.tell("nothing is found" if search else "/ searches", "warning")
            return
        here = view.key if view.key is not None else -1
        after = [one for one in found if one > here] if by > 0 else [
            one for one in reversed(found) if one < here
        ]  # fmt: skip
        self.follows = False
        view.point_at(after[0] if after else found[0 if by > 0 else -1], middle=True)

    def _chosen(self) -> messages.LogLine | None:
        key = self.query_one("#logs-lines", Lines).key
        return next((one for one in self.store.logs if one.sequence == key), None)

    def action_edit(self) -> None:
        """The line that wrote it."""
        one = self._chosen()
        if one is not None and one.file:
            self.bench.edit(one.file, one.line)
        else:
            self.bench.tell("this line names no file", "warning")

    def action_copy(self) -> None:
        """The line itself."""
        one = self._chosen()
        if one is not None:
            self.bench.copy(one.text, "line")


def _marked(text: str, search: str, tone: str) -> list[Run]:
    if not search:
        return [(text, tone)]
    runs: list[Run] = []
    low, wanted, start = text.lower(), search.lower(), 0
    while (at := low.find(wanted, start)) >= 0:
        runs += [(text[start:at], tone), (text[at : at + len(wanted)], "found")]
        start = at + len(wanted)
    return [*runs, (text[start:], tone)]
