"""Snapshots and log lines as text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from devkit.cli import output
from devkit.control import messages

if TYPE_CHECKING:
    from devkit.control.client import Client


def status(snapshot: messages.Snapshot) -> None:
    """All of a snapshot, for a terminal."""
    runtime = snapshot.runtime
    own = snapshot.process
    print(f"workspace  {runtime.workspace}")
    memory = f", {output.size(own.rss)}" if own else ""
    up = output.seconds(max(0.0, time.time() - runtime.started))
    ready = "ready" if snapshot.ready else "not ready"
    print(f"runtime    pid {runtime.pid}, up {up}, {ready}{memory}")
    for endpoint in runtime.endpoints:
        print(f"{endpoint.protocol:<10} {endpoint.url}")
    shared = snapshot.memory
    held = sum(slab.size for slab in shared.slabs)
    print(
        f"/dev/shm   {output.size(held)} ours, {output.size(shared.free)} of "
        f"{output.size(shared.total)} free"
    )
    if shared.warning:
        output.note(f"warning: {shared.warning}")
    models(list(snapshot.models))
    instances(list(snapshot.models))
    warnings(list(snapshot.models))


def models(found: list[messages.Model]) -> None:
    """Table of models."""
    rows = [
        (
            one.name, one.version, one.state or "-", str(len(one.instances) or ""),
            str(one.inferences), str(one.failures), str(one.pending), one.remark,
        )
        for one in found
    ]  # fmt: skip
    titles = ("MODEL", "VERSION", "STATE", "INSTANCES", "INFERENCES", "FAILURES", "PENDING", "NOTE")
    output.table(titles, rows, right=(3, 4, 5, 6))


def instances(found: list[messages.Model]) -> None:
    """Table of processes, where there are any."""
    rows = []
    for model in found:
        for one in model.instances:
            use = one.process or messages.Process(one.pid)
            rows.append((
                one.name, str(one.pid), one.state, output.size(use.rss), output.size(use.pss),
                f"{use.cpu_percent:.0f} %", output.seconds(one.load_seconds), one.started,
                str(one.restarts), str(one.executes),
            ))  # fmt: skip
    if rows:
        titles = (
            "INSTANCE", "PID", "STATE", "RSS", "PSS", "CPU", "LOADED IN", "BY", "RESTARTS",
            "EXECUTES",
        )  # fmt: skip
        output.table(titles, rows, right=(1, 3, 4, 5, 6, 8, 9))


def warnings(found: list[messages.Model]) -> None:
    """Contract warnings, each with the model's line."""
    for model in found:
        for one in model.warnings:
            times = f" ({one.count} times)" if one.count > 1 else ""
            place = f"\n  at {one.line}" if one.line else ""
            print(f"warning: {model.name}: {one.text}{times}{place}")


def log_line(line: messages.LogLine) -> None:
    """One line of the log."""
    clock = time.strftime("%H:%M:%S", time.localtime(line.time))
    origin = line.instance or (f"{line.file}:{line.line}" if line.file else "")
    print(f"{clock} {line.stream:<7} {origin:<20} {line.text}", flush=True)


def follow(client: Client, after: int, model: str, instance: str) -> None:
    """Print lines as they come, until the runtime ends or the user has seen enough."""
    for event in client.events(kinds=["log"]):
        if isinstance(event, messages.Snapshot) or event.kind == "log":
            for line in client.logs(model, instance, after=after):
                after = line.sequence
                log_line(line)
