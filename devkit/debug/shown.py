"""What of a stopped process is worth a line: source, places, variables, tensors, as plain text.

For every face that shows a debugger. Pure, but for reading a source that is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from devkit.control.messages import Breakpoint, DebugSession, TensorSummary, Variable
from devkit.debug.sources import text_of

AROUND = 5
"""Lines of source above and below the one that is looked at."""

_LONGEST = 400
_OBJECT = re.compile(r"<(?:[\w.]+\.)?(\w+) object at 0x[0-9a-f]+>")
_REMARK = re.compile(r"\s+\(note: full exception trace is shown[^)]*\)| \(Current frame\)")
_REASONS = {
    "breakpoint": "at a breakpoint",
    "step": "after a step",
    "exception": "at an exception",
    "pause": "paused",
    "entry": "at the entry",
    "goto": "moved to another line",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of source; `mark` is that of a breakpoint, empty where there is none."""

    number: int
    text: str
    here: bool = False
    mark: str = ""


def excerpt(
    path: str,
    line: int,
    breakpoints: Iterable[Breakpoint] = (),
    *,
    first: int = 0,
    last: int = 0,
) -> list[Line]:
    """The lines around `line` (or from `first` to `last`), with the breakpoints among them."""
    lines = text_of(path).splitlines()
    first = max(first or line - AROUND, 1)
    last = min(last or line + AROUND, len(lines))
    marks = {each.line: mark(each) for each in breakpoints if each.path == path}
    return [
        Line(number, lines[number - 1].replace("\t", "    "), number == line, marks.get(number, ""))
        for number in range(first, last + 1)
    ]


def mark(breakpoint: Breakpoint) -> str:
    """One character for a breakpoint: ● stops, ◆ under a condition, ◇ logs, ○ is switched off."""
    if not breakpoint.enabled:
        return "○"
    if breakpoint.log:
        return "◇"
    return "◆" if breakpoint.condition or breakpoint.hits else "●"


def place(line: str) -> tuple[str, int]:
    """`path:line` as its two parts."""
    path, _, number = line.rpartition(":")
    return (path, int(number)) if number.isdigit() else (line, 0)


def why(told: DebugSession) -> str:
    """How a session is, in a few words."""
    if told.state == "stopped":
        reason = _REASONS.get(told.reason, told.reason)
        return f"stopped {reason}" if reason else "stopped"
    if told.state == "ended":
        return f"ended: {told.reason}" if told.reason else "ended"
    if told.state == "waiting":
        return told.reason or "waits for its process"
    return told.state


def clean(text: str) -> str:
    """What the debugger says of an exception, without its own remarks."""
    return _REMARK.sub("", text)


def requests(told: DebugSession) -> str:
    """For whom it runs: `request 'a'`, `2 requests`, nothing where that is unknown."""
    named = [f"'{each}'" for each in told.requests if each]
    if len(told.requests) > 1:
        return f"{len(told.requests)} requests" + (f" ({', '.join(named)})" if named else "")
    return f"request {named[0]}" if named else ""


def takes(told: DebugSession) -> str:
    """Which requests the instance gets, as a sentence's end."""
    return {
        "marked": "requests that ask for it (`debug=True`, the header `devkit-debug: 1`)",
        "next": "the next request that stops somewhere",
        "every": "every request while it is idle",
    }.get(told.take, told.take)


def tensor(summary: TensorSummary, *, preview: bool = True) -> str:
    """`float32[2, 3] 0 … 5, mean 2.5, 1 NaN  [0.0, 1.0, 2.0, …]`."""
    parts = [f"{summary.dtype}{list(summary.shape)}"]
    if summary.device and summary.device != "cpu":
        parts.append(f"on {summary.device}")
    facts = []
    if summary.min is not None and summary.min == summary.max:
        facts.append(f"all {summary.min:.6g}")
    elif summary.min is not None and summary.max is not None:
        facts.append(f"{summary.min:.6g} … {summary.max:.6g}")
        if summary.mean is not None:
            facts.append(f"mean {summary.mean:.6g}")
    if summary.nan:
        facts.append(f"{summary.nan} NaN")
    if summary.inf:
        facts.append(f"{summary.inf} Inf")
    if facts:
        parts.append(", ".join(facts))
    if preview and summary.preview:
        count = 1
        for extent in summary.shape:
            count *= extent
        more = ", …" if count > len(summary.preview) else ""
        parts.append(f" [{', '.join(_element(each) for each in summary.preview)}{more}]")
    return " ".join(parts)


def _element(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def value(variable: Variable, longest: int = _LONGEST) -> str:
    """A value in one line; of a tensor what it is, and its first elements."""
    if variable.tensor is not None:
        return tensor(variable.tensor)
    text = _OBJECT.sub(r"<\1>", " ".join(variable.value.split()))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def kind(variable: Variable) -> str:
    """The type of a value, without the modules it comes from."""
    return variable.type.rpartition(".")[2]


def own(variables: Iterable[Variable]) -> list[Variable]:
    """Without what the debugger adds: `special variables`, and the value of the last `return`."""
    return [
        each for each in variables
        if not (each.name.endswith(" variables") and not each.type)
    ]  # fmt: skip


def describe(breakpoint: Breakpoint, folder: str = "") -> str:
    """Where a breakpoint is and when it stops: `model.py:9 if x > 3, hits >= 2`."""
    where = f"the execute of {breakpoint.model}"
    if breakpoint.path:
        path = breakpoint.path
        if folder and path.startswith(f"{folder}/"):
            path = path[len(folder) + 1 :]
        where = f"{path}:{breakpoint.line}"
    parts = [where]
    if breakpoint.condition:
        parts.append(f"if {breakpoint.condition}")
    if breakpoint.hits:
        parts.append(f"hits {breakpoint.hits}")
    if breakpoint.log:
        parts.append(f"logs {breakpoint.log!r}")
    if not breakpoint.enabled:
        parts.append("(off)")
    elif breakpoint.text:
        parts.append(f"({breakpoint.text})")
    return " ".join(parts)
