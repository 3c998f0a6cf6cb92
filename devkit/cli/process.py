"""Commands about the runtime itself: serve, start, status, logs, stop."""

from __future__ import annotations

import typer

from devkit.cli import complete

WORKSPACE = typer.Option("", "--workspace", "-w", help="Folder of the runtime [this one].")
JSON = typer.Option(False, "--json", help="Print JSON.")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )(serve)
    app.command()(start)
    app.command()(status)
    app.command()(logs)
    app.command()(stop)


def serve(context: typer.Context) -> None:
    """Serve model repositories, with tritonserver's own flags (`devkit serve --help`)."""
    from devkit.cli.serve import become_runtime

    become_runtime(context.args)


def start(
    repositories: list[str] = typer.Argument(None, help="Folders of models."),
    workspace: str = WORKSPACE,
    watch: bool = typer.Option(False, "--watch", help="Reload a model when its files change."),
    json: bool = JSON,
) -> None:
    """Start a runtime in the background, unless one runs for this folder already."""
    from devkit.cli import output
    from devkit.control import starter

    runtime = starter.start(
        workspace or None,
        repositories=repositories or [],
        flags=["--watch"] if watch else [],
        progress=output.note,
    )
    if json:
        output.as_json(runtime)
        return
    for endpoint in runtime.endpoints:
        typer.echo(f"{endpoint.protocol:<8} {endpoint.url}")


def status(workspace: str = WORKSPACE, json: bool = JSON) -> None:
    """Show the runtime: where it serves, its models, processes and memory."""
    from devkit.cli import output, views

    snapshot = output.connect(workspace).status()
    if json:
        output.as_json(snapshot)
    else:
        views.status(snapshot)


def logs(
    name: str = typer.Argument(
        "", help="Only lines of this model or instance.", autocompletion=complete.models
    ),
    count: int = typer.Option(100, "--count", "-n", help="How many lines."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on as lines come."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Show the last lines of the log, with what models printed."""
    from devkit.cli import output, views

    client = output.connect(workspace)
    instances = {one.name for model in client.models() for one in model.instances}
    model, instance = ("", name) if name in instances else (name, "")
    lines = client.logs(model, instance, count=count)
    if json:
        output.as_json(lines)
        return
    for line in lines:
        views.log_line(line)
    if follow:
        views.follow(client, lines[-1].sequence if lines else 0, model, instance)


def stop(
    workspace: str = WORKSPACE,
    timeout: float = typer.Option(60.0, "--timeout", help="Seconds to wait for its end."),
    json: bool = JSON,
) -> None:
    """Stop the runtime: running requests end, every model is finalized."""
    from devkit.cli import output

    client = output.connect(workspace)
    client.shutdown(wait=timeout)
    if json:
        output.as_json({"stopped": client.runtime.pid})
