"""The user's own editor, at a line of a file, while the workbench steps aside."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

from devkit.errors import DevkitError

_COLON = ("code", "code-insiders", "codium", "cursor")


class EditorError(DevkitError):
    """There is no editor, or it could not be run; `remedy` says what to set."""


def command(path: str, line: int) -> list[str]:
    """The command line that opens `path` at `line`. Raises EditorError."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    words = shlex.split(chosen) if chosen else []
    if not words:
        found = next(filter(shutil.which, ("nano", "vim", "vi")), "")
        words = [found] if found else []
    if not words:
        raise EditorError("no editor is known", remedy="set EDITOR to the one you use")
    name = os.path.basename(words[0])
    if name in _COLON:
        return [*words, "--wait", "--goto", f"{path}:{line}"]
    if name in ("subl", "hx", "helix"):
        return [*words, f"{path}:{line}"]
    return [*words, f"+{max(line, 1)}", path]


def edit(path: str, line: int) -> None:
    """Open the editor and wait for its end. Raises EditorError."""
    words = command(path, line)
    try:
        subprocess.run(words, check=False)
    except OSError as problem:
        raise EditorError(
            f"{words[0]} cannot be run: {problem}", remedy="set EDITOR to the one you use"
        ) from problem
