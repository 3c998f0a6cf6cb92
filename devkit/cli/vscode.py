"""`devkit debug MODEL --vscode`: writes `.vscode/launch.json`, and holds the doors open."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.debug import vscode
from devkit.debug.door import Door
from devkit.errors import DebugError

if TYPE_CHECKING:
    from devkit.control.client import Client


def run(
    client: Client, model: str, *, instance: str, version: str, take: str, json: bool = False
) -> None:
    """Open a door for each instance (or for the one named) until Ctrl-C."""
    from devkit.cli import output

    folder = _folder(client)
    names = _instances(client, model, instance)
    known = vscode.ports(vscode.read(folder))
    doors: dict[str, Door] = {}
    with contextlib.ExitStack() as open_doors:
        for name in names:
            door = _open(client, model, name, version, take, known.get(vscode.name(name), 0))
            open_doors.callback(door.close)
            doors[name] = door
        file = vscode.write(folder, {name: door.port for name, door in doors.items()})
        _show(file, doors, json)
        _hold()
    output.note("closed; the instances go on")


def _folder(client: Client) -> Path:
    """The folder that VS Code is likely to have open: this one if it has settings, or else the
    runtime's."""
    here = Path.cwd()
    return here if (here / ".vscode").is_dir() else Path(client.runtime.workspace)


def _instances(client: Client, model: str, instance: str) -> list[str]:
    names = [one.name for one in client.model(model).instances]
    if instance:
        names = [name for name in names if name == instance]
    if not names:
        what = f"instance '{instance}'" if instance else f"instance of '{model}'"
        raise DebugError(f"there is no {what} that runs", model=model)
    return names


def _open(client: Client, model: str, name: str, version: str, take: str, port: int) -> Door:
    """A door on the port that its configuration has already, or else on a free one."""
    from devkit.cli import output

    options: dict[str, Any] = {"version": version, "take": take, "on_note": output.note}
    if port:
        with contextlib.suppress(DebugError):
            return Door(client, model, name, port=port, **options)
    return Door(client, model, name, **options)


def _show(file: Path, doors: dict[str, Door], json: bool) -> None:
    import sys

    from devkit.cli import output

    if json:
        rows = [
            {"name": vscode.name(name), "host": "127.0.0.1", "port": door.port}
            for name, door in doors.items()
        ]
        output.as_json({"file": str(file), "configurations": rows})
        sys.stdout.flush()
        return
    for name, door in doors.items():
        print(f"{vscode.name(name)}  127.0.0.1:{door.port}")
    sys.stdout.flush()
    forwards = " ".join(f"-L {each.port}:127.0.0.1:{each.port}" for each in doors.values())
    output.note(
        f"{file} is up to date. In VS Code: Run and Debug, choose one of these, F5.\n"
        f"From another machine: `ssh {forwards} HOST`, or open the folder with Remote - SSH.\n"
        "The ports stay open until Ctrl-C; the instances serve on."
    )


def _hold() -> None:
    """Wait for Ctrl-C, or to be ended."""
    over = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    try:
        with contextlib.suppress(KeyboardInterrupt):
            while not over.wait(0.5):
                pass
    finally:
        signal.signal(signal.SIGTERM, before)
