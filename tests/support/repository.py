"""Writing model repositories for tests; what the models do is said where they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ModelFiles:
    """One model of a repository: what lies in its folder.

    `config` None leaves config.pbtxt out; `code` None leaves model.py out; `extra` are further
    files by their path inside the model's folder.
    """

    name: str
    code: str | None
    config: str | None = None
    versions: tuple[str, ...] = ("1",)
    extra: Mapping[str, str] = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        folder = root / self.name
        folder.mkdir(parents=True)
        if self.config is not None:
            (folder / "config.pbtxt").write_text(self.config)
        for version in self.versions:
            (folder / version).mkdir()
            if self.code is not None:
                (folder / version / "model.py").write_text(self.code)
        for path, text in self.extra.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder


def write_repository(root: Path, models: Iterable[ModelFiles]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for model in models:
        model.write(root)
    return root


def tensor(kind: str, name: str, datatype: str, dims: str, *, more: str = "") -> str:
    """One `input` or `output` entry of a config.pbtxt."""
    return f'{kind} [ {{ name: "{name}" data_type: TYPE_{datatype} dims: [ {dims} ] {more} }} ]\n'


def python_config(*parts: str) -> str:
    return 'backend: "python"\n' + "".join(parts)
