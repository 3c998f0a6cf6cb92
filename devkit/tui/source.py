"""The widget of a source: Python in colours, a margin with breakpoints, the line that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual import events
from textual.message import Message

from devkit.tui.lines import Lines
from devkit.tui.words import Line

MARGIN = 8


class Source(Lines):
    """A file's text. The cursor is where a breakpoint is set; a click in the margin sets one."""

    class Marked(Message):
        """A breakpoint is wanted there, or is not any more."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def __init__(self, **options: Any) -> None:
        super().__init__(has_cursor=True, **options)
        self._text = ""
        self._coloured: list[Line] = []
        self._at: tuple[str, int] = ("", 0)

    def show_source(
        self, file: str, text: str, points: Mapping[int, str], here: int, *, top: bool = True
    ) -> None:
        """Show a file; `points` are breakpoints by line (a sign each), `here` is where it stands.

        `top` says whether `here` is the innermost frame's line.
        """
        if text != self._text or not self._coloured:
            self._text, self._coloured = text, coloured(text)
        lines: list[Line] = []
        for number, code in enumerate(self._coloured, 1):
            stands = number == here
            sign = points.get(number, " ")
            arrow = ("▶" if top else "▷") if stands else " "
            line: Line = [(sign, "bad bold" if sign in "●◆" else "dim"),
                          (f"{number:>5}", "here" if stands else "dim"),
                          (arrow + " ", "accent bold")]  # fmt: skip
            lines.append([*line, *([(_text(code), "bold")] if stands else code)])
        moved = (file, here) != self._at
        self.show(lines, list(range(1, len(lines) + 1)))
        if moved:
            self._at = (file, here)
            if here:
                self.call_after_refresh(self.point_at, here, middle=True)

    def on_click(self, event: events.Click) -> None:
        """In the margin: a breakpoint. Elsewhere: the cursor."""
        at = event.get_content_offset(self)
        number = at.y + int(self.scroll_y) + 1 if at is not None else 0
        if at is not None and at.x < MARGIN - 1 and number <= len(self._coloured):
            event.stop()
            self.post_message(self.Marked(number))
        else:
            super().on_click(event)


def _text(line: Line) -> str:
    return "".join(text for text, _ in line)


def coloured(text: str) -> list[Line]:
    """Python as lines of toned text."""
    from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped,unused-ignore]
    from pygments.token import Token  # type: ignore[import-untyped,unused-ignore]

    def tone(kind: Any) -> str:
        if kind in Token.Keyword or kind in Token.Operator.Word:
            return "keyword"
        if kind in Token.Comment:
            return "comment"
        if kind in Token.Literal.String:
            return "string"
        if kind in Token.Literal.Number:
            return "number"
        if kind in Token.Name.Function or kind in Token.Name.Class:
            return "definition"
        return ""

    lines: list[Line] = [[]]
    for kind, piece in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text.expandtabs(4)):
        name = tone(kind)
        for number, part in enumerate(piece.split("\n")):
            if number:
                lines.append([])
            if part:
                before = lines[-1][-1] if lines[-1] else None
                if before is not None and before[1] == name:
                    lines[-1][-1] = (before[0] + part, name)
                else:
                    lines[-1].append((part, name))
    return lines
