"""`devkit check-determinism`: whether a model answers the same request the same way."""

from __future__ import annotations

from pathlib import Path

import typer

from devkit.cli.models import NAME
from devkit.cli.process import JSON, WORKSPACE


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check-determinism")(check)


def check(
    name: str = NAME,
    repeats: int = typer.Option(5, "--repeats", "-k", min=2, help="Times each request is asked."),
    requests: int = typer.Option(10, "--requests", "-n", min=1, help="Recorded requests to ask."),
    captures: Path = typer.Option(None, "--captures", help="Recording to ask, of `record`."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Replay recorded requests over instances and batchings; exit status 1 where answers differ."""
    from devkit.cli import output
    from devkit.tools.determinism import check as check_model

    client = output.connect(workspace)
    report = check_model(client, name, repeats=repeats, requests=requests, captures=captures)
    if json:
        output.as_json(report.to_plain())
    else:
        typer.echo(report.text())
    raise typer.Exit(0 if report.deterministic else 1)
