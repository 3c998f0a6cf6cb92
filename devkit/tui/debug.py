"""The screen Debug: stop in a model's `execute`, look at its variables, step on.

The debugger is the runtime's: other faces may look at the same session at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from devkit.control import messages
from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from devkit.debug.sources import text_of
from devkit.errors import DevkitError
from devkit.tui import words
from devkit.tui.dialogs import Ask, plain
from devkit.tui.feed import follow_session
from devkit.tui.lines import Lines
from devkit.tui.pane import Pane
from devkit.tui.source import Source
from devkit.tui.store import Debug, Shown
from devkit.tui.words import Line, Run

FIRST = 100
"""Variables that are shown of one structure."""


@dataclass(frozen=True)
class Seen:
    """A stopped process, as one look at it finds it."""

    session: messages.DebugSession
    frames: tuple[messages.Frame, ...] = ()
    frame: int = 0
    variables: tuple[Shown, ...] = ()


class DebugPane(Pane):
    """Source, stack, variables, prompt."""

    NAME = "debug"
    TITLE = "Debug"
    TOPICS = frozenset({"debug", "model"})
    ABOUT = "A debugger in one instance of a model; its other instances go on serving."
    START = "#debug-source"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "attach", "Attach", tooltip="Attach to the chosen model, or leave it"),
        Binding("f9,b", "breakpoint", "Break", key_display="b",
                tooltip="F9, b: a breakpoint at the cursor, or none"),
        Binding("f5,c", "go('continue')", "Continue", key_display="c", tooltip="F5, c: go on"),
        Binding("f10,n", "go('next')", "Next", key_display="n",
                tooltip="F10, n: to the next line"),
        Binding("f11,i", "go('step_in')", "In", key_display="i",
                tooltip="F11, i: into a call; where it calls another model, into that one"),
        Binding("f23,shift+f11,o", "go('step_out')", "Out", key_display="o",
                tooltip="Shift+F11, o: out of this function"),
        Binding("colon,p", "prompt", "Prompt", key_display="p",
                tooltip="Evaluate or run something there"),
        Binding("f6,P", "go('pause')", "Pause", show=False, tooltip="Stop it where it is"),
        Binding("s", "send", "Send", show=False,
                tooltip="Send it the last recorded request of this model"),
        Binding("B", "condition", "Condition", show=False,
                tooltip="A breakpoint with a condition, a hit count or a log text"),
        Binding("x", "exceptions", "Exceptions", show=False,
                tooltip="Stop at exceptions that leave the model, at all, at none"),
        Binding("m", "take", "Which", show=False,
                tooltip="Which requests it gets: the next that stops, marked ones, every one"),
        Binding("v", "set", "Set", show=False, tooltip="Give the chosen variable another value"),
        Binding("R", "jump", "Jump", show=False, tooltip="Go on at the cursor's line"),
        Binding("e", "edit", "Edit", show=False, tooltip="Open the file in $EDITOR"),
        Binding("C", "clear", "Clear", show=False, tooltip="Take all breakpoints away"),
        Binding("O", "file", "File", show=False, tooltip="Show another file of the model"),
    ]  # fmt: skip

    _debugging: Debugging | None = None

    def compose(self) -> ComposeResult:
        """Source, stack and variables, and the prompt below."""
        with Vertical(id="debug-top"):
            yield Source(id="debug-source", classes="box")
            with Horizontal(id="debug-side"):
                yield Lines(has_cursor=True, id="debug-stack", classes="box")
                yield Lines(has_cursor=True, id="debug-variables", classes="box")
        yield Lines(id="debug-said")
        with Horizontal(id="debug-line"):
            yield Static(">>> ", id="debug-sign")
            yield Input(placeholder="an expression, or a statement", id="debug-prompt")

    def on_mount(self) -> None:
        """Name the parts."""
        self.query_one("#debug-stack", Lines).entitle("Stack")
        self.query_one("#debug-variables", Lines).entitle("Variables")
        self.query_one("#debug-said").can_focus = False

    # -- drawing ---------------------------------------------------------------------------------

    @property
    def debug(self) -> Debug:
        """What is known."""
        return self.store.debug

    def draw(self, topic: str = "") -> None:
        """All of it."""
        debug = self.debug
        if debug.session is None and topic in ("", "model"):
            self._show_model_file()
        self._draw_source()
        self._draw_stack()
        lines, keys = _variables(debug)
        self.query_one("#debug-variables", Lines).show(lines, keys)
        said = self.query_one("#debug-said", Lines)
        said.follows = True
        said.show([[(text, tone)] for tone, text in debug.said[-200:]] or [[_hint(debug)]])

    def _show_model_file(self) -> None:
        model = self.store.the_model()
        if model is not None and model.file and self.bench.feed is not None:
            self.debug.file, self.debug.text = model.file, text_of(model.file)

    def _draw_source(self) -> None:
        debug = self.debug
        source = self.query_one("#debug-source", Source)
        points = {
            one.line: _sign(one) for one in debug.breakpoints.breakpoints
            if one.path == debug.file and one.line
        }  # fmt: skip
        top = not debug.frames or debug.frame == debug.frames[0].id
        source.show_source(debug.file, debug.text, points, debug.here, top=top)
        source.entitle(words.tail(debug.file, 60) or "no source")
        source.entitle(subtitle=_state(debug.session))

    def _draw_stack(self) -> None:
        debug = self.debug
        lines: list[Line] = []
        keys: list[object] = []
        for frame in debug.frames:
            chosen = frame.id == debug.frame
            place = f"{Path(frame.path).name}:{frame.line}"
            mark = "▶ " if chosen else "  "
            name = (frame.name, "bold" if frame.own else "dim")
            lines.append([(mark, "accent"), name, (f"  {place}", "dim")])
            keys.append(frame.id)
        session = debug.session
        for link in session.chain if session else ():
            lines.append([("  for ", "dim"), (link.model, "second"), (f"  {link.line}", "dim")])
            keys.append(("chain", link.model))
        if session is not None and session.text:
            lines.append([("  ! ", "bad"), (session.text, "bad")])
            keys.append("text")
        self.query_one("#debug-stack", Lines).show(lines, keys)

    # -- the session -----------------------------------------------------------------------------

    def arrive(self) -> None:
        """A session that another face began is looked at here, too."""
        if self._debugging is None and self.bench.client is not None:
            self.bench.call(lambda client: client.debug_sessions(), self._join)

    def _join(self, sessions: list[Debugging]) -> None:
        if sessions and self._debugging is None:
            self._joined(sessions[0])

    def action_attach(self) -> None:
        """Attach to the chosen model, or leave."""
        if self._debugging is not None and self.debug.session is not None:
            debugging = self._debugging
            self.bench.call(lambda _: debugging.detach(), lambda _: self._ended("detached"))
        elif self.store.model:
            self.attach(self.store.model)

    def attach(self, model: str, instance: str = "") -> None:
        """Attach a debugger to a model."""
        session = self.debug.session
        if session is not None:
            if session.model == model:
                return
            self.bench.tell(f"a debugger is attached to {session.model}: a leaves it", "warning")
            return
        self._say("dim", f"attaching to {instance or model}")
        self.bench.call(lambda client: client.debug(model, instance=instance), self._joined)

    def _joined(self, debugging: Debugging) -> None:
        client = self.bench.client
        if client is None:
            return
        self._debugging = debugging
        self.debug.session = debugging.told
        model = self.store.the_model(debugging.told.model)
        if model is not None and model.file:
            self.debug.file, self.debug.text = model.file, text_of(model.file)
        self._say("good", f"attached to {debugging.told.instance}: the next request that comes "
                          "to a breakpoint stops there")  # fmt: skip
        self.store.changed("debug")
        follow_session(client, debugging.id, lambda: self.bench.post(self._look))
        self._look()

    def _look(self) -> None:
        """Something has changed: see what."""
        debugging = self._debugging
        if debugging is None or self.bench.client is None:
            return
        frame, unfolded = self.debug.frame, self.debug.unfolded
        self.bench.call(
            lambda _: look(debugging, frame, unfolded), self._found, newest="debug",
            failed=lambda problem: self._ended(problem.message),
        )  # fmt: skip

    def _found(self, seen: Seen) -> None:
        debug, before = self.debug, self.debug.session
        if seen.session.state == "ended":
            self._ended(seen.session.reason or "ended")
            return
        debug.session, debug.frames, debug.frame = seen.session, seen.frames, seen.frame
        debug.variables = seen.variables
        shown = next((one for one in seen.frames if one.id == seen.frame), None)
        if shown is not None and shown.path:
            debug.file, debug.text = shown.path, text_of(shown.path)
        stopped = seen.session.state == "stopped"
        if stopped and (before is None or before.line != seen.session.line or
                        before.state != "stopped"):  # fmt: skip
            place = words.tail(seen.session.line, 50)
            self._say("accent", f"stopped ({seen.session.reason}) at {place}")
            if seen.session.callee:
                self._say("dim", f"this line calls {seen.session.callee}: i steps into it")
        self.store.changed("debug")

    def _ended(self, why: str) -> None:
        if self._debugging is None:
            return
        self._debugging = None
        debug = self.debug
        debug.session, debug.frames, debug.variables, debug.frame = None, (), (), 0
        self._say("dim", f"the debugger has left: {why}")
        self.store.changed("debug")

    def _say(self, tone: str, text: str) -> None:
        self.debug.said += [(tone, line) for line in text.splitlines() or [""]]
        del self.debug.said[:-500]
        self.store.changed("debug")

    # -- moving on -------------------------------------------------------------------------------

    def _attached(self) -> Debugging | None:
        if self._debugging is None or self.debug.session is None:
            self.bench.tell("no debugger is attached: a attaches one", "warning")
            return None
        return self._debugging

    def action_go(self, how: str) -> None:
        """Go on: a step, or all the way."""
        debugging, session = self._attached(), self.debug.session
        if debugging is None or session is None:
            return
        if session.state != "stopped" and how != "pause":
            self.bench.tell("it runs: nothing has stopped yet", "warning")
            return
        into = session.callee if how == "step_in" else ""
        self.bench.call(lambda _: debugging.move(how, into=into), self._moved)

    def _moved(self, session: messages.DebugSession) -> None:
        self.debug.session = session
        if session.state != "stopped":
            self.debug.frames, self.debug.variables, self.debug.frame = (), (), 0
        self.store.changed("debug")
        self._look()

    def action_jump(self) -> None:
        """Go on at the cursor's line, without running what is between."""
        debugging = self._attached()
        line = self.query_one("#debug-source", Source).key
        if debugging is not None and line:
            self.bench.call(lambda _: debugging.move("goto", line=line), self._moved)

    def action_take(self) -> None:
        """Which requests it gets: the next choice."""
        debugging, session = self._attached(), self.debug.session
        if debugging is None or session is None:
            return
        choices = ["next", "marked", "every"]
        which = (
            choices[(choices.index(session.take) + 1) % 3] if session.take in choices else "next"
        )
        self.bench.call(lambda _: debugging.take(which), self._moved)
        told = {"next": "the next request that stops", "marked": "marked requests alone",
                "every": "every request"}  # fmt: skip
        self._say("dim", f"it gets {told[which]}")

    def action_send(self) -> None:
        """The last recorded request of this model again, to the debugger."""
        name = self.debug.session.model if self.debug.session else self.store.model
        if self._attached() is None:
            return

        def send(client: Client) -> str:
            records = client.captures(name, last=1)
            if not records:
                raise DevkitError(f"no request to {name} is recorded", remedy="send one first")
            (record,) = records
            inputs = {held.name: held.array() for held in record.request.held("inputs")}
            client.infer(name, inputs, version=record.version, id=record.id, debug=True)
            return f"#{record.number} was answered"

        self._say("dim", f"sending the last request to {name} again")
        self.bench.call(
            send, lambda told: self._say("good", told),
            failed=lambda problem: self._say("bad", problem.message.strip()),
        )  # fmt: skip

    # -- breakpoints -----------------------------------------------------------------------------

    def on_source_marked(self, event: Source.Marked) -> None:
        """A click in the margin."""
        self._toggle(event.line)

    def action_breakpoint(self) -> None:
        """At the cursor's line, or none any more."""
        line = self.query_one("#debug-source", Source).key
        if line:
            self._toggle(line)

    def _toggle(self, line: int) -> None:
        file = self.debug.file
        there = [one for one in self.debug.breakpoints.breakpoints
                 if one.path == file and one.line == line]  # fmt: skip
        if there:
            self._points(lambda client: client.remove_breakpoint(there[0].id))
        elif file:
            self._points(lambda client: client.set_breakpoint(file, line))

    def _points(self, change: object) -> None:
        def task(client: Client) -> messages.Breakpoints:
            change(client)  # type: ignore[operator]
            return client.breakpoints()

        def shown(points: messages.Breakpoints) -> None:
            self.debug.breakpoints = points
            self.store.changed("debug")

        self.bench.call(task, shown)

    def action_condition(self) -> None:
        """A breakpoint that asks first."""
        file = self.debug.file
        line = self.query_one("#debug-source", Source).key

        def answered(text: str | None) -> None:
            if text is None or not line:
                return
            kind, _, rest = text.strip().partition(" ")
            options = {"hits": rest} if kind == "hits" else (
                {"log": rest} if kind == "log" else {"condition": text.removeprefix("if ").strip()}
            )  # fmt: skip
            self._points(lambda client: client.set_breakpoint(file, line, **options))

        hint = "if x.max() > 1   ·   hits >= 3   ·   log x is {x}"
        self.app.push_screen(Ask(f"Stop at line {line}", "if ", hint), answered)

    def action_exceptions(self) -> None:
        """Those that leave the model, all, none."""
        points = self.debug.breakpoints
        raised, uncaught = (
            (False, True) if not (points.raised or points.uncaught)
            else (True, True) if not points.raised else (False, False)
        )  # fmt: skip
        told = "every exception" if raised else (
            "exceptions that leave the model's code" if uncaught else "no exception"
        )  # fmt: skip
        self._say("dim", f"stops at {told}")
        self._points(lambda client: client.stop_at_exceptions(raised=raised, uncaught=uncaught))

    def action_clear(self) -> None:
        """All away."""
        self._points(lambda client: client.clear_breakpoints())

    # -- looking ---------------------------------------------------------------------------------

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Enter: a frame is shown, a variable opened or closed, a line of the source marked."""
        kind = event.lines.id
        if kind == "debug-source":
            self.action_breakpoint()
        elif kind == "debug-stack" and isinstance(event.key, int):
            self.debug.frame = event.key
            self._look()
        elif kind == "debug-variables":
            self._unfold(event.key)

    def _unfold(self, path: tuple[str, ...]) -> None:
        shown = next((one for one in self.debug.variables if one.path == path), None)
        if shown is None or not shown.variable.reference:
            return
        unfolded = self.debug.unfolded
        self.debug.unfolded = unfolded - {path} if path in unfolded else unfolded | {path}
        self._look()

    def action_set(self) -> None:
        """Another value for the chosen variable."""
        debugging = self._attached()
        key = self.query_one("#debug-variables", Lines).key
        shown = next((one for one in self.debug.variables if one.path == key), None)
        if debugging is None or shown is None:
            return
        name = shown.variable.name
        if shown.depth:
            self.bench.tell("only a local variable; p runs any assignment", "warning")
            return
        frame = self.debug.frame

        def answered(text: str | None) -> None:
            if text:
                self.bench.call(lambda _: debugging.set(name, text, frame=frame), self._was_set)

        self.app.push_screen(Ask(f"{name} =", shown.variable.value), answered)

    def _was_set(self, variable: messages.Variable) -> None:
        self._say("", f"{variable.name or 'it'} is {variable.value} now")
        self._look()

    def action_prompt(self) -> None:
        """Type something."""
        self.query_one("#debug-prompt").focus()

    def on_key(self, event: events.Key) -> None:
        """Escape leaves the prompt; Tab in it completes."""
        prompt = self.query_one("#debug-prompt", Input)
        if event.key == "escape" and prompt.has_focus:
            self.query_one("#debug-source").focus()
            event.stop()
        elif event.key == "tab" and prompt.has_focus and prompt.value:
            event.stop()
            event.prevent_default()
            self._complete(prompt)

    def _complete(self, prompt: Input) -> None:
        debugging, frame = self._debugging, self.debug.frame
        text, column = prompt.value, prompt.cursor_position + 1
        if debugging is None:
            return

        def shown(found: list[messages.Completion]) -> None:
            if len(found) == 1 and prompt.value == text:
                one = found[0]
                start = one.start if one.length else prompt.cursor_position
                prompt.value = text[:start] + one.text + text[start + one.length :]
                prompt.cursor_position = start + len(one.text)
            elif found:
                self._say("dim", "  ".join(one.label for one in found[:40]))

        self.bench.call(lambda _: debugging.complete(text, column=column, frame=frame), shown)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Evaluate it there."""
        text = event.value.strip()
        debugging = self._attached()
        if not text or debugging is None:
            return
        event.input.value = ""
        frame = self.debug.frame
        self._say("bold", f">>> {text}")

        def answered(found: messages.Variable) -> None:
            self._say("", found.value)
            if found.tensor is not None:
                self._say("second", _tensor(found.tensor))
            self._look()

        self.bench.call(
            lambda _: debugging.evaluate(text, frame=frame), answered,
            failed=lambda problem: self._say("bad", problem.message.strip()),
        )  # fmt: skip

    def action_edit(self) -> None:
        """The file, at the cursor's line."""
        self.bench.edit(self.debug.file, self.query_one("#debug-source", Source).key or 1)

    def action_file(self) -> None:
        """Another file of the model."""
        model = self.store.the_model()
        if model is None:
            return
        files = list(dict.fromkeys([model.file, *model.files]))
        lines: list[Line] = [[(f"{n} ", "dim"), (file, "")] for n, file in enumerate(files, 1)]
        if len(files) < 2:
            self.bench.read("Files", lines or plain("none"))
            return
        at = files.index(self.debug.file) + 1 if self.debug.file in files else 0
        self.debug.file = files[at % len(files)]
        self.debug.text = text_of(self.debug.file)
        self._draw_source()


def look(debugging: Debugging, frame: int, unfolded: frozenset[tuple[str, ...]]) -> Seen:
    """The session, and of a stopped one its stack and the variables of a frame."""
    session = debugging.refresh()
    if session.state != "stopped":
        return Seen(session)
    frames = tuple(debugging.stack(levels=50))
    if not frames:
        return Seen(session)
    chosen = frame if any(one.id == frame for one in frames) else frames[0].id
    shown: list[Shown] = []
    for number, scope in enumerate(debugging.scopes(chosen)):
        if number == 0:
            _collect(debugging, scope.reference, chosen, (), unfolded, shown)
    return Seen(session, frames, chosen, tuple(shown))


def _collect(
    debugging: Debugging, reference: int, frame: int, path: tuple[str, ...],
    unfolded: frozenset[tuple[str, ...]], shown: list[Shown],
) -> None:  # fmt: skip
    found = debugging.variables(reference, count=FIRST, frame=frame)
    for one in found[:FIRST]:
        if not path and one.name in ("special variables", "function variables", "class variables"):
            continue
        here = (*path, one.name)
        shown.append(Shown(one, len(path), here))
        if here in unfolded and one.reference:
            _collect(debugging, one.reference, frame, here, unfolded, shown)


def _variables(debug: Debug) -> tuple[list[Line], list[tuple[str, ...]]]:
    lines: list[Line] = []
    keys: list[tuple[str, ...]] = []
    for shown in debug.variables:
        one = shown.variable
        sign = ("▾ " if shown.path in debug.unfolded else "▸ ") if one.reference else "  "
        line: Line = [("  " * shown.depth + sign, "dim"), (one.name, "second")]
        if one.tensor is not None:
            line += [(" ", ""), *_tensor_runs(one.tensor)]
        else:
            line += [(" = ", "dim"), (one.value.replace("\n", " ⏎ "), _tone(one))]
        lines.append(line)
        keys.append(shown.path)
    return lines, keys


def _tone(variable: messages.Variable) -> str:
    if variable.type in ("int", "float", "bool", "complex"):
        return "number"
    return "string" if variable.type in ("str", "bytes") else ""


def _tensor_runs(one: messages.TensorSummary) -> list[Run]:
    runs: list[Run] = [(f"{one.dtype}{words.shape(one.shape)}", "bold")]
    if one.device and one.device != "cpu":
        runs.append((f" {one.device}", "warn"))
    if one.nan or one.inf:
        runs.append((f" {one.nan} NaN {one.inf} inf", "bad"))
    if one.min is not None and one.max is not None and one.preview and len(one.preview) > 1:
        runs.append((f" {one.min:.4g}…{one.max:.4g}", "accent"))
    if one.preview:
        shown = " ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in one.preview[:6])
        runs.append((f" {shown}", "number"))
    return runs


def _tensor(one: messages.TensorSummary) -> str:
    mean = f", mean {one.mean:.6g}" if one.mean is not None else ""
    return "".join(text for text, _ in _tensor_runs(one)) + mean


def _sign(one: messages.Breakpoint) -> str:
    if not one.enabled:
        return "○"
    return "◆" if one.condition or one.hits or one.log else "●"


def _state(session: messages.DebugSession | None) -> str:
    if session is None:
        return "not attached"
    mark, _ = words.state_mark(session.state)
    spare = f", {session.spare} serves" if session.spare else ""
    request = f", request {' '.join(session.requests)}" if any(session.requests) else ""
    return f"{mark} {session.instance} {session.state}{request}{spare}"


def _hint(debug: Debug) -> Run:
    return ("a attaches a debugger, b sets a breakpoint, s sends the last request again.", "dim")
