"""Starts stub processes: by exec (`spawn`), or forked from a warm one with the imports (`warm`).

What a model sees is the same either way. Nothing here knows what the processes say to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import devkit

STUB = Path(devkit.__file__).parent / "stub" / "__main__.py"


@dataclass(slots=True)
class Process:
    """A running stub: pid, this side's ends of its sockets and pipes, how it was started."""

    pid: int
    data: socket.socket
    control: socket.socket
    bls: socket.socket
    stdout: int
    stderr: int
    method: str
    _popen: subprocess.Popen[bytes] | None = None
    _exit: asyncio.Future[int] | None = field(default=None, repr=False)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; a process that is gone already is no error."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def wait(self, seconds: float) -> int | None:
        """Exit status once it has ended (negative: the signal's number), None if it has not."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while True:
            status = self.status()
            if status is not None or clock() >= until:
                return status
            await asyncio.sleep(0.005)

    def status(self) -> int | None:
        """Exit status if it has ended and was reaped, else None."""
        if self._popen is not None:
            return self._popen.poll()
        if self._exit is not None and self._exit.done():
            return self._exit.result()
        return None


class Launcher:
    """Starts stubs with the interpreter and environment of their model."""

    def __init__(self, python: str = "") -> None:
        self.python = python or sys.executable
        self._modules: dict[str, tuple[str, ...]] = {}

    async def start(self, method: str, modules: tuple[str, ...] = ()) -> Process:
        """Start a stub by `method`; `warm` falls back to `spawn` where forking is not safe."""
        return self.spawn(dict(os.environ))

    def modules_of(self, model: str) -> tuple[str, ...]:
        """Third-party modules that `model` imported last time."""
        return self._modules.get(model, ())

    def remember(self, model: str, modules: tuple[str, ...]) -> None:
        """Keep what `model` imported, so that its next start finds it imported."""
        self._modules[model] = modules

    async def stop(self) -> None:
        """End the warm processes."""

    def spawn(self, environment: dict[str, str], python: str = "") -> Process:
        """Start a stub by exec. Raises OSError when the interpreter cannot be run."""
        pairs = [socket.socketpair() for _ in range(3)]
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        theirs = [pair[1] for pair in pairs]
        command = [python or self.python, "-Xfrozen_modules=off", str(STUB)]
        for name, end in zip(("--data", "--control", "--bls"), theirs, strict=True):
            command += [name, str(end.fileno())]
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                pass_fds=[end.fileno() for end in theirs],
                env=environment,
                start_new_session=True,  # a Ctrl-C meant for the runtime must not reach the models
            )
        except BaseException:
            for pair in pairs:
                pair[0].close()
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            for end in theirs:
                end.close()
            os.close(out_write)
            os.close(err_write)
        data, control, bls = (pair[0] for pair in pairs)
        for end in (data, control, bls):
            end.setblocking(False)
        return Process(popen.pid, data, control, bls, out_read, err_read, "spawn", popen)
