"""The servers that an export is held against: the wheel's, a container's, or one that runs already.

Each is a context manager that gives a `Target`: addresses, a version, and how to load a model.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from devkit.errors import DevkitError
from devkit.tools import real_server
from devkit.tools.real_server import Installation, RealServer, free_ports

READY_SECONDS = 180.0


class TargetError(DevkitError):
    """The server cannot be had; `remedy` says what helps."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server to ask.

    Attributes:
        http: `host:port`.
        grpc: the same of gRPC; empty where it is not known.
        log: what it has written so far, where that can be read.
        loads: whether models are loaded by request; else they are there or not.
    """

    http: str
    grpc: str
    version: str
    log: Callable[[], str]
    loads: bool = True


@contextlib.contextmanager
def wheel(
    repository: Path, installation: Installation, arguments: Sequence[str]
) -> Iterator[Target]:
    """The server of the PyPI wheel, over the repository."""
    flags = ["--model-control-mode=explicit", *arguments]
    with RealServer(repository, installation, arguments=flags) as server:
        host = server.host
        yield Target(
            f"{host}:{server.http_port}", f"{host}:{server.grpc_port}",
            real_server.SERVER_VERSION, server.log,
        )  # fmt: skip


@contextlib.contextmanager
def running(url: str, grpc_url: str) -> Iterator[Target]:
    """A server that somebody else started and that serves the repository."""
    address = _address(url)
    told = _ask(address, "/v2")
    if told is None:
        raise TargetError(
            f"no Triton server answers at {address}",
            remedy="name its HTTP address: host:8000",
        )
    grpc = _address(grpc_url) if grpc_url else ""
    version = str(told.get("version", "?"))
    yield Target(address, grpc, f"{version} at {address}", lambda: "", loads=False)


@contextlib.contextmanager
def container(repository: Path, image: str, arguments: Sequence[str]) -> Iterator[Target]:
    """The server of a container image, run with Docker for as long as the block lasts."""
    docker = shutil.which("docker")
    if docker is None:
        raise TargetError(
            "there is no `docker` on the path",
            remedy="install it, or leave --docker out: then the server's wheel is used",
        )
    name = f"devkit-verify-{uuid.uuid4().hex[:12]}"
    ports = free_ports(2)
    command = [docker, "run", "--rm", "--name", name, "--shm-size=1g"]
    for port, inside in zip(ports, (8000, 8001), strict=True):
        command += ["-p", f"127.0.0.1:{port}:{inside}"]
    command += ["-v", f"{repository}:/models:ro", image, "tritonserver"]
    command += ["--model-repository=/models", "--model-control-mode=explicit", *arguments]
    lines: list[str] = []
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    )  # fmt: skip
    reader = _Reader(process, lines)
    try:
        address = f"127.0.0.1:{ports[0]}"
        _wait(address, process, lines)
        told = _ask(address, "/v2") or {}
        version = f"{told.get('version', '?')} in {image}"
        yield Target(address, f"127.0.0.1:{ports[1]}", version, lambda: "".join(lines))
    finally:
        subprocess.run([docker, "stop", "-t", "10", name], capture_output=True, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        reader.join()


class _Reader:
    """Reads what a process writes into a list, until it ends."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        def read() -> None:
            assert process.stdout is not None
            lines.extend(process.stdout)

        self._thread = threading.Thread(target=read, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(10)


def _wait(address: str, process: subprocess.Popen[str], lines: list[str]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            last = "".join(lines[-3:]).strip() or "it said nothing"
            raise TargetError(f"the container ended: {last}")
        if _ask(address, "/v2/health/ready", json_body=False) is not None:
            return
        time.sleep(0.2)
    raise TargetError(f"the container's server was not ready within {READY_SECONDS:.0f} s")


def _address(url: str) -> str:
    parts = urlsplit(url if "//" in url else f"//{url}")
    if not parts.hostname or not parts.port:
        raise TargetError(f"'{url}' is no host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port}"


def _ask(address: str, path: str, *, json_body: bool = True) -> dict[str, object] | None:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            return None
        found: dict[str, object] = json.loads(body) if json_body else {}
        return found
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
