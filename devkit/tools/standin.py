"""A production server needs no devkit: a module of a few lines stands in for it.

A model that uses `devkit.probe` or `devkit.span` is exported unchanged, with `devkit.py` beside
its `model.py`, where both do nothing. Whatever else of devkit a model uses would be missing there,
so the export says where.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from devkit.errors import DevkitError

NAMES = frozenset({"probe", "span"})

MODULE = '''\
"""Stands in for devkit in production: what shows tensors and spans there does nothing here."""

import contextlib

__version__ = "0"


def probe(name, value, request=None):
    return value


def span(name, **attributes):
    return contextlib.nullcontext()
'''


class MissingError(DevkitError):
    """A model uses more of devkit than a production server can do without."""


def place(folder: Path, versions: Sequence[str]) -> list[str]:
    """Put the module into each version of the model in `folder` that needs it; says where.

    Raises MissingError where the model uses what it has not.
    """
    shared = list(folder.glob("*.py"))
    placed = []
    for version in versions:
        home = folder / version
        if not home.is_dir() or (home / "devkit.py").exists() or (home / "devkit").exists():
            continue  # a devkit of its own
        files = [*home.rglob("*.py"), *shared]
        used = [_uses(file, folder) for file in files]  # of all: each may want too much
        if any(used):
            (home / "devkit.py").write_text(MODULE, "utf-8")
            placed.append(f"{version}/devkit.py, which stands in for devkit where it is missing")
    return placed


def _uses(file: Path, folder: Path) -> bool:
    """Whether a file imports devkit; raises MissingError where it wants more than there will be."""
    try:
        text = file.read_text("utf-8")
        tree = ast.parse(text) if "devkit" in text else None
    except (SyntaxError, UnicodeDecodeError):
        return False  # served all the same: it is never imported
    if tree is None:
        return False
    used = False
    for line, name in _wanted(tree):
        if name and name not in NAMES and not name.startswith("__"):
            place = file.relative_to(folder)
            raise MissingError(
                f"{place}:{line} uses devkit.{name}, which a production server does not have",
                remedy="a model may use devkit.probe and devkit.span; move the rest out of it",
            )
        used = True
    return used


def _wanted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything of devkit that is used; the name is empty for a plain import."""
    aliases = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name == "devkit":
                    aliases.add(one.asname or "devkit")
                    yield node.lineno, ""
                elif one.name.startswith("devkit."):
                    yield node.lineno, one.name.partition(".")[2]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "devkit":
                yield from ((node.lineno, one.name) for one in node.names)
            elif node.module.startswith("devkit."):
                yield node.lineno, node.module.partition(".")[2]
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            and node.value.id in aliases
        ):  # fmt: skip
            yield node.lineno, node.attr
