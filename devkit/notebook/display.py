"""What the magics show: display objects with an HTML and a plain-text form.

Frozen snapshots go in, text comes out; nothing here reads a runtime. Colours come from the theme's
own variables, so that both of JupyterLab's themes and plain browsers show them well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

_STYLE = """<style>
.devkit{font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);
color:var(--jp-ui-font-color1,inherit);border:1px solid var(--jp-border-color2,#8884);
border-left:3px solid var(--devkit-tone);border-radius:4px;
padding:8px 12px;max-width:760px;margin:2px 0}
.devkit .devkit-head{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:baseline}
.devkit .devkit-name{font-weight:600;font-size:14px}
.devkit .devkit-state{color:var(--devkit-tone);font-weight:600;font-size:12px}
.devkit .devkit-dim{color:var(--jp-ui-font-color2,#777);font-size:12px}
.devkit table.devkit-table{border-collapse:collapse;margin:6px 0 2px;font-size:12px;border:0}
.devkit table.devkit-table :is(th,td){text-align:left;
padding:1px 18px 1px 0;border:0;background:none}
.devkit table.devkit-table th{font-weight:400;white-space:nowrap;
color:var(--jp-ui-font-color2,#777)}
.devkit table.devkit-table .devkit-num{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}
.devkit .devkit-code{font-family:var(--jp-code-font-family,monospace);font-size:12px}
.devkit .devkit-note{margin-top:4px;font-size:12px}
.devkit pre{margin:6px 0 2px;font-size:12px;white-space:pre-wrap}
</style>"""

_TONES = {
    "good": "var(--jp-success-color1,#2e7d32)",
    "busy": "var(--jp-info-color1,#0277bd)",
    "warn": "var(--jp-warn-color1,#b26a00)",
    "bad": "var(--jp-error-color1,#c62828)",
}


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One stub process as it was when the card was made."""

    name: str
    pid: int
    kind: str
    state: str
    memory: int
    """Resident bytes, 0 where unknown."""


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One input or output: `X FP32[-1, 4]`."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.datatype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """State of one model: `tone` is one of good, busy, warn, bad."""

    name: str
    state: str
    tone: str = "good"
    version: str = ""
    seconds: float | None = None
    instances: Sequence[InstanceRow] = ()
    inputs: Sequence[TensorRow] = ()
    outputs: Sequence[TensorRow] = ()
    notes: Sequence[str] = field(default=())

    def _facts(self) -> list[str]:
        facts = [f"version {self.version}"] if self.version else []
        if self.instances:
            facts.append(_plural(len(self.instances), "instance"))
        if self.seconds is not None:
            facts.append(f"loaded in {duration(self.seconds)}")
        memory = sum(row.memory for row in self.instances)
        if memory and len(self.instances) > 1:
            facts.append(f"{size(memory)} in all")
        return facts

    def __repr__(self) -> str:
        lines = [f"{self.name}: {', '.join([self.state, *self._facts()])}"]
        if self.instances:
            lines += text_table(
                ("instance", "pid", "kind", "state", "memory"),
                [_cells(row) for row in self.instances],
            )
        if self.inputs or self.outputs:
            lines.append(f"  {_signature(self.inputs, self.outputs)}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = (
            f'<span class="devkit-name">{escape(self.name)}</span>'
            f'<span class="devkit-state">{escape(self.state)}</span>'
            f'<span class="devkit-dim">{escape(" · ".join(self._facts()))}</span>'
        )
        parts = [f'<div class="devkit-head">{head}</div>']
        if self.instances:
            parts.append(
                html_table(
                    ("instance", "pid", "kind", "state", "memory"),
                    [_cells(row) for row in self.instances],
                    numbers=(1, 4),
                )
            )
        if self.inputs or self.outputs:
            parts.append(
                f'<span class="devkit-code">{escape(_signature(self.inputs, self.outputs))}</span>'
            )
        parts += [f'<div class="devkit-note">{escape(note)}</div>' for note in self.notes]
        return frame("".join(parts), self.tone)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading: the models of a runtime, its addresses."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    facts: Sequence[str] = ()
    empty: str = ""
    numbers: tuple[int, ...] = ()

    def __repr__(self) -> str:
        lines = [" · ".join([self.title, *self.facts])]
        lines += text_table(self.columns, self.rows) if self.rows else [f"  {self.empty}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = (
            f'<div class="devkit-head"><span class="devkit-name">{escape(self.title)}</span>'
            f'<span class="devkit-dim">{escape(" · ".join(self.facts))}</span></div>'
        )
        if self.rows:
            body = html_table(self.columns, self.rows, self.numbers)
        else:
            body = f'<div class="devkit-note">{escape(self.empty)}</div>'
        return frame(head + body, "busy")


@dataclass(frozen=True, slots=True)
class Note:
    """A few words, and perhaps some text to be shown as it is."""

    title: str
    words: str = ""
    text: str = ""
    tone: str = "busy"

    def __repr__(self) -> str:
        return "\n".join(part for part in (f"{self.title}: {self.words}", self.text) if part)

    def _repr_html_(self) -> str:
        head = (
            f'<div class="devkit-head"><span class="devkit-name">{escape(self.title)}</span>'
            f'<span class="devkit-dim">{escape(self.words)}</span></div>'
        )
        text = f"<pre>{escape(self.text)}</pre>" if self.text else ""
        return frame(head + text, self.tone)


def frame(inner: str, tone: str) -> str:
    """The box every display object shares."""
    return f'{_STYLE}<div class="devkit" style="--devkit-tone:{_TONES[tone]}">{inner}</div>'


def html_table(
    columns: Iterable[str], rows: Iterable[Sequence[str]], numbers: tuple[int, ...] = ()
) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="devkit-num">{escape(cell)}</td>'
            if index in numbers
            else f"<td>{escape(cell)}</td>"
            for index, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<table class="devkit-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [columns, *rows]
    ]


def size(count: int) -> str:
    """Bytes in the unit that keeps the number short: `38 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """Seconds as a person says them: `4.1 ms`, `1.3 s`."""
    if seconds < 1:
        milliseconds = seconds * 1000
        return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"
    return f"{seconds:.1f} s"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cells(row: InstanceRow) -> tuple[str, ...]:
    memory = size(row.memory) if row.memory else "?"
    return (row.name, str(row.pid), row.kind, row.state, memory)


def _signature(inputs: Sequence[TensorRow], outputs: Sequence[TensorRow]) -> str:
    return f"{', '.join(map(str, inputs)) or '?'} → {', '.join(map(str, outputs)) or '?'}"
