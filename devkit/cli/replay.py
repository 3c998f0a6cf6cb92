"""`devkit replay` and `devkit failures`: send again what was recorded, see what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.control.client import Client
    from devkit.tools.inspection import Failed
    from devkit.tools.replay import ReplayReport

TO = typer.Option(
    "", "--to", help="host:port, a URL (http, https, grpc), or `real`: the real Triton server."
)
TIMES = typer.Option(1, "--times", min=1, help="How often.")
YES = typer.Option(False, "--yes", "-y", help="Download the real server unasked.")

failures_app = typer.Typer(
    invoke_without_command=True, help="What raised in execute, and which processes died."
)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(replay)
    app.add_typer(failures_app, name="failures")


def replay(
    what: list[str] = typer.Argument(..., help="Numbers of recorded requests, or a file of them."),
    to: str = TO,
    model: str = typer.Option("", "--model", "-m", help="Only of this model (of a file)."),
    at: str = typer.Option("", "--as-model", help="Send them to this model instead."),
    version: str = typer.Option(None, "--model-version", help="Send them to this version."),
    failed: bool = typer.Option(False, "--failed", help="Only those that failed (of a file)."),
    times: int = TIMES,
    together: bool = typer.Option(False, "--together", help="All at once."),
    pace: bool = typer.Option(False, "--pace", help="With the recorded pauses between them."),
    repository: Path = typer.Option(None, "--repository", help="Export that `real` serves."),
    yes: bool = YES,
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Send recorded requests again, and compare the answers with the recorded ones."""
    from devkit.cli import output
    from devkit.tools.inspection import Captures
    from devkit.tools.replay import replay as send

    client = _client(workspace, needed=_needs_runtime(what, to, repository))
    records = []
    numbers = [int(one) for one in what if one.isdigit()]
    if numbers:
        assert client is not None
        found = Captures.of(client, numbers=numbers)
        records += [found.number(number).record for number in numbers]
    for one in what:
        if not one.isdigit():
            records += Captures.read(one, model, failed=failed).records()
    report = send(
        records, to, client=client, model=at, version=version, times=times, together=together,
        pace=pace, repository=repository, consent=_consent(yes), progress=output.note,
    )  # fmt: skip
    _show(report, json)


def _needs_runtime(what: list[str], to: str, repository: Path | None) -> bool:
    return any(one.isdigit() for one in what) or not to or (to == "real" and repository is None)


def _client(workspace: str, *, needed: bool) -> Client | None:
    from devkit.cli import output
    from devkit.errors import ControlError

    try:
        return output.connect(workspace)
    except ControlError:
        if needed:
            raise
        return None


def _consent(yes: bool) -> Any:
    from devkit.cli.verification import _ask

    return (lambda _: True) if yes else _ask


def _show(report: ReplayReport, json: bool) -> None:
    from devkit.cli import output

    if json:
        output.as_json(report.to_dict())
    else:
        output.console().print(report)
    raise typer.Exit(report.exit_code)


# --- failures -----------------------------------------------------------------------------------


@failures_app.callback()
def failures(
    context: typer.Context,
    model: str = typer.Option("", "--model", "-m", help="Only of this model."),
    forget: bool = typer.Option(False, "--forget", help="Drop them."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """List what raised in execute, and which processes died."""
    if context.invoked_subcommand is not None:
        return
    from devkit.cli import output
    from devkit.tools.inspection import FailureList

    client = output.connect(workspace)
    if forget:
        count = client.forget_failures(model)
        if json:
            output.as_json({"removed": count})
        else:
            typer.echo(f"{count} forgotten")
        return
    found = FailureList.of(client, model)
    if json:
        output.as_json(found.to_dict())
    else:
        output.console().print(found)


NUMBER = typer.Argument(..., help="Number of the failure.")


def _failure(number: int, workspace: str) -> Failed:
    from devkit.cli import output
    from devkit.tools.inspection import FailureList

    return FailureList.of(output.connect(workspace)).number(number)


@failures_app.command("show")
def show(number: int = NUMBER, workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """Show one: traceback with source and locals, request, last lines, exit signal."""
    from devkit.cli import output

    found = _failure(number, workspace)
    if json:
        output.as_json(found.to_dict())
        return
    output.console().print(found)
    if len(found.requests):
        output.console().print(found.inspect())


@failures_app.command("replay")
def again(
    number: int = NUMBER,
    to: str = TO,
    times: int = TIMES,
    yes: bool = YES,
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Send its requests again."""
    from devkit.cli import output

    found = _failure(number, workspace)
    _show(found.replay(to, times=times, consent=_consent(yes), progress=output.note), json)


@failures_app.command("save")
def save(
    number: int = NUMBER,
    file: Path = typer.Argument(..., help="Recording to write."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Save its requests as a recording, to be replayed from the file."""
    from devkit.cli import output

    found = _failure(number, workspace).requests
    found.save(file)
    if json:
        output.as_json({"file": str(file), "requests": len(found)})
    else:
        typer.echo(f"{file}: {len(found)} requests")
