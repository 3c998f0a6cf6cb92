"""Which file is which: the one a person edits, and the one a process runs.

They are the same file unless its text has changed since the model was loaded (then an instance may
run from a mirror of the old sources), or the model came with a load request. A cell's file has the
cell's own line numbers. Pure, but for reading a source that is asked about.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from pathlib import Path

CELL_END = "# ---- written by devkit:"
"""Where a cell that is one plain function ends, and the class around it begins."""

_CALL = re.compile(r"([A-Za-z_][\w.\[\]]*)\.(?:async_)?exec\(")


class Sources:
    """The folders of one model instance: the user's, and the one it runs from."""

    def __init__(self, user: str, running: str) -> None:
        self._user = user.rstrip(os.sep)
        self._running = running.rstrip(os.sep)

    @classmethod
    def of(cls, file: str, loaded: Iterable[str]) -> Sources:
        """From the user's `model.py` and the files that an instance says it has loaded."""
        tail = os.path.join(*Path(file).parts[-2:])  # 1/model.py
        for path in loaded:
            if path.endswith(os.sep + tail):
                return cls(file[: -len(tail)], path[: -len(tail)])
        return cls("", "")

    def to_running(self, path: str) -> str:
        """The file that runs for one that is edited."""
        return _moved(path, self._user, self._running)

    def to_user(self, path: str) -> str:
        """The file that is edited for one that runs."""
        return _moved(path, self._running, self._user)

    @property
    def mirrored(self) -> bool:
        """Whether they are two."""
        return self._user != self._running

    def covers(self, path: str) -> bool:
        """Whether a user's file is this model's."""
        return bool(self._user) and path.startswith(self._user + os.sep)


def _moved(path: str, source: str, target: str) -> str:
    if source != target and source and path.startswith(source + os.sep):
        return target + path[len(source) :]
    return path


def text_of(path: str) -> str:
    """The text of a file, empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def entry_line(text: str) -> int:
    """The first line that a request runs in a `model.py`; 0 where there is none to be found."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return 0
    head, mark, _ = text.partition(CELL_END)
    if mark:
        limit = head.count("\n") + 1
        functions = [
            each for each in tree.body
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.lineno < limit
        ]  # fmt: skip
        return _first(functions[-1]) if functions else 0
    for each in tree.body:
        if isinstance(each, ast.ClassDef) and each.name == "TritonPythonModel":
            for part in each.body:
                is_function = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
                if is_function and part.name == "execute":  # type: ignore[attr-defined]
                    return _first(part)  # type: ignore[arg-type]
    return 0


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Line of the first statement that is no docstring."""
    body = function.body
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return body[0].lineno


def calls(text: str, line: int) -> str:
    """The expression whose `exec` or `async_exec` a line calls: a request to another model."""
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return ""
    found = _CALL.search(lines[line - 1])
    return found.group(1) if found else ""
