"""Commands about models: models, load, unload, reload, scale, config."""

from __future__ import annotations

import typer

from devkit.cli import complete
from devkit.cli.process import JSON, WORKSPACE

NAME = typer.Argument(..., help="Name of the model.", autocompletion=complete.models)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("models")(list_models)
    app.command()(load)
    app.command()(unload)
    app.command()(remove)
    app.command()(reload)
    app.command()(scale)
    app.command()(config)


def list_models(workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """List the models of the repositories, loaded or not."""
    from devkit.cli import output, views

    found = output.connect(workspace).models()
    if json:
        output.as_json(found)
    else:
        views.models(found)


def load(
    name: str = NAME,
    config: str = typer.Option("", "--config", help="File with a config to use for this load."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Load a model, or swap it for what its files say now."""
    from devkit.cli import output

    client = output.connect(workspace)
    _show(client.load(name, _config(config) if config else None), json)


def unload(
    name: str = NAME,
    dependents: bool = typer.Option(False, "--dependents", help="And what an ensemble uses."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Stop serving a model; what runs is finished."""
    from devkit.cli import output

    output.connect(workspace).unload(name, dependents=dependents)
    if json:
        output.as_json({"unloaded": name})


def remove(name: str = NAME, workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """Unload a model that a notebook cell made, and delete its files."""
    from devkit.cli import output

    output.connect(workspace).remove_model(name)
    if json:
        output.as_json({"removed": name})


def reload(name: str = NAME, workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """Start a model afresh and swap it without losing a request, also if no file changed."""
    from devkit.cli import output

    _show(output.connect(workspace).reload(name), json)


def scale(
    name: str = NAME,
    count: int = typer.Argument(..., min=1, help="Number of instances."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Change how many instances a model has, now."""
    from devkit.cli import output

    _show(output.connect(workspace).scale(name, count), json)


def config(name: str = NAME, workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """Print the completed config of a model, as config.pbtxt or as JSON."""
    from devkit.cli import output

    client = output.connect(workspace)
    if json:
        output.as_json(client.config(name))
    else:
        typer.echo(client.config_text(name).rstrip())


def _show(model: object, json: bool) -> None:
    from devkit.cli import output, views
    from devkit.control import messages

    assert isinstance(model, messages.Model)
    if json:
        output.as_json(model)
    else:
        views.models([model])
        views.instances([model])


def _config(path: str) -> dict[str, object]:
    """A config file, as text or JSON, as the JSON a load request carries."""
    from pathlib import Path

    from devkit.contract import config as contract

    text = Path(path).read_text(encoding="utf-8")
    parsed = contract.from_json(text) if path.endswith(".json") else contract.parse(text, path)
    found: dict[str, object] = contract.to_dict(parsed)
    return found
