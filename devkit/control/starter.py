"""Starts a runtime for a workspace where none runs: a process of its own, which outlives this one.

Two faces that start at the same moment get the same runtime. What the runtime does is not here,
and nothing here imports it: it is started by name.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from devkit.control import discovery
from devkit.control.messages import Runtime
from devkit.errors import ControlError

PORTS = (8000, 8001, 8002)
_TAIL_LINES = 20


def start(
    workspace: str | Path | None = None,
    *,
    repositories: Sequence[str | Path] = (),
    flags: Sequence[str] = (),
    timeout: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> Runtime:
    """Start a runtime for `workspace` and return it once it serves; the running one if there is.

    It writes to a log file of its own and goes on when this process ends. It takes Triton's usual
    ports where they are free, else any. `progress` is called with a line from time to time.
    Raises ControlError, with the end of the log, where it does not come up.
    """
    place = discovery.workspace_of(workspace)
    with _alone(place):
        running = discovery.find(place)
        if running is not None:
            return running
        say = progress or (lambda _: None)
        say(f"starting a devkit runtime for {place}")
        log = discovery.log_path(place)
        ended = _launch(place, repositories, flags, log)
        until = time.monotonic() + timeout
        said = ""
        while time.monotonic() < until:
            runtime = discovery.find(place)
            if runtime is not None and runtime.endpoints:
                return runtime
            if ended.is_set():
                raise ControlError(
                    f"the runtime for {place} did not start:\n{_tail(log)}",
                    remedy=f"the whole log is {log}",
                )
            line = _tail(log, 1)
            if line != said:
                say(line)
                said = line
            time.sleep(0.02)
    raise ControlError(
        f"the runtime for {place} does not serve after {timeout:g} s:\n{_tail(log)}",
        remedy=f"it may still be loading models; the whole log is {log}",
    )


def _launch(
    place: Path, repositories: Sequence[str | Path], flags: Sequence[str], log: Path
) -> threading.Event:
    command = [sys.executable, "-m", "devkit.runtime", f"--workspace={place}", *_ports(flags)]
    command += [*flags, *(str(Path(one).resolve()) for one in repositories)]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt of the kernel or the terminal is not for it
        )
    ended = threading.Event()

    def reap() -> None:
        process.wait()
        ended.set()

    threading.Thread(target=reap, name="devkit-runtime", daemon=True).start()
    return ended


def _ports(flags: Sequence[str]) -> list[str]:
    """Triton's own ports where nobody has them, so that the world's examples work unchanged."""
    if any("port" in flag.partition("=")[0] for flag in flags):
        return []
    return [] if all(_is_free(port) for port in PORTS) else ["--port=0"]


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the workspace's start lock; whoever comes second finds the runtime of the first."""
    path = discovery.runtime_dir() / f"{discovery.workspace_id(place)}.lock"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _tail(log: Path, count: int = _TAIL_LINES) -> str:
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-count:])
