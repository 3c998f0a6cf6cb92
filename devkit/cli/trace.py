"""`devkit trace`: follow the next requests through every process, and say where the time went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from devkit.cli import complete
from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.control.tracing import TraceRun, Traces

_FORMAT = "chrome (Perfetto, speedscope), triton (trace_summary.py) or otlp (OpenTelemetry)."


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(trace)


def trace(
    name: str = typer.Argument("", help="Name of the model [any].", autocompletion=complete.models),
    count: int = typer.Option(20, "--count", "-n", min=1, help="Requests to trace."),
    out: Path = typer.Option(None, "--out", "-o", help="File to write."),
    format: str = typer.Option("chrome", "--format", "-f", help=_FORMAT),
    url: str = typer.Option("", "--otlp", help="Collector to send them to, http://HOST:4318."),
    timeout: float = typer.Option(None, "--timeout", "-t", help="Seconds to wait at most."),
    tensors: bool = typer.Option(False, "--tensors", help="Keep the tensors' values (triton)."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Trace requests as they come: where the time went, in words, and as a file to look at.

    Ctrl-C ends it before all have come. The settings of the trace extension stay as they are.
    """
    from devkit.cli import output
    from devkit.control.tracing import FORMATS

    if format not in FORMATS:
        raise typer.BadParameter(
            f"'{format}' is none of {', '.join(FORMATS)}", param_hint="--format"
        )
    client = output.connect(workspace)
    told = f"waiting for {count} requests" + (f" to {name}" if name else "")
    with client.start_trace(name, count, tensors=tensors) as run:
        output.note(told)
        found = _wait(run, timeout)
    if out is not None:
        found.save(out, format)
    if url:
        found.to_otlp(url)
    _tell(found, out, json=json)


def _wait(run: TraceRun, timeout: float | None) -> Traces:
    """Until all have come, the time is over or the user has enough."""
    import time

    until = None if timeout is None else time.monotonic() + timeout
    try:
        while not run.wait(2.0 if until is None else max(0.0, min(2.0, until - time.monotonic()))):
            if until is not None and time.monotonic() >= until:
                break
    except KeyboardInterrupt:
        pass
    return run.stop()


def _tell(found: Traces, out: Path | None, *, json: bool) -> None:
    from devkit.cli import output

    if json:
        told: dict[str, object] = {"requests": len(found), "traces": found.traces}
        output.as_json(told | ({"file": str(out)} if out else {}))
        return
    typer.echo(found.summary())
    if out is not None:
        output.note(f"written to {out}")
