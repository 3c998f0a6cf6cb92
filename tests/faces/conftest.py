"""A workspace with a runtime of its own, and kernels in it, as a person has them."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil
import pytest
from jupyter_client.manager import start_new_kernel

from devkit.control import discovery

ROOT = Path(__file__).parents[2]


@dataclass
class Workspace:
    """A folder and the runtime that serves it, on ports that the system chose."""

    folder: Path
    log: Path
    process: subprocess.Popen = field(init=False)

    def serve(self, *arguments):
        command = [sys.executable, "-m", "devkit.cli", "serve", *map(str, arguments)]
        command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT
            )
        while not (self.runtime() and self.runtime().endpoints):
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        return self

    def runtime(self):
        return discovery.find(self.folder)

    def stop(self):
        """Ask the runtime to end; whatever it started must be gone with it."""
        if self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(30) == 0, self.log.read_text()
            _, alive = psutil.wait_procs(children, timeout=5)
            assert not alive
        entries = [name for name in os.listdir("/dev/shm") if f"devkit-{self.process.pid}-" in name]
        assert not entries


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("DEVKIT_WORKSPACE", str(folder))
    monkeypatch.setenv("DEVKIT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    one = Workspace(folder, tmp_path / "log")
    one.serve()
    yield one
    one.stop()


@dataclass
class Result:
    """What a cell put out: its text, its HTML, and its error's text without colours."""

    text: str = ""
    html: str = ""
    error: str = ""


class Kernel:
    """A Jupyter kernel with the extension loaded; `run` is pressing Shift-Enter."""

    def __init__(self, folder):
        self.manager, self.client = start_new_kernel(
            kernel_name="python3", cwd=str(folder), startup_timeout=60
        )
        self.run("%load_ext devkit\nimport devkit\nimport numpy as np")

    def run(self, code, *, fails=False):
        displays: dict[str, dict] = {}
        result = Result()

        def collect(message):
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                result.text += content["text"]
            elif kind in ("display_data", "update_display_data", "execute_result"):
                name = content.get("transient", {}).get("display_id") or str(len(displays))
                displays[name] = content["data"]
            elif kind == "error":
                result.error = nbformat.v4.output_from_msg(message)["traceback"]
                result.error = strip_colours("\n".join(result.error))

        reply = self.client.execute_interactive(
            code, timeout=60, output_hook=collect, allow_stdin=False
        )
        result.text += "".join(data.get("text/plain", "") + "\n" for data in displays.values())
        result.html = "".join(data.get("text/html", "") for data in displays.values())
        assert (reply["content"]["status"] == "error") == fails, result.error or result.text
        return result

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def strip_colours(text):
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def kernel(workspace):
    one = Kernel(workspace.folder)
    yield one
    one.close()


@pytest.fixture
def new_kernel(workspace):
    """Makes further kernels of the same workspace."""
    made = []

    def make():
        made.append(Kernel(workspace.folder))
        return made[-1]

    yield make
    for one in made:
        one.close()
