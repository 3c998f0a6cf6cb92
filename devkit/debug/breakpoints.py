"""The breakpoints of a workspace: kept on disk, moved along when their lines are edited.

They belong to nobody's session: a debugger that attaches gets those of its model's files, and a
reload changes nothing about them. What a debugger makes of them is `session`'s business.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devkit.control.messages import Breakpoint, Breakpoints, from_plain, to_plain
from devkit.debug import sources
from devkit.errors import DebugError

_LARGEST = 1 << 20  # bytes; the lines of a larger file are not followed


class Store:
    """All breakpoints, by number."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._all: dict[int, Breakpoint] = {}
        self._texts: dict[str, str] = {}
        self.raised = False
        self.uncaught = False
        self._read()

    # -- asking ----------------------------------------------------------------------------------

    def all(self) -> Breakpoints:
        """Every breakpoint, by file and line."""
        rows = sorted(self._all.values(), key=lambda each: (each.path, each.line, each.id))
        return Breakpoints(tuple(rows), self.raised, self.uncaught)

    def paths(self) -> set[str]:
        """The files that have any."""
        return {each.path for each in self._all.values() if each.path}

    def of_file(self, path: str) -> list[Breakpoint]:
        """Those of one file that are switched on, by line."""
        found = [each for each in self._all.values() if each.path == path and each.enabled]
        return sorted(found, key=lambda each: each.line)

    def of_model(self, model: str) -> list[Breakpoint]:
        """Those at the beginning of one model's `execute`."""
        return [each for each in self._all.values() if each.model == model and each.enabled]

    # -- changing --------------------------------------------------------------------------------

    def put(self, asked: Breakpoint) -> Breakpoint:
        """Add one, or change the one of that number; one line has one breakpoint."""
        if not asked.path and not asked.model:
            raise DebugError("a breakpoint needs a file and a line, or a model")
        if asked.path and asked.line < 1:
            raise DebugError(f"{asked.line} is not a line of {asked.path}")
        path = os.path.abspath(asked.path) if asked.path else ""
        twin = next(
            (
                each.id for each in self._all.values()
                if (each.path, each.line, each.model if not path else "")
                == (path, asked.line, asked.model if not path else "")
            ),
            0,
        )  # fmt: skip
        number = asked.id if asked.id in self._all else twin or max(self._all, default=0) + 1
        kept = self._all[number] = dataclasses.replace(
            asked, id=number, path=path, model="" if path else asked.model, verified=False, text=""
        )
        if path:
            self._remember(path)
        self._write()
        return kept

    def remove(self, number: int) -> Breakpoint:
        """Take one away. Raises DebugError where there is none of that number."""
        if number not in self._all:
            raise DebugError(f"there is no breakpoint {number}")
        gone = self._all.pop(number)
        self._write()
        return gone

    def clear(self) -> None:
        """Take all away, exceptions too."""
        self._all.clear()
        self.raised = self.uncaught = False
        self._write()

    def replace_file(self, path: str, asked: Iterable[Breakpoint]) -> list[Breakpoint]:
        """Make these the breakpoints of a file, as an editor sets them, in their order."""
        old = {each.line: each for each in self._all.values() if each.path == path}
        self._all = {key: each for key, each in self._all.items() if each.path != path}
        kept = []
        for each in asked:
            known = old.get(each.line)
            number = known.id if known is not None else max((*self._all, *(
                one.id for one in old.values())), default=0) + 1  # fmt: skip
            made = self._all[number] = dataclasses.replace(each, id=number, path=path)
            kept.append(made)
        self._remember(path)
        self._write()
        return kept

    def stop_at(self, *, raised: bool, uncaught: bool) -> None:
        """Choose the exceptions to stop at."""
        self.raised, self.uncaught = raised, uncaught
        self._write()

    def told(self, number: int, *, verified: bool, text: str = "", line: int = 0) -> None:
        """What a debugger says of one; `line` where it moved it to one that can stop."""
        known = self._all.get(number)
        if known is not None:
            self._all[number] = dataclasses.replace(
                known, verified=verified, text=text, line=line or known.line
            )

    # -- edited files ----------------------------------------------------------------------------

    def follow(self, path: str) -> bool:
        """Move the breakpoints of a file along with its lines; whether any has moved.

        One whose line is gone stays where the text around it is now.
        """
        before, now = self._texts.get(path), _text(path)
        if before is None or now is None or before == now:
            return False
        moved = False
        lines = line_map(before, now)
        for number, each in list(self._all.items()):
            if each.path == path:
                line = lines(each.line)
                moved = moved or line != each.line
                self._all[number] = dataclasses.replace(each, line=line)
        self._texts[path] = now
        self._write()
        return moved

    def _remember(self, path: str) -> None:
        if path not in self._texts:
            text = _text(path)
            if text is not None:
                self._texts[path] = text

    # -- the file --------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            value = json.loads(self._file.read_bytes())
            known = from_plain(Breakpoints, value)
            self._texts = dict(value.get("texts") or {})
        except (OSError, ValueError):
            return  # none yet, or of a devkit that wrote them differently
        self.raised, self.uncaught = known.raised, known.uncaught
        self._all = {
            each.id: dataclasses.replace(each, verified=False, text="")
            for each in known.breakpoints
        }

    def _write(self) -> None:
        self._texts = {path: text for path, text in self._texts.items() if path in self.paths()}
        value: dict[str, Any] = to_plain(self.all())
        value["texts"] = self._texts
        self._file.parent.mkdir(parents=True, exist_ok=True)
        ignore = self._file.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        partial = self._file.with_name(f".{self._file.name}.part")
        partial.write_text(json.dumps(value), encoding="utf-8")
        partial.replace(self._file)


def _text(path: str) -> str | None:
    try:
        if os.path.getsize(path) > _LARGEST:
            return None
    except OSError:
        return None
    return sources.text_of(path)


def line_map(before: str, now: str) -> Any:
    """Where each line of one text is in another: a function from number to number."""
    old, new = before.splitlines(), now.splitlines()
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()

    def moved(line: int) -> int:
        for tag, a, b, c, d in blocks:
            if a <= line - 1 < b:
                place = c + (line - 1 - a)
                if tag != "equal":
                    place = min(place, max(d - 1, c))
                return min(place + 1, max(len(new), 1))
        return min(line, max(len(new), 1))

    return moved
