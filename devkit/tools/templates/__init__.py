"""The first files of a new model, one folder of this package per kind of model.

Writes a model folder that both servers load as it is; never touches one that is there. Whoever
wrote it says to the runtime that it is to be loaded.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devkit.errors import DevkitError

_TEXTS = {
    "default": "requests in, responses out",
    "decoupled": "any number of responses per request, when they are ready",
    "bls": "calls another model, and works with its answer",
    "async": "calls several models at the same time",
    "preprocessing": "texts in, padded token numbers and their mask out",
    "torch": "a PyTorch module over the whole batch",
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class TemplateError(DevkitError):
    """A model folder cannot be written: its name, the kind asked for, or what is there already."""


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of model to begin with."""

    name: str
    text: str


def all_templates() -> list[Template]:
    """Every kind, in the order to show them."""
    return [Template(name, text) for name, text in _TEXTS.items()]


def create(repository: str | Path, name: str, template: str = "default") -> list[Path]:
    """Write the folder of a new model into `repository`; returns its files.

    Raises TemplateError where the name is none, or the folder is there already.
    """
    if not _NAME.fullmatch(name):
        raise TemplateError(
            f"'{name}' cannot name a model",
            model=name,
            remedy="use letters, digits, '_', '-' and '.'; it becomes the name of a folder",
        )
    if template not in _TEXTS:
        raise TemplateError(
            f"there is no template '{template}'", remedy="choose one of " + ", ".join(_TEXTS)
        )
    folder = Path(repository) / name
    source = Path(__file__).parent / template
    try:
        # Filled beside its place and moved there whole: a watching server sees all of it or none.
        with tempfile.TemporaryDirectory(prefix=".new-", dir=repository) as scratch:
            half = Path(scratch) / name
            (half / "1").mkdir(parents=True)
            shutil.copyfile(source / "config.pbtxt", half / "config.pbtxt")
            shutil.copyfile(source / "model.py.txt", half / "1" / "model.py")
            if folder.exists():
                raise TemplateError(
                    f"{folder} is there already", model=name, remedy="choose another name"
                )
            half.rename(folder)
    except OSError as problem:
        raise TemplateError(
            f"{folder} cannot be written: {problem.strerror or problem}", model=name
        ) from problem
    return [folder / "config.pbtxt", folder / "1" / "model.py"]
