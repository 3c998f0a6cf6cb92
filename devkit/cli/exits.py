"""The way out: export a model for the real server, and prove that it answers alike."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from devkit.cli.process import JSON, WORKSPACE


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(export)
    app.command()(verify)


def export(
    name: str = typer.Argument(..., help="Name of the model."),
    folder: Path = typer.Argument(..., help="Model repository to write it into."),
    force: bool = typer.Option(False, "--force", help="Replace a model that is there."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Write a model as the real Triton server takes it: config.pbtxt, model.py, its own files."""
    from devkit.cli import output
    from devkit.tools.export import export as export_model

    report = export_model(output.connect(workspace), name, folder, force=force)
    if json:
        output.as_json({**dataclasses.asdict(report), "folder": str(report.folder)})
        return
    typer.echo(f"{report.folder}: {report.state}")
    for sentence in report.assumed:
        output.note(f"assumed {sentence}")


def verify(
    folder: Path = typer.Argument(..., help="Exported model repository, or one model of it."),
    captures: Path = typer.Option(None, "--captures", help="Recording to ask, of `record`."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Download the real server unasked."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Ask the real Triton server the recorded requests, and compare what it answers."""
    from devkit.cli import verification

    verification.run(folder, captures=captures, workspace=workspace, yes=yes, json=json)
