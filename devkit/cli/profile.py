"""`devkit profile` and `devkit stack`: where an instance spends its time, and where it is stuck."""

from __future__ import annotations

from pathlib import Path

import typer

from devkit.cli.process import JSON, WORKSPACE

TARGET = typer.Argument(..., help="MODEL, or MODEL/INSTANCE.", metavar="MODEL[/INSTANCE]")
FORMATS = {".svg": "flamegraph", ".json": "speedscope", ".txt": "raw"}


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(profile)
    app.command()(stack)


def profile(
    target: str = TARGET,
    seconds: float = typer.Option(5.0, "--seconds", "-s", help="How long to look."),
    out: Path = typer.Option(
        None, "--out", "-o", help="NAME.speedscope.json, NAME.svg (flame graph) or NAME.txt."
    ),
    rate: int = typer.Option(200, "--rate", help="Samples a second."),
    native: bool = typer.Option(False, "--native", help="With the frames of C extensions."),
    idle: bool = typer.Option(False, "--idle", help="Also threads that wait."),
    pause: bool = typer.Option(False, "--pause", help="Stop the model for each sample."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Sample an instance while it serves (needs the extra `profile`)."""
    from devkit.cli import output

    model, _, instance = target.partition("/")
    file = out or Path(f"{instance or model}.speedscope.json")
    kind = FORMATS.get(file.suffix)
    if kind is None:
        raise typer.BadParameter(f"{file.name} ends in none of {', '.join(FORMATS)}")
    client = output.connect(workspace)
    if not json:
        output.note(f"sampling {target} for {seconds:g} s")
    data = client.profile(
        model, instance, seconds=seconds, format=kind, rate=rate, native=native, idle=idle,
        pause=pause,
    )  # fmt: skip
    file.write_bytes(data)
    if json:
        output.as_json({"file": str(file), "format": kind, "bytes": len(data)})
        return
    opens = {
        "speedscope": "open it in https://www.speedscope.app",
        "flamegraph": "open it in a browser",
    }
    typer.echo(f"{file}: {output.size(len(data))}")
    if kind in opens:
        output.note(opens[kind])


def stack(target: str = TARGET, workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """Show where every thread of an instance is now, also when it is stuck."""
    from devkit.cli import output

    model, _, instance = target.partition("/")
    found = output.connect(workspace).stack(model, instance)
    if json:
        output.as_json(found)
        return
    for one in found:
        named = ", ".join(f"'{each}'" for each in one.running if each)
        doing = "idle"
        if one.running:
            doing = f"in execute for {output.seconds(one.seconds)}, {len(one.running)} requests"
        typer.echo(f"{one.instance} (pid {one.pid}): {doing}{' ' + named if named else ''}")
        if one.note:
            typer.echo(f"  {one.note}")
        for thread in one.threads:
            typer.echo(f"  {thread.name}")
            for line in thread.stack.rstrip().splitlines():
                typer.echo(f"    {line}")
