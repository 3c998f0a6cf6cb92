"""How the step debugger looks: what rich prints of a stop, of variables and of breakpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.control import messages
from devkit.debug import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def short(path: str) -> str:
    """A path as seen from here, where that is shorter."""
    try:
        near = str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
    return near


def head(told: messages.DebugSession) -> Text:
    """One line: what stopped, where, for whom."""
    from rich.text import Text

    line = Text()
    line.append("● " if told.state == "stopped" else "▶ ", style="bold red")
    line.append(told.instance or told.model, style="bold")
    line.append(f"  {shown.why(told)}")
    if told.line:
        path, number = shown.place(told.line)
        line.append(f"  {short(path)}:{number}", style="cyan")
        if told.function:
            line.append(f" in {shown.clean(told.function)}")
    asked = shown.requests(told)
    if asked:
        line.append(f"  {asked}", style="dim")
    if told.state == "stopped" and told.spare:
        line.append(f"  ({told.spare} serves the others)", style="dim")
    if told.reason == "exception" and told.text:
        line.append(f"\n  {shown.clean(told.text)}", style="red")
    for link in told.chain:
        where = f" at {short(link.line)}" if link.line else ""
        who = f"{link.model} ({link.instance})" if link.instance else link.model
        line.append(f"\n  called by {who}{where}", style="dim")
    if told.callee:
        line.append(f"\n  this line calls the model {told.callee}: `into` stops there", style="dim")
    return line


def source(
    console: Console,
    path: str,
    line: int,
    breakpoints: Sequence[messages.Breakpoint],
    first: int = 0,
    last: int = 0,
) -> bool:
    """Print the lines around one; whether there was any."""
    from rich.syntax import Syntax
    from rich.text import Text

    rows = shown.excerpt(path, line, breakpoints, first=first, last=last)
    code = "\n".join(row.text for row in rows)
    syntax = Syntax(code, "python", theme="ansi_dark", background_color="default")
    coloured = syntax.highlight(code)
    for row, text in zip(rows, coloured.split("\n"), strict=False):
        out = Text(no_wrap=True, overflow="ellipsis")
        out.append(f"{row.mark or ' '} ", style="bold red")
        out.append("→" if row.here else " ", style="bold yellow")
        out.append(f"{row.number:>5}  ", style="bold yellow" if row.here else "dim")
        text.rstrip()
        if row.here:
            text.stylize("bold")
        out.append_text(text)
        console.print(out)
    return bool(rows)


def variables(
    console: Console,
    found: Sequence[messages.Variable],
    *,
    most: int = 0,
    changed: frozenset[str] = frozenset(),
) -> None:
    """Print names and values, tensors with what they are."""
    from rich.table import Table
    from rich.text import Text

    rows = shown.own(found)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="ellipsis", no_wrap=True)
    for each in rows[:most] if most else rows:
        style = "bold yellow" if each.name in changed else "bold"
        table.add_row(
            Text(f"  {each.name}", style), Text(shown.kind(each)), Text(shown.value(each))
        )
    console.print(table)
    if most and len(rows) > most:
        console.print(f"  {len(rows) - most} more: `v` shows all", style="dim")


def stack(
    console: Console, told: messages.DebugSession, frames: Sequence[messages.Frame], at: int
) -> None:
    """Print the stack, the innermost frame first, then the requests it was called for."""
    from rich.text import Text

    for index, frame in enumerate(frames):
        out = Text(no_wrap=True, overflow="ellipsis")
        out.append("→ " if index == at else "  ", style="bold yellow")
        out.append(f"{index:>2}  ", style="dim")
        out.append(shown.clean(frame.name), style="bold" if frame.own else "dim")
        out.append(f"  {short(frame.path)}:{frame.line}", style="cyan" if frame.own else "dim")
        console.print(out)
    for link in told.chain:
        where = f"  {short(link.line)}" if link.line else ""
        who = f" ({link.instance}, pid {link.pid})" if link.instance else ""
        console.print(Text(f"      called by {link.model}{who}{where}", style="magenta"))


def breakpoints(console: Console, found: messages.Breakpoints) -> None:
    """Print all places to stop at."""
    from rich.text import Text

    for each in found.breakpoints:
        out = Text()
        out.append(f"{each.id:>4} ", style="dim")
        out.append(f"{shown.mark(each)} ", style="bold red")
        out.append(shown.describe(each, str(Path.cwd())))
        console.print(out)
    kinds = [word for word in ("raised", "uncaught") if getattr(found, word)]
    if kinds:
        console.print(f"     exceptions: {', '.join(kinds)}")
    if not found.breakpoints and not kinds:
        console.print("no breakpoints: `b 9` stops at line 9 of model.py")


def answer(console: Console, found: dict[str, Any]) -> None:
    """Print what a request of ours was answered."""
    import numpy as np
    from rich.text import Text

    from devkit.control.fast import datatype_of

    for name, array in found.items():
        values = np.array2string(array, threshold=20, max_line_width=console.width - 20)
        title = f"← {name} {datatype_of(name, array)}{list(array.shape)}  {values}"
        console.print(Text(title, style="green"))


def log_line(console: Console, event: messages.Event) -> None:
    """Print a line that the model printed, or that a log point wrote."""
    from rich.text import Text

    clock = time.strftime("%H:%M:%S", time.localtime(event.time))
    console.print(Text(f"  {clock} {event.instance} {event.text}", style="dim"))


def status(sessions: Sequence[messages.DebugSession], points: messages.Breakpoints) -> None:
    """Print every debugger, and all breakpoints."""
    from devkit.cli import output

    console = output.console()
    for told in sessions:
        console.print(head(told))
        if told.state != "stopped":
            console.print(f"  takes {shown.takes(told)}", style="dim")
    if not sessions:
        console.print("no debugger is attached")
    breakpoints(console, points)
