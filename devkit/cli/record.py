"""`devkit captures` and `devkit record`: what was recorded, how much is, and into which files."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from devkit.cli import complete
from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.control.client import Client
    from devkit.tools.inspection import Captures

MODEL = typer.Option(
    "", "--model", "-m", help="Only requests of this model.", autocompletion=complete.models
)
ID = typer.Option("", "--id", help="Only requests of this id; may end with *.")
FAILED = typer.Option(False, "--failed", help="Only those that failed.")
SLOWER = typer.Option(0.0, "--slower", help="Only those that took longer, in milliseconds.")
LAST = typer.Option(0, "--last", "-n", help="Only the last so many.")

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30,
          "KB": 10**3, "MB": 10**6, "GB": 10**9}  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(captures)
    app.command()(record)


def captures(
    model: str = MODEL,
    id: str = ID,
    failed: bool = FAILED,
    slower: float = SLOWER,
    last: int = LAST,
    forget: bool = typer.Option(False, "--forget", help="Drop them."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """List the requests that were recorded lately."""
    from devkit.cli import output
    from devkit.tools.inspection import Captures

    client = output.connect(workspace)
    choice: dict[str, Any] = {"id": id, "failed": failed, "slower": slower / 1000, "last": last}
    if forget:
        count = client.forget_captures(model, **choice)
        if json:
            output.as_json({"removed": count})
        else:
            typer.echo(f"{count} forgotten")
        return
    found = Captures.of(client, model, **choice)
    if json:
        output.as_json(found.to_dict())
    else:
        output.console().print(found)


def record(
    file: Path = typer.Argument(None, help="File to write; - for stdout."),
    model: str = MODEL,
    id: str = ID,
    failed: bool = FAILED,
    slower: float = SLOWER,
    last: int = LAST,
    number: list[int] = typer.Option([], "--number", help="Only this request; repeatable."),
    form: str = typer.Option(
        "recording", "--as", help="recording, perf_analyzer (input data), pytest, curl or python."
    ),
    source: Path = typer.Option(None, "--from", help="Recording to take them from."),
    load: Path = typer.Option(None, "--load", help="Recording to put into the runtime's ring."),
    expect: bool = typer.Option(
        False, "--expect", help="perf_analyzer: also write the answers, to be validated."
    ),
    seconds: float = typer.Option(
        0.0, "--seconds", help="First record everything for so long, then write that."
    ),
    keep: int = typer.Option(None, "--keep", help="Setting: requests in the ring."),
    ring: str = typer.Option("", "--bytes", help="Setting: size of the ring, such as 256MiB."),
    largest: str = typer.Option("", "--largest", help="Setting: largest request kept whole."),
    rate: float = typer.Option(None, "--rate", help="Setting: requests a second; 0 for all."),
    slow: float = typer.Option(None, "--slow", help="Setting: milliseconds; slower ones are kept."),
    probes: bool = typer.Option(None, "--probes/--no-probes", help="Setting: ask for probes."),
    on: bool = typer.Option(None, "--on/--off", help="Setting: record at all."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Save recorded requests with what was answered, in several forms; or set what is recorded."""
    from devkit.cli import output
    from devkit.tools.inspection import Captures

    if form not in ("recording", "perf_analyzer", "pytest", "curl", "python"):
        raise typer.BadParameter(f"'{form}' is none", param_hint="--as")
    client = output.connect(workspace) if source is None else None
    changes: dict[str, Any] = {
        "count": keep, "bytes": _size(ring, "--bytes"), "largest": _size(largest, "--largest"),
        "rate": rate, "slow": None if slow is None else slow / 1000, "probes": probes, "on": on,
    }  # fmt: skip
    changes = {key: value for key, value in changes.items() if value is not None}
    if client is not None and load is not None:
        added = client.add_recording(load.read_bytes())
        if not json and file is None:
            typer.echo(f"{len(added)} requests loaded")
    if client is not None and (changes or file is None):
        settings = client.capture_settings(**changes)
        if file is None:
            _show(settings, json)
            return
    choice: dict[str, Any] = {"id": id, "failed": failed, "slower": slower / 1000, "last": last}
    if number:
        choice["numbers"] = number
    if client is None:
        found = Captures.read(source, model, **choice)
    else:
        if seconds:
            choice["numbers"] = _watch(client, model, seconds)
        found = Captures.of(client, model, **choice)
    if file is None:
        raise typer.BadParameter("name a file to write, or - for stdout", param_hint="FILE")
    written = _write(found, file, form, expect, client)
    if str(file) == "-":
        return
    if json:
        output.as_json({"file": str(file), "bytes": written, "requests": len(found)})
    else:
        typer.echo(f"{file}: {len(found)} requests, {output.size(written)}")


def _watch(client: Client, model: str, seconds: float) -> list[int]:
    """Record everything for a while; numbers of what came."""
    before = client.capture_settings()
    known = {info.number for info in client.capture_list(model)}
    client.capture_settings(rate=0.0, on=True)
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        pass  # enough seen
    finally:
        client.capture_settings(rate=before.rate, on=before.on)
    return [one.number for one in client.capture_list(model) if one.number not in known]


def _write(found: Captures, file: Path, form: str, expect: bool, client: Client | None) -> int:
    """Write them; how many bytes that were."""
    import io

    from devkit.contract import recording
    from devkit.tools import exporters

    records = [one.record for one in found if one.info.whole]
    if form == "recording":
        body = io.BytesIO()
        recording.write(body, records)
        data = body.getvalue()
    elif form == "perf_analyzer":
        batching = _batches(records, client)
        data = exporters.perf_analyzer(records, batching=batching, outputs=expect).encode()
    elif form == "curl":
        url = client.runtime.url("http") if client is not None else ""
        lines = [exporters.curl(one, url or "localhost:8000") for one in records]
        data = ("\n".join(lines) + "\n").encode()
    elif form == "python":
        data = ("\n\n".join(exporters.python_call(one) for one in records) + "\n").encode()
    else:
        beside = "" if str(file) == "-" else file.with_suffix(".recording").name
        text, needed = exporters.pytest_case(records, file=beside)
        if needed:
            with file.with_suffix(".recording").open("wb") as stream:
                recording.write(stream, records)
        data = text.encode()
    if str(file) == "-":
        typer.get_binary_stream("stdout").write(data)
    else:
        file.write_bytes(data)
    return len(data)


def _batches(records: Any, client: Client | None) -> bool:
    """Whether the requests have a batch dimension: the model's config says so."""
    from devkit.cli import output
    from devkit.errors import ControlError

    if not records:
        return False
    try:
        runtime = client or output.connect("")
    except ControlError:
        raise typer.BadParameter(
            "whether the model has a batch dimension is known while a runtime serves it"
        ) from None
    return runtime.model(records[0].model).max_batch_size > 0


def _size(text: str, option: str) -> int | None:
    if not text:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise typer.BadParameter(f"'{text}' is no size such as 256MiB", param_hint=option)
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _show(settings: Any, json: bool) -> None:
    from devkit.cli import output

    if json:
        output.as_json(settings)
        return
    state = "on" if settings.on else "off"
    rate = f"{settings.rate:g} a second of each model" if settings.rate else "every request"
    typer.echo(f"recording {state}, {rate}; probes {'on' if settings.probes else 'off'}")
    typer.echo(
        f"ring      {settings.kept} of {settings.count} requests, {output.size(settings.used)} of "
        f"{output.size(settings.bytes)}"
    )
    typer.echo(f"largest   {output.size(settings.largest)}; of a larger request a sample is kept")
    if settings.slow:
        typer.echo(f"slow      from {settings.slow * 1000:g} ms on a request is kept in any case")
