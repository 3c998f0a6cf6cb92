"""A model's packages as an archive that the Python backend unpacks: `EXECUTION_ENV_PATH`.

Of a conda environment by `conda-pack`; of a venv, or any other interpreter, by hand: what the model
needs, an `activate` that finds its own folder, and a `pyvenv.cfg` that names the server's Python.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from devkit.errors import DevkitError

VALUE = "$$TRITON_MODEL_DIRECTORY/env.tar.gz"
ARCHIVE = "env.tar.gz"

_FILES = """
import importlib.metadata as meta, json, re, sys
names = json.loads(sys.argv[1])
found = []
for name in names:
    dist = meta.distribution(name)
    if not dist.files:
        sys.exit(f"{name} does not say which files it has")
    if (dist.read_text("direct_url.json") or "").find('"editable": true') >= 0:
        sys.exit(f"{name} is an editable install: build a wheel of it and install that")
    for one in dist.files:
        if not str(one).startswith("..") and not str(one).endswith(".pyc"):
            found.append([str(one), str(dist.locate_file(one))])
print(json.dumps({"files": found, "python": "%d.%d" % sys.version_info[:2],
                  "base": sys.base_prefix, "version": sys.version.split()[0]}))
"""

_ACTIVATE = """\
# Sourced by the Python backend's stub; finds its own folder, wherever it was unpacked.
VIRTUAL_ENV="$(cd "$(dirname "${{BASH_SOURCE[0]:-$0}}")/.." && pwd)"
export VIRTUAL_ENV
export PATH="$VIRTUAL_ENV/bin:$PATH"
export PYTHONPATH="$VIRTUAL_ENV/lib/python{python}/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
unset PYTHONHOME
"""


class PackingError(DevkitError):
    """The environment cannot be packed; `remedy` says what helps."""


def pack(packages: Sequence[str], target: Path, *, python: str = "", home: str = "") -> str:
    """Write the archive; returns the version of Python that it is for.

    `python` is the interpreter whose packages are taken, `home` the folder of the server's own
    (`/usr/bin` in Triton's containers).
    """
    interpreter = python or sys.executable
    prefix = _prefix(interpreter)
    if (prefix / "conda-meta").is_dir():
        return _conda(interpreter, prefix, target)
    told = _ask(interpreter, packages)
    version = told["python"]
    site = f"lib/python{version}/site-packages"
    home = home or "/usr/bin"
    with tarfile.open(target, "w:gz", compresslevel=6) as archive:
        config = (
            f"home = {home}\ninclude-system-site-packages = true\nversion = {told['version']}\n"
        )
        _add(archive, "pyvenv.cfg", config)
        _add(archive, "bin/activate", _ACTIVATE.format(python=version))
        for name in ("python", "python3", f"python{version}"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, f"{home}/python{version}"
            archive.addfile(link)
        for name, source in told["files"]:
            path = Path(source)
            if path.is_file():
                archive.add(path, f"{site}/{name}", recursive=False, filter=_anonymous)
    return str(version)


def _prefix(interpreter: str) -> Path:
    done = subprocess.run(
        [interpreter, "-c", "import sys; print(sys.prefix)"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode:
        raise PackingError(f"{interpreter} does not run", remedy="name another with --python")
    return Path(done.stdout.strip())


def _ask(interpreter: str, packages: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(
        [interpreter, "-c", _FILES, json.dumps(list(packages))],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PackingError(
            f"the packages of {interpreter} cannot be packed: {last}",
            remedy="install them with pip into the interpreter that serves the model",
        )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _conda(interpreter: str, prefix: Path, target: Path) -> str:
    command = [interpreter, "-m", "conda_pack", "-p", str(prefix), "-o", str(target), "--force"]
    command += ["--ignore-editable-packages"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PackingError(
            f"conda-pack failed for {prefix}: {last}",
            remedy="install it into the environment: `conda install conda-pack`",
        )
    version = subprocess.run(
        [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return version.stdout.strip()


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755 if name.startswith("bin/") else 0o644
    archive.addfile(member, io.BytesIO(data))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the packing machine's user."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def members(archive: Path) -> Iterator[str]:
    """Names of what an archive holds."""
    with tarfile.open(archive) as opened:
        yield from opened.getnames()
