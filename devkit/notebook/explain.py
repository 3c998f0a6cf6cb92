"""An error of devkit as IPython shows it: where the caller stood, then the model's own lines.

Uses IPython's `_render_traceback_` protocol: an exception that has such a method renders itself.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import devkit
from devkit.errors import DevkitError, InferError, LoadError
from devkit.notebook import tracebacks
from devkit.notebook.cells import undefined_name

_PACKAGE = str(Path(devkit.__file__).parent)
_MAGIC_LINE = re.compile(r"^\s*[%!]")

CodeName = Callable[[str], str]
"""How a frame's file is called in front of the user: `Cell In[7]` for a kernel's own."""


def attach(
    error: DevkitError,
    cell_of: tracebacks.Lookup,
    *,
    code_name: CodeName,
    names: Mapping[str, Any],
    headline: str = "",
    callers: bool = True,
    colors: bool = True,
) -> None:
    """Make `error` render itself with cell lines; `names` are those of the kernel, for hints.

    Without `callers` it shows none of the frames that led to it: below a magic they are IPython's
    own translation of the cell.
    """

    def render() -> list[str]:
        palette = tracebacks.Palette(colors)
        lines = [f"{palette.error}{'-' * 75}{palette.end}"]
        if callers:
            lines += _callers(error, code_name, palette)
        lines += _model_lines(error, cell_of, colors)
        lines += [f"  {hint}" for hint in hints(error, names)]
        kind = type(error).__name__
        lines.append(f"{palette.error}{kind}{palette.end}: {headline or _headline(error)}")
        return lines

    error._render_traceback_ = render  # type: ignore[attr-defined]


def hints(error: DevkitError, names: Mapping[str, Any]) -> list[str]:
    """What to do next, where devkit knows it."""
    text = _text(error)
    found = [error.remedy] if error.remedy else []
    name = undefined_name(text)
    if name is not None and name in names:
        found.append(
            f"`{name}` is known to this notebook's kernel, but a model runs in processes of its "
            f"own: import or define it inside the %%model cell."
        )
    if "SyntaxError" in text and any(_MAGIC_LINE.match(line) for line in text.splitlines()):
        found.append("a model.py is plain Python: lines with % or ! are IPython's, leave them out.")
    return found


def _text(error: DevkitError) -> str:
    return getattr(error, "traceback", None) or error.message


def _headline(error: DevkitError) -> str:
    """The message in one line; the frames it lists have been shown as lines of code already."""
    return error.message.split("\n\nAt:\n", 1)[0].strip().rstrip(";")


def _model_lines(error: DevkitError, cell_of: tracebacks.Lookup, colors: bool) -> list[str]:
    if not isinstance(error, (InferError, LoadError)):
        return []
    text = getattr(error, "traceback", None)
    if text:
        return tracebacks.of_traceback(text, cell_of, colors=colors)
    if tracebacks.frames_of(error.message) or "SyntaxError" in error.message:
        return tracebacks.of_error(error.message, cell_of, colors=colors)
    return []


def _callers(error: DevkitError, code_name: CodeName, palette: tracebacks.Palette) -> list[str]:
    """The user's own frames that led into devkit."""
    lines: list[str] = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE) or "/IPython/" in file or "/ipykernel/" in file:
            continue
        name = code_name(file)
        code = linecache.getline(file, number).strip()
        where = f", in {frame.f_code.co_name}" if frame.f_code.co_name != "<module>" else ""
        lines.append(
            f"{palette.name}{name}{palette.end}, line {palette.number}{number}{palette.end}{where}"
        )
        if code:
            lines.append(f"{palette.mark}---->{number:>4}{palette.end} {code}")
        lines.append("")
    return lines
