"""Rules about where the model runs: packed environments, Python, NumPy, shared memory."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from devkit.doctor.rules import ERROR, OBSERVED, WARNING, Edit, Hit, rule
from devkit.doctor.subject import Model, Repository

_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_KEY = "EXECUTION_ENV_PATH"
_PYTHON = re.compile(r"(?:^|/)lib/python(3\.\d+)/")
_NUMPY = re.compile(r"(?:^|/)numpy-(\d+)\.[\w.]+(?:\.dist-info|-py\d)")
_ENOUGH = 200_000  # members of an archive that are looked at
_REGION = 1 << 20  # what a stub's shared memory begins with


@dataclass(frozen=True, slots=True)
class Environment:
    """What the names of an environment's files tell.

    Attributes:
        foreign: a file that only another operating system has; empty where there is none.
    """

    python: str = ""
    numpy: int = 0
    foreign: str = ""


def environment_path(model: Model) -> str:
    """What `EXECUTION_ENV_PATH` says; empty where it says nothing."""
    parameters = model.full.parameters
    return str(parameters[_KEY].string_value) if _KEY in parameters else ""


def resolved(model: Model) -> Path | None:
    """The file or folder that is meant, if it can be told."""
    text = environment_path(model)
    if not text:
        return None
    return Path(text.replace(_DIRECTORY, str(model.folder)))


def look_into(path: Path) -> Environment:
    """What an environment is, without unpacking it."""
    if not path.exists():
        return Environment()
    return _look(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _look(path: Path, _stamp: int) -> Environment:
    python, numpy, foreign = "", 0, ""
    for name in _names(path):
        if not python and (found := _PYTHON.search(name)):
            python = found[1]
        if not numpy and (found := _NUMPY.search(name)):
            numpy = int(found[1])
        if not foreign and (
            name.endswith((".dll", ".pyd", ".dylib", "python.exe")) or "-darwin.so" in name
        ):
            foreign = name
        if python and numpy and foreign:
            break
    return Environment(python, numpy, foreign)


def _names(path: Path) -> Iterator[str]:
    if path.is_dir():
        for number, one in enumerate(path.glob("lib/python3.*/site-packages/*")):
            if number > _ENOUGH:
                return
            yield str(one.relative_to(path)) + "/"
        yield from (str(one.relative_to(path)) for one in path.glob("*"))
        yield from (str(one.relative_to(path)) for one in path.glob("lib/*.dylib"))
        return
    try:
        with tarfile.open(path) as archive:
            for number, member in enumerate(archive):
                if number > _ENOUGH:
                    return
                yield member.name
    except (OSError, tarfile.TarError, EOFError):
        return


def _value(model: Model) -> str:
    return environment_path(model)


@rule(
    "env-relative",
    ERROR,
    "`EXECUTION_ENV_PATH` is relative without `$$TRITON_MODEL_DIRECTORY`",
    why="it is looked up from the server's working directory, and the model runs on the server's "
    "own packages or does not load",
    fix=f'write "{_DIRECTORY}/..." for a file beside config.pbtxt',
    fixable=True,
)
def env_relative(model: Model) -> Iterator[Hit]:
    text = _value(model)
    if text and not text.startswith(("/", _DIRECTORY)):
        place = model.at("parameters", _KEY, "value", "string_value")
        edits: tuple[Edit, ...] = ()
        if place.end_line and (model.folder / text).exists():
            edits = (Edit(place, f'"{_DIRECTORY}/{text}"'),)
        yield Hit(place, f"'{text}'", edits)


@rule(
    "env-missing",
    ERROR,
    "`EXECUTION_ENV_PATH` names what does not exist",
    why="the model does not load",
    fix="put the archive there, or correct the path",
)
def env_missing(model: Model) -> Iterator[Hit]:
    path, text = resolved(model), _value(model)
    inside = text.startswith(_DIRECTORY)
    if path is not None and inside and not path.exists():
        yield Hit(model.at("parameters", _KEY), f"{path} does not exist")


@rule(
    "env-python",
    ERROR,
    "the environment's Python is not the stub's",
    why="the stub embeds its own interpreter: packages of another version do not import, or crash "
    "it (3.10 up to release 24.10, 3.12 since 24.11)",
    fix="pack an environment with the stub's Python, or build a stub and put it into the model's "
    "folder",
)
def env_python(model: Model) -> Iterator[Hit]:
    path = resolved(model)
    if path is None or (model.folder / "triton_python_backend_stub").exists():
        return
    found, wanted = look_into(path).python, model.target.known.python
    if found and found != wanted:
        yield Hit(
            model.at("parameters", _KEY),
            f"{path.name} has Python {found}, the stub of Triton {model.target.release} {wanted}",
        )


@rule(
    "env-platform",
    ERROR,
    "the environment was packed on another operating system",
    why="its libraries cannot be loaded on Linux",
    fix="pack it on Linux, best in the container that will serve the model",
)
def env_platform(model: Model) -> Iterator[Hit]:
    path = resolved(model)
    foreign = look_into(path).foreign if path is not None else ""
    if path is not None and foreign:
        yield Hit(model.at("parameters", _KEY), f"{path.name} holds {foreign}")


@rule(
    "numpy-2",
    ERROR,
    "NumPy 2 with a stub that was built before it",
    why="every output leaves the stub with no bytes: clients get an empty tensor and status 200",
    fix="pin `numpy<2`, or deploy on 24.12 or newer",
    source=OBSERVED,
)
def numpy_2(model: Model) -> Iterator[Hit]:
    release = model.target.known
    if release.numpy >= 2:
        return
    path = resolved(model)
    found = look_into(path).numpy if path is not None else 0
    if path is not None and found >= 2:
        yield Hit(
            model.at("parameters", _KEY),
            f"{path.name} has NumPy {found}; the stub of {release.name} takes NumPy 1",
        )
    for file in (model.folder / "requirements.txt", model.folder / "requirements.lock"):
        if not file.is_file():
            continue
        for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
            if re.match(r"\s*numpy\s*(==|>=|~=|>)\s*[2-9]", line):
                place = type(model.place)(file, number, 1, number, len(line) + 1)
                yield Hit(place, f"the stub of {release.name} takes NumPy 1")


@rule(
    "shm-too-small",
    WARNING,
    "the models need more shared memory than a container has",
    why="a container's /dev/shm is 64 MiB: the load fails, or a large request does, with a "
    "misleading text",
    fix="start it with `--shm-size` (docker), or an emptyDir of medium Memory on /dev/shm "
    "(Kubernetes)",
    source="server issues 6195, 5868",
    scope="repository",
)
def shm_too_small(repository: Repository) -> Iterator[Hit]:
    needs = {name: _need(model) for name, model in repository.models.items() if _is_python(model)}
    total = sum(needs.values())
    if total > repository.target.shared_memory:
        name = max(needs, key=lambda one: needs[one])
        limit = repository.target.shared_memory >> 20
        count = sum(repository.models[one].instances for one in needs)
        yield Hit(
            repository.models[name].place,
            f"about {total >> 20} MiB for {count} instances and their tensors, and there are "
            f"{limit} MiB: --shm-size={max(1, -(-total // (1 << 30)))}g",
        )


def _is_python(model: Model) -> bool:
    return not model.is_ensemble and model.model_code is not None


def _need(model: Model) -> int:
    """Bytes of shared memory that a model takes: as observed, else from the config."""
    observed = model.observed.shared_memory if model.observed is not None else 0
    return max(observed, model.instances * (_REGION + _request_bytes(model)))


def _request_bytes(model: Model) -> int:
    batch = max(1, model.full.max_batch_size)
    total = 0
    for outputs, tensors in ((False, model.full.input), (True, model.full.output)):
        for tensor in tensors:
            count = 1
            for extent in tensor.dims:
                count *= max(1, extent)
            total += count * _width(model.tensor_type(tensor.name, outputs)) * batch
    return total


def _width(name: str) -> int:
    digits = re.search(r"(\d+)$", name)
    return int(digits[1]) // 8 if digits else 1
