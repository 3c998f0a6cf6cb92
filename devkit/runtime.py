"""The runtime process: where the command line becomes an engine with its front ends, and ends.

The composition root of `python -m devkit.runtime` (what `devkit serve` runs). Everything is made
and wired here and handed down; nothing below fetches a global. No request passes through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import io
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from devkit import __version__
from devkit.contract import flags
from devkit.contract.flags import CommandLine, UsageError
from devkit.control import discovery, messages
from devkit.control.debugger import Debuggers
from devkit.control.scratch import Scratch
from devkit.control.server import ControlServer
from devkit.control.snapshots import Photographer
from devkit.core.engine import Engine
from devkit.core.options import Options
from devkit.core.watcher import Watcher
from devkit.errors import DevkitError
from devkit.observe.capture import Capture
from devkit.observe.logs import Log
from devkit.observe.trace_extension import Extension
from devkit.observe.traces import Tracer
from devkit.protocols import access
from devkit.protocols.local import LocalServer

log = logging.getLogger("devkit.runtime")

_BACKEND_SETTINGS = {
    "shm-default-byte-size": ("shm_default_byte_size", int),
    "shm-growth-byte-size": ("shm_growth_byte_size", int),
    "stub-timeout-seconds": ("stub_timeout_seconds", float),
}
_TRACE_SETTINGS = {
    "rate": "trace_rate", "count": "trace_count", "file": "trace_file", "mode": "trace_mode",
    "log-frequency": "log_frequency",
}  # fmt: skip


class StartError(DevkitError):
    """The runtime cannot start as it was asked to; nothing runs, the exit status is 1."""


# --- command line to options --------------------------------------------------------------------


def options_of(line: CommandLine) -> Options:
    """The core's options out of a command line; UsageError where a value cannot be taken."""
    values = line.values
    known = {field.name for field in dataclasses.fields(Options)}
    taken = {name: value for name, value in values.items() if name in known}
    if values["response_cache_byte_size"]:
        taken["cache_config"] = (f"local,size={values['response_cache_byte_size']}",)
    workspace = values["workspace"]
    taken["workspace"] = Path(workspace).resolve() if workspace else discovery.workspace_of()
    taken["model_repository"] = [Path(one).absolute() for one in line.repositories]
    for key, text in line.backend.get("python", {}).items():
        if key not in _BACKEND_SETTINGS:
            line.notes.append(f"--backend-config=python,{key} has no effect: devkit lacks it")
            continue
        name, convert = _BACKEND_SETTINGS[key]
        try:
            taken[name] = convert(text)
        except ValueError:
            raise UsageError(f"--backend-config=python,{key}: '{text}' is not a number") from None
    for backend in line.backend.keys() - {"python", ""}:
        line.notes.append(
            f"--backend-config={backend},... has no effect: devkit runs Python models"
        )
    return Options(**taken)


def apply_settings(engine: Engine, line: CommandLine) -> None:
    """What the command line says about logging and tracing, and the server's name."""
    values = line.values
    settings = engine.log_settings
    for name in ("log_file", "log_info", "log_warning", "log_error", "log_format"):
        setattr(settings, name, values[name])
    settings.log_verbose_level = values["log_verbose"]
    engine.server_name = values["id"]
    for scope in ("", "triton"):
        for key, value in line.trace.get(scope, {}).items():
            if key == "level":
                engine.trace_settings.trace_level = value.split(",")
            elif key in _TRACE_SETTINGS:
                if key not in ("file", "mode") and not value.lstrip("-").isdecimal():
                    raise UsageError(f"--trace-config {key}={value}: not a number")
                setattr(engine.trace_settings, _TRACE_SETTINGS[key], value)
            else:
                line.notes.append(f"--trace-config={key} has no effect: no such setting")
    if engine.trace_settings.trace_mode != "triton":
        line.notes.append(
            f"--trace-config=mode={engine.trace_settings.trace_mode} has no effect: "
            "`devkit trace --otlp URL` sends traces to a collector"
        )


# --- the process --------------------------------------------------------------------------------


class Front:
    """One front end: how it is started and stopped, whatever it is made of.

    `more` is text that a metrics page ends with, None for the real server's page alone.
    """

    def __init__(self, protocol: str, address: str, port: int) -> None:
        self.protocol = protocol
        self.address = address
        self.port = port
        self.more: Callable[[], str] | None = None
        self._server: Any = None

    async def start(self, engine: Engine, values: dict[str, Any]) -> None:
        """Listen. Raises StartError where the port is taken."""
        try:
            if self.protocol == "http":
                from devkit.protocols.http import HttpFront

                self._server = HttpFront(engine, access.of_http(values))
            elif self.protocol == "grpc":
                from devkit.protocols.grpc import GrpcFront

                self._server = GrpcFront(engine, access=access.of_grpc(values))
            else:
                from devkit.protocols.metrics import MetricsFront

                self._server = MetricsFront(engine, self.more)
            self.port = await self._server.start(self.address, self.port)
        except OSError as problem:
            raise _port_taken(self.protocol, self.address, self.port, problem) from problem

    async def stop(self) -> None:
        """Close what is open; nothing more is answered."""
        if self._server is not None:
            await self._server.stop()

    @property
    def endpoint(self) -> messages.Endpoint:
        """As the faces see it."""
        return messages.Endpoint(self.protocol, self.address, self.port)


_TITLES = {"http": "HTTPService", "grpc": "GRPCInferenceService", "metrics": "Metrics Service"}


class Runtime:
    """An engine, its front ends and its observers, from start to end."""

    def __init__(self, options: Options, line: CommandLine) -> None:
        self.options = options
        self.line = line
        self.engine = Engine(options)
        apply_settings(self.engine, line)
        self.engine.traces = Tracer(self.engine, Extension(self.engine.trace_settings))
        self.lines = Log(self.engine.log_settings)
        self.capture = Capture()
        self.scratch = Scratch(options.workspace)
        self.fronts = [
            Front(name, line.values[f"{name}_address"], line.values[f"{name}_port"])
            for name in ("grpc", "http", "metrics")
            if line.values[f"allow_{name}"]
        ]
        self._stop = asyncio.Event()
        self._signals = 0
        self._information = self._describe()
        self._debuggers: Debuggers | None = None
        self._cleanup = contextlib.AsyncExitStack()

    def _describe(self) -> messages.Runtime:
        workspace = self.options.workspace
        return messages.Runtime(
            pid=os.getpid(),
            workspace=str(workspace),
            started=time.time(),
            control=str(discovery.socket_path(workspace, "control")),
            local=str(discovery.socket_path(workspace, "local")),
            repositories=tuple(str(one) for one in self.options.model_repository),
            scratch=str(self.scratch.root),
            log_file=self.engine.log_settings.log_file or _where_stderr_goes(),
            python=self.options.python or sys.executable,
            devkit=__version__,
            server_version=self.engine.server_version,
        )

    async def run(self) -> int:
        """Start, serve until a signal or a face says stop, and end; the exit status."""
        self.lines.install()
        self._cleanup.callback(self.lines.close)
        self._cleanup.callback(self.engine.traces.extension.close)
        async with self._cleanup:
            for note in self.line.notes:
                log.warning(note)
            self._check()
            self._hear_signals()
            await self._start()
            await self._stop.wait()
            await self._drain()
        return 0

    def _check(self) -> None:
        """Refuse what cannot work before anything is loaded."""
        for repository in self.options.model_repository:
            if not repository.is_dir():
                raise StartError(
                    f"the model repository {repository} is not a folder",
                    remedy="a model repository holds a folder per model: NAME/1/model.py",
                )
        access.of_http(self.line.values)
        access.of_grpc(self.line.values)
        for front in self.fronts:
            _check_port(front)

    async def _start(self) -> None:
        engine, options = self.engine, self.options
        given = list(options.model_repository)
        options.model_repository = [self.scratch.root, *given]  # a cell's model comes first
        local = LocalServer(engine, self._listener("local"))
        photographer = Photographer(engine, self._information, local.slabs)
        control = ControlServer(
            engine, photographer, self.scratch, self.capture, self.lines, self.stop
        )
        self._debuggers = control.debuggers
        self._cleanup.callback(discovery.withdraw, self._information)
        await control.start(self._listener("control"))
        self._cleanup.push_async_callback(control.stop)
        self.capture.listen(engine.taps)
        engine.taps.logs.append(self.lines.on_model_line)
        discovery.publish(self._information)  # from here on a face can see what loads
        self._cleanup.push_async_callback(self._end_engine)
        await self._watch(given)
        failures = await self._unless_stopped(engine.start())
        if self._stop.is_set():
            return
        if failures and options.exit_on_error:
            raise StartError("creating server: Internal - failed to load all models")
        if not self.line.values["quiet"]:
            self._show_models()
        local.start()
        self._cleanup.callback(local.stop)
        for front in self.fronts:
            if self.line.values["devkit_metrics"]:
                from devkit.protocols import devkit_metrics

                history = control.watch.history
                front.more = partial(devkit_metrics.text, engine, history, photographer.shared)
            await front.start(engine, self.line.values)
            self._cleanup.push_async_callback(front.stop)
            log.info("Started %s at %s:%d", _TITLES[front.protocol], front.address, front.port)
        self._information = dataclasses.replace(
            self._information, endpoints=tuple(front.endpoint for front in self.fronts)
        )
        photographer.runtime = self._information
        discovery.publish(self._information)
        log.info("Started control API for %s at %s", options.workspace, self._information.control)
        gc.collect()
        gc.freeze()  # what is alive now stays: no need to look at it again on every collection

    async def _watch(self, repositories: list[Path]) -> None:
        """Watch before anything is loaded: a change during the load must not be missed."""
        mode = self.options.model_control_mode
        if self.options.watch or mode == "poll":
            watcher = Watcher(self.engine, repositories, explicit=mode == "explicit")
            watcher.start()
            self._cleanup.push_async_callback(watcher.stop)
            await asyncio.sleep(0)  # its first turn, in which the system begins to watch

    def _listener(self, purpose: str) -> socket.socket:
        path = discovery.socket_path(self.options.workspace, purpose)
        listener = discovery.bind(path)
        self._cleanup.callback(path.unlink, missing_ok=True)
        return listener

    async def _unless_stopped(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`, or `[]` when the stop comes before it: loading may take long."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            return task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return []

    # -- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin the end; safe to call again."""
        self._stop.set()

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            log.warning("Signal (%d) received again: not waiting any longer.", number)
            for task in asyncio.all_tasks():
                if task.get_name() == "drain":
                    task.cancel()
            return
        log.info("Signal (%d) received.", number)
        self.stop()

    async def _drain(self) -> None:
        """Let running requests end; their front ends are still there to answer them."""
        discovery.withdraw(self._information)
        if self._debuggers is not None:
            await self._debuggers.close()
        log.info("Waiting for in-flight requests to complete.")
        task = asyncio.get_running_loop().create_task(self.engine.stop(), name="drain")
        try:
            await task
        except asyncio.CancelledError:
            await self.engine.stop(0.0)

    async def _end_engine(self) -> None:
        """End what a failed start has left; after a drain there is nothing."""
        await self.engine.stop(0.0)

    # -- what is shown ---------------------------------------------------------------------------

    def _show_models(self) -> None:
        rows = [
            (row.name, row.version, f"{row.state}: {row.reason}" if row.reason else row.state)
            for row in self.engine.index()
            if row.state or self.options.model_control_mode != "explicit"
        ]
        log.info("", extra={"table": model_table(rows, colour=sys.stderr.isatty())})


def model_table(rows: Sequence[tuple[str, str, str]], *, colour: bool = False) -> str:
    """tritonserver's table of models and their status."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ASCII2, header_style="bold")
    for title in ("Model", "Version", "Status"):
        table.add_column(title, overflow="fold")
    for name, version, status in rows:
        style = "green" if status == "READY" else "red"
        table.add_row(Text(name), Text(version), Text(status, style=style))
    text = io.StringIO()
    Console(file=text, force_terminal=colour, no_color=not colour, width=160).print(table)
    return text.getvalue()


def _check_port(front: Front) -> None:
    if not front.port:
        return
    family = socket.AF_INET6 if ":" in front.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((front.address, front.port))
            probe.listen(1)
        except OSError as problem:
            raise _port_taken(front.protocol, front.address, front.port, problem) from problem


def _port_taken(protocol: str, address: str, port: int, problem: OSError) -> StartError:
    return StartError(
        f"{protocol} cannot listen on {address}:{port}: {problem.strerror or problem}",
        remedy=f"choose another with --{protocol}-port=N, or any free ones with --port=0",
    )


def _where_stderr_goes() -> str:
    """The file that stderr is redirected to, as a face does it; empty for a terminal or pipe."""
    try:
        target = os.readlink("/proc/self/fd/2")
    except OSError:
        return ""
    return target if target.startswith("/") and os.path.isfile(target) else ""


def _report(problem: DevkitError) -> None:
    print(f"error: {problem.message}", file=sys.stderr)
    if problem.remedy:
        print(f"  {problem.remedy}", file=sys.stderr)


def _run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        import uvloop
    except ImportError:  # not on this platform
        return asyncio.run(main())
    return uvloop.run(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a runtime until it is told to stop; the exit status of the process."""
    try:
        line = flags.parse(sys.argv[1:] if arguments is None else arguments)
        if line.help:
            print(flags.help_text())
            return 0
        options = options_of(line)

        async def serve() -> int:
            return await Runtime(options, line).run()

        return _run(serve)
    except DevkitError as problem:
        _report(problem)
        return 1


if __name__ == "__main__":
    sys.exit(main())
