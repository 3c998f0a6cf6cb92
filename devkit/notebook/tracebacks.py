"""Errors of a model as its author reads them: the cell's name, its lines, an arrow at the culprit.

Takes the two forms in which a runtime reports: Python's own traceback, and the server's `At:` list.
Knows the text of files, nothing of the runtime.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath

from devkit.notebook.cells import Cell

Lookup = Callable[[str], Cell | None]
"""The cell behind a file, if it came from one."""

_FILE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_AT = re.compile(r"^\s+(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$")
_SYNTAX = re.compile(r"\((?P<file>[^(),]+\.py), line (?P<line>\d+)\)")
_HIDDEN = ("<frozen ", "/devkit/stub/", "\\devkit\\stub\\")
_CONTEXT = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One place of a traceback; a syntax error has no function."""

    file: str
    line: int
    function: str | None


class Palette:
    """The few colours used; empty where the reader has none."""

    def __init__(self, colors: bool = True) -> None:
        self.error = "\x1b[31m" if colors else ""
        self.name = "\x1b[36m" if colors else ""
        self.mark = "\x1b[1;32m" if colors else ""
        self.culprit = "\x1b[1m" if colors else ""
        self.number = "\x1b[32m" if colors else ""
        self.end = "\x1b[0m" if colors else ""


def frames_of(text: str) -> list[Frame]:
    """Frames of an error text, outermost first; those of the machinery are left out."""
    if "\nAt:\n" in text:
        listed = text.split("\nAt:\n", 1)[1].splitlines()
        found = [_frame(match) for line in listed if (match := _AT.match(line))]
        found.reverse()  # the server lists the innermost first
    else:
        found = [_frame(match) for line in text.splitlines() if (match := _FILE.match(line))]
    return [frame for frame in found if not _hidden(frame.file)]


def _frame(match: re.Match[str]) -> Frame:
    return Frame(match["file"], int(match["line"]), match["function"])


def _hidden(file: str) -> bool:
    return any(part in file for part in _HIDDEN)


def message_of(text: str) -> str:
    """What went wrong, without where: `ValueError: boom`."""
    head = text.split("\n\nAt:\n", 1)[0]
    head = head.split(", message: ", 1)[-1]
    head = head.split("state: Internal: ", 1)[-1]
    return head.rstrip().rstrip(";").rstrip()


def of_error(text: str, cell_of: Lookup, *, colors: bool = True) -> list[str]:
    """Lines for a server's error text (`...message: ValueError: x\\n\\nAt:\\n  file(3): f`)."""
    frames = frames_of(text)
    if not frames and (syntax := _SYNTAX.search(text)):
        frames = [Frame(syntax["file"], int(syntax["line"]), None)]
    lines = _blocks(frames, cell_of, Palette(colors))
    return [*lines, *_message(message_of(text), Palette(colors))]


def of_traceback(text: str, cell_of: Lookup, *, colors: bool = True) -> list[str]:
    """Lines for Python's own traceback text, chained exceptions included.

    Everything but the frames is kept; the source shown below a frame is replaced by a few lines of
    the cell, because the file may have changed since.
    """
    palette = Palette(colors)
    lines: list[str] = []
    dropping = False
    for line in text.rstrip().splitlines():
        if match := _FILE.match(line):
            frame = _frame(match)
            dropping = (
                _hidden(frame.file)
                or cell_of(frame.file) is not None
                or bool(linecache.getline(frame.file, frame.line))
            )
            if not _hidden(frame.file):
                lines += _block(frame, cell_of, palette)
        elif line.startswith("Traceback (most recent call last)"):
            dropping = False
        elif line.startswith((" ", "\t")) and dropping:
            continue
        elif line and not line.startswith(" "):
            dropping = False
            lines += _message(line, palette)
        else:
            lines.append(line)
    return lines


def _message(text: str, palette: Palette) -> Iterable[str]:
    first, *rest = text.splitlines() or [""]
    kind, colon, detail = first.partition(":")
    if colon and " " not in kind:
        first = f"{palette.error}{kind}{palette.end}:{detail}"
    return [first, *rest]


def _blocks(frames: list[Frame], cell_of: Lookup, palette: Palette) -> list[str]:
    return [line for frame in frames for line in _block(frame, cell_of, palette)]


def _block(frame: Frame, cell_of: Lookup, palette: Palette) -> list[str]:
    cell = cell_of(frame.file)
    if cell is not None and frame.line <= cell.length:
        title, source = cell.label, cell.lines()[: cell.length]
    elif cell is not None:
        title, source = f"what devkit wrote below {cell.label}", cell.lines()
    else:
        title, source = f"File {frame.file}", linecache.getlines(frame.file)
    where = f", in {frame.function}" if frame.function else ""
    head = f"{palette.name}{title}{palette.end}, line {palette.number}{frame.line}{palette.end}"
    context = _CONTEXT if cell is not None else 0
    return [head + where, *excerpt(source, frame.line, context, palette), ""]


def excerpt(source: list[str], line: int, context: int, palette: Palette) -> list[str]:
    """Some lines around `line`, numbered, with an arrow at it; empty if there is no such line."""
    if not 1 <= line <= len(source):
        return []
    first = max(1, line - context)
    if first == 1 and context and source[0].startswith("# %%model"):
        source = [source[0][2:], *source[1:]]
    shown = []
    for number in range(first, min(len(source), line + context) + 1):
        code = source[number - 1].rstrip("\n")
        if number == line:
            shown.append(
                f"{palette.mark}---->{number:>4}{palette.end} {palette.culprit}{code}{palette.end}"
            )
        else:
            shown.append(f"{palette.number}{number:>9}{palette.end} {code}".rstrip())
    return shown


def short_name(file: str) -> str:
    """The last parts of a path, enough to recognize a model's file."""
    return "/".join(PurePath(file).parts[-3:])
