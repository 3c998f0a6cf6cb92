"""What a model imports and opens, found in its code: modules to bring, packages to pin.

Static: nothing of the model is run. Packages are looked up by the interpreter that serves it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from devkit.doctor.subject import python_files
from devkit.errors import DevkitError

_OURS = frozenset({"devkit", "triton_python_backend_utils", "c_python_backend_utils"})
_BROUGHT_BY_TRITON = frozenset({"numpy"})
_PACKAGES = """
import importlib.metadata as meta, json, re, sys
tops = json.loads(sys.argv[1])
found = {}
by_top = {}
for dist in meta.distributions():
    name = dist.metadata["Name"]
    if not name:
        continue
    files = dist.files or []
    tops_of = {str(f).split("/")[0].removesuffix(".py") for f in files}
    tops_of |= set((dist.read_text("top_level.txt") or "").split())
    for top in tops_of:
        by_top.setdefault(top, name)
by_name = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d
           for d in meta.distributions() if d.metadata["Name"]}
direct = sorted({by_top[one] for one in tops if one in by_top}, key=str.lower)
seen, todo = {}, [re.sub(r"[-_.]+", "-", one).lower() for one in direct]
while todo:
    key = todo.pop()
    dist = by_name.get(key)
    if dist is None or key in seen:
        continue
    seen[key] = [dist.metadata["Name"], dist.version]
    for line in dist.requires or ():
        if "extra ==" in line:
            continue
        todo.append(re.sub(r"[-_.]+", "-", re.match(r"[\\w.-]+", line)[0]).lower())
print(json.dumps({"direct": direct, "all": sorted(seen.values(), key=lambda one: one[0].lower()),
                  "unknown": [one for one in tops if one not in by_top],
                  "python": "%d.%d" % sys.version_info[:2], "prefix": sys.prefix}))
"""


class PackagesError(DevkitError):
    """The interpreter that serves the model could not be asked for its packages."""


@dataclass(frozen=True, slots=True)
class Packages:
    """Distributions that a model needs.

    Attributes:
        direct: (name, version) of those that its code imports.
        all: those, and what they require in turn.
        unknown: imported names that belong to no installed distribution.
        python: version of the interpreter, `3.11`.
    """

    direct: tuple[tuple[str, str], ...]
    all: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    python: str
    prefix: str

    def requirements(self) -> str:
        """Text of `requirements.txt`."""
        return "".join(f"{name}=={version}\n" for name, version in self.direct)

    def lock(self) -> str:
        """Text of `requirements.lock`: every package that is installed because of them."""
        head = f"# Everything that is installed for requirements.txt, on Python {self.python}.\n"
        return head + "".join(f"{name}=={version}\n" for name, version in self.all)


def sources(folder: Path) -> list[Path]:
    """The Python files of a model: its versions' and those beside them, clients left out."""
    versions = sorted(one for one in folder.iterdir() if one.is_dir() and one.name.isdigit())
    return [path for version in versions for path in python_files(version)]


def imported(files: Iterable[Path]) -> dict[str, tuple[Path, int]]:
    """Top-level names that the files import, each with the first place."""
    found: dict[str, tuple[Path, int]] = {}
    for file in files:
        for node in _walk(file):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], (file, getattr(node, "lineno", 1)))
    return found


def _walk(file: Path) -> Iterator[ast.AST]:
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    yield from ast.walk(tree)


def third_party(folder: Path) -> list[str]:
    """Top-level names of packages that the model imports: not its own, not the standard library."""
    files = sources(folder)
    own = {path.stem for path in files} | {path.parent.name for path in files}
    names = set(imported(files)) - own - _OURS - set(sys.stdlib_module_names)
    return sorted(names)


def local_modules(folder: Path) -> list[Path]:
    """Files of modules that the code imports from outside, and that nobody installed."""
    installed = [Path(one).resolve() for one in set(sysconfig.get_paths().values())]
    found: list[Path] = []
    todo, seen = sources(folder), set(_OURS) | set(sys.stdlib_module_names)
    own = {path.stem for path in todo} | {path.parent.name for path in todo}
    while todo:
        names = set(imported(todo)) - seen - own
        seen |= names
        todo = []
        for name in sorted(names):
            spec = PathFinder.find_spec(name, [one for one in sys.path if one])
            if spec is None or spec.origin in (None, "built-in", "frozen"):
                continue
            origin = Path(str(spec.origin)).resolve()
            if origin.suffix != ".py" or any(origin.is_relative_to(one) for one in installed):
                continue
            files = (
                sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
            )
            found += files
            todo += files
    return found


def opened_outside(folder: Path) -> list[tuple[Path, int, str]]:
    """(file, line, path) of literal paths in the code that exist and lie outside the model."""
    found = []
    for file in sources(folder):
        for node in _walk(file):
            value = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(value, str) or not 2 < len(value) < 4096 or "\n" in value:
                continue
            path = Path(value).expanduser()
            if not path.is_absolute() or str(path).startswith(("/dev/", "/proc/", "/sys/")):
                continue
            if path.is_file() and not path.resolve().is_relative_to(folder.resolve()):
                found.append((file, getattr(node, "lineno", 1), value))
    return found


def opened_by(pids: Sequence[int], folder: Path) -> list[Path]:
    """Data files outside the model that its processes hold open or mapped now (Linux)."""
    system = [Path(one).resolve() for one in set(sysconfig.get_paths().values())]
    system += [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    found: set[Path] = set()
    for pid in pids:
        for path in _held(pid):
            text = str(path)
            if text.startswith(("/dev/", "/proc/", "/sys/", "/usr/", "/lib", "/memfd", "/etc/")):
                continue
            if path.suffix in (".log", ".so", ".py", ".pyc") or ".so." in path.name:
                continue
            if any(path.is_relative_to(one) for one in (*system, folder.resolve())):
                continue
            if path.is_file():
                found.add(path)
    return sorted(found)


def _held(pid: int) -> Iterator[Path]:
    """Files that a process has open for reading, or mapped."""
    home = Path("/proc", str(pid))
    try:
        for link in (home / "fd").iterdir():
            flags = (home / "fdinfo" / link.name).read_text().split("flags:")[1].split()[0]
            if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY:
                yield Path(os.readlink(link))
        for line in (home / "maps").read_text().splitlines():
            path = line[73:].strip()
            if path.startswith("/"):
                yield Path(path)
    except (OSError, IndexError, ValueError):
        return  # it ended, or this is no Linux


def packages(names: Sequence[str], python: str = "") -> Packages:
    """Which distributions the names belong to, asked of the interpreter that serves the model."""
    command = [python or sys.executable, "-c", _PACKAGES, json.dumps(list(names))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PackagesError(
            f"{command[0]} could not list its packages: {last}",
            remedy="is it the interpreter that serves the model?",
        )
    told = json.loads(done.stdout)
    versions = dict(told["all"])
    direct = tuple((name, versions[name]) for name in told["direct"] if name in versions)
    unknown = tuple(one for one in told["unknown"] if one not in _BROUGHT_BY_TRITON)
    everything = tuple((name, version) for name, version in told["all"])
    return Packages(direct, everything, unknown, told["python"], told["prefix"])
