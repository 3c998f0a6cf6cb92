"""`devkit adopt`: a first model of what somebody has already."""

from __future__ import annotations

from pathlib import Path

import typer

from devkit.cli.process import JSON


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(adopt)


def adopt(
    path: Path = typer.Argument(..., help="A .py, .pt, .pth, .pkl, .safetensors or .onnx file."),
    into: Path = typer.Argument(Path("models"), help="Model repository to write it into."),
    name: str = typer.Option("", "--name", help="Name of the model [the file's]."),
    entry: str = typer.Option(
        "", "--entry", help="Function, class or handler; net.py:Net for weights alone."
    ),
    input: list[str] = typer.Option(
        [], "--input", help="NAME=FP32:4,-1 where it can't be guessed."
    ),
    weights: Path = typer.Option(None, "--weights", help="Weights of a class in a .py file."),
    python: str = typer.Option("", "--python", help="Interpreter that has its packages."),
    json: bool = JSON,
) -> None:
    """Make a model of a function, a PyTorch network, an ONNX file or a FastAPI handler.

    Writes model.py and config.pbtxt that run as they are; the file is run once to see what it
    answers.
    """
    import dataclasses

    from devkit.cli import output
    from devkit.tools.adopt import adopt as make

    made = make(path, into, name=name, entry=entry, inputs=input, weights=weights, python=python)
    if json:
        output.as_json({**dataclasses.asdict(made), "folder": str(made.folder)})
        return
    typer.echo(made.text())
    output.note(f"serve it: devkit serve --model-repository {made.folder.parent}")
