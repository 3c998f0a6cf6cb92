"""Whether an interpreter can run models, asked before a load would fail deep inside it.

A stub needs Python 3.9 and NumPy. Where either is missing, or the program does not even start, the
answer says which interpreter that was and what it lacks. Nothing is installed or repaired here.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devkit.errors import LoadError

OLDEST = (3, 9)
_SECONDS = 120.0
_MARK = "devkit: "

# Runs in any Python, also in ones that are far too old to run a stub.
_ASK = f"""
import json, sys
found = {{"version": list(sys.version_info[:3])}}
try:
    import numpy
    found["numpy"] = numpy.__version__
except BaseException:
    problem = sys.exc_info()[1]
    found["problem"] = "%s: %s" % (type(problem).__name__, problem)
sys.stdout.write("\\n{_MARK}" + json.dumps(found) + "\\n")
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that can run models: its program, its version, its NumPy's version."""

    python: str
    version: str
    numpy: str


_known: dict[tuple[object, ...], Interpreter] = {}


def examine(python: str, source: str, variables: Mapping[str, str] | None) -> Interpreter:
    """What `python` is. Raises LoadError where it cannot run a model, and says why.

    `source` says where it was named, for the text; `variables` is its environment, None for ours.
    """
    environment = os.environ if variables is None else variables
    key = (python, *_age(python), environment.get("LD_LIBRARY_PATH"), environment.get("PYTHONPATH"))
    found = _known.get(key)
    if found is None:
        found = _known[key] = _judge(python, source, _ask(python, source, environment))
    return found


def _age(python: str) -> tuple[object, ...]:
    """What changes when the interpreter or its packages do, as far as one look can tell."""
    try:
        status = os.stat(python)
        around = Path(python).parent.parent
        packages = [each.stat().st_mtime_ns for each in around.glob("lib/python*/site-packages")]
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, *packages)


def _refused(python: str, source: str, what: str, remedy: str) -> LoadError:
    return LoadError(
        f"Internal: the interpreter {python} ({source}) cannot run the model: {what}.",
        remedy=remedy,
    )


def _ask(python: str, source: str, environment: Mapping[str, str]) -> dict[str, object]:
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env=dict(environment),
            check=False,
        )
    except OSError as problem:
        raise _not_started(python, source, problem) from problem
    except subprocess.TimeoutExpired as problem:
        raise _refused(
            python, source, f"it does not answer within {_SECONDS:.0f} s", "run it by hand"
        ) from problem
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(_MARK):
            answer: dict[str, object] = json.loads(line[len(_MARK) :])
            return answer
    raise _ended(python, source, done.returncode, done.stderr.decode("utf-8", "replace"))


def _not_started(python: str, source: str, problem: OSError) -> LoadError:
    path = Path(python)
    if problem.errno == errno.ENOEXEC:
        return _refused(
            python, source, f"it is {_kind_of(path)}, and this machine is {_here()}",
            "pack the environment on a machine of the same system and processor",
        )  # fmt: skip
    if problem.errno in (errno.EACCES, errno.EPERM):
        return _refused(
            python, source, "it is not executable", f"`chmod +x {python}`, and check the mount's "
            "options (noexec)",
        )  # fmt: skip
    if problem.errno == errno.ENOENT and path.is_file():
        return _refused(
            python, source, "its loader is not on this machine: it was built for another C library",
            "pack the environment on a machine of the same system",
        )  # fmt: skip
    if problem.errno == errno.ENOENT and path.is_symlink():
        return _refused(
            python, source, f"it is a link to {os.readlink(python)}, which is not there",
            "install that Python, or pack the environment with conda-pack, which takes it along",
        )  # fmt: skip
    return _refused(python, source, problem.strerror or str(problem), "name another interpreter")


def _ended(python: str, source: str, status: int, words: str) -> LoadError:
    said = [line for line in words.strip().splitlines() if line.strip()]
    last = said[-1].strip() if said else "it said nothing"
    how = f"signal {-status}" if status < 0 else f"status {status}"
    remedy = "run it by hand to see more"
    if "shared libraries" in words:
        remedy = "a library is missing: pack the environment with conda-pack, which takes it along"
    elif "GLIBC" in words:
        remedy = "it was built on a newer system: pack the environment on one as old as this"
    return _refused(python, source, f"it ended with {how}: {last}", remedy)


def _judge(python: str, source: str, answer: dict[str, object]) -> Interpreter:
    version = answer["version"]
    assert isinstance(version, list)
    spelled = ".".join(map(str, version))
    who = f"{source}, Python {spelled}"
    if tuple(version[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise _refused(
            python, who, f"Python {spelled} is too old",
            f"make the environment with Python {oldest} or newer",
        )  # fmt: skip
    problem = answer.get("problem")
    if problem is None:
        return Interpreter(python, spelled, str(answer["numpy"]))
    text = str(problem)
    if "No module named" in text and "numpy" in text.splitlines()[0]:
        raise _refused(
            python, who, "it has no NumPy", f"`{python} -m pip install numpy`, or pack the "
            "environment with it; pb_utils needs NumPy and nothing else",
        )  # fmt: skip
    shown = " ".join(text.split())[:300]
    raise _refused(
        python, who, f"its NumPy does not import: {shown}",
        f"install a NumPy for Python {spelled} into that environment",
    )  # fmt: skip


_MACHINES = {
    3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64",
    183: "aarch64", 243: "riscv64",
}  # fmt: skip
_MACH = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def _kind_of(path: Path) -> str:
    """What system and processor a program is for, by its first bytes."""
    with path.open("rb") as program:
        head = program.read(20)
    if head.startswith(_MACH):
        return "a program for macOS"
    if head.startswith(b"MZ"):
        return "a program for Windows"
    if head.startswith(b"\x7fELF") and len(head) == 20:
        number = int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")
        return f"a Linux program for {_MACHINES.get(number, f'processor {number}')}"
    return "no program at all"


def _here() -> str:
    return f"{platform.system()} on {platform.machine()}"
