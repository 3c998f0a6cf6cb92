"""The interpreter and the variables that a model's processes start with.

`EXECUTION_ENV_PATH` names an environment: an archive (conda-pack's, unpacked by `archives`) or a
folder, a conda environment's or a venv's. Its `bin/activate` is sourced, as the real server does,
and its `lib` comes first where libraries are looked for. As there, `conda-unpack` is not run: an
environment's Python finds itself wherever it lies. Which stubs run, and when, is `model`'s affair.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devkit.core import archives, interpreters
from devkit.errors import LoadError

log = logging.getLogger("devkit.environments")

PARAMETER = "EXECUTION_ENV_PATH"
MODEL_FOLDER = "$$TRITON_MODEL_DIRECTORY"
COMPILED_STUB = "triton_python_backend_stub"
_SECONDS = 120.0
_OF_THE_SHELL = ("_", "SHLVL", "PWD", "OLDPWD")
_OF_OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME")


@dataclass(frozen=True, slots=True)
class Environment:
    """What a model's processes start with.

    Attributes:
        python: the interpreter's program; empty for the runtime's own.
        variables: all environment variables; None for the runtime's own.
        named: the path that the configuration names; empty where it names none.
    """

    python: str = ""
    variables: Mapping[str, str] | None = None
    named: str = ""


async def of_model(name: str, config: Any, model_dir: Path, python: str = "") -> Environment:
    """The environment of a model whose folder is `model_dir`; `python` runs those that name none.

    Unpacks an archive that was not unpacked before. Raises LoadError, with what to do about it,
    where the environment is not there or cannot run a model.
    """
    if (model_dir / COMPILED_STUB).exists():
        log.warning(
            "model '%s': %s is ignored: it is the real server's own program, compiled for one "
            "version of Python; here an interpreter runs the model, and %s alone says which",
            name, model_dir / COMPILED_STUB, PARAMETER,
        )  # fmt: skip
    named = named_by(config, model_dir)
    if not named and not python:
        return Environment()
    return await asyncio.to_thread(resolve, name, named, python)


def named_by(config: Any, model_dir: Path) -> str:
    """The path that a configuration names, the model's folder filled in; empty where it does not.

    Only the first `$$TRITON_MODEL_DIRECTORY` is filled in, as there.
    """
    if PARAMETER not in config.parameters:
        return ""
    given: str = config.parameters[PARAMETER].string_value
    return given.replace(MODEL_FOLDER, str(model_dir), 1)


def resolve(name: str, named: str, python: str = "") -> Environment:
    """The environment at the path `named`, a relative one taken from the runtime's own folder.

    Reads files and starts processes: not for the event loop's thread. Raises LoadError.
    """
    if not named:
        interpreters.examine(python, "named by --python", None)
        return Environment(python)

    def say(what: str) -> None:
        log.info("model '%s': %s", name, what)

    log.info("model '%s': using Python execution env %s", name, named)
    folder = _folder_of(named, say)
    program = _python_in(folder)
    variables = _activated(folder)
    if program is None:
        say(f"{folder} has no bin/python3: its variables are set for the runtime's own interpreter")
        program = python or sys.executable
    known = interpreters.examine(program, f"of {PARAMETER} {named}", variables)
    say(f"runs on {program} (Python {known.version}, NumPy {known.numpy})")
    return Environment(program, variables, named)


def _folder_of(named: str, say: Callable[[str], None]) -> Path:
    path = Path(named).absolute()
    if not path.exists():
        raise LoadError(
            f"Internal: Failed to get the canonical path for {named}.",
            remedy=_missing_remedy(named, path),
        )
    folder = path if path.is_dir() else archives.unpacked(path.resolve(), say)
    script = folder / "bin" / "activate"
    if not script.is_file():
        raise LoadError(
            f"Internal: Path {script} does not exist. The Python environment should contain an "
            "'activate' script.",
            remedy="pack it with conda-pack, or name the folder of a venv; the archive's paths "
            "must begin at the environment's own folder, with bin/ and lib/",
        )
    return folder


def _missing_remedy(named: str, path: Path) -> str:
    if os.path.isabs(named):
        return f"nothing lies at {path}"
    return (
        f"a relative path is taken from the server's working folder, so this is {path}; begin it "
        f"with {MODEL_FOLDER}/ to name a file in the model's folder"
    )


def _python_in(folder: Path) -> str | None:
    """The folder's interpreter; a link is not followed, for a venv is found by the link's place."""
    for name in ("python3", "python"):
        program = folder / "bin" / name
        if program.is_symlink() or program.exists():
            return str(program)
    return None


def _activated(folder: Path) -> dict[str, str]:
    """All variables as they are after `source bin/activate`."""
    variables = _sourced(folder / "bin" / "activate")
    for name in _OF_THE_SHELL:
        variables.pop(name, None)
        if name in os.environ:
            variables[name] = os.environ[name]
    for name in _OF_OUR_PYTHON:
        # Meant for the runtime's own Python; another one would take its modules for its own.
        if variables.get(name) == os.environ.get(name):
            variables.pop(name, None)
    own = os.path.normpath(folder / "bin")
    if own not in variables.get("PATH", "").split(os.pathsep):  # a venv that was moved
        variables["PATH"] = os.pathsep.join(filter(None, (own, variables.get("PATH"))))
    libraries = (str(folder / "lib"), variables.get("LD_LIBRARY_PATH"))
    variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    return variables


_SHOW = 'import json, os, sys; sys.stdout.write("\\0" + json.dumps(dict(os.environ)))'


def _sourced(script: Path) -> dict[str, str]:
    bash = shutil.which("bash")
    if bash is None:
        log.warning("there is no bash: %s is not sourced", script)
        return dict(os.environ)
    try:
        done = subprocess.run(
            [bash, "-c", 'source "$0" && exec "$@"', str(script), sys.executable, "-IS", "-c",
             _SHOW],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise LoadError(
            f"Internal: {script} could not be sourced: {problem}",
            remedy="`source` it by hand to see more",
        ) from problem
    _, mark, told = done.stdout.decode("utf-8", "surrogateescape").rpartition("\0")
    if done.returncode or not mark:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LoadError(
            f"Internal: sourcing {script} failed with status {done.returncode}"
            f"{': ' + words[-1] if words else ''}",
            remedy="`source` it by hand to see more; a real server waits for good here",
        )
    found: dict[str, str] = json.loads(told)
    return found
