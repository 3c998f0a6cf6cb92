"""Pictures of what the widgets show, for a notebook without a kernel: SVG and HTML, no script.

What is drawn is what the widget would draw first, from the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from devkit.contract.trace_words import duration
from devkit.contract.tracing import Span
from devkit.notebook.display import frame, html_table

if TYPE_CHECKING:
    from devkit.notebook.widgets.trace import Columns

WIDTH, ROW, HEAD = 900, 14, 18
MOST_ROWS = 60

_KINDS = {
    "request": "#7f93b8", "receive": "#9b84c8", "queue": "#d99a3d", "input": "#4fa39c",
    "infer": "#4a90d0", "output": "#6aa86d", "stream": "#6aa86d", "send": "#b06fb3",
    "execute": "#3f88cc", "own": "#d9825f",
}  # fmt: skip
"""Readable on a light ground and on a dark one."""


def timeline(columns: Columns, title: str, summary: str) -> str:
    """All spans in one picture: a row for each level of each lane."""
    words = f"<pre>{escape(summary)}</pre>" if summary else ""
    return frame(_head(title) + _svg(columns) + words, "busy")


def _head(title: str, about: str = "") -> str:
    return (
        f'<div class="devkit-head"><span class="devkit-name">{escape(title)}</span>'
        f'<span class="devkit-dim">{escape(about)}</span></div>'
    )


def _svg(columns: Columns) -> str:
    if not len(columns.start):
        return ""
    first, last = float(columns.start.min()), float(columns.end.max())
    scale = WIDTH / max(last - first, 1.0)
    depth = depths(columns)
    parts: list[str] = []
    top = rows = 0
    seen = ""
    for lane in _lane_order(columns):
        about = columns.lanes[lane]
        process = f"{about['process']} (pid {about['pid']})" if about["pid"] else about["process"]
        if rows >= MOST_ROWS:
            parts.append(f'<text x="4" y="{top + 13}">… more lanes</text>')
            top += HEAD
            break
        if process != seen:
            seen = process
            parts.append(f'<text x="4" y="{top + 13}">{escape(process)}</text>')
            top += HEAD
        mine = columns.lane == lane
        for level in range(int(depth[mine].max()) + 1 if mine.any() else 0):
            chosen = np.flatnonzero(mine & (depth == level))
            parts += _row(columns, chosen, (first, scale), top)
            top += ROW
            rows += 1
    axis = f'<text x="{WIDTH - 4}" y="13" text-anchor="end">{duration(last - first)} in all</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {top + 4}" width="100%" role="img" font-size="11" '
        f'fill="currentColor" style="max-width:{WIDTH}px">{"".join(parts)}{axis}</svg>'
    )


def _lane_order(columns: Columns) -> list[int]:
    """Lanes with those of a process together."""
    processes: dict[int, list[int]] = {}
    for number, lane in enumerate(columns.lanes):
        processes.setdefault(lane["pid"], []).append(number)
    return [number for numbers in processes.values() for number in numbers]


def depths(columns: Columns) -> np.ndarray[Any, np.dtype[np.int32]]:
    """In which row of its lane each span lies: below the one it lies in."""
    order = np.lexsort((-columns.end, columns.start, columns.lane))
    found = np.zeros(len(order), np.int32)
    ends: list[float] = []
    current = -1
    lanes, starts, stops = columns.lane.tolist(), columns.start.tolist(), columns.end.tolist()
    for index in order.tolist():
        if lanes[index] != current:
            current, ends = lanes[index], []
        start = starts[index]
        level = next((depth for depth, end in enumerate(ends) if end <= start), len(ends))
        ends[level : level + 1] = [stops[index]]
        found[index] = level
    return found


def _row(columns: Columns, chosen: Any, place: tuple[float, float], top: int) -> list[str]:
    """Rectangles of a row: at most one a pixel."""
    first, scale = place
    left = (columns.start[chosen] - first) * scale
    width = np.maximum((columns.end[chosen] - columns.start[chosen]) * scale, 1.0)
    order = np.lexsort((-width, np.floor(left)))
    _, kept = np.unique(np.floor(left[order]), return_index=True)
    found = []
    for index in order[kept].tolist():
        span = int(chosen[index])
        kind = columns.kinds[int(columns.kind[span])]
        name = columns.names[int(columns.name[span])]
        x, wide = float(left[index]), float(width[index])
        label = ""
        if wide > 7 * len(name):
            label = f'<text x="{x + 3:.1f}" y="{top + 10}" fill="#fff">{escape(name)}</text>'
        found.append(
            f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{ROW - 2}" '
            f'fill="{_KINDS.get(kind, "#8a9aa3")}"/>{label}'
        )
    return found


def longest(spans: Sequence[Span], most: int = 8) -> str:
    """Where the time of spans went, by name: all that a file of them tells."""
    sums: dict[tuple[str, str], list[int]] = {}
    for span in spans:
        sums.setdefault((span.process, span.name), []).append(span.end - span.start)
    rows = sorted(sums.items(), key=lambda item: -sum(item[1]))[:most]
    return "\n".join(
        f"{process}: {name} {duration(sum(times))}"
        + (f" in {len(times)}, {duration(max(times))} at most" if len(times) > 1 else "")
        for (process, name), times in rows
    )


# --- tensors ------------------------------------------------------------------------------------


def inspection(data: dict[str, Any]) -> str:
    """The cards of an inspection and the entries of a comparison, as `tensors` made them."""
    parts = [_head(data["title"])] if data["title"] else []
    parts += [f'<div class="devkit-note">{escape(note)}</div>' for note in data["notes"]]
    parts += [_card(one) for one in data["tensors"]]
    parts += [_difference(one) for one in data.get("differences", ())]
    worst = {one["verdict"] for one in data.get("differences", ())}
    tone = "bad" if "differs" in worst else "warn" if "close" in worst else "busy"
    return frame("".join(parts), tone)


def _card(one: dict[str, Any]) -> str:
    head = _head(one["name"] or "array", " · ".join(filter(None, (one["kind"], one["part"]))))
    facts = [fact[0] for fact in one["facts"]], [tuple(fact[1] for fact in one["facts"])]
    parts = [head, html_table(*facts, numbers=tuple(range(len(one["facts"]))))]
    if one["note"]:
        parts.append(f'<div class="devkit-dim">{escape(one["note"])}</div>')
    if one["histogram"]:
        parts.append(_bars(one["histogram"]))
    return "".join(parts) + _shown(one["shown"])


def _bars(histogram: dict[str, Any]) -> str:
    counts = histogram["counts"]
    most, step = max(counts, default=0) or 1, 320 / max(len(counts), 1)
    bars = "".join(
        f'<rect x="{index * step:.1f}" y="{40 - 40 * count / most:.1f}" '
        f'width="{max(step - 1, 1):.1f}" height="{40 * count / most:.1f}"/>'
        for index, count in enumerate(counts)
    )
    ends = [f"{histogram['edges'][place]:.4g}" for place in (0, -1)]
    return (
        '<svg viewBox="0 0 320 54" width="320" role="img" font-size="10" '
        f'style="fill:var(--jp-brand-color1,#4a90d0)">{bars}'
        f'<g style="fill:currentColor"><text x="0" y="52">{ends[0]}</text>'
        f'<text x="320" y="52" text-anchor="end">{ends[1]}</text></g></svg>'
    )


def _shown(part: dict[str, Any]) -> str:
    if part.get("picture"):
        one = part["picture"]
        zoom = max(1, 192 // max(one["width"], one["height"]))
        return (
            f'<div><img alt="the tensor as a picture, {one["layout"]}" '
            f'width="{one["width"] * zoom}" height="{one["height"] * zoom}" '
            f'style="image-rendering:pixelated" src="data:image/png;base64,{one["png"]}"/></div>'
            f'<div class="devkit-dim">{one["layout"]} · {escape(one["scaling"])}</div>'
        )
    if part.get("series"):
        text = f"<pre>{escape(part['text'])}</pre>" if part.get("text") else ""
        return _line(part["series"]) + text
    if part.get("table"):
        cells = part["table"]["cells"]
        heads = ["", *(str(index) for index in range(len(cells[0]) if cells else 0))]
        rows = [(str(index), *row) for index, row in enumerate(cells)]
        size = f"{part['table']['rows']} × {part['table']['columns']}"
        return html_table(heads, rows, tuple(range(len(heads)))) + (
            f'<div class="devkit-dim">{size}</div>'
        )
    if part.get("texts"):
        items = "".join(f"<li><code>{escape(one)}</code></li>" for one in part["texts"]["texts"])
        return f'<ol start="0">{items}</ol>'
    return f"<pre>{escape(part['text'])}</pre>" if part.get("text") else ""


def _line(series: dict[str, Any]) -> str:
    pairs = list(zip(series["lowest"], series["highest"], strict=True))
    known = [value for pair in pairs for value in pair if value is not None]
    if not known:
        return '<div class="devkit-dim">no finite value</div>'
    low, span = min(known), (max(known) - min(known)) or 1.0
    step = 600 / max(len(pairs) - 1, 1)
    path, gap = [], True
    for index, (least, most) in enumerate(pairs):
        if least is None or most is None:
            gap = True
            continue
        points = [least] if least == most else [least, most]
        for value in points:
            path.append(
                f"{'M' if gap else 'L'}{index * step:.1f} {82 - 80 * (value - low) / span:.1f}"
            )
            gap = False
    words = f"{series['count']:,} values, {low:.4g} to {max(known):.4g}"
    return (
        '<svg viewBox="0 0 600 100" width="100%" role="img" font-size="11" '
        f'style="max-width:600px"><path d="{"".join(path)}" fill="none" '
        'style="stroke:var(--jp-brand-color1,#4a90d0)"/>'
        f'<text x="0" y="96" fill="currentColor">{words}</text></svg>'
    )


def _difference(one: dict[str, Any]) -> str:
    facts = one["facts"]
    table = html_table([f[0] for f in facts], [tuple(f[1] for f in facts)]) if facts else ""
    detail = f"<div>{escape(one['detail'])}</div>" if one["detail"] else ""
    return _head(one["title"], one["verdict"]) + detail + table


# --- failures and the dashboard ------------------------------------------------------------------


def failures(rows: Sequence[dict[str, Any]], opened: Sequence[dict[str, Any]]) -> str:
    """A list of failures, and the last ones with their traceback and locals."""
    if not rows:
        return frame(_head("Failures", "No execute has raised and no process has died."), "good")
    table = html_table(
        ("number", "time", "instance", "what", "where"),
        [(str(r["number"]), r["clock"], r["instance"], r["what"], r["where"]) for r in rows],
    )
    return frame(_head("Failures") + table + "".join(map(_failure, opened)), "bad")


def _failure(one: dict[str, Any]) -> str:
    info = one["info"]
    parts = [
        _head(f"failure {info['number']}", info["instance"]),
        f"<pre>{escape(one['error'])}</pre>",
    ]
    if info["ending"]:
        parts.append(f'<div class="devkit-note">{escape(info["ending"])}</div>')
    for each in one["frames"]:
        lines = "\n".join(
            f"{'>' if line['number'] == each['line'] else ' '} {line['number']:4} {line['text']}"
            for line in each["source"]
        )
        place = f"{each['file']}:{each['line']} in {each['function']}"
        parts.append(f'<div class="devkit-code">{escape(place)}</div><pre>{escape(lines)}</pre>')
        parts.append(html_table(("local", "value"), list(each["locals"].items())))
    if one["log"]:
        parts.append(f"<pre>{escape(chr(10).join(one['log']))}</pre>")
    return "".join(parts)


def table(title: str, facts: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A heading and rows."""
    numbers = tuple(range(2, len(columns)))
    return _head(title, facts) + (html_table(columns, rows, numbers) if rows else "")
