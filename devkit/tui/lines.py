"""The one widget everything is drawn with: lines of toned text that scroll, with a cursor.

Whoever shows something gives all lines again; only those that differ are drawn, so that a screen
over a slow link costs what has changed. `Table` lays out columns, and leaves the less important
ones away where the terminal is narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.markup import escape
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from devkit.tui import themes
from devkit.tui.words import Line, Run

_OWN_GROUND = frozenset({"here", "found", "mark"})  # the cursor does not cover these


class Lines(ScrollView, can_focus=True):
    """Lines that scroll. With `has_cursor`, one of them is chosen, and keys move the cursor.

    Each line has a key; the cursor stays on its key when lines come or go.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    @dataclass
    class Moved(Message):
        """The cursor is on another key."""

        lines: Lines
        key: Any

        @property
        def control(self) -> Lines:
            return self.lines

    @dataclass
    class Chosen(Message):
        """Enter or a second click on a line."""

        lines: Lines
        key: Any

        @property
        def control(self) -> Lines:
            return self.lines

    def __init__(self, *, has_cursor: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.has_cursor = has_cursor
        self.follows = False
        self._lines: list[Line] = []
        self._keys: list[Any] = []
        self._head: Line | None = None
        self._cursor = 0
        self._styles: dict[str, Style] = {}
        self._title = self._subtitle = ""

    # -- what is shown ---------------------------------------------------------------------------

    def show(
        self, lines: Sequence[Line], keys: Sequence[Any] | None = None, head: Line | None = None
    ) -> None:
        """Show these lines; `keys` name them (their number by default), `head` stays above."""
        keys = list(range(len(lines))) if keys is None else list(keys)
        before, old_head, chosen = self._lines, self._head, self.key
        self._lines, self._keys, self._head = list(lines), keys, head
        moved = False
        if self.has_cursor:
            moved = self._keep_cursor(chosen)
        if (
            len(before) != len(lines)
            or (old_head is None) != (head is None)
            or old_head != head
            or moved
        ):
            self._measure()
            self.refresh()
        else:
            changed = [n for n, line in enumerate(self._lines) if before[n] != line]
            if changed:
                self._measure()
            for number in changed:
                self._redraw(number, *_difference(before[number], self._lines[number]))
        if self.follows:
            self.call_after_refresh(self.scroll_end, animate=False)

    def entitle(self, title: str | None = None, subtitle: str | None = None) -> None:
        """What the frame says above and below; the same words again draw nothing."""
        if title is not None and title != self._title:
            self._title = title
            self.border_title = escape(title)
        if subtitle is not None and subtitle != self._subtitle:
            self._subtitle = subtitle
            self.border_subtitle = escape(subtitle)

    def _keep_cursor(self, chosen: Any) -> bool:
        """Put the cursor on the key it was on, or near; whether that is another line."""
        old = self._cursor
        if chosen in self._keys:
            self._cursor = self._keys.index(chosen)
        self._cursor = max(0, min(self._cursor, len(self._keys) - 1))
        if self.key != chosen:
            self.post_message(self.Moved(self, self.key))
        return old != self._cursor

    def _measure(self) -> None:
        width = max((sum(cell_len(text) for text, _ in line) for line in self._lines), default=0)
        self.virtual_size = Size(width, len(self._lines) + self._above)

    @property
    def _above(self) -> int:
        return 0 if self._head is None else 1

    def _redraw(self, number: int, left: int = 0, right: int = 1 << 16) -> None:
        """Draw a line anew, or the cells of it from `left` to `right`."""
        top = number + self._above - int(self.scroll_y)
        left = max(0, left - int(self.scroll_x))
        right = min(self.size.width, right - int(self.scroll_x))
        if self._above <= top < self.size.height and left < right:
            self.refresh(Region(left, top, right - left, 1))

    @property
    def key(self) -> Any:
        """Key of the line under the cursor, None where there is none."""
        return self._keys[self._cursor] if 0 <= self._cursor < len(self._keys) else None

    @property
    def keys(self) -> list[Any]:
        """The keys of all lines."""
        return self._keys

    @property
    def text(self) -> str:
        """All lines as plain text."""
        return "\n".join("".join(text for text, _ in line) for line in self._lines)

    def point_at(self, key: Any, *, middle: bool = False) -> None:
        """Put the cursor on a key and scroll there."""
        if key in self._keys:
            self._go(self._keys.index(key), middle=middle)

    def show_line(self, number: int) -> None:
        """Scroll a line into the middle, without a cursor."""
        room = max(1, self.size.height - self._above)
        if not self.scroll_y <= number < self.scroll_y + room:
            self.scroll_to(y=max(0, number - room // 2), animate=False)

    # -- moving ----------------------------------------------------------------------------------

    def _go(self, number: int, *, middle: bool = False) -> None:
        if not self._keys:
            return
        number = max(0, min(number, len(self._keys) - 1))
        old, self._cursor = self._cursor, number
        self._redraw(old)
        self._redraw(number)
        room = max(1, self.size.height - self._above)
        top = int(self.scroll_y)
        if middle and not top <= number < top + room:
            self.scroll_to(y=max(0, number - room // 2), animate=False)
        elif number < top:
            self.scroll_to(y=number, animate=False)
        elif number >= top + room:
            self.scroll_to(y=number - room + 1, animate=False)
        if old != number:
            self.post_message(self.Moved(self, self.key))

    def action_move(self, by: int) -> None:
        """One line up or down."""
        if self.has_cursor:
            self._go(self._cursor + by)
        else:
            self.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        """A page up or down."""
        room = max(1, self.size.height - self._above)
        if self.has_cursor:
            self._go(self._cursor + by * room)
        else:
            self.scroll_relative(y=by * room, animate=False)

    def action_edge(self, last: int) -> None:
        """To the first or the last line."""
        if self.has_cursor:
            self._go(len(self._keys) - 1 if last else 0)
        elif last:
            self.scroll_end(animate=False)
        else:
            self.scroll_home(animate=False)

    def action_choose(self) -> None:
        """Open what the cursor is on."""
        if self.has_cursor and self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor there, one more opens it."""
        at = event.get_content_offset(self)  # inside the frame
        if at is None or not self.has_cursor or at.y < self._above:
            return
        number = at.y - self._above + int(self.scroll_y)
        if number >= len(self._keys):
            return
        again = number == self._cursor
        self._go(number)
        if again or event.chain > 1:
            self.post_message(self.Chosen(self, self.key))

    # -- drawing ---------------------------------------------------------------------------------

    def notify_style_update(self) -> None:
        """Another theme: forget the styles of the old one."""
        self._styles = {}
        super().notify_style_update()

    def on_focus(self) -> None:
        """The cursor is bright where the keys go."""
        self._redraw(self._cursor)

    def on_blur(self) -> None:
        """And faint where they do not."""
        self._redraw(self._cursor)

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        if self.has_cursor:
            self._go(self._cursor)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self.size.width
        base = self.rich_style
        if self._head is not None and y == 0:
            return self._strip(self._head, base + self._style("head"), int(self.scroll_x), width)
        number = y - self._above + int(self.scroll_y)
        if not 0 <= number < len(self._lines):
            return Strip.blank(width, base)
        style = base
        if self.has_cursor and number == self._cursor and self.key is not None:
            style = base + self._style("cursor" if self.has_focus else "rest")
            return self._strip(self._lines[number], style, int(self.scroll_x), width, over=style)
        return self._strip(self._lines[number], style, int(self.scroll_x), width)

    def _strip(
        self, line: Line, base: Style, left: int, width: int, over: Style | None = None
    ) -> Strip:
        segments = []
        for text, tones in line:
            style = base
            for tone in tones.split():
                style = style + self._style(tone)
            if over is not None and not _OWN_GROUND.intersection(tones.split()):
                style = style + Style(bgcolor=over.bgcolor)
            segments.append(Segment(text, style))
        return Strip(segments).crop_extend(left, left + width, base)

    def _style(self, tone: str) -> Style:
        known = self._styles.get(tone)
        if known is None:
            known = self._styles[tone] = themes.style(tone, self.app.theme_variables)
        return known


def _difference(old: Line, new: Line) -> tuple[int, int]:
    """From which cell to which two lines differ."""
    before, after = _cells(old), _cells(new)
    left = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        left += 1
    if len(before) != len(after):
        return left, max(len(before), len(after))
    right = len(after)
    while right > left and before[right - 1] == after[right - 1]:
        right -= 1
    return left, right


def _cells(line: Line) -> list[Run]:
    """A cell for each; a wide character has two, the second empty."""
    cells: list[Run] = []
    for text, tones in line:
        for char in text:
            cells.append((char, tones))
            cells += [("", tones)] * (cell_len(char) - 1)
    return cells


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        width: at least so wide; it grows with what is in it, up to `most`.
        keep: columns with the lowest number go first where there is no room.
        fills: takes what is left.
    """

    title: str
    width: int = 0
    right: bool = False
    keep: int = 9
    most: int = 60
    fills: bool = False


Cell = str | Run | Line


class Table(Lines):
    """Lines in columns, under a head of titles."""

    def __init__(self, columns: Sequence[Column], **options: Any) -> None:
        super().__init__(has_cursor=True, **options)
        self.columns = tuple(columns)
        self._rows: list[tuple[Any, list[Cell]]] = []
        self.empty = ""

    def show_rows(self, rows: Sequence[tuple[Any, Sequence[Cell]]]) -> None:
        """Show these rows: a key and a cell for each column."""
        self._rows = [(key, list(cells)) for key, cells in rows]
        self._lay_out()

    def on_resize(self) -> None:
        """Columns come and go with the width."""
        self._lay_out()
        super().on_resize()

    def _lay_out(self) -> None:
        if not self._rows:
            self.show(
                [[(f" {self.empty}", "dim")]] if self.empty else [], [None] * bool(self.empty)
            )
            return
        laid = [[_line(cell) for cell in cells] for _, cells in self._rows]
        room = max(20, self.scrollable_content_region.width or self.size.width or 80)
        widths = _widths(self.columns, laid, room)
        head: Line = [(" ", "")]
        for number, column in enumerate(self.columns):
            if widths[number]:
                head += _fit([(column.title, "head")], widths[number], column.right)
                head.append((" ", ""))
        lines = []
        for cells in laid:
            line: Line = [(" ", "")]
            for number, column in enumerate(self.columns):
                if widths[number]:
                    line += _fit(cells[number], widths[number], column.right)
                    line.append((" ", ""))
            lines.append(line)
        self.show(lines, [key for key, _ in self._rows], head)


def _line(cell: Cell) -> Line:
    if isinstance(cell, str):
        return [(cell, "")]
    return [cell] if isinstance(cell, tuple) else cell


def _length(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Line]], room: int) -> list[int]:
    """How wide each column is; 0 for one that has no room."""
    widths = []
    for number, column in enumerate(columns):
        longest = max((_length(row[number]) for row in rows), default=0)
        if column.fills:
            longest = 0  # it gets what the others leave
        widths.append(min(max(column.width, longest, cell_len(column.title)), column.most))

    def needed() -> int:
        return 1 + sum(one + 1 for one in widths if one)

    while needed() > room:
        there = [number for number, width in enumerate(widths) if width]
        goes = min(there, key=lambda number: (columns[number].keep, -number))
        if columns[goes].keep >= 9:
            break
        widths[goes] = 0
    fills = [number for number, column in enumerate(columns) if column.fills and widths[number]]
    for number in fills[:1]:
        widths[number] = max(4, columns[number].width, widths[number] + room - needed())
    return widths


def _fit(line: Line, width: int, right: bool) -> Line:
    """The line in exactly so many cells."""
    length = _length(line)
    if length <= width:
        blank = (" " * (width - length), "")
        return [blank, *line] if right else [*line, blank]
    made: Line = []
    room = width - 1
    for text, tones in line:
        taken = min(room, cell_len(text))
        made.append((set_cell_size(text, taken), tones))
        room -= taken
        if room <= 0:
            break
    return [*made, ("…", "dim")]
