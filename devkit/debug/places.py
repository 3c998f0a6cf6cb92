"""Places to stop at, as a person types them: `9`, `model.py:9 if x > 3`, `execute`.

Pure, but for looking which of the files that may be meant is there.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

from devkit.control.messages import Breakpoint
from devkit.debug.sources import text_of
from devkit.errors import DebugError

_USAGE = "write it as 9, model.py:9, or execute; then perhaps `if CONDITION` or `hits >= 2`"
_LINE = re.compile(r"(?:(?P<path>.+?):)?(?P<line>\d+)\Z")
_IF = re.compile(r"(?:\s+|,\s*)if\s+(?P<condition>.+)\Z", re.DOTALL)
_HITS = re.compile(r"\s+hits\s+(?P<hits>(?:[<>=!%]=?\s*)?\d+)\s*\Z")
_LOG = re.compile(r"\s+log\s+(?P<log>.+)\Z", re.DOTALL)
_EXCEPTIONS = {
    "raised": (True, False),
    "uncaught": (False, True),
    "all": (True, True),
    "none": (False, False),
}


def parse(text: str, model: str, here: str, bases: Sequence[str] = ()) -> Breakpoint:
    """What is meant by `text`: in the execute of `model`, in the file `here` where none is named,
    or in one found from `bases`. Raises DebugError.
    """
    rest, log = _cut(text.strip(), _LOG, "log")
    rest, condition = _cut(rest, _IF, "condition")
    rest, hits = _cut(rest, _HITS, "hits")
    rest = rest.strip()
    if rest in ("execute", f"{model}.execute"):
        return Breakpoint(model=model, condition=condition, hits=hits, log=log)
    found = _LINE.match(rest)
    if found is None:
        raise DebugError(f"'{rest}' is no place to stop at", remedy=_USAGE)
    path = _file(found["path"], bases) if found["path"] else here
    line = int(found["line"])
    count = text_of(path).count("\n") + 1
    if not 1 <= line <= count:
        raise DebugError(f"{path} has no line {line}, it has {count}")
    return Breakpoint(path=path, line=line, condition=condition, hits=hits, log=log)


def _cut(text: str, pattern: re.Pattern[str], group: str) -> tuple[str, str]:
    found = pattern.search(text)
    if found is None:
        return text, ""
    return text[: found.start()], found[group].strip()


def _file(name: str, bases: Sequence[str]) -> str:
    """The file of that name: as it is, or the first below one of `bases`."""
    for base in bases:
        path = os.path.abspath(os.path.join(base, os.path.expanduser(name)))
        if os.path.isfile(path):
            return path
    looked = ", ".join(dict.fromkeys(bases))
    raise DebugError(f"there is no file '{name}'", remedy=f"looked in {looked}")


def changed(breakpoint: Breakpoint, **more: Any) -> Breakpoint:
    """The same with other attributes."""
    return dataclasses.replace(breakpoint, **more)


def exceptions(word: str) -> tuple[bool, bool]:
    """Whether to stop at raised and at uncaught exceptions. Raises DebugError."""
    if word not in _EXCEPTIONS:
        raise DebugError(f"'{word}' is none of {', '.join(_EXCEPTIONS)}")
    return _EXCEPTIONS[word]
