"""Commands that answer why: batches, streams, sequences, and what loads did."""

from __future__ import annotations

import time

import typer

from devkit.cli import complete
from devkit.cli.models import NAME
from devkit.cli.process import JSON, WORKSPACE

COUNT = typer.Option(20, "--count", "-n", help="How many of the last ones.")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(batches)
    app.command()(streams)
    app.command()(sequences)
    app.command()(why)


def batches(
    name: str = NAME, count: int = COUNT, workspace: str = WORKSPACE, json: bool = JSON
) -> None:
    """Show which requests ran together, and why each batch closed."""
    from devkit.cli import output

    found = output.connect(workspace).batches(name, count=count)
    if json:
        output.as_json(found)
        return
    total = sum(one.executions for one in found.reasons)
    if not total:
        print(f"{name} has executed nothing yet.")
    for reason in found.reasons:
        mean = reason.inferences / reason.executions
        print(
            f"{reason.executions / total:4.0%} of {total} executions ({mean:.1f} inferences each): "
            f"{reason.why}"
        )
    for sentence in found.advice:
        print(f"hint: {sentence}")
    _table(found)
    for one in [*found.open, *found.gone]:
        place = f" in {one.instance}" if one.instance else ""
        print(f"{one.state}: request '{one.id}'{place}, {output.seconds(one.seconds)}")


def _table(found: object) -> None:
    from devkit.cli import output
    from devkit.control import messages

    assert isinstance(found, messages.Batches)
    rows = [
        (
            time.strftime("%H:%M:%S", time.localtime(one.time)), one.instance, str(one.number),
            str(one.size), str(one.count), _longest_wait(one), _us(one.infer_us), one.reason,
            _requests(one),
        )
        for one in found.batches
    ]  # fmt: skip
    if rows:
        titles = ("TIME", "INSTANCE", "NO", "SIZE", "REQUESTS", "WAITED", "INFER", "CLOSED", "OF")
        output.table(titles, rows, right=(2, 3, 4, 5, 6))


def _longest_wait(batch: object) -> str:
    return _us(max((one.queue_us for one in batch.requests), default=0.0))  # type: ignore[attr-defined]


def _us(value: float) -> str:
    return f"{value:.0f} us" if value < 1000 else f"{value / 1000:.1f} ms"


def _requests(batch: object) -> str:
    told = []
    for one in batch.requests[:6]:  # type: ignore[attr-defined]
        shapes = " ".join(f"{each.name}{list(each.shape)}" for each in one.inputs[:3])
        outcome = "" if one.outcome == "answered" else f" {one.outcome}"
        sequence = f" seq {one.correlation_id}" if one.correlation_id else ""
        told.append(f"{one.id or '-'}{sequence} {shapes}{outcome}")
    more = batch.count - 6  # type: ignore[attr-defined]
    return "; ".join(told) + (f"; {more} more" if more > 0 else "")


def streams(
    name: str = typer.Argument("", help="Only of this model.", autocompletion=complete.models),
    count: int = COUNT,
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Show requests to decoupled models, with every response and its flags."""
    from devkit.cli import output

    found = output.connect(workspace).streams(name, count=count)
    if json:
        output.as_json(found)
        return
    for one in found:
        print(f"{one.model} '{one.id}': {one.state}, {one.count} responses")
        for response in one.responses:
            flags = "FINAL" if response.final else "     "
            what = response.error.partition("\n")[0] or (
                "empty" if response.empty else
                " ".join(f"{each.name}{list(each.shape)}" for each in response.outputs)
            )  # fmt: skip
            print(f"  {response.at * 1000:9.2f} ms  {flags}  {what}")


def sequences(
    name: str = typer.Argument("", help="Only of this model.", autocompletion=complete.models),
    count: int = COUNT,
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Show sequences: where each ran, how long, and whether it was evicted."""
    from devkit.cli import output

    found = output.connect(workspace).sequences(name, count=count)
    if json:
        output.as_json(found)
        return
    rows = [
        (
            one.correlation_id, one.model, one.state, one.instance or "-",
            str(one.slot) if one.slot >= 0 else "-",
            output.seconds((one.ended or time.time()) - one.started), str(one.moves),
        )
        for one in found
    ]  # fmt: skip
    titles = ("SEQUENCE", "MODEL", "STATE", "INSTANCE", "SLOT", "LASTED", "MOVES")
    output.table(titles, rows, right=(4, 5, 6))


def why(
    name: str = typer.Argument("", help="Only of this model.", autocompletion=complete.models),
    count: int = COUNT,
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Say what the last loads, reloads and unloads did, and what blocks one that runs."""
    from devkit.cli import output

    found = output.connect(workspace).operations(name, count=count)
    if json:
        output.as_json(found)
        return
    for one in found:
        clock = time.strftime("%H:%M:%S", time.localtime(one.time))
        print(f"{clock} {one.text}")
        if one.blocks:
            print(f"  waits: {one.blocks}")
