"""Which runtime serves a workspace, and where: small files in the user's own runtime folder.

A runtime writes one file when it is up and removes it when it ends; a face finds the runtime of
its folder, or of the nearest folder above, by reading them. A file whose runtime is gone is
removed by whoever meets it. Nothing here starts, stops or calls a runtime.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from devkit.control.messages import Runtime, from_json, to_json
from devkit.errors import ControlError

SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
"""Longest path of a Unix socket: `sun_path` holds one byte more, for the end of the string."""

_LONGEST_NAME = len("0123456789abcdef-4194304.control.sock")


def runtime_dir() -> Path:
    """The user's own folder for sockets and discovery files, made 0700 where it is missing.

    `DEVKIT_RUNTIME_DIR`, else `devkit` in `XDG_RUNTIME_DIR`, else `devkit-<uid>` in the temporary
    folder. Raises ControlError where somebody else could write there.
    """
    for candidate in _candidates():
        if len(os.fsencode(candidate)) + 1 + _LONGEST_NAME > SOCKET_PATH_LIMIT:
            continue
        try:
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        _check_private(candidate)
        return candidate
    raise ControlError(
        "no folder for the runtime's sockets could be made",
        remedy="set DEVKIT_RUNTIME_DIR to a folder of yours with a short path",
    )


def _candidates() -> Iterator[Path]:
    explicit = os.environ.get("DEVKIT_RUNTIME_DIR")
    if explicit:
        yield Path(explicit).absolute()
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and os.path.isdir(session):
        yield Path(session) / "devkit"
    yield Path(tempfile.gettempdir()) / f"devkit-{os.getuid()}"
    yield Path("/tmp") / f"devkit-{os.getuid()}"


def _check_private(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise ControlError(
            f"{folder} belongs to somebody else",
            remedy="set DEVKIT_RUNTIME_DIR to a folder of yours",
        )
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def workspace_of(folder: Path | str | None = None) -> Path:
    """The workspace that `folder` (the current one) belongs to, whether a runtime runs or not.

    `DEVKIT_WORKSPACE` where no folder is given, else the nearest folder from there upwards that
    holds a `.devkit`, else the folder itself.
    """
    if folder is None:
        named = os.environ.get("DEVKIT_WORKSPACE")
        if named:
            return Path(named).resolve()
    start = Path(folder or Path.cwd()).resolve()
    for place in (start, *start.parents):
        if (place / ".devkit").is_dir():
            return place
    return start


def workspace_id(workspace: Path) -> str:
    """What file names call a workspace: its path may be too long for a socket's."""
    return hashlib.sha256(os.fsencode(workspace.resolve())).hexdigest()[:16]


def socket_path(workspace: Path, purpose: str, pid: int | None = None) -> Path:
    """Where the socket for `purpose` (`control`, `local`) of the runtime `pid` (this) goes."""
    name = f"{workspace_id(workspace)}-{pid or os.getpid()}.{purpose}.sock"
    return runtime_dir() / name


def log_path(workspace: Path) -> Path:
    """Where a runtime that a face starts writes its log."""
    return runtime_dir() / f"{workspace_id(workspace)}.log"


def bind(path: Path, backlog: int = 128) -> socket.socket:
    """A listening Unix socket at `path` that only this user can connect to."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        previous = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(previous)
        os.chmod(path, 0o600)
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def publish(runtime: Runtime) -> Path:
    """Write the discovery file of this runtime; the old one is replaced at once, never half."""
    target = _file(runtime)
    partial = target.with_suffix(".part")
    partial.touch(mode=0o600)
    partial.write_text(to_json(runtime), encoding="utf-8")
    partial.replace(target)
    return target


def withdraw(runtime: Runtime) -> None:
    """Remove the discovery file and the sockets of a runtime that ends or is gone."""
    for path in (_file(runtime), Path(runtime.control), Path(runtime.local)):
        path.unlink(missing_ok=True)


def running() -> list[Runtime]:
    """Every runtime of this user that answers, the newest first; stale files are removed."""
    found = []
    for file in runtime_dir().glob("*.json"):
        runtime = _read(file)
        if runtime is not None and answers(runtime):
            found.append(runtime)
        else:
            _clear(file, runtime)
    return sorted(found, key=lambda one: one.started, reverse=True)


def find(workspace: Path | str | None = None) -> Runtime | None:
    """The runtime of `workspace`, or, where none is named, of this folder or the nearest above."""
    alive: dict[str, Runtime] = {}
    for runtime in running():
        alive.setdefault(runtime.workspace, runtime)
    start = workspace_of() if workspace is None else Path(workspace).resolve()
    places = (start,) if workspace is not None else (start, *start.parents)
    return next((alive[str(place)] for place in places if str(place) in alive), None)


def _file(runtime: Runtime) -> Path:
    return runtime_dir() / f"{workspace_id(Path(runtime.workspace))}-{runtime.pid}.json"


def _read(file: Path) -> Runtime | None:
    try:
        return from_json(Runtime, file.read_bytes())
    except (OSError, ValueError):
        return None


def answers(runtime: Runtime) -> bool:
    """Whether somebody listens at its socket: a pid alone may belong to another process by now."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(runtime.control)
    except OSError as problem:
        return problem.errno in (errno.EAGAIN, errno.EINTR)
    finally:
        probe.close()
    return True


def _clear(file: Path, runtime: Runtime | None) -> None:
    file.unlink(missing_ok=True)
    if runtime is not None:
        withdraw(runtime)
