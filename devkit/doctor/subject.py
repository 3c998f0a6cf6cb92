"""What the rules look at: a model with its files, a repository, what a runtime has seen."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from devkit.contract import config as contract
from devkit.contract import releases
from devkit.doctor.code import Code
from devkit.doctor.rules import Place
from devkit.errors import ConfigError, LoadError

_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\#[^\n]*|[A-Za-z_][\w.]*|[-+]?\d[\w.]*|[\[\]{}<>:,;]'
)
_MOST_FILES = 300
_NOT_OWN = frozenset({"__pycache__", "site-packages", "node_modules"})
_MOST_BYTES = 2_000_000  # a Python file larger than this is data


@dataclass(frozen=True, slots=True)
class Target:
    """Where the model is to run.

    Attributes:
        release: Triton's container release.
        cores: how many its machine has.
        shared_memory: bytes of `/dev/shm`; a container has 64 MiB unless told otherwise.
    """

    release: str = releases.DEFAULT
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    shared_memory: int = 64 << 20

    @property
    def known(self) -> releases.Release:
        """The release's entry of the table."""
        return releases.find(self.release)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a runtime has seen of one model; all of it plain values.

    Attributes:
        warnings: (rule, text, `file:line`, how often) of contract warnings.
        deaths: what each ended instance's last words were.
        shared_memory: bytes of slabs at their highest.
        load_seconds: how long the slowest instance took to load.
        refused_unary: how often a decoupled model was called without a stream.
    """

    name: str
    folder: str = ""
    config: Any = None
    warnings: tuple[tuple[str, str, str, int], ...] = ()
    deaths: tuple[str, ...] = ()
    shared_memory: int = 0
    load_seconds: float = 0.0
    instances: int = 0
    decoupled: bool = False
    refused_unary: int = 0


def gpus_for(config: Any) -> int:
    """GPUs enough for what a config asks for: the machine that looks at it may have none."""
    return max([0, *(int(gpu) for group in config.instance_group for gpu in group.gpus)]) + 1


class ConfigText:
    """`config.pbtxt` with a place for each field: by path, such as `input.X.dims`."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.broken: ConfigError | None = None
        self.parsed: Any = None
        try:
            self.parsed = contract.parse(text, str(file))
        except ConfigError as problem:
            self.broken = problem
        self._places = _places(file, text)

    def place(self, *path: str) -> Place:
        """Where a field stands, or what is around it, or the file's first line."""
        for length in range(len(path), 0, -1):
            found = self._places.get(path[:length])
            if found is not None:
                return found
        return Place(self.file)

    @property
    def end(self) -> Place:
        """Behind the last character."""
        lines = self.text.split("\n")
        return Place(self.file, len(lines), len(lines[-1]) + 1)


def _places(file: Path, text: str) -> dict[tuple[str, ...], Place]:
    """Path of each field to the place of its value; repeated messages by their `name` or key."""
    found: dict[tuple[str, ...], Place] = {}
    tokens = [t for t in _TOKEN.finditer(text) if not t[0].startswith("#")]
    at = 0

    def spot(first: re.Match[str], last: re.Match[str]) -> Place:
        def position(offset: int) -> tuple[int, int]:
            before = text[:offset]
            return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

        return Place(file, *position(first.start()), *position(last.end()))

    def message(path: tuple[str, ...], closing: str) -> dict[tuple[str, ...], Place]:
        nonlocal at
        inside: dict[tuple[str, ...], Place] = {}
        label = ""
        while at < len(tokens) and tokens[at][0] != closing:
            field_token = tokens[at]
            at += 1
            if not re.match(r"[A-Za-z_]", field_token[0]):
                continue
            name = field_token[0]
            if at < len(tokens) and tokens[at][0] == ":":
                at += 1
            if at >= len(tokens):
                break
            if tokens[at][0] == "[":
                start = tokens[at]
                at += 1
                while at < len(tokens) and tokens[at][0] != "]":
                    if tokens[at][0] == "{":
                        put(inside, name, submessage())
                    else:
                        at += 1
                inside.setdefault((name,), spot(start, tokens[min(at, len(tokens) - 1)]))
                at += 1
            elif tokens[at][0] in "{<":
                put(inside, name, submessage())
            else:
                inside[(name,)] = spot(tokens[at], tokens[at])
                if name in ("name", "key", "model_name") and not label:
                    label = tokens[at][0].strip("\"'")
                at += 1
        inside[("",)] = Place(file)
        if label:
            inside[("", label)] = Place(file)
        return inside

    def submessage() -> tuple[dict[tuple[str, ...], Place], Place]:
        nonlocal at
        start = tokens[at]
        at += 1
        inside = message((), "}" if start[0] == "{" else ">")
        last = tokens[min(at, len(tokens) - 1)]
        at += 1
        return inside, spot(start, last)

    def put(
        into: dict[tuple[str, ...], Place], name: str,
        sub: tuple[dict[tuple[str, ...], Place], Place],
    ) -> None:  # fmt: skip
        inside, whole = sub
        label = next((key[1] for key in inside if len(key) == 2 and key[0] == ""), "")
        into.setdefault((name,), whole)
        if label:
            into.setdefault((name, label), whole)
        for key, place in inside.items():
            if key and key[0]:
                into.setdefault((name, label, *key) if label else (name, *key), place)

    if tokens:
        found = message((), "")
    return {key: place for key, place in found.items() if key[0]}


@dataclass
class Model:
    """One model as the rules see it."""

    name: str
    folder: Path
    target: Target
    config_text: ConfigText | None
    codes: list[Code]
    versions: list[str]
    observed: Observed | None = None
    siblings: Mapping[str, Model] = field(default_factory=dict)

    @cached_property
    def config(self) -> Any:
        """The parsed config as written; an empty one where there is none."""
        if self.config_text is not None and self.config_text.parsed is not None:
            return self.config_text.parsed
        return contract.ModelConfig()

    @cached_property
    def completed(self) -> Any:
        """The config as the runtime completed it, else as it can be from the text; or None."""
        if self.observed is not None and self.observed.config is not None:
            return self.observed.config
        if self.config_text is None or self.config_text.parsed is None:
            return None
        try:
            parsed = self.config_text.parsed
            return contract.complete(parsed, self.name, gpus=gpus_for(parsed))
        except (ConfigError, LoadError):
            return None

    @property
    def full(self) -> Any:
        """Completed where it can be, else as written."""
        return self.completed if self.completed is not None else self.config

    @property
    def model_code(self) -> Code | None:
        """The newest version's `model.py`."""
        return next((one for one in self.codes if one.is_model), None)

    @property
    def is_ensemble(self) -> bool:
        """Whether it has no code of its own."""
        return bool(self.config.platform == "ensemble") or self.config.HasField(
            "ensemble_scheduling"
        )

    @property
    def declares(self) -> bool:
        """Whether the config names tensors, so that names in the code can be held against it."""
        return bool(self.full.input) and bool(self.full.output)

    @cached_property
    def writes_config(self) -> bool:
        """Whether `auto_complete_config` may say more than the file does."""
        return any("auto_complete_config" in code.methods for code in self.codes)

    @property
    def is_closed(self) -> bool:
        """Whether the names in the config are all there are."""
        seen = self.observed is not None and self.observed.config is not None
        return self.declares and (seen or not self.writes_config)

    @property
    def decoupled(self) -> bool:
        """Whether it is decoupled."""
        return bool(self.full.model_transaction_policy.decoupled)

    @property
    def instances(self) -> int:
        """How many processes serve it."""
        return sum(group.count or 1 for group in self.config.instance_group) or 1

    @property
    def place(self) -> Place:
        """Where to point at when nothing better is known."""
        if self.config_text is not None:
            return Place(self.config_text.file)
        code = self.model_code
        return Place(code.file if code else self.folder)

    def at(self, *path: str) -> Place:
        """Where a field of the config stands."""
        return self.config_text.place(*path) if self.config_text is not None else self.place

    def tensor_type(self, name: str, outputs: bool = False) -> str:
        """Config spelling of a tensor's type; empty where unknown."""
        for tensor in self.full.output if outputs else self.full.input:
            if tensor.name == name:
                return str(contract.ModelConfig.DESCRIPTOR.file.enum_types_by_name["DataType"]
                           .values_by_number[tensor.data_type].name)  # fmt: skip
        return ""


@dataclass
class Repository:
    """Models that stand side by side."""

    folder: Path
    models: dict[str, Model]
    target: Target


def read(
    path: Path,
    target: Target,
    *,
    observed: Mapping[str, Observed] | None = None,
    texts: Mapping[Path, str] | None = None,
) -> tuple[Repository, Sequence[str]]:
    """The repository around `path`, and the names of the models that are meant.

    `path` is a repository, a model's folder, or a file of a model; `texts` replaces what files
    hold, for editors whose text is not saved.
    """
    path = path.expanduser().resolve()
    texts = {file.resolve(): text for file, text in (texts or {}).items()}
    seen = observed or {}
    folder = path.parent if path.suffix in (".py", ".pbtxt") else path
    if folder.name.isdigit() and folder.parent != folder:
        folder = folder.parent
    if _is_model(folder) or folder != path:
        chosen = [folder.name]
        home = folder.parent
        around = sorted({*chosen, *(one.name for one in home.iterdir() if _is_model(one))})
    else:
        home = folder
        chosen = around = sorted(one.name for one in home.iterdir() if _is_model(one))
    models = {name: _read_model(home / name, target, seen.get(name), texts) for name in around}
    for model in models.values():
        model.siblings = models
    return Repository(home, models, target), chosen


def _is_model(folder: Path) -> bool:
    if not folder.is_dir() or folder.name.startswith("."):
        return False
    if (folder / "config.pbtxt").is_file():
        return True
    return any(one.name.isdigit() and (one / "model.py").is_file() for one in folder.iterdir())


def _read_model(
    folder: Path, target: Target, observed: Observed | None, texts: Mapping[Path, str]
) -> Model:
    file = folder / "config.pbtxt"
    text = _text(file, texts)
    versions = sorted(
        (one.name for one in folder.iterdir() if one.is_dir() and one.name.isdigit()),
        key=int,
        reverse=True,
    ) if folder.is_dir() else []  # fmt: skip
    config = ConfigText(file, text) if text is not None else None
    named = config.parsed.default_model_filename if config and config.parsed else ""
    codes = []
    for version in versions[:1]:
        main = (folder / version / (named or "model.py")).resolve()
        for one in sorted({main, *python_files(folder / version)}):
            body = _text(one, texts)
            if body is not None:
                codes.append(Code(one, body, one.resolve() == main))
    codes.sort(key=lambda code: not code.is_model)
    return Model(folder.name, folder, target, config, codes, versions, observed)


def python_files(folder: Path) -> list[Path]:
    """The model's own Python files below a folder: not those of an environment unpacked in it."""
    found: list[Path] = []
    for home, folders, files in os.walk(folder):
        if {"pyvenv.cfg", "conda-meta"} & {*folders, *files}:
            folders.clear()
            continue
        folders[:] = sorted(one for one in folders if one not in _NOT_OWN and one[0] != ".")
        found += [Path(home, one) for one in sorted(files) if one.endswith(".py")]
        if len(found) > _MOST_FILES:
            return found[:_MOST_FILES]
    return found


def _text(file: Path, texts: Mapping[Path, str]) -> str | None:
    if file.resolve() in texts:
        return texts[file.resolve()]
    try:
        if file.stat().st_size > _MOST_BYTES:
            return None
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def execute_of(model: Model) -> tuple[Code, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The model's `execute` and the file it is in."""
    code = model.model_code
    if code is None or "execute" not in code.methods:
        return None
    return code, code.methods["execute"]
