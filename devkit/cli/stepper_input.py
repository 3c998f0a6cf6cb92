"""Where the step debugger's commands come from: a person with a line editor, or a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any


class Reader:
    """Lines of commands; `complete` gives the whole lines that one may be going to type."""

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._complete = complete
        self._found: list[str] = []
        self._editor: Any = None
        if self.interactive:
            self._set_up()

    def _set_up(self) -> None:
        with contextlib.suppress(ImportError):  # a Python built without it: no line editing
            import readline

            self._editor = readline
            readline.set_completer(self._candidate)
            readline.set_completer_delims("")  # a whole line is completed, not a word of it
            if "libedit" in (readline.__doc__ or ""):
                readline.parse_and_bind("bind ^I rl_complete")
            else:
                readline.parse_and_bind("tab: complete")
                readline.set_completion_display_matches_hook(self._display)

    def _candidate(self, text: str, number: int) -> str | None:
        if number == 0:
            self._found = list(dict.fromkeys(self._complete(text)))
        return self._found[number] if number < len(self._found) else None

    def _display(self, text: str, matches: Sequence[str], longest: int) -> None:
        """Show what is offered without the part of the line before it."""
        words = [each.rpartition(" ")[2] for each in matches]
        print("\n" + "  ".join(words))
        print(f"{self._prompt}{self._editor.get_line_buffer()}", end="", flush=True)

    _prompt = ""

    def read(self, prompt: str) -> str | None:
        """The next line without its end; None when there is none any more."""
        if self.interactive:
            self._prompt = prompt
            try:
                return input(prompt)
            except EOFError:
                print()
                return None
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    def ask(self, question: str) -> bool:
        """A question with yes as its answer unless one says no; in a script nobody is asked."""
        if not self.interactive:
            return False
        try:
            return input(f"{question} [Y/n] ").strip().lower() not in ("n", "no")
        except EOFError:
            return False
