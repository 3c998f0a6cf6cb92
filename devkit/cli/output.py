"""How results and errors look: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from devkit.errors import ControlError, DevkitError

if TYPE_CHECKING:
    from rich.console import Console

    from devkit.control.client import Client


def connect(workspace: str) -> Client:
    """The client of the running runtime; ControlError (exit status 3) where none runs."""
    from devkit.control.client import connect

    return connect(workspace or None, start=False)


def is_absent(problem: ControlError) -> bool:
    """Whether the error means that no runtime answers, and not that one refused."""
    return problem.message.startswith("no runtime") or "does not answer" in problem.message


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; wide enough for any table where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 200, highlight=False)


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print a table on stdout; columns of `right` are numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for index, title in enumerate(titles):
        made.add_column(title, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    console().print(made)


def _style(cell: str) -> str:
    if cell in ("READY", "ready", "busy"):
        return "green"
    if cell in ("UNAVAILABLE", "dead"):
        return "red"
    return ""


def as_json(value: Any) -> None:
    """Print a value as JSON on stdout; messages and arrays included."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    from devkit.control.messages import to_plain

    return to_plain(value)


def note(text: str) -> None:
    """A sentence for the person at the terminal."""
    print(text, file=sys.stderr)


def failure(problem: DevkitError, *, as_json: bool) -> None:
    """An error: its message, the user's own line, the traceback where there is one, the remedy."""
    if as_json:
        told = {
            "error": problem.message,
            "kind": type(problem).__name__,
            "model": problem.model,
            "instance": problem.instance,
            "line": problem.line,
            "remedy": problem.remedy,
            "traceback": getattr(problem, "traceback", None),
        }
        print(json.dumps(told, indent=2, ensure_ascii=False), file=sys.stderr)
        return
    trace = getattr(problem, "traceback", None)
    if trace:
        print(trace.rstrip(), file=sys.stderr)
    print(f"error: {problem.message.rstrip()}", file=sys.stderr)
    if problem.line:
        print(f"  at {problem.line}", file=sys.stderr)
    if problem.remedy:
        print(f"  {problem.remedy}", file=sys.stderr)


def drop_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def size(count: int) -> str:
    """Bytes for people: `12.3 MiB`; `-` where unknown."""
    if count < 0:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def seconds(value: float) -> str:
    """A duration for people: `73 ms`, `1.4 s`, `4 min`, `3 h 20 min`."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 100:
        return f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
