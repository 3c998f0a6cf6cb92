"""`python -m devkit.lab`: the whole workbench in one terminal, as `make lab` opens it.

Starts the runtime on some repositories (or joins the one this workspace has), starts JupyterLab,
prints where both are, and ends what it started when it is told to. Never serves a request itself.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from devkit.control import discovery
from devkit.control.messages import Runtime
from devkit.errors import ControlError

RUNTIME_SECONDS = 60.0
LAB_SECONDS = 60.0


class LabError(Exception):
    """The workbench could not be started; the message is one line a user can act on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until Ctrl-C, SIGTERM or the end of either process; returns the exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with _runtime(options) as runtime, _jupyter(options, runtime) as (lab, url):
            _announce(runtime, url)
            status = lab.wait()
            if status:
                how = f"by signal {-status}" if status < 0 else f"with status {status}"
                raise LabError(f"JupyterLab ended {how}")
            return 0
    except LabError as problem:
        print(f"devkit: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m devkit.lab", description=__doc__)
    parser.add_argument("repositories", nargs="*", type=Path, help="model repositories to serve")
    parser.add_argument("--notebooks", type=Path, help="folder whose first notebook is opened")
    parser.add_argument("--http-port", type=int, default=8000)
    parser.add_argument("--grpc-port", type=int, default=8001)
    parser.add_argument("--metrics-port", type=int, default=8002)
    parser.add_argument("--lab-port", type=int, default=8888, help="the next free one is taken")
    return parser


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _runtime(options: argparse.Namespace) -> Iterator[Runtime]:
    """The runtime of this workspace: the one that runs, else one of ours until the end."""
    workspace = discovery.workspace_of()
    found = discovery.find(workspace)
    if found is not None:
        print(f"devkit: joining the runtime that serves {workspace} (pid {found.pid})")
        yield found
        return
    log = discovery.log_path(workspace)
    command = [sys.executable, "-m", "devkit.cli", "serve", "--watch", f"--workspace={workspace}"]
    command += [str(repository) for repository in options.repositories]
    for model, package in _unmet(options.repositories):
        print(f"devkit: not loading {model}: it needs {package} ({_here('pip')} install {package},")
        print(f"        then {_here('devkit')} load {model})")
        command.append(f"--skip-model={model}")
    for name in ("http", "grpc", "metrics"):
        command += [f"--{name}-port", str(getattr(options, f"{name}_port"))]
    with (
        log.open("wb") as output,
        _ended(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ) as process,
    ):
        yield _await_runtime(process, workspace, log)


def _unmet(repositories: list[Path]) -> list[tuple[str, str]]:
    """Models whose `requirements.txt` names a package that is not here, and that package."""
    found = []
    for listed in sorted(path for each in repositories for path in each.glob("*/requirements.txt")):
        for line in listed.read_text(encoding="utf-8").split():
            package = re.split(r"[\[<>=!~;#]", line)[0]
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found.append((listed.parent.name, package))
                break
    return found


def _here(program: str) -> str:
    """How to call a program of this environment from the folder where the user stands."""
    folder, here = Path(sys.executable).parent, Path.cwd()
    return str((folder.relative_to(here) if folder.is_relative_to(here) else folder) / program)


def _await_runtime(process: subprocess.Popen[bytes], workspace: Path, log: Path) -> Runtime:
    until = time.monotonic() + RUNTIME_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise LabError(_why_it_ended(log))
        found = discovery.find(workspace)
        if found is not None and found.pid == process.pid and found.endpoints:
            return found
        time.sleep(0.05)
    raise LabError(f"the runtime is not up after {RUNTIME_SECONDS:.0f} s; its log is {log}")


def _why_it_ended(log: Path) -> str:
    """What the runtime said last, with the remedy in the words of `make lab`."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if not errors:
        return f"the runtime ended: {_last_line(log)}"
    if "cannot listen" in errors[-1]:
        kind = errors[-1].partition(" ")[0].upper()
        return f"{errors[-1]}\n  choose another port: make lab {kind}_PORT=N (0 for any)"
    return errors[-1]


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextlib.contextmanager
def _jupyter(
    options: argparse.Namespace, runtime: Runtime
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """JupyterLab on this folder, and its address with the token in it."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise LabError("JupyterLab is not installed: pip install 'triton-devkit[lab]'")
    token = secrets.token_hex(24)
    with tempfile.TemporaryDirectory(prefix="devkit-lab-") as folder:
        log = Path(folder) / "jupyter.log"
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser",
            f"--ServerApp.port={options.lab_port}",
            f"--ServerApp.root_dir={Path.cwd()}",
            f"--LabApp.default_url=/lab{_first_notebook(options.notebooks)}",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            # A login shell, which is its choice, sets the path anew.
            f"--ServerApp.terminado_settings=shell_command={[_shell()]}",
        ]  # fmt: skip
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--allow-root")
        environment = {
            **os.environ,
            # So that `!devkit` and `!pip` in a cell, and a terminal, are those of this environment.
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
            ),
            "JUPYTER_TOKEN": token,
            "JUPYTER_RUNTIME_DIR": folder,
            "DEVKIT_WORKSPACE": runtime.workspace,
        }
        with (
            log.open("wb") as output,
            _ended(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            ) as process,
        ):
            address = _await_jupyter(process, Path(folder), log)
            yield process, f"{address}lab{_first_notebook(options.notebooks)}?token={token}"


def _shell() -> str:
    return os.environ.get("SHELL") or shutil.which("bash") or "/bin/sh"


def _first_notebook(folder: Path | None) -> str:
    """`/tree/...` of the first notebook of `folder`, as JupyterLab spells it; may be empty."""
    if folder is None:
        return ""
    first = min(folder.glob("*.ipynb"), default=folder)
    return f"/tree/{first.as_posix()}"


def _await_jupyter(process: subprocess.Popen[bytes], folder: Path, log: Path) -> str:
    """Jupyter's own address, from the file it writes when it listens."""
    file = folder / f"jpserver-{process.pid}.json"
    until = time.monotonic() + LAB_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise LabError(f"JupyterLab ended: {_last_line(log)}")
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return str(json.loads(file.read_text(encoding="utf-8"))["url"])
        time.sleep(0.05)
    raise LabError(f"JupyterLab is not up after {LAB_SECONDS:.0f} s: {_last_line(log)}")


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Ends `process` at the end: asked first, killed when it does not listen."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _announce(runtime: Runtime, url: str) -> None:
    rows = [("JupyterLab", url)]
    rows += [
        (f"inference, {name}" if name != "metrics" else name, runtime.url(name))
        for name in ("http", "grpc", "metrics")
        if runtime.url(name)
    ]
    rows.append(("models from", ", ".join(runtime.repositories) or "notebook cells"))
    for name, value in rows:
        print(f"  {name:<16} {value}")
    print("  Ctrl-C ends both.", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ControlError as problem:
        sys.exit(f"devkit: {problem.message}")
