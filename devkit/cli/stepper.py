"""The step debugger of the terminal: its sessions, what waits, and what is shown at a stop.

Reads commands from a person or a pipe; what each command does is in `stepper_commands`. The
debugger itself lives in the runtime: this is one of its faces, and when it goes the instance goes
on.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from devkit.cli import output, stepper_views
from devkit.cli.stepper_commands import Commands
from devkit.cli.stepper_input import Reader
from devkit.control import messages
from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from devkit.debug import places, shown
from devkit.debug.follow import Follower
from devkit.errors import DebugError, DevkitError
from devkit.tools.debugging import Places, Sent, replay, sample

_SHOWN_VARIABLES = 12


class Watched:
    """One session, and the thread that looks on at it."""

    def __init__(self, client: Client, session: Debugging, wake: Callable[[], None],
                 say: Callable[[messages.Event], None]) -> None:  # fmt: skip
        self.session = session
        self.follower = Follower(client, session, lambda told: wake(), say)
        self.moved = 0
        """Turn of the last move made from here: a stop before it is over."""

    @property
    def told(self) -> messages.DebugSession:
        """How it is now."""
        return self.follower.told

    @property
    def stands(self) -> bool:
        """Whether it stands, at a stop that was not left already."""
        return self.told.state == "stopped" and self.told.turn >= self.moved

    @property
    def answered(self) -> bool:
        """Whether what it stood in has been answered since."""
        told = self.told
        return told.state == "running" and told.turn >= self.moved and not told.requests


class Stepper:
    """A debugger at a terminal, or at a pipe.

    Attributes:
        frames: the stack of the stop that is shown, empty while nothing stands.
        frame: the number of the one that is looked at.
        failed: whether a command of a script has failed.
    """

    def __init__(self, client: Client, model: str, *, wait: float | None = None) -> None:
        self.client = client
        self.model = model
        self.wait_seconds = wait
        self.console = output.console()
        self.watched: list[Watched] = []
        self.current: Watched | None = None
        self.frames: list[messages.Frame] = []
        self.frame = 0
        self.thread = 0
        self.failed = False
        self._sent: list[Sent] = []
        self._temporary: set[int] = set()
        self._changed = threading.Condition()
        self._said: queue.Queue[messages.Event] = queue.Queue()
        self._before: dict[str, str] = {}
        self.places = Places(client)
        self._shown = (0, 0)
        self._reader = Reader(self.complete)
        self._commands = Commands(self)

    def __enter__(self) -> Stepper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.leave()

    @property
    def interactive(self) -> bool:
        """Whether a person types."""
        return self._reader.interactive

    # -- beginning and end -----------------------------------------------------------------------

    def attach(self, *, instance: str, version: str, take: str) -> None:
        """Put the debugger on an instance of the model."""
        session = self.client.debug(self.model, instance=instance, version=version, take=take)
        self.follow(session)
        told = session.told
        self.say(
            f"{told.instance} (pid {told.pid}) is in the debugger; it gets {shown.takes(told)}"
        )

    def follow(self, session: Debugging) -> Watched:
        """Look on at a session, and go with it if nothing else is looked at."""
        made = Watched(self.client, session, self._wake, self._said.put)
        self.watched.append(made)
        if self.current is None:
            self.current = made
        return made

    def leave(self) -> None:
        """Take back what was only for now, and let every instance go on."""
        for number in list(self._temporary):
            self.forget(number)
        self.places.undo()
        for each in self.watched:
            each.follower.close()
            with contextlib.suppress(DevkitError):
                each.session.detach()
        self._show_answers(wait=True)

    def run(self) -> bool:
        """Read commands until the end; whether one of a script has failed."""
        if self.sending or self.interactive:
            self.go_on()
        while True:
            try:
                self._show_news()
                line = self._reader.read(self._prompt())
            except KeyboardInterrupt:
                self.say("`q` leaves; the instance goes on")
                continue
            if line is None:
                return self.failed
            if not self.command(line):
                return self.failed

    def command(self, line: str) -> bool:
        """Carry one out; False when it was the last."""
        try:
            return self._commands.run(line)
        except KeyboardInterrupt:
            self._interrupted()
        except DevkitError as problem:
            self.failed = True
            # After what was printed before it: both may go into one file.
            sys.stdout.flush()
            output.failure(problem, as_json=False)
        return True

    def say(self, text: str) -> None:
        """A sentence for the person: on stderr where stdout is read by a program."""
        if self.interactive:
            self.console.print(text, style="dim", markup=False)
        else:
            output.note(text)

    def ask(self, question: str) -> bool:
        """A question to the person; nobody is asked in a script, and the answer is no."""
        return self._reader.ask(question)

    def _prompt(self) -> str:
        current = self.current
        if current is None:
            return "(devkit) "
        told = current.told
        state = "" if told.state == "stopped" else f" {told.state}"
        return f"({told.instance}{state}) "

    # -- waiting ---------------------------------------------------------------------------------

    def go_on(self, *, until_answered: bool = False) -> None:
        """Wait until something stops, and show it; `until_answered`: or the request is answered."""
        current = self.current
        if current is None:
            return
        if not until_answered:
            self._stop_somewhere()
        if not any(each.stands for each in self.watched) and self.interactive:
            what = "…" if until_answered else f"waits for a request to {current.told.model}…"
            self.say(f"{what} (Ctrl-C: back to the prompt)")
        try:
            self._wait(current, until_answered)
        except KeyboardInterrupt:
            self._interrupted()

    def _stop_somewhere(self) -> None:
        """Where nothing is to stop at all, the next request stops where `execute` begins."""
        if not self.places.anywhere():
            self.stop_at("execute", temporary=True)

    def _wait(self, current: Watched, until_answered: bool) -> None:
        import time

        began = time.monotonic()
        sending = self.sending
        while True:
            self._show_news()
            standing = next((each for each in self.watched if each.stands), None)
            if standing is not None:
                self.current = standing
                self.show_stop()
                return
            if current.told.state == "ended":
                self._gone(current)
                return
            if until_answered and all(each.answered for each in self._busy()):
                self._leave_stop()
                self._show_answers(wait=True)
                self.say(f"answered; {current.told.instance} gets {shown.takes(current.told)}")
                return
            if sending and not self.sending and not until_answered:
                self.say("answered, and nothing has stopped on its way")
                return
            waited = time.monotonic() - began
            if self.wait_seconds is not None and waited > self.wait_seconds:
                raise DebugError(
                    f"nothing has stopped within {self.wait_seconds:g} s", model=self.model,
                    remedy="does a request come that way? `take` says which requests it gets",
                )  # fmt: skip
            with self._changed:
                self._changed.wait(0.1)

    def _busy(self) -> list[Watched]:
        """The sessions whose answers are still waited for."""
        return [each for each in self.watched if each.moved and each.told.state != "ended"]

    def _interrupted(self) -> None:
        """Ctrl-C while something runs: pause what is at work, or else just stop waiting."""
        current = self.current
        self.console.print()
        if current is None or current.stands:
            return
        if not current.told.requests:
            self.say("`c` waits on, `pause` stops it at its next line, `q` leaves")
            return
        try:
            self.pause(2.0)
        except DevkitError as problem:
            output.failure(problem, as_json=False)

    def pause(self, seconds: float = 10.0) -> None:
        """Stop what runs, and show where."""
        current = self.needed()
        if not current.stands:
            current.session.move("pause")
            if current.follower.until(lambda told: current.stands, seconds) is None:
                raise DebugError(
                    "it has not paused yet: no line of Python runs",
                    remedy="it stops when one does, at the next request at the latest: `c` waits",
                )
            self.show_stop()

    def _gone(self, current: Watched) -> None:
        self._leave_stop()
        self.watched.remove(current)
        self.current = self.watched[-1] if self.watched else None
        raise DebugError(
            f"the debugger of {current.told.instance} has ended: {current.told.reason}",
            model=current.told.model,
            remedy="" if self.watched else "`attach` attaches it again, `q` leaves",
        )

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- moving ----------------------------------------------------------------------------------

    def needed(self) -> Watched:
        """The session that is looked at. Raises DebugError."""
        if self.current is None:
            raise DebugError("no debugger is attached", remedy="`attach` attaches it again")
        return self.current

    def standing(self) -> Watched:
        """The session that is looked at, which stands. Raises DebugError."""
        current = self.needed()
        if not current.stands:
            raise DebugError("nothing is stopped", remedy="`c` waits for a request that stops")
        if self._shown != (current.session.id, current.told.turn):
            self.show_stop()  # another face has moved it
        return current

    def move(self, how: str, *, line: int = 0, into: str = "") -> None:
        """Go on, and wait for the next stop or the answer."""
        current = self.standing()
        before = self.places.numbers() if into else set()
        told = current.session.move(how, thread=self.thread, line=line, into=into)
        current.moved = told.turn
        current.follower.heard(told)
        self._leave_stop()
        if into:
            self._follow_into(into)
            self._temporary |= self.places.numbers() - before
        self.go_on(until_answered=True)

    def _follow_into(self, model: str) -> None:
        known = {each.session.id for each in self.watched}
        for session in self.client.debug_sessions():
            if session.told.model == model and session.id not in known:
                self.follow(session)

    def _leave_stop(self) -> None:
        self.frames, self.frame, self.thread = [], 0, 0

    # -- places to stop at -----------------------------------------------------------------------

    def stop_at(self, text: str, *, temporary: bool = False, **more: Any) -> messages.Breakpoint:
        """Set a breakpoint as it is typed: `9`, `model.py:9 if x > 3`, `execute`."""
        asked = places.parse(text, self.model_here(), self.here(), self._bases())
        asked = places.changed(asked, **more)
        kept = self.client.set_breakpoint(
            asked.path, asked.line, model=asked.model, condition=asked.condition,
            hits=asked.hits, log=asked.log, enabled=asked.enabled,
        )  # fmt: skip
        if temporary:
            self._temporary.add(kept.id)
        return kept

    def forget(self, number: int) -> None:
        """Take a breakpoint away."""
        self._temporary.discard(number)
        with contextlib.suppress(DebugError):
            self.client.remove_breakpoint(number)

    def exceptions(self, word: str) -> None:
        """Choose the exceptions to stop at. Raises DebugError."""
        raised, uncaught = places.exceptions(word)
        self.client.stop_at_exceptions(raised=raised, uncaught=uncaught)

    def model_here(self) -> str:
        """The model that is looked at."""
        return self.current.told.model if self.current is not None else self.model

    def _bases(self) -> list[str]:
        """Where a file named by a person may be: here, beside what is shown, with the model."""
        model = self.client.model(self.model_here())
        found = [os.getcwd()]
        if self.frames:
            found.append(str(Path(self.frames[self.frame].path).parent))
        return [*found, str(Path(model.file).parent), model.folder]

    def here(self) -> str:
        """The file that is shown, or else the model's."""
        if self.frames:
            return self.frames[self.frame].path
        return self.client.model(self.model_here()).file

    # -- requests of its own ---------------------------------------------------------------------

    def send(self, arrays: Mapping[str, Any]) -> None:
        """Send a request to the debugged instance; its answer is shown when it comes."""
        model = self.model
        self._stop_somewhere()  # before it goes off
        self._background(lambda: self.client.infer(model, arrays, debug=True))

    def send_sample(self) -> None:
        """Send a request made up from the model's config."""
        self.send(sample(self.client, self.model))

    def _background(self, ask: Callable[[], dict[str, Any]]) -> None:
        self._sent.append(Sent(ask, lambda sent: self._wake()))

    @property
    def sending(self) -> bool:
        """Whether a request of its own is on its way."""
        return bool(self._sent)

    def _show_answers(self, *, wait: bool = False) -> None:
        """Print what came; with `wait`, also what is about to come."""
        for sent in list(self._sent):
            if wait:
                with contextlib.suppress(Exception):  # shown below, whatever it is
                    sent.answer(5.0)
            if sent.waits:
                continue
            self._sent.remove(sent)
            if sent.error:
                self.console.print(f"← error: {sent.error}", style="red", markup=False)
            else:
                stepper_views.answer(self.console, sent.answer())

    # -- showing ---------------------------------------------------------------------------------

    def _show_news(self) -> None:
        while True:
            try:
                event = self._said.get_nowait()
            except queue.Empty:
                break
            stepper_views.log_line(self.console, event)
        self._show_answers()

    def show_stop(self) -> None:
        """Show where it stands: why, the source, the variables."""
        current = self.needed()
        told = current.told
        self._shown = (current.session.id, told.turn)
        self.thread = told.thread
        self.frames = current.session.stack(told.thread)
        self.frame = next((n for n, each in enumerate(self.frames) if each.own), 0)
        if told.reason == "exception":
            self.frame = 0
        for number in list(self._temporary):
            self.forget(number)
        self.console.print(stepper_views.head(told))
        self.show_frame()

    def show_frame(self) -> None:
        """Show the frame that is looked at: its source and its variables."""
        if not self.frames:
            return
        frame = self.frames[self.frame]
        points = self.client.breakpoints().breakpoints
        if not stepper_views.source(self.console, frame.path, frame.line, points):
            self.say(f"{frame.path}:{frame.line} cannot be read here")
        found = self.locals()
        now = {each.name: each.value for each in found}
        changed = frozenset(name for name, value in now.items()
                            if name in self._before and self._before[name] != value)  # fmt: skip
        self._before = now
        stepper_views.variables(self.console, found, most=_SHOWN_VARIABLES, changed=changed)

    def locals(self) -> list[messages.Variable]:
        """The local variables of the frame that is looked at."""
        return list(self.needed().session.locals(self.frame_id()).values())

    def frame_id(self) -> int:
        """The debugger's number of the frame that is looked at. Raises DebugError."""
        if not self.frames:
            raise DebugError("nothing is stopped", remedy="`c` waits for a request that stops")
        return self.frames[self.frame].id

    def complete(self, text: str) -> list[str]:
        """Ways to go on with what is typed, as the debugger knows them."""
        current = self.current
        words = self._commands.names(text) if " " not in text.lstrip() else []
        if current is None or not current.stands or not self.frames:
            return words
        start = len(text) - len(text.lstrip())
        if self._commands.takes_expression(text):
            start = text.index(" ", start) + 1
        typed = text[start:]
        with contextlib.suppress(DevkitError):
            for each in current.session.complete(typed, frame=self.frame_id()):
                words.append(text[: start + each.start] + each.text)
        return words

    def replay(self, what: str, *, version: str) -> None:
        """Run a recorded request again on an instance of its own, and stop in it: at the line that
        raised if it failed, where `execute` begins if it did not."""
        found = replay(self.client, self.model, what, self.places, version=version)
        self.model = found.record.model
        self.follow(found.session)
        instance = found.session.told.instance
        self.say(f"request {what} runs again in {instance}, which is there for it only")
        self._background(found.ask)
