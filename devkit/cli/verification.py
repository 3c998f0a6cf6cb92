"""`devkit verify`, as text: progress, the report, and the exit status it means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from devkit.errors import ControlError


def run(
    folder: Path,
    *,
    captures: Path | None,
    generated: bool,
    url: str,
    grpc_url: str,
    docker: str,
    varies: Sequence[str],
    html: Path | None,
    out: Path | None,
    workspace: str,
    yes: bool,
    json: bool,
) -> None:
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
        progress=output.note,
        generated=generated,
        url=url,
        grpc_url=grpc_url,
        docker=docker,
        varies=varies,
    )
    if html is not None:
        from devkit.tools.verify_page import page

        html.write_text(page(report), "utf-8")
    if out is not None:
        out.write_text(report.to_json(), "utf-8")
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
