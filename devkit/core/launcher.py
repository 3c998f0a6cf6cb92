"""Starts stub processes: by exec (`spawn`), or forked from a warm one with the imports (`warm`).

What a model sees is the same either way; a warm start only finds NumPy, and the third-party modules
that the model imported last time, imported already. Nothing here knows what a stub says to anyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import devkit
from devkit.transport import messages

log = logging.getLogger("devkit.launcher")

STUB = Path(devkit.__file__).parent / "stub" / "__main__.py"
_READY_SECONDS = 60.0
_MOST_WARM = 4
"""Warm processes kept beside the plain one; each holds the imports of one model's last load."""

_Kind = tuple[str, "frozenset[tuple[str, str]] | None", tuple[str, ...]]
"""What warm processes differ in: interpreter, environment variables, imports."""

NEVER_WARM = frozenset({"grpc", "tritonclient", "cupy", "tensorflow", "ray"})
"""Modules that start threads or open devices when imported: a fork after that is not safe."""


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
    note: str = ""
    popen: subprocess.Popen[bytes] | None = None
    exit: asyncio.Future[int] | None = field(default=None, repr=False)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; a process that has ended already is no error."""
        if self.status() is None:
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

    def on_end(self, call: Callable[[], object]) -> None:
        """Call once it has ended. Its sockets do not tell where a child of its holds them open."""
        loop = asyncio.get_running_loop()
        if self.exit is not None:
            self.exit.add_done_callback(lambda _: call())
        elif hasattr(os, "pidfd_open"):  # Linux; a zombie, which nobody else reaps, still counts
            descriptor = os.pidfd_open(self.pid)

            def ended() -> None:
                loop.remove_reader(descriptor)
                os.close(descriptor)
                call()

            loop.add_reader(descriptor, ended)

    def status(self) -> int | None:
        """Exit status if it has ended and was reaped, else None."""
        if self.popen is not None:
            return self.popen.poll()
        if self.exit is not None and self.exit.done():
            return self.exit.result()
        return None


@dataclass(slots=True)
class Ends:
    """Both ends of what connects a stub: ours for the event loop, theirs to be inherited."""

    ours: list[socket.socket]
    theirs: list[socket.socket]
    pipes: list[int]
    their_pipes: list[int]

    @classmethod
    def open(cls) -> Ends:
        pairs = [socket.socketpair() for _ in range(3)]
        for ours, _ in pairs:
            ours.setblocking(False)
        (out, their_out), (err, their_err) = os.pipe(), os.pipe()
        return cls(
            [pair[0] for pair in pairs], [pair[1] for pair in pairs],
            [out, err], [their_out, their_err],
        )  # fmt: skip

    def process(self, pid: int, method: str, note: str) -> Process:
        """The stub at the other ends."""
        data, control, bls = self.ours
        return Process(pid, data, control, bls, self.pipes[0], self.pipes[1], method, note)

    def close_theirs(self) -> None:
        for end in self.theirs:
            end.close()
        for pipe in self.their_pipes:
            os.close(pipe)

    def close_ours(self) -> None:
        for end in self.ours:
            end.close()
        for pipe in self.pipes:
            os.close(pipe)


class Zygote:
    """A warm process that forks stubs (`stub.zygote` says what is spoken with it)."""

    def __init__(
        self, python: str, modules: tuple[str, ...], env: Mapping[str, str] | None = None
    ) -> None:
        self.modules = modules
        self.unusable = ""
        self.served = False
        self.exits: dict[int, asyncio.Future[int]] = {}
        self._early: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._reader = messages.FrameReader()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        try:
            self._popen = subprocess.Popen(
                [python, "-Xfrozen_modules=off", str(STUB), "--zygote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=env,
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._loop.add_reader(self._socket, self._on_readable)
        self.ready = self._loop.create_future()
        self._send({"op": "preload", "modules": list(modules)})

    @property
    def pid(self) -> int:
        """Process id of the warm process itself."""
        return self._popen.pid

    def alive(self) -> bool:
        """Whether it can be asked to fork."""
        return not self.unusable and self._socket.fileno() >= 0

    def killed(self) -> bool:
        """Whether it has ended although it did its work: another one will do it again."""
        return self.served and self._socket.fileno() < 0 and self._popen.poll() is not None

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        data = messages.json_frame(messages.CONTROL, message)
        if descriptors:
            socket.send_fds(self._socket, [data], descriptors)
        else:
            self._socket.send(data)

    async def fork(self, ends: Ends) -> tuple[int, asyncio.Future[int]]:
        """Fork a stub on `ends`: its pid and, later, its exit status. OSError when it cannot."""
        number = next(self._numbers)
        future = self._calls[number] = self._loop.create_future()
        descriptors = [end.fileno() for end in ends.theirs] + ends.their_pipes
        self._send({"op": "fork", "call": number}, descriptors)
        try:
            answer = await asyncio.wait_for(future, _READY_SECONDS)
        finally:
            self._calls.pop(number, None)
        if answer["op"] != "forked":
            self.unusable = answer["reason"]
            raise OSError(answer["reason"])
        self.served = True
        pid = answer["pid"]
        status = self.exits[pid] = self._loop.create_future()
        if pid in self._early:
            status.set_result(self._early.pop(pid))
        return pid, status

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        for _, payload in self._reader.feed(data):
            self._on_message(messages.parse_json(payload))

    def _on_message(self, message: dict[str, Any]) -> None:
        if message["op"] == "preloaded":
            self.unusable = message["reason"]
            if not self.ready.done():
                self.ready.set_result(None)
        elif message["op"] == "exited":
            future = self.exits.pop(message["pid"], None)
            if future is None:
                self._early[message["pid"]] = message["status"]
            elif not future.done():
                future.set_result(message["status"])
        else:
            future_answer = self._calls.get(message["call"])
            if future_answer is not None and not future_answer.done():
                future_answer.set_result(message)

    def _ended(self) -> None:
        """It is gone, and by the parent-death signal so are its stubs."""
        self.unusable = self.unusable or "the warm process ended"
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if not self.ready.done():
            self.ready.set_result(None)
        for call in self._calls.values():
            if not call.done():
                call.set_result({"op": "refused", "reason": self.unusable})
        for status in self.exits.values():
            if not status.done():
                status.set_result(-signal.SIGKILL)
        self.exits.clear()

    async def stop(self) -> None:
        """End it; its stubs must have ended."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
        for _ in range(200):
            if self._popen.poll() is not None:
                return
            await asyncio.sleep(0.005)
        self._popen.kill()
        self._popen.wait()


class Launcher:
    """Starts stubs with the interpreter of their model, warm where that is safe."""

    def __init__(self, python: str = "") -> None:
        self.python = python or sys.executable
        self._modules: dict[tuple[str, str], tuple[str, ...]] = {}
        self._zygotes: dict[_Kind, Zygote] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    async def start(
        self,
        method: str,
        modules: tuple[str, ...] = (),
        python: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a stub by `method`; `warm` falls back to `spawn` where forking is not safe.

        `env` are all its environment variables, None for ours: a warm process is forked from only
        for what it was itself started with. Raises OSError when the interpreter cannot be run.
        """
        python = python or self.python
        if method == "spawn":
            return self.spawn(python, env=env)
        zygote = await self._warm(python, modules, env)
        if zygote is None:
            return self.spawn(python, env=env)
        ends = Ends.open()
        try:
            pid, status = await zygote.fork(ends)
        except OSError as problem:
            log.info("starting a fresh process instead of forking a warm one: %s", problem)
            ends.close_ours()
            return self.spawn(python, str(problem), env)
        except BaseException:
            ends.close_ours()
            raise
        finally:
            ends.close_theirs()
        note = f"forked from a warm process with {_names(zygote.modules)} imported"
        process = ends.process(pid, "warm", note)
        process.exit = status
        return process

    async def _warm(
        self, python: str, modules: tuple[str, ...], env: Mapping[str, str] | None
    ) -> Zygote | None:
        """The warm process for these imports, else the plain one, else None."""
        for wanted in dict.fromkeys((_preloadable(modules), ())):
            zygote = self._zygote(python, wanted, env)
            await zygote.ready
            if zygote.alive():
                return zygote
            log.debug("no warm start with %s: %s", _names(wanted), zygote.unusable)
        return None

    def _zygote(
        self, python: str, wanted: tuple[str, ...], env: Mapping[str, str] | None
    ) -> Zygote:
        key = (python, None if env is None else frozenset(env.items()), wanted)
        zygote = self._zygotes.get(key)
        if zygote is not None and zygote.killed():
            del self._zygotes[key]
            zygote = None
        if zygote is None:
            self._make_room()
            zygote = self._zygotes[key] = Zygote(python, wanted, env)
        return zygote

    def _make_room(self) -> None:
        """Let go of warm processes that nothing was forked from, when there are many."""
        plain: _Kind = (self.python, None, ())
        idle = [
            key for key, zygote in self._zygotes.items()
            if key != plain and not zygote.exits and zygote.ready.done()
        ]  # fmt: skip
        while len(self._zygotes) > _MOST_WARM and idle:
            task = asyncio.get_running_loop().create_task(self._zygotes.pop(idle.pop(0)).stop())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    def modules_of(self, model: str, python: str = "") -> tuple[str, ...]:
        """Third-party modules that `model` imported last time in that interpreter."""
        return self._modules.get((model, python or self.python), ())

    def remember(
        self,
        model: str,
        modules: tuple[str, ...],
        *,
        warm: bool = True,
        python: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Keep what `model` imported, and begin to import it for its next start."""
        python = python or self.python
        self._modules[model, python] = modules
        wanted = _preloadable(modules)
        if warm and wanted:
            self._zygote(python, wanted, env)

    def warm_pids(self) -> list[int]:
        """Process ids of the warm processes, for whoever shows memory."""
        return [zygote.pid for zygote in self._zygotes.values() if zygote.alive()]

    async def stop(self) -> None:
        """End the warm processes."""
        zygotes, self._zygotes = list(self._zygotes.values()), {}
        await asyncio.gather(*(zygote.stop() for zygote in zygotes), *self._retiring)

    def spawn(
        self, python: str = "", note: str = "", env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a stub by exec. Raises OSError when the interpreter cannot be run."""
        ends = Ends.open()
        command = [python or self.python, "-Xfrozen_modules=off", str(STUB)]
        for name, end in zip(("--data", "--control", "--bls"), ends.theirs, strict=True):
            command += [name, str(end.fileno())]
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=ends.their_pipes[0],
                stderr=ends.their_pipes[1],
                pass_fds=[end.fileno() for end in ends.theirs],
                env=env,
                start_new_session=True,  # a Ctrl-C meant for the runtime must not reach the models
            )
        except BaseException:
            ends.close_ours()
            raise
        finally:
            ends.close_theirs()
        process = ends.process(popen.pid, "spawn", note)
        process.popen = popen
        return process


def _preloadable(modules: tuple[str, ...]) -> tuple[str, ...]:
    if NEVER_WARM.intersection(modules):
        return ()
    return tuple(sorted(set(modules) - {"numpy"}))


def _names(modules: tuple[str, ...]) -> str:
    return ", ".join(("NumPy", *modules))
