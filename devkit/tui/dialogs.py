"""Small windows above a screen: a text to read, a line to type, a question to answer, the help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from devkit.tui.lines import Lines
from devkit.tui.words import Line


class Note(ModalScreen[None]):
    """Something to read; any of the usual keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "Close"),
    ]

    def __init__(self, title: str, lines: Sequence[Line], indent: int = 0) -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)
        self._indent = indent

    def compose(self) -> ComposeResult:
        """A title, the lines, and how it closes."""
        with Vertical(classes="dialog"):
            yield Static(self._title, classes="dialog-title", markup=False)
            yield Lines(id="note")
            yield Static("Esc closes", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        """Show the lines, wrapped to the window."""
        self._wrap()

    def on_resize(self) -> None:
        """Wrap them again."""
        self._wrap()

    def _wrap(self) -> None:
        shown = self.query_one("#note", Lines)
        width = min(self.size.width * 9 // 10, 124) - 5  # the frame, its padding, a scroll bar
        shown.show(wrapped(self._lines, max(20, width), self._indent))
        shown.focus()


class Ask(ModalScreen[str | None]):
    """A line to type; Enter gives it, Escape nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, question: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._question, self._value, self._hint = question, value, hint

    def compose(self) -> ComposeResult:
        """The question and the line."""
        with Vertical(classes="dialog short"):
            yield Static(self._question, classes="dialog-title", markup=False)
            yield Input(self._value)
            hint = self._hint or "Enter takes it, Esc cancels"
            yield Static(hint, classes="dialog-hint", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Done."""
        self.dismiss(event.value)


class Confirm(ModalScreen[bool]):
    """A question of yes and no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question, and what answers it."""
        with Vertical(classes="dialog short"):
            yield Static(self._question, markup=False)
            yield Static("y yes · n no", classes="dialog-hint")


HELP_INDENT = 16


def help_lines(about: str, groups: Sequence[tuple[str, Sequence[Any]]]) -> list[Line]:
    """The keys of each group as lines; a group is a title and bindings."""
    lines: list[Line] = [[(about, "")], []]
    for title, bindings in groups:
        lines.append([(title, "bold accent")])
        for one in bindings:
            if not isinstance(one, Binding) or not one.description or one.system:
                continue
            keys = ", ".join(key_name(key) for key in one.key.split(","))
            told = one.tooltip or one.description
            lines.append([(f"  {one.key_display or keys:<13} ", "second"), (told, "")])
        lines.append([])
    return lines


def key_name(key: str) -> str:
    """A key as people call it."""
    names = {
        "question_mark": "?", "plus": "+", "minus": "-", "slash": "/", "enter": "Enter",
        "escape": "Esc", "space": "Space", "left_square_bracket": "[", "equals_sign": "=",
        "right_square_bracket": "]", "delete": "Del", "f23": "Shift+F11", "left": "←",
        "right": "→", "up": "↑", "down": "↓", "full_stop": ".",
    }  # fmt: skip
    if key in names:
        return names[key]
    if "+" in key:
        head, _, last = key.rpartition("+")
        return f"{head.title()}+{names.get(last, last.upper())}"
    return key.upper() if key[0] == "f" and key[1:].isdigit() else key


def wrapped(lines: Sequence[Line], width: int, indent: int = 0) -> list[Line]:
    """The lines, those too long cut between words into several; tones stay with the words.

    What follows a cut begins `indent` cells to the right, in lines that are indented themselves.
    """
    made: list[Line] = []
    for line in lines:
        if sum(len(text) for text, _ in line) <= width:
            made.append(line)
            continue
        hang = indent if line[0][0].startswith("  ") else 0
        start: Line = [(" " * hang, "")] if hang else []
        current: Line = []
        room = width
        for text, tones in line:
            for word in re.findall(r"\s+|\S+", text):
                while len(word) > room:
                    if room >= width - hang:  # longer than a whole line
                        current.append((word[:room], tones))
                        word = word[room:]
                    made.append(current)
                    current, room = list(start), width - hang
                    word = "" if word.isspace() else word
                if word:
                    current.append((word, tones))
                    room -= len(word)
        made.append(current)
    return made


def plain(text: str, tones: str = "") -> list[Line]:
    """A text as lines of one tone."""
    return [[(line.expandtabs(4), tones)] for line in text.splitlines()]
