"""A runtime of a test's own: its process, its folders, and the faces' way to it.

For tests of the control API and the command line; tests of protocols use `Session`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from devkit.control import discovery
from devkit.control.client import Client

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0

DOUBLE = """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]))
        return answers
"""

DOUBLE_CONFIG = """
backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
"""


def write_model(
    repository: Path, name: str, code: str = DOUBLE, config: str = DOUBLE_CONFIG
) -> Path:
    """A model folder with one version."""
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(textwrap.dedent(code))
    if config:
        (folder / "config.pbtxt").write_text(config)
    return folder


def eventually(what: Any, *, seconds: float = PATIENCE) -> Any:
    """The first true value of `what()`; fails when there is none in time."""
    until = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < until, f"{what} never became true"
        time.sleep(0.01)


@dataclass
class Live:
    """One runtime as a process.

    Attributes:
        folder: holds all that belongs to it: the workspace, the repository, sockets, the log.
    """

    folder: Path
    flags: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    clients: list[Client] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "w"

    @property
    def repository(self) -> Path:
        return self.folder / "models"

    def environment(self) -> dict[str, str]:
        """Where a command finds this runtime and no other."""
        return {
            **os.environ,
            "DEVKIT_RUNTIME_DIR": str(self.folder / "run"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
        }

    def start(self) -> Live:
        self.workspace.mkdir(exist_ok=True)
        self.repository.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "devkit.runtime", "--port=0",
                    f"--workspace={self.workspace}", str(self.repository), *self.flags,
                ],
                cwd=self.workspace,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        eventually(self._serves)
        return self

    def _serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with in_folder(self.folder / "run"):
            return any(one.pid == self.process.pid and one.endpoints for one in discovery.running())

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def client(self) -> Client:
        with in_folder(self.folder / "run"):
            runtime = discovery.find(self.workspace)
        assert runtime is not None
        client = Client(runtime)
        self.clients.append(client)
        return client

    def command(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """`devkit WORDS`, run in the workspace."""
        return subprocess.run(
            [sys.executable, "-m", "devkit.cli", *words],
            cwd=self.workspace,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self) -> int | None:
        """End it as a user does; checks that no process and no shared memory stays."""
        for client in self.clients:
            client.close()
        if self.process is None:
            return None
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid).children(recursive=True)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive, f"outlived the runtime: {alive}"
        left = [one.name for one in Path("/dev/shm").glob(f"devkit-{self.process.pid}-*")]
        assert not left, f"shared memory outlived the runtime: {left}"
        return status


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Look for runtimes in `folder`."""
    before = os.environ.get("DEVKIT_RUNTIME_DIR")
    os.environ["DEVKIT_RUNTIME_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["DEVKIT_RUNTIME_DIR"]
        else:
            os.environ["DEVKIT_RUNTIME_DIR"] = before


@contextlib.contextmanager
def live(*flags: str, models: dict[str, str] | None = None) -> Iterator[Live]:
    """A runtime over `models` (code by name), ended when the block ends."""
    with tempfile.TemporaryDirectory(prefix="devkit-live-") as name:
        runtime = Live(Path(name), flags)
        for model, code in (models or {}).items():
            write_model(runtime.repository, model, code)
        try:
            yield runtime.start()
        finally:
            runtime.stop()
