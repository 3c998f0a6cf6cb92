"""The widget of a timeline: lanes of bars over a ruler, with a window to zoom and to move.

What lies where is `layout`'s business, which is pure; the widget keeps the window and the chosen
span, and has lines drawn.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from devkit.contract.tracing import Span
from devkit.tui import words
from devkit.tui.lines import Lines
from devkit.tui.words import Line

if TYPE_CHECKING:
    from devkit.control.tracing import Traces

LABEL = 18
_SMALLEST = 1_000  # nanoseconds that a window shows at least
_TONES = {"request": "bar-request", "queue": "bar-queue", "infer": "bar-infer",
          "execute": "bar-execute", "own": "bar-own"}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the chart: bars that never overlap, ordered by start."""

    label: str
    tone: str
    spans: tuple[Span, ...]


def layout(spans: Sequence[Span]) -> list[Row]:
    """The lines of a chart: for each process and lane, one line for each depth of nesting."""
    lanes: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        lanes.setdefault((span.pid, span.lane), []).append(span)
    rows: list[Row] = []
    seen: set[int] = set()
    for (pid, _), inside in lanes.items():
        levels: list[list[Span]] = []
        ends: list[int] = []
        for span in sorted(inside, key=lambda one: (one.start, -one.end)):
            while ends and ends[-1] <= span.start:
                ends.pop()
            depth = len(ends)
            ends.append(span.end)
            while len(levels) <= depth:
                levels.append([])
            levels[depth].append(span)
        for depth, level in enumerate(levels):
            first = level[0]
            label = first.process if pid not in seen and first.kind != "request" else (
                first.lane_name if depth == 0 else ""
            )  # fmt: skip
            rows.append(Row(label, "bold" if pid not in seen else "dim", tuple(level)))
            seen.add(pid)
    return rows


def bar_line(row: Row, start: float, end: float, width: int, chosen: Span | None) -> Line:
    """A row's bars between two moments in so many cells; those that share a cell are merged."""
    texts = [" "] * width
    tones = [""] * width
    scale = width / (end - start)

    def paint(span: Span, after: int) -> int:
        first = int((span.start - start) * scale)
        left, right = (
            max(after, first),
            min(width, max(first + 1, round((span.end - start) * scale))),
        )
        if span.end > start and left < right:
            tone = "bar-chosen" if span == chosen else _TONES.get(span.kind, "bar-phase")
            texts[left:right] = _bar(span, right - left)
            tones[left:right] = [tone] * (right - left)
        return max(after, right)

    taken = 0
    starts = [span.start for span in row.spans]
    begin = max(0, bisect.bisect_right(starts, start) - 1)
    until = bisect.bisect_left(starts, end)
    for span in row.spans[begin:until]:
        taken = paint(span, taken)
    if chosen is not None and chosen in row.spans[begin:until]:
        paint(chosen, 0)
    line: Line = []
    for tone, cells in groupby(zip(texts, tones, strict=True), key=lambda cell: cell[1]):
        line.append(("".join(text for text, _ in cells), tone))
    return line


def _bar(span: Span, width: int) -> str:
    """What is written in a bar: a mark at its left end, its name, and how long it took."""
    took = words.seconds((span.end - span.start) / 1e9)
    text = f"▏{span.name} {took}"
    if len(text) > width:
        text = f"▏{span.name}"
    return (words.cut(text, width) if width > 4 else text[:width]).ljust(width)


_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def ruler(start: float, end: float, origin: float, width: int) -> Line:
    """Times above the bars, at round steps."""
    step = _round_step((end - start) / max(1, width / 14))
    scale = width / (end - start)
    unit, name = next((size, word) for size, word in _UNITS if step >= size)
    text = [" "] * width
    first = int((start - origin) / step)
    for number in range(first, first + width):
        moment = origin + number * step
        left = int((moment - start) * scale)
        if moment > end:
            break
        if left < 0:
            continue
        label = f"╷{(moment - origin) / unit:,.0f} {name}"
        if left + len(label) <= width:
            text[left : left + len(label)] = label
    return [("".join(text), "head")]


def _round_step(wanted: float) -> float:
    step = 1.0
    while step * 10 <= wanted:
        step *= 10
    return next(step * times for times in (1, 2, 5, 10) if step * times >= wanted)


class Timeline(Lines):
    """Lanes of spans. Left and right go from span to span, up and down from line to line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "beside(-1)", "Span before", show=False),
        Binding("right", "beside(1)", "Next span", show=False),
        Binding("up,k", "move(-1)", "Line above", show=False),
        Binding("down,j", "move(1)", "Line below", show=False),
        Binding("enter", "enter", "Fit", show=False),
    ]

    class Changed(Message):
        """Another span is chosen, or the window shows another part."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first = 0
        self.last = 1
        self.chosen: Span | None = None
        self._traces: Traces | None = None
        self._rows: list[Row] = []
        self._row = 0
        self._start = 0.0
        self._end = 1.0

    @property
    def window(self) -> str:
        """What part is shown, in words."""
        if not self._rows:
            return ""
        whole = self.last - self.first
        shown = self._end - self._start
        return f"{words.seconds(shown / 1e9)} of {words.seconds(whole / 1e9)}"

    def load(self, traces: Traces | None) -> None:
        """Show these traces; the same ones as before keep window and choice."""
        if traces is not self._traces:
            self._traces = traces
            spans = traces.spans if traces else []
            self._rows = layout(spans)
            requests = [one for one in spans if one.kind == "request"]
            self.chosen = max(requests, key=lambda one: one.end - one.start, default=None)
            self._row = next((n for n, row in enumerate(self._rows) if self.chosen in row.spans), 0)
            self.first = min((one.start for one in spans), default=0)
            self.last = max([one.end for one in spans] + [self.first + _SMALLEST])
            self._start, self._end = float(self.first), float(self.last)
            if sum(one.end - one.start for one in requests) < (self.last - self.first) / 5:
                self.fit_chosen()  # mostly nothing: begin with the slowest request
        self._render_rows()

    def on_resize(self) -> None:
        """Bars fill the width."""
        self._render_rows()

    def _render_rows(self) -> None:
        width = max(10, self.scrollable_content_region.width - LABEL - 1)
        if not self._rows:
            self.show([])
            return
        head: Line = [(" " * LABEL, ""), *ruler(self._start, self._end, self.first, width)]
        lines: list[Line] = []
        for number, row in enumerate(self._rows):
            sign = "›" if number == self._row else " "
            label = words.cut(row.label, LABEL - 2)
            line: Line = [(sign, "accent"), (f"{label:<{LABEL - 1}}", row.tone)]
            lines.append([*line, *bar_line(row, self._start, self._end, width, self.chosen)])
        self.show(lines, head=head)

    # -- the window ------------------------------------------------------------------------------

    def _look(self, start: float, end: float) -> None:
        length = max(float(_SMALLEST), min(end - start, float(self.last - self.first)))
        start = max(float(self.first), min(start, self.last - length))
        self._start, self._end = start, start + length
        self._render_rows()
        self.post_message(self.Changed())

    def zoom(self, times: float) -> None:
        """A shorter or a longer part, around the chosen span if it is in sight."""
        middle = (self._start + self._end) / 2
        if self.chosen is not None:
            at = (self.chosen.start + self.chosen.end) / 2
            middle = at if self._start <= at <= self._end else middle
        length = (self._end - self._start) / times
        share = (middle - self._start) / (self._end - self._start)
        self._look(middle - length * share, middle + length * (1 - share))

    def pan(self, share: float) -> None:
        """Move by a share of the window."""
        by = (self._end - self._start) * share
        self._look(self._start + by, self._end + by)

    def fit(self) -> None:
        """All of it."""
        self._look(self.first, self.last)

    def fit_chosen(self) -> None:
        """The chosen span, and a little around it."""
        if self.chosen is not None:
            room = max((self.chosen.end - self.chosen.start) * 0.1, 1.0)
            self._look(self.chosen.start - room, self.chosen.end + room)

    # -- choosing --------------------------------------------------------------------------------

    def _choose(self, row: int, span: Span) -> None:
        self._row, self.chosen = row, span
        if span.end < self._start or span.start > self._end:
            length = self._end - self._start
            middle = (span.start + span.end) / 2
            self._look(middle - length / 2, middle + length / 2)
        else:
            self._render_rows()
            self.post_message(self.Changed())
        self.show_line(row)

    def action_beside(self, by: int) -> None:
        """The span before or after, of the same line."""
        if not self._rows or self.chosen is None:
            return
        spans = self._rows[self._row].spans
        at = spans.index(self.chosen) + by
        if 0 <= at < len(spans):
            self._choose(self._row, spans[at])

    def action_move(self, by: int) -> None:
        """The nearest span of the line above or below."""
        row = self._row + by
        if not 0 <= row < len(self._rows) or self.chosen is None:
            return
        middle = (self.chosen.start + self.chosen.end) / 2
        spans = self._rows[row].spans
        near = min(spans, key=lambda one: max(one.start - middle, middle - one.end, 0))
        self._choose(row, near)

    def action_enter(self) -> None:
        """The chosen span fills the window."""
        self.fit_chosen()

    def on_click(self, event: events.Click) -> None:
        """Choose the span that is there; twice: it fills the window."""
        at = event.get_content_offset(self)
        row = at.y - 1 + int(self.scroll_y) if at is not None else -1
        if at is None or not 0 <= row < len(self._rows) or at.x < LABEL:
            return
        width = max(10, self.scrollable_content_region.width - LABEL - 1)
        scale = (self._end - self._start) / width
        moment = self._start + (at.x - LABEL + 0.5) * scale
        spans = self._rows[row].spans
        near = min(spans, key=lambda one: max(one.start - moment, moment - one.end, 0))
        self._choose(row, near)
        if event.chain > 1:
            self.fit_chosen()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Ctrl and the wheel zoom."""
        if event.ctrl:
            event.stop()
            self.zoom(1.5)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """And out again."""
        if event.ctrl:
            event.stop()
            self.zoom(1 / 1.5)
