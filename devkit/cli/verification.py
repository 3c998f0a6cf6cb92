"""`devkit verify`, as text: progress, the report, and the exit status it means."""

from __future__ import annotations

from pathlib import Path

import typer

from devkit.errors import ControlError


def run(folder: Path, *, captures: Path | None, workspace: str, yes: bool, json: bool) -> None:
    """Verify an export; leaves with the report's own status."""
    from devkit.cli import output
    from devkit.tools.verify import verify

    try:
        client = output.connect(workspace)
    except ControlError:
        client = None  # the export is verified with the requests it comes with, or generated ones
    report = verify(
        folder,
        captures=captures,
        client=client,
        consent=(lambda _: True) if yes else _ask,
        console=output.console(stderr=True),
    )
    if json:
        typer.echo(report.to_json())
    else:
        output.console().print(report)
    raise typer.Exit(report.exit_code)


def _ask(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # nobody is there to answer
        typer.echo(err=True)
        return False
