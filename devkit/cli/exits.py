"""The way out: export models for the real server, and prove that it answers alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.control.findings import ExportPlan


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(export)
    app.command()(verify)


def export(
    subjects: list[str] = typer.Argument(
        ..., metavar="[MODEL...] FOLDER", help="Models (none: all served), and where to."
    ),
    force: bool = typer.Option(False, "--force", help="Replace what is there and differs."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be written."),
    diff: bool = typer.Option(False, "--diff", help="Show what would change, and write nothing."),
    full: bool = typer.Option(False, "--full", help="A config with every field."),
    version: str = typer.Option("", "--version", help="Version folder: a number, or `next`."),
    warmup: bool = typer.Option(False, "--warmup", help="model_warmup of recorded requests."),
    client: bool = typer.Option(False, "--client", help="A client.py that asks the model."),
    requirements: bool = typer.Option(
        False, "--requirements", help="requirements.txt and .lock of what it imports."
    ),
    perf: bool = typer.Option(False, "--perf", help="perf_data.json for perf_analyzer."),
    deploy: bool = typer.Option(
        False, "--deploy", help="docker-run.sh, compose.yaml and kserve.yaml."
    ),
    everything: bool = typer.Option(False, "--all", help="All five of those."),
    env: bool = typer.Option(False, "--env", help="Its packages in env.tar.gz, and the parameter."),
    env_home: str = typer.Option(
        "", "--env-home", help="With --env: folder of the server's python [/usr/bin]."
    ),
    release: str = typer.Option("", "--triton", help="Release it is for, 24.10 to 26.09 [24.10]."),
    target: str = typer.Option("", "--target", help="inferentia: for AWS Neuron cores."),
    cores: str = typer.Option("0:1", "--neuron-cores", help="With --target: range of cores."),
    compiled: Path = typer.Option(None, "--compiled", help="With --target: the traced model."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Write models as the real Triton server takes them: config.pbtxt, model.py, their own files.

    All or nothing, and never over something that differs unless --force agrees. An ensemble brings
    its steps along. What the doctor thinks of it is said at the end.
    """
    from devkit.cli import output
    from devkit.control.findings import ExportAsked
    from devkit.tools import exporting

    *names, folder = subjects
    source = output.connect(workspace)
    if target:
        if target != "inferentia" or len(names) != 1:
            raise typer.BadParameter("only `inferentia`, and one model", param_hint="--target")
        place, files = exporting.for_inferentia(
            source, names[0], Path(folder), cores=cores, compiled=compiled, force=force
        )
        if json:
            output.as_json({"dest": str(place), "files": files, "run": False})
        else:
            typer.echo(f"{place}: written")
            output.note("not run: it needs AWS Neuron cores and torch-neuronx")
        return
    asked = ExportAsked(
        str(Path(folder).expanduser().resolve()), tuple(names), force, full, version,
        warmup or everything, client or everything, requirements or everything,
        perf or everything, deploy or everything, env_home or ("yes" if env else ""), release,
    )  # fmt: skip
    only = dry_run or diff
    found = exporting.plan(source, asked) if only else exporting.write(source, asked)
    if json:
        output.as_json(found)
    else:
        _show(found, only, diff)


def _show(found: ExportPlan, planned: bool, diff: bool) -> None:
    from devkit.cli import output

    typer.echo(f"{found.dest}: {found.state}")
    if planned:
        for one in found.files:
            typer.echo(f"  {one.state:<8} {one.path}  {output.size(one.bytes)}")
    if diff:
        for one in found.files:
            if one.diff:
                typer.echo(one.diff)
    for what in found.brought:
        output.note(f"brought {what}")
    for sentence in found.assumed:
        output.note(f"assumed {sentence}")
    for warning in found.warnings:
        output.note(f"warning: {warning}")


def verify(
    folder: Path = typer.Argument(..., help="Model repository (any), or one model of it."),
    captures: Path = typer.Option(None, "--captures", help="Recording to ask, of `record`."),
    generated: bool = typer.Option(
        True, "--generated/--no-generated", help="Also requests made up from the configs."
    ),
    url: str = typer.Option("", "--url", help="host:port of a running server that serves it."),
    grpc_url: str = typer.Option("", "--grpc-url", help="Its gRPC port, for streams."),
    docker: str = typer.Option("", "--docker", metavar="IMAGE", help="Run it in this container."),
    varies: list[str] = typer.Option(
        [], "--varies", metavar="MODEL.OUTPUT", help="Values that differ by nature; repeatable."
    ),
    html: Path = typer.Option(None, "--html", help="Write the report as a page."),
    out: Path = typer.Option(None, "--out", help="Write the report as JSON."),
    yes: bool = typer.Option(False, "--yes", "-y", help="Download the real server unasked."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Ask the real Triton server recorded and made-up requests, and compare what it answers."""
    from devkit.cli import verification

    verification.run(
        folder, captures=captures, generated=generated, url=url, grpc_url=grpc_url, docker=docker,
        varies=varies, html=html, out=out, workspace=workspace, yes=yes, json=json,
    )  # fmt: skip
