"""One running server of either kind, and what a test may ask of it.

A test talks to a `Session` and does not know whether devkit or the real Triton server answers:
raw HTTP with the bytes as they come, gRPC with the generated messages, the log, and an end that
leaves nothing behind. How each kind is started is here and nowhere else in the tests.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from tritonclient.grpc import service_pb2, service_pb2_grpc

from devkit.control.client import Client, connect
from devkit.tools.real_server import RealServer, ensure, free_ports

HOST = "127.0.0.1"
START_TIMEOUT = 60.0
Kind = str  # "devkit" or "real"


class StartError(Exception):
    """The server ended, or did not answer, while starting; carries status and log."""

    def __init__(self, message: str, status: int | None, log: str) -> None:
        super().__init__(f"{message}\n{log}")
        self.status = status
        self.log = log


@dataclass(frozen=True)
class HttpAnswer:
    """What came back, byte for byte; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class GrpcAnswer:
    """A unary call's end: the message, or the status it failed with."""

    code: str
    details: str
    message: Any = None


@dataclass(frozen=True)
class StreamAnswer:
    """A stream's messages and how it ended."""

    messages: list[Any]
    code: str = "OK"
    details: str = ""


@dataclass
class Devkit:
    """`devkit serve` as a process; the twin of `RealServer` for what a Session needs of it."""

    repositories: list[Path]
    arguments: list[str]
    folder: Path
    http_port: int = 0
    grpc_port: int = 0
    metrics_port: int = 0
    process: subprocess.Popen[bytes] | None = None
    log_path: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log_path = self.folder / "log"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.poll() if self.process else None

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    @contextlib.contextmanager
    def discoverable(self) -> Iterator[None]:
        """Look for runtimes where this one has written that it is there."""
        before = os.environ.get("DEVKIT_RUNTIME_DIR")
        os.environ["DEVKIT_RUNTIME_DIR"] = str(self.folder / "run")
        try:
            yield
        finally:
            if before is None:
                del os.environ["DEVKIT_RUNTIME_DIR"]
            else:
                os.environ["DEVKIT_RUNTIME_DIR"] = before

    def start(self, *, wait: str = "ready") -> None:
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        command = [sys.executable, "-m", "devkit.cli", "serve"]
        command += [f"--model-repository={path}" for path in self.repositories]
        command += [
            f"--http-port={self.http_port}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={self.metrics_port}",
            *self.arguments,
        ]
        # A runtime directory of its own: a test never attaches to the developer's runtime.
        environment = {
            **os.environ,
            "DEVKIT_RUNTIME_DIR": str(self.folder / "run"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2])]),
            "PYTHONUNBUFFERED": "1",
        }
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        if wait:
            self._wait(f"/v2/health/{wait}")

    def _wait(self, path: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self.returncode is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(HOST, self.http_port, timeout=5)
                try:
                    connection.request("GET", path)
                    if connection.getresponse().status == 200:
                        return
                finally:
                    connection.close()
            time.sleep(0.02)
        status, log = self.returncode, self.log()
        self.kill()
        raise StartError("devkit serve did not become ready", status, log)

    def stop(self, timeout: float = 30.0) -> int | None:
        if self.process is None:
            return None
        if self.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Session:
    """A running server over `repository`; `close` ends it and checks that nothing stays."""

    def __init__(
        self,
        kind: Kind,
        repository: Path | Sequence[Path],
        arguments: Sequence[str] = (),
        *,
        wait: str = "ready",
    ) -> None:
        repositories = [repository] if isinstance(repository, Path) else list(repository)
        self.kind = kind
        self.repository = repositories[0]
        self._folder = tempfile.TemporaryDirectory(prefix=f"devkit-test-{kind}-")
        self._shm_before = shared_memory_entries()
        self._channel: grpc.Channel | None = None
        self._descendants: set[int] = set()
        self.server: RealServer | Devkit
        if kind == "real":
            log = Path(self._folder.name, "log")
            self.server = RealServer(repositories, ensure(), arguments=arguments, log=log)
        else:
            self.server = Devkit(repositories, list(arguments), Path(self._folder.name))
        try:
            self.server.start(wait=wait)
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where HTTP clients connect: `host:port`."""
        return f"{HOST}:{self.server.http_port}"

    @property
    def grpc_url(self) -> str:
        """Where gRPC clients connect: `host:port`."""
        return f"{HOST}:{self.server.grpc_port}"

    def http(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        port: int | None = None,
        timeout: float = 30.0,
    ) -> HttpAnswer:
        """One request on a connection of its own, exactly these bytes."""
        connection = http.client.HTTPConnection(
            HOST, port or self.server.http_port, timeout=timeout
        )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, found, response.read())
        finally:
            connection.close()

    def metrics(self, path: str = "/metrics") -> HttpAnswer:
        return self.http("GET", path, port=self.server.metrics_port)

    @property
    def stub(self) -> Any:
        """The generated client stub, for what `grpc` is too small for."""
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.grpc_url)
        return service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def grpc(
        self,
        method: str,
        message: Any,
        *,
        metadata: Sequence[tuple[str, str]] = (),
        timeout: float = 30.0,
    ) -> GrpcAnswer:
        """One unary call."""
        try:
            answer = getattr(self.stub, method)(message, metadata=metadata, timeout=timeout)
        except grpc.RpcError as failure:
            return GrpcAnswer(failure.code().name, failure.details() or "")  # type: ignore[attr-defined]
        return GrpcAnswer("OK", "", answer)

    def stream(
        self,
        requests: Iterable[service_pb2.ModelInferRequest],
        *,
        metadata: Sequence[tuple[str, str]] = (),
        timeout: float = 15.0,
    ) -> StreamAnswer:
        """One ModelStreamInfer call that sends all `requests` and reads to the end."""
        messages: list[Any] = []
        try:
            for message in self.stub.ModelStreamInfer(
                iter(list(requests)), metadata=metadata, timeout=timeout
            ):
                messages.append(message)
        except grpc.RpcError as failure:
            return StreamAnswer(messages, failure.code().name, failure.details() or "")  # type: ignore[attr-defined]
        return StreamAnswer(messages)

    def client(self) -> Client:
        """The control client of a devkit session."""
        assert isinstance(self.server, Devkit)
        with self.server.discoverable():
            return connect(self.server.folder, start=False)

    def log(self) -> str:
        return self.server.log()

    @contextlib.contextmanager
    def log_of(self) -> Iterator[list[str]]:
        """Collects into the list what the server logs inside the block (one entry, after it)."""
        start = len(self.log())
        written: list[str] = []
        yield written
        written.append(self.log()[start:])

    def wait_for_log(self, text: str, timeout: float = 10.0, *, since: int = 0) -> bool:
        """Wait until `text` is in the log: output of models comes through a pipe, so later."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if text in self.log()[since:]:
                return True
            time.sleep(0.02)
        return False

    def descendants(self) -> list[psutil.Process]:
        """The server's process and all below it, alive now."""
        try:
            top = psutil.Process(self.server.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def close(self, *, check: bool = True) -> int | None:
        """Stop the server; with `check`, fail if a process, port or shared memory stays."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        processes = self.descendants()
        try:
            status = self.server.stop()
            if check:
                self._check_nothing_left(processes)
            return status
        finally:
            self._folder.cleanup()

    def _check_nothing_left(self, processes: list[psutil.Process]) -> None:
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert not alive, f"{self.kind}: processes outlived the server: {alive}"
        left = self._own_entries() - self._shm_before
        assert not left, f"{self.kind}: shared memory outlived the server: {sorted(left)}"

    def _own_entries(self) -> set[str]:
        # Other servers may come and go meanwhile; both kinds carry a process id in the name.
        own = {f"devkit-{self.server.pid}-", f"devkit-real-{os.getpid()}-{self.server.http_port}-"}
        return {name for name in shared_memory_entries() if name.startswith(tuple(own))}


def shared_memory_entries() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
