"""The commands of the step debugger: their names, their help, and what each does with a Stepper."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devkit.cli import stepper_views
from devkit.control import messages
from devkit.debug import places, shown
from devkit.errors import DebugError

if TYPE_CHECKING:
    from devkit.cli.stepper import Stepper


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `repeats`: Enter on an empty line does it again."""

    names: tuple[str, ...]
    words: str
    help: str
    do: Callable[[str], None]
    repeats: bool = False
    expression: bool = False


class Leave(Exception):
    """The person wants to leave."""


_ASSIGNED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?:=(?!=)|\s)\s*(?P<value>.+)\Z", re.DOTALL)
_SLICE = re.compile(r"(?P<expression>.*?)\s+(?P<start>\d*):(?P<stop>\d*)\Z", re.DOTALL)
_MOST_ELEMENTS = 1000


class Commands:
    """What may be typed. Anything that is no command is evaluated where it stands."""

    def __init__(self, stepper: Stepper) -> None:
        self._of = stepper
        self._last = ""
        self._listed = 0
        self._all = self._table()
        self._by_name = {name: each for each in self._all for name in each.names}

    def _table(self) -> list[Command]:
        return [
            Command(("n", "next"), "", "the next line of this function", self._next, True),
            Command(("s", "step"), "", "the next line, into what it calls", self._step, True),
            Command(("into",), "[MODEL]", "on, stopping in the model this line calls", self._into),
            Command(("r", "out", "return"), "", "on to where this function was called",
                    self._out, True),
            Command(("c", "continue"), "", "on to the next stop; waits for it where all runs",
                    self._continue, True),
            Command(("pause",), "", "stop what runs at its next line", self._pause),
            Command(("j", "jump"), "LINE", "go on from another line of this function", self._jump),
            Command(("p", "print"), "EXPRESSION", "its value; of a tensor what it is", self._print,
                    expression=True),
            Command(("t", "tensor"), "EXPRESSION [A:B]", "the elements of a tensor", self._tensor,
                    expression=True),
            Command(("v", "vars"), "[EXPRESSION]", "all variables, or what is inside a value",
                    self._variables, expression=True),
            Command(("set",), "NAME VALUE", "give a variable another value", self._set),
            Command(("b", "break"), "[[FILE:]LINE|execute] [if EXPRESSION] [hits >= 3]",
                    "stop there; alone: list them", self._break),
            Command(("tb", "tbreak"), "[FILE:]LINE …", "stop there once", self._break_once),
            Command(("log",), "[FILE:]LINE TEXT", "log TEXT there, {expressions} filled in",
                    self._log),
            Command(("hits",), "NUMBER [>= 3]", "stop only at such hits of a breakpoint",
                    self._hits),
            Command(("on",), "NUMBER", "switch a breakpoint on", self._on),
            Command(("off",), "NUMBER", "switch a breakpoint off", self._off),
            Command(("cl", "clear"), "NUMBER|all", "take breakpoints away", self._clear),
            Command(("exceptions",), "uncaught|raised|all|none", "stop at them", self._exceptions),
            Command(("l", "list"), "[LINE]", "source; again: more of it", self._list, True),
            Command(("w", "bt", "where"), "", "the stack, and the models that called",
                    self._stack),
            Command(("up",), "", "look at the caller", self._up, True),
            Command(("down",), "", "look at what it called", self._down, True),
            Command(("frame",), "NUMBER", "look at that frame", self._frame),
            Command(("threads",), "", "the threads of the process", self._threads),
            Command(("thread",), "NUMBER", "look at that thread", self._thread),
            Command(("why", "exception"), "", "the exception it stands at", self._exception),
            Command(("take",), "next|marked|every", "which requests come here", self._take),
            Command(("send",), "NAME=VALUES …|sample", "send a request to it", self._send),
            Command(("status",), "", "how all of it is", self._status),
            Command(("attach",), "[INSTANCE]", "attach again, after it has ended", self._attach),
            Command(("h", "help", "?"), "", "this", self._help),
            Command(("q", "quit", "detach", "exit"), "", "leave; the instance goes on",
                    self._leave),
        ]  # fmt: skip

    # -- the line --------------------------------------------------------------------------------

    def run(self, line: str) -> bool:
        """Carry out a line; False when it was the last. Raises DevkitError."""
        text = line.strip()
        if not text:
            if not self._last:
                return True
            text = self._last
        elif text.startswith("#"):
            return True
        word, _, rest = text.partition(" ")
        command = self._by_name.get(word)
        if command is not None and self._is_value(command, rest.strip()):
            command = None
        self._last = text if command is not None and command.repeats else ""
        if command is None or command.names[0] != "l":
            self._listed = 0
        try:
            if command is None:
                self._evaluate(text)
            else:
                command.do(rest.strip())
        except Leave:
            return False
        return True

    @staticmethod
    def _is_value(command: Command, rest: str) -> bool:
        """Whether what begins like a command is about a variable of that name: `n = 3`, `n + 1`."""
        return bool(rest) and (not command.words or rest.startswith("="))

    def names(self, text: str) -> list[str]:
        """The commands that begin with what is typed."""
        typed = text.strip()
        return [name for name in self._by_name if len(name) > 1 and name.startswith(typed)]

    def takes_expression(self, text: str) -> bool:
        """Whether the line is a command with an expression after it."""
        word, blank, _ = text.lstrip().partition(" ")
        command = self._by_name.get(word)
        return bool(blank and command is not None and command.expression)

    # -- going on --------------------------------------------------------------------------------

    def _next(self, rest: str) -> None:
        self._of.move("next")

    def _step(self, rest: str) -> None:
        callee = self._of.standing().told.callee
        if callee:
            if self._of.ask(f"this line calls the model {callee}: stop in it?"):
                self._of.move("next", into=callee)
                return
            if not self._of.interactive:
                self._of.say(f"this line calls the model {callee}: `into` stops there")
        self._of.move("step_in")

    def _into(self, rest: str) -> None:
        callee = rest or self._of.standing().told.callee
        if not callee:
            raise DebugError("this line calls no model that can be seen", remedy="`into MODEL`")
        self._of.move("next", into=callee)

    def _out(self, rest: str) -> None:
        self._of.move("step_out")

    def _continue(self, rest: str) -> None:
        if self._of.needed().stands:
            self._of.move("continue")
        else:
            self._of.go_on()

    def _pause(self, rest: str) -> None:
        self._of.pause()

    def _jump(self, rest: str) -> None:
        if not rest.isdigit():
            raise DebugError("which line?", remedy="write it as `jump 9`")
        self._of.move("goto", line=int(rest))

    # -- looking ---------------------------------------------------------------------------------

    def _evaluate(self, text: str) -> None:
        of = self._of
        frame = of.frame_id() if of.standing() else 0
        found = of.needed().session.evaluate(text, frame=frame)
        if found.value:
            of.console.print(shown.value(found, 100_000), markup=False)

    def _print(self, rest: str) -> None:
        if not rest:
            raise DebugError("print what?", remedy="write it as `p EXPRESSION`")
        self._evaluate(rest)

    def _tensor(self, rest: str) -> None:
        import numpy as np

        of = self._of
        of.standing()
        found = _SLICE.match(rest)
        expression, start, stop = rest, 0, 0
        if found is not None:
            expression = found["expression"]
            start, stop = int(found["start"] or 0), int(found["stop"] or 0)
        count = max(stop - start, 0) if stop else _MOST_ELEMENTS
        summary, values = of.needed().session.tensor(
            expression, start=start, count=count, frame=of.frame_id()
        )
        of.console.print(shown.tensor(summary, preview=False), style="bold", markup=False)
        whole = found is None and values.size == int(np.prod(summary.shape))
        shaped = values.reshape(summary.shape) if whole else values
        text = np.array2string(shaped, threshold=_MOST_ELEMENTS, max_line_width=of.console.width)
        of.console.print(text, markup=False)

    def _variables(self, rest: str) -> None:
        of = self._of
        session = of.standing().session
        if not rest:
            stepper_views.variables(of.console, of.locals())
            return
        found = session.evaluate(rest, frame=of.frame_id())
        if not found.reference:
            of.console.print(shown.value(found, 100_000), markup=False)
            return
        inside = session.variables(found.reference, count=100, frame=of.frame_id())
        stepper_views.variables(of.console, inside)

    def _set(self, rest: str) -> None:
        found = _ASSIGNED.match(rest)
        if found is None:
            raise DebugError("set what?", remedy="write it as `set NAME VALUE`")
        of = self._of
        of.standing()
        made = of.needed().session.set(found["name"], found["value"], frame=of.frame_id())
        of.console.print(f"{found['name']} = {shown.value(made)}", markup=False)

    def _list(self, rest: str) -> None:
        of = self._of
        path = of.here()
        line = of.frames[of.frame].line if of.frames else 0
        around = 2 * shown.AROUND
        first = int(rest) if rest.isdigit() else self._listed or max(line - around, 1)
        last = first + 2 * around
        points = of.client.breakpoints().breakpoints
        if not stepper_views.source(of.console, path, line, points, first, last):
            raise DebugError(f"{path} ends before line {first}")
        self._listed = last + 1

    def _stack(self, rest: str) -> None:
        of = self._of
        stepper_views.stack(of.console, of.standing().told, of.frames, of.frame)

    def _up(self, rest: str) -> None:
        self._look_at(self._of.frame + 1, "there is no caller that can be seen")

    def _down(self, rest: str) -> None:
        self._look_at(self._of.frame - 1, "this is the innermost frame")

    def _frame(self, rest: str) -> None:
        if not rest.isdigit():
            raise DebugError("which frame?", remedy="`w` lists them; write it as `frame 1`")
        self._look_at(int(rest), f"there is no frame {rest}")

    def _look_at(self, number: int, otherwise: str) -> None:
        of = self._of
        of.standing()
        if not 0 <= number < len(of.frames):
            raise DebugError(otherwise)
        of.frame = number
        frame = of.frames[number]
        of.console.print(f"frame {number}: {shown.clean(frame.name)}", style="bold", markup=False)
        of.show_frame()

    def _threads(self, rest: str) -> None:
        of = self._of
        for each in of.needed().session.threads():
            here = "→" if each.id == of.thread else " "
            of.console.print(f"{here} {each.id:>4}  {each.name}", markup=False)

    def _thread(self, rest: str) -> None:
        of = self._of
        session = of.standing().session
        if not rest.isdigit() or int(rest) not in {each.id for each in session.threads()}:
            raise DebugError(f"there is no thread '{rest}'", remedy="`threads` lists them")
        of.thread, of.frame = int(rest), 0
        of.frames = session.stack(of.thread)
        of.show_frame()

    def _exception(self, rest: str) -> None:
        of = self._of
        current = of.standing()
        if current.told.reason != "exception":
            raise DebugError("it stands at no exception", remedy="`exceptions uncaught`")
        of.console.print(shown.clean(current.session.exception()), markup=False)

    # -- places to stop at -----------------------------------------------------------------------

    def _break(self, rest: str) -> None:
        of = self._of
        if not rest:
            stepper_views.breakpoints(of.console, of.client.breakpoints())
            return
        self._told(of.stop_at(rest).id)

    def _break_once(self, rest: str) -> None:
        self._told(self._of.stop_at(rest, temporary=True).id)

    def _log(self, rest: str) -> None:
        where, _, text = rest.partition(" ")
        if not text:
            raise DebugError("log what?", remedy="write it as `log 9 x is {x}`")
        self._told(self._of.stop_at(where, log=text.strip()).id)

    def _hits(self, rest: str) -> None:
        number, _, hits = rest.partition(" ")
        known = self._breakpoint(number)
        self._put(places.changed(known, hits=hits.strip()))

    def _on(self, rest: str) -> None:
        self._put(places.changed(self._breakpoint(rest), enabled=True))

    def _off(self, rest: str) -> None:
        self._put(places.changed(self._breakpoint(rest), enabled=False))

    def _put(self, asked: messages.Breakpoint) -> None:
        self._of.client.set_breakpoint(
            asked.path, asked.line, model=asked.model, condition=asked.condition, hits=asked.hits,
            log=asked.log, enabled=asked.enabled, id=asked.id,
        )  # fmt: skip
        self._told(asked.id)

    def _clear(self, rest: str) -> None:
        of = self._of
        if rest == "all":
            of.client.clear_breakpoints()
            return
        of.client.remove_breakpoint(self._breakpoint(rest).id)

    def _breakpoint(self, number: str) -> messages.Breakpoint:
        for each in self._of.client.breakpoints().breakpoints:
            if str(each.id) == number:
                return each
        raise DebugError(f"there is no breakpoint '{number}'", remedy="`b` lists them")

    def _told(self, number: int) -> None:
        of = self._of
        known = self._breakpoint(str(number))
        line = f"{known.id:>4} {shown.mark(known)} {shown.describe(known)}"
        of.console.print(line, markup=False)

    def _exceptions(self, rest: str) -> None:
        if rest:
            self._of.exceptions(rest)
        stepper_views.breakpoints(self._of.console, self._of.client.breakpoints())

    # -- the rest --------------------------------------------------------------------------------

    def _take(self, rest: str) -> None:
        of = self._of
        current = of.needed()
        told = current.session.take(rest) if rest else current.session.refresh()
        of.say(f"{told.instance} gets {shown.takes(told)}")

    def _send(self, rest: str) -> None:
        import shlex

        import click

        from devkit.cli import inference

        of = self._of
        if rest in ("", "sample"):
            of.send_sample()
        else:
            model = of.client.model(of.model)
            try:
                of.send(dict(inference._read_input(text, model) for text in shlex.split(rest)))
            except (click.ClickException, ValueError) as problem:
                text = problem.message if isinstance(problem, click.ClickException) else problem
                raise DebugError(str(text), remedy="write it as `send X=1,2,3`") from None
        if not of.needed().stands:
            of.go_on()

    def _status(self, rest: str) -> None:
        of = self._of
        for each in of.watched:
            of.console.print(stepper_views.head(each.told))
        stepper_views.breakpoints(of.console, of.client.breakpoints())

    def _attach(self, rest: str) -> None:
        if self._of.current is not None:
            raise DebugError(f"{self._of.current.told.instance} is attached")
        self._of.attach(instance=rest, version="", take="next")

    def _help(self, rest: str) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for each in self._all:
            table.add_row(
                Text(f"  {', '.join(each.names)}", "bold"), Text(each.words, "cyan"),
                Text(each.help),
            )  # fmt: skip
        self._of.console.print(table)
        self._of.console.print(
            "Anything else is evaluated where it stands. Enter repeats n, s, r, c, l, up, down; "
            "Tab completes; Ctrl-C pauses.", style="dim", markup=False,
        )  # fmt: skip

    def _leave(self, rest: str) -> None:
        raise Leave
