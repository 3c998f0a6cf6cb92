"""`devkit debug`: step through `execute` in a live instance, from the terminal or from VS Code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.cli.stepper import Stepper
    from devkit.control.client import Client

TAKE = typer.Option("", "--take", help="Requests it gets: `next` (to stop), `marked` or `every`.")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(debug)


def debug(
    name: str = typer.Argument("", help="Name of the model."),
    instance: str = typer.Option("", "--instance", help="This instance [any that is free]."),
    version: str = typer.Option("", "--model-version", "--version", help="Version of the model."),
    breaks: list[str] = typer.Option(
        [], "--break", "-b", help="FILE:LINE, or a LINE of model.py; `9 if x > 3`; repeatable."
    ),
    on_execute: bool = typer.Option(False, "--on-execute", help="Stop where execute begins."),
    exceptions: str = typer.Option(
        "", "--exceptions", help="Stop at them: `uncaught`, `raised`, `all` or `none`."
    ),
    take: str = TAKE,
    send: Path = typer.Option(None, "--send", help="Send this request body to it (JSON, KServe)."),
    inputs: list[str] = typer.Option([], "--input", "-i", help="Send NAME=VALUES, as `infer`."),
    sample: bool = typer.Option(False, "--sample", help="Send a request made up from the config."),
    replay: str = typer.Option(
        "", "--replay", help="Send a recorded request: its number or id, a file, `failure:N`."
    ),
    wait: float = typer.Option(None, "--wait", help="Seconds to wait for a stop [forever]."),
    vscode: bool = typer.Option(False, "--vscode", help="Open the model's instances to VS Code."),
    status: bool = typer.Option(False, "--status", help="Show debuggers and breakpoints."),
    detach: bool = typer.Option(False, "--detach", help="End them; the instances go on."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Step through a model's execute in a live instance; the other instances go on serving.

    Commands may be piped in, one a line. `devkit debug MODEL --vscode` for Visual Studio Code.
    """
    from devkit.cli import output

    client = output.connect(workspace)
    if status:
        _status(client, name, json)
        return
    if detach:
        _detach(client, name, json)
        return
    if not name and not replay:
        raise typer.BadParameter("name the model", param_hint="NAME")
    if vscode:
        from devkit.cli import vscode as editor

        editor.run(
            client, name, instance=instance, version=version, take=take or "every", json=json
        )
        return
    from devkit.cli.stepper import Stepper
    from devkit.tools.debugging import announce

    stepper = Stepper(client, name, wait=wait)
    _places(stepper, breaks, on_execute, exceptions)
    with stepper:
        if replay:
            stepper.replay(replay, version=version)
        else:
            arrays = _arrays(client, name, send, inputs, sample)
            announce(client, name, arrays)
            stepper.attach(instance=instance, version=version, take=take or "next")
            if arrays is not None:
                stepper.send(arrays)
        failed = stepper.run()
    raise typer.Exit(1 if failed else 0)


def _places(stepper: Stepper, breaks: list[str], on_execute: bool, exceptions: str) -> None:
    for text in breaks:
        stepper.stop_at(text)
    if on_execute:
        stepper.stop_at("execute")
    if exceptions:
        stepper.exceptions(exceptions)


def _arrays(
    client: Client, name: str, file: Path | None, inputs: list[str], made_up: bool
) -> dict[str, Any] | None:
    """The request to send at once, if one is asked for."""
    from devkit.cli import inference
    from devkit.tools.debugging import sample

    if file is None and not inputs:
        return sample(client, name) if made_up else None
    arrays = inference._read_json(file) if file is not None else {}
    model = client.model(name)
    return arrays | dict(inference._read_input(text, model) for text in inputs)


def _status(client: Client, name: str, json: bool) -> None:
    from devkit.cli import output, stepper_views

    sessions = [each.told for each in client.debug_sessions() if name in ("", each.told.model)]
    points = client.breakpoints()
    if json:
        output.as_json({"sessions": sessions, "breakpoints": points})
        return
    stepper_views.status(sessions, points)


def _detach(client: Client, name: str, json: bool) -> None:
    from devkit.cli import output

    ended = [each for each in client.debug_sessions() if name in ("", each.told.model)]
    for each in ended:
        each.detach()
    if json:
        output.as_json({"detached": [each.told.instance for each in ended]})
        return
    for each in ended:
        typer.echo(f"{each.told.instance} goes on")
    if not ended:
        output.note("no debugger is attached")
