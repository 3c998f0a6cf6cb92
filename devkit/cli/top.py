"""`devkit top`: the runtime's numbers in the terminal, once or as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from devkit.cli import complete
from devkit.cli.process import WORKSPACE

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from devkit.control import messages

BARS = "▁▂▃▄▅▆▇█"
SHOWN_SECONDS = 30


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(top)


def top(
    name: str = typer.Argument("", help="Only this model.", autocompletion=complete.models),
    once: bool = typer.Option(False, "--once", help="Print it once and end."),
    interval: float = typer.Option(1.0, "--interval", "-i", min=0.2, help="Seconds between looks."),
    workspace: str = WORKSPACE,
    json: bool = typer.Option(False, "--json", help="Print JSON, once."),
) -> None:
    """Watch rates, queues, times, processes and shared memory; Ctrl-C ends it."""
    import time

    from devkit.cli import output

    client = output.connect(workspace)
    if json:
        found = {"snapshot": client.status(), "history": client.history(name, seconds=60)}
        output.as_json(found)
        return
    console = output.console()
    if once:
        console.print(screen(client.status(), client.history(name, seconds=SHOWN_SECONDS), name))
        return
    from rich.live import Live

    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            history = client.history(name, seconds=SHOWN_SECONDS)
            live.update(screen(client.status(), history, name), refresh=True)
            time.sleep(interval)


def screen(
    snapshot: messages.Snapshot, history: messages.History, name: str = ""
) -> RenderableType:
    """All of it, as rich prints it."""
    from rich.console import Group
    from rich.text import Text

    lines = {(one.model, one.version, one.instance, one.name): one.values for one in history.series}
    models = [one for one in snapshot.models if one.state and name in ("", one.name)]
    parts: list[RenderableType] = [Text(_head(snapshot, lines))]
    if snapshot.memory.warning:
        parts.append(Text(f"warning: {snapshot.memory.warning}", style="yellow"))
    parts.append(_models(models, lines))
    if any(model.instances for model in models):
        parts.append(_instances(models, lines))
    if snapshot.memory.slabs:
        parts.append(_slabs(snapshot.memory))
    for gpu in snapshot.gpus:
        parts.append(Text(_gpu(gpu)))
    return Group(*parts)


Lines = dict[tuple[str, str, str, str], tuple[Any, ...]]


def _head(snapshot: messages.Snapshot, lines: Lines) -> str:
    import time

    from devkit.cli import output

    runtime, shared = snapshot.runtime, snapshot.memory
    own = snapshot.process
    cpu = last(lines.get(("", "", "", "cpu"), ()))
    used = f", {output.size(own.rss)}" if own else ""
    held = sum(slab.size for slab in shared.slabs)
    return (
        f"devkit {runtime.workspace}  pid {runtime.pid}, up "
        f"{output.seconds(max(0.0, time.time() - runtime.started))}{used}, CPU {_number(cpu)} %\n"
        f"/dev/shm {output.size(held)} ours, {output.size(shared.free)} of "
        f"{output.size(shared.total)} free"
    )


def _gpu(gpu: messages.Gpu) -> str:
    from devkit.cli import output

    busy = f", busy {gpu.busy_percent} %" if gpu.busy_percent >= 0 else ""
    used = f"{output.size(gpu.used)} of {output.size(gpu.total)} used"
    return f"GPU {gpu.index} {gpu.name}: {used}{busy}"


def _table(titles: tuple[str, ...], left: tuple[int, ...]) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for index, title in enumerate(titles):
        made.add_column(title, justify="left" if index in left else "right", no_wrap=True)
    return made


def _models(models: list[messages.Model], lines: Lines) -> Table:
    made = _table(
        ("MODEL", "STATE", "INFER/S", "", "EXEC/S", "BATCH", "FAIL/S", "QUEUE", "FLYING",
         "LATENCY", "QUEUED", "INFER"), (0, 1, 3),
    )  # fmt: skip
    for model in models:

        def at(name: str, model: messages.Model = model) -> Any:
            return last(lines.get((model.name, model.version, "", name), ()))

        rates = lines.get((model.name, model.version, "", "inferences"), ())
        made.add_row(
            f"{model.name} {model.version}".strip(), model.state, _number(at("inferences")),
            bars(rates), _number(at("executions")), _number(at("batch_size")),
            _number(at("failures")), str(model.pending), _number(at("in_flight")),
            _milliseconds(at("latency")), _milliseconds(at("queue_time")),
            _milliseconds(at("infer_time")),
        )  # fmt: skip
    return made


def _instances(models: list[messages.Model], lines: Lines) -> Table:
    from devkit.cli import output

    made = _table(
        ("INSTANCE", "PID", "STATE", "INFER/S", "BUSY", "", "CPU", "RSS", "PSS", "USS", "GPU",
         "THREADS", "FILES", "EXECUTES"), (0, 2, 5),
    )  # fmt: skip
    for model in models:
        for one in model.instances:
            use = one.process
            own = (model.name, model.version, one.name)
            busy = lines.get((*own, "busy"), ())
            rate = last(lines.get((*own, "inferences"), ()))
            made.add_row(
                one.name, str(one.pid), one.state, _number(rate),
                f"{_number(last(busy))} %", bars(busy, 100.0),
                f"{_number(last(lines.get((*own, 'cpu'), ())))} %",
                *(output.size(size) for size in (
                    (use.rss, use.pss, use.uss, use.gpu) if use else (-1, -1, -1, -1))),
                str(use.threads) if use else "-", str(use.open_files) if use else "-",
                str(one.executes),
            )  # fmt: skip
    return made


def _slabs(memory: messages.SharedMemory) -> Table:
    from devkit.cli import output

    made = _table(("SLAB", "SIZE", "USED", "FREE", "HIGH WATER", "BLOCKS", "OWNERS"), (0, 6))
    for slab in memory.slabs:
        largest = sorted(slab.owners, key=lambda owner: -owner.bytes)
        owners = ", ".join(f"{one.name} {output.size(one.bytes)}" for one in largest[:2])
        more = f", {len(largest) - 2} more" if len(largest) > 2 else ""
        made.add_row(
            slab.name, output.size(slab.size), output.size(slab.used), output.size(slab.free),
            output.size(slab.high_water), str(slab.blocks) if slab.blocks >= 0 else "-",
            owners + more,
        )  # fmt: skip
    return made


def last(values: tuple[Any, ...]) -> Any:
    """The last value of a series, None where there is none."""
    return values[-1] if values else None


def bars(values: tuple[Any, ...], most: float = 0.0, width: int = 15) -> str:
    """A series as a line of small bars, the newest right."""
    shown = [one or 0.0 for one in values[-width:]]
    most = max([most, *shown], default=0.0)
    if not most:
        return ""
    return "".join(BARS[min(round(one / most * 7), 7)] if one else " " for one in shown)


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def _milliseconds(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} us" if value < 1 else f"{value:.1f} ms"
