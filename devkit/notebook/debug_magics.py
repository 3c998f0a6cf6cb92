"""`%debug_model`: a debugger on a live model, under the cell.

Reads its line, asks the runtime for a session and shows a panel; the panel is `debug_panel`'s.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.display import display

from devkit import workbench
from devkit.control import messages
from devkit.control.client import Client
from devkit.debug import places, shown
from devkit.notebook.debug_panel import DebugPanel
from devkit.notebook.debug_views import place
from devkit.notebook.display import Note, Table
from devkit.notebook.magics import DevkitMagics
from devkit.notebook.options import UsageError, _Parser
from devkit.tools.debugging import Places, announce, replay, sample

USAGE = """\
%debug_model NAME      a debugger on one instance of NAME; the others go on serving
    --break LINE       stop there: line of the model's cell, FILE:LINE, "9 if x > 3"; repeatable
    --on-execute       stop where execute begins (the default where nothing else stops)
    --exceptions uncaught|raised|all|none
    --instance NAME, --take next|marked|every
    --sample           send a request made up from the config
    --send {...}       send these inputs from a thread, so that the kernel stays free; comes last
    --failure [N]      run the last failed request (or failure N) again, and stop where it raises
    --replay REQUEST   run a recorded request again: its number, its id, a file
%debug_model NAME --off    end it, and take its breakpoints away
%debug_model           the debuggers there are"""

_SEND = re.compile(r"(?:^|\s)--send\s+(?P<inputs>.+)\Z", re.DOTALL)
_STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a `%debug_model` line asks for."""

    name: str
    instance: str = ""
    version: str = ""
    breaks: tuple[str, ...] = ()
    on_execute: bool = False
    exceptions: str = ""
    take: str = ""
    sample: bool = False
    replay: str = ""
    send: str = ""
    off: bool = False


def parse(line: str) -> Asked:
    """The words after `%debug_model`. Raises UsageError, whose remedy is the usage."""
    found = _SEND.search(line)
    send = found["inputs"].strip() if found is not None else ""
    words = line[: found.start()] if found is not None else line
    parser = _Parser(prog="%debug_model", add_help=False, allow_abbrev=False)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--instance", default="")
    parser.add_argument("--version", default="")
    parser.add_argument("--break", dest="breaks", action="append", default=[])
    parser.add_argument("--on-execute", action="store_true")
    parser.add_argument("--exceptions", default="")
    parser.add_argument("--take", default="")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--replay", default="")
    parser.add_argument("--failure", nargs="?", const="", default=None)
    parser.add_argument("--off", action="store_true")
    try:
        asked = parser.parse_args(shlex.split(words))
    except (UsageError, ValueError) as problem:
        text = str(problem).replace("%%model", "%debug_model", 1)
        raise UsageError(text, remedy=USAGE) from None
    again = asked.replay
    if asked.failure is not None:
        again = f"failure:{asked.failure}" if asked.failure else "failure"
    if not asked.name and (asked.breaks or send or asked.sample or asked.on_execute):
        raise UsageError("%debug_model: name the model", remedy=USAGE)
    return Asked(
        asked.name, asked.instance, asked.version, tuple(asked.breaks), asked.on_execute,
        asked.exceptions, asked.take, asked.sample, again, send, asked.off,
    )  # fmt: skip


@magics_class
class DebugMagics(Magics):  # type: ignore[misc]
    """State: the panels that were opened here, by session."""

    def __init__(self, shell: Any, models: DevkitMagics) -> None:
        super().__init__(shell)
        self._models = models
        self._panels: dict[int, DebugPanel] = {}

    @no_var_expand  # type: ignore[untyped-decorator]
    @line_magic  # type: ignore[untyped-decorator]
    def debug_model(self, line: str) -> DebugPanel | None:
        """Put a debugger on a model: `%debug_model NAME`; `%debug_model --help` says all."""
        if line.strip() in ("help", "--help", "-h"):
            display(Note("%debug_model", "", USAGE))
            return None
        found: list[DebugPanel] = []
        self._models.guarded(lambda: found.extend(self._debug(parse(line))))
        return found[0] if found else None

    def _debug(self, asked: Asked) -> list[DebugPanel]:
        client = workbench.connect()
        if asked.off:
            self._off(client, asked.name)
            return []
        if not asked.name and not asked.replay:
            display(self._sessions(client))
            return []
        panel = self._open(client, asked)
        if asked.send or asked.sample or asked.replay:
            # Shown as it stands, and not as it was before the request came.
            panel.settle(_STOP_SECONDS)
        panel.show()
        return [panel]

    def _open(self, client: Client, asked: Asked) -> DebugPanel:
        mine = Places(client)
        try:
            if asked.exceptions:
                raised, uncaught = places.exceptions(asked.exceptions)
                mine.exceptions(raised=raised, uncaught=uncaught)
            for text in asked.breaks:
                mine.add(self._place(client, asked.name, text))
            if asked.replay:
                again = replay(client, asked.name, asked.replay, mine, version=asked.version)
                panel = self._panel(client, again.session, mine)
                panel.send(again.ask)
                return panel
            if asked.on_execute or not mine.anywhere():
                mine.add(messages.Breakpoint(model=asked.name))
            inputs = self._inputs(client, asked)
            announce(client, asked.name, inputs)
            session = client.debug(
                asked.name, version=asked.version, instance=asked.instance,
                take=asked.take or "next",
            )  # fmt: skip
        except BaseException:
            mine.undo()
            raise
        panel = self._panel(client, session, mine)
        if inputs is not None:
            panel.send(inputs)
        return panel

    def _panel(self, client: Client, session: Any, mine: Places) -> DebugPanel:
        number = self.shell.execution_count if self.shell is not None else 0
        before = self._panels.pop(session.id, None)
        if before is not None:
            mine.take_over(before.places)
        panel = DebugPanel(client, session, label=self._label, places=mine, cell=number)
        self._panels[session.id] = panel
        return panel

    def _inputs(self, client: Client, asked: Asked) -> dict[str, Any] | None:
        if asked.sample:
            return sample(client, asked.name)
        if not asked.send:
            return None
        # The user's own expression, in the user's own kernel.
        found = eval(asked.send, self.shell.user_global_ns, self.shell.user_ns)
        if not isinstance(found, dict):
            raise UsageError(
                f"%debug_model: --send needs a dict of inputs, not {type(found).__name__}",
                remedy='write it as --send {"X": x}, at the end of the line',
            )
        return found

    def _place(self, client: Client, name: str, text: str) -> messages.Breakpoint:
        model = client.model(name)
        bases = [os.getcwd(), str(Path(model.file).parent), model.folder]
        return places.parse(text, name, model.file, bases)

    def _off(self, client: Client, name: str) -> None:
        ended = []
        for session in client.debug_sessions():
            if name in ("", session.told.model):
                panel = self._panels.pop(session.id, None)
                if panel is not None:
                    panel.off()
                else:
                    session.detach()
                ended.append(session.told.instance)
        for number, panel in list(self._panels.items()):
            if panel.told.state == "ended" and name in ("", panel.told.model):
                self._panels.pop(number)
                panel.off()
        words = f"detached from {', '.join(ended)}" if ended else "none is attached"
        display(Note("debugger", words, tone="good"))

    def _sessions(self, client: Client) -> Table:
        rows = [
            (told.model, told.instance, shown.why(told),
             place(told.line, self._label) if told.line else "", told.take)
            for told in (each.told for each in client.debug_sessions())
        ]  # fmt: skip
        columns = ("model", "instance", "state", "where", "takes")
        return Table("debuggers", columns, rows, empty="None. %debug_model NAME attaches one.")

    def _label(self, path: str) -> str:
        """`Cell In[3]` for the file of a cell's model; else the path, seen from here."""
        cell = self._models.cell_of(path)
        if cell is not None:
            return cell.label
        try:
            return str(Path(path).relative_to(Path.cwd()))
        except ValueError:
            return path
