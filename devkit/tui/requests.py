"""The screen Requests: what was recorded lately, live; open one, send it again, copy it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from devkit.control import messages
from devkit.control.client import Client
from devkit.errors import DevkitError
from devkit.tui import words
from devkit.tui.dialogs import Confirm, plain, wrapped
from devkit.tui.lines import Cell, Column, Lines, Table
from devkit.tui.pane import Pane
from devkit.tui.words import Line

if TYPE_CHECKING:
    from devkit.tools.inspection import Captured
    from devkit.tools.replay import ReplayReport
    from devkit.tui.app import Workbench

COLUMNS = (
    Column("NO", 4, right=True),
    Column("TIME", 8, keep=6),
    Column("MODEL", 10, most=28),
    Column("ID", 4, most=20, keep=5),
    Column("TOOK", 8, right=True),
    Column("IN", 8, right=True, keep=3),
    Column("OUT", 8, right=True, keep=3),
    Column("ANSWERS", 7, right=True, keep=2),
    Column("RESULT", 12, fills=True, most=200),
)


class RequestsPane(Pane):
    """The list of recorded requests."""

    NAME = "requests"
    TITLE = "Requests"
    TOPICS = frozenset({"captures", "failures"})
    ABOUT = "The requests that the runtime has kept, the newest first, as they come."
    START = "#requests-table"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_tensors", "Tensors", key_display="Enter",
                tooltip="Look at its tensors (screen Tensors)"),
        Binding("s", "send", "Send again", tooltip="Send it again, and compare the answers"),
        Binding("D", "send_debug", "To debugger",
                tooltip="Send it again, to the instance that the debugger is attached to"),
        Binding("c", "copy_curl", "curl", tooltip="Copy a curl line that sends it"),
        Binding("y", "copy_python", "Python", tooltip="Copy Python that sends it"),
        Binding("slash", "find", "Filter", tooltip="Show only what holds these words"),
        Binding("f", "failed", "Failed", tooltip="Only those that failed, or all again"),
        Binding("w", "why", "Why", tooltip="Why it failed: traceback, source, locals"),
        Binding("F", "forget", "Forget all", show=False, tooltip="Drop all that is recorded"),
    ]  # fmt: skip

    only_failed = False

    def compose(self) -> ComposeResult:
        """The list, a filter, and what is chosen."""
        table = Table(COLUMNS, id="requests-table", classes="box")
        table.empty = "no requests yet: any client's appear here; `i` on Models sends one"
        yield Input(placeholder="words of the model, the id or the error", id="requests-find",
                    classes="find")  # fmt: skip
        yield table
        yield Lines(id="requests-about", classes="box")

    def on_mount(self) -> None:
        """Name the parts."""
        self.query_one("#requests-table", Table).entitle("Requests")

    # -- drawing ---------------------------------------------------------------------------------

    @property
    def shown(self) -> list[messages.CaptureInfo]:
        """What the filter lets through, the newest first."""
        found = self.query_one("#requests-find", Input).value.lower().split()
        rows = []
        for one in reversed(self.store.captures):
            text = f"{one.number} {one.model} {one.id} {one.error}".lower()
            if all(word in text for word in found) and (one.error or not self.only_failed):
                rows.append(one)
        return rows

    def draw(self, topic: str = "") -> None:
        """The list, and the chosen one."""
        shown = self.shown
        table = self.query_one("#requests-table", Table)
        follows = table.key is None or (table.keys and table.key == table.keys[0])
        table.show_rows([(one.number, _row(one)) for one in shown])
        if follows and table.keys:  # until the user goes down the list
            table.point_at(table.keys[0])
        kept = len(self.store.captures)
        table.entitle(subtitle=f"{len(shown)} of {kept}" if len(shown) != kept else f"{kept}")
        self._draw_about()

    def _draw_about(self) -> None:
        about = self.query_one("#requests-about", Lines)
        one = self.chosen
        if one is None:
            about.entitle("")
            about.show([])
            return
        about.entitle(f"{one.model} #{one.number}")
        lines: list[Line] = []
        for tensor in one.inputs:
            about_it = f" {tensor.datatype} {words.shape(tensor.shape)}"
            lines.append([(tensor.name, "bold"), (about_it, "second")])
        version = f" version {one.version}" if one.version else ""
        lines.append([(f"{words.clock(one.time)}, {words.seconds(one.seconds)},{version} "
                       f"{words.plural(one.responses, 'answer')}", "dim")])  # fmt: skip
        if one.probes:
            lines.append([(words.plural(one.probes, "probe"), "dim")])
        if not one.whole:
            lines.append([("too large to be kept whole: a sample of its values was", "warn")])
        if one.error:
            lines += plain(one.error, "bad")
        about.show(wrapped(lines, max(20, about.size.width - 3)))

    @property
    def chosen(self) -> messages.CaptureInfo | None:
        """The request under the cursor."""
        key = self.query_one("#requests-table", Table).key
        return next((one for one in self.store.captures if one.number == key), None)

    # -- what the user does ----------------------------------------------------------------------

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Another one is chosen."""
        self._draw_about()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Enter: its tensors."""
        self.action_open_tensors()

    def on_input_changed(self, event: Input.Changed) -> None:
        """The filter filters as it is typed."""
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list."""
        self.query_one("#requests-table").focus()

    def on_key(self, event: object) -> None:
        """Escape leaves the filter, and empties it."""
        from textual import events

        if isinstance(event, events.Key) and event.key == "escape":
            field = self.query_one("#requests-find", Input)
            field.value = ""
            field.remove_class("on")
            self.query_one("#requests-table").focus()

    def action_find(self) -> None:
        """Type a filter."""
        field = self.query_one("#requests-find", Input)
        field.add_class("on")
        field.focus()

    def action_failed(self) -> None:
        """Only the failed ones."""
        self.only_failed = not self.only_failed
        table = self.query_one("#requests-table", Table)
        table.entitle("Requests that failed" if self.only_failed else "Requests")
        self.draw()

    def _the(self) -> messages.CaptureInfo | None:
        one = self.chosen
        if one is None:
            self.bench.tell("no request is chosen", "warning")
        return one

    def action_open_tensors(self) -> None:
        """Look at its tensors."""
        one = self._the()
        if one is not None:
            from devkit.tui.tensors import TensorsPane

            self.bench.action_open("tensors")
            self.bench.query_one(TensorsPane).look_at(one)

    def action_send(self) -> None:
        """Send it again, and compare."""
        one = self._the()
        if one is None:
            return
        self.bench.tell(f"sending #{one.number} to {one.model} again")
        number = one.number
        self.bench.call(lambda client: _replay(client, number), self._show_report)

    def _show_report(self, report: ReplayReport) -> None:
        width = max(40, min(self.app.size.width - 14, 116))
        if report.verdict == "same" and len(report.requests) == 1:
            took = words.seconds(report.requests[0].seconds)
            self.bench.tell(f"answered the same, in {took}")
        else:
            self.bench.read("Sent again", plain(_text(report, width)))

    def action_send_debug(self) -> None:
        """Send it to the debugged instance; it may stand there for long."""
        one = self._the()
        if one is None:
            return
        session = self.store.debug.session
        if session is None or session.model != one.model:
            self.bench.tell(f"no debugger is attached to {one.model}: d on Models does", "warning")
            return
        number = one.number

        def sent(client: Client) -> None:
            (record,) = client.captures(numbers=[number])
            inputs = {held.name: held.array() for held in record.request.held("inputs")}
            client.infer(record.model, inputs, version=record.version, id=record.id, debug=True)

        def refused(problem: DevkitError) -> None:
            self.bench.tell(f"#{number}: {problem.message.strip()}", "warning")

        self.bench.call(sent, lambda _: self.bench.tell(f"#{number} was answered"), failed=refused)
        self.bench.action_open("debug")

    def action_copy_curl(self) -> None:
        """A curl line."""
        one = self._the()
        if one is not None:
            number = one.number
            self.bench.call(
                lambda client: _captured(client, number).curl(),
                lambda text: self.bench.copy(text, "curl"),
            )

    def action_copy_python(self) -> None:
        """Python."""
        one = self._the()
        if one is not None:
            number = one.number
            self.bench.call(
                lambda client: _captured(client, number).python(),
                lambda text: self.bench.copy(text, "Python"),
            )

    def action_why(self) -> None:
        """The failure that it belongs to, or the last one of its model."""
        one = self._the()
        if one is None:
            return
        mine = [each for each in self.store.failures if each.model == one.model]
        near = min(mine, key=lambda each: abs(each.time - one.time - one.seconds), default=None)
        if not one.error or near is None:
            self.bench.read(f"#{one.number}", plain(one.error) or [[("it did not fail", "good")]])
            return
        number = near.number
        self.bench.call(
            lambda client: client.failure(number),
            lambda found: self.bench.read(f"Failure {number} of {one.model}", post_mortem(found)),
        )

    def action_forget(self) -> None:
        """Drop all of them, after asking."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.bench.call(lambda client: client.forget_captures(), self._forgotten)

        self.app.push_screen(Confirm("Drop all recorded requests?"), answered)

    def _forgotten(self, count: int) -> None:
        self.bench.tell(f"{words.plural(count, 'request')} dropped")
        if self.bench.feed is not None:
            self.bench.feed.stale("captures")


def send_sample(bench: Workbench, name: str) -> None:
    """Send a model a request that is made up from its config."""

    def sent(client: Client) -> float:
        import time

        from devkit.contract import config as contract
        from devkit.tools.samples import sample_requests

        wire = next(iter(sample_requests(contract.from_dict(client.config(name)))))
        inputs = {held.name: held.array() for held in wire.held("inputs")}
        began = time.monotonic()
        client.infer(name, inputs, id="sample")
        return time.monotonic() - began

    bench.tell(f"sending a made-up request to {name}")
    bench.call(sent, lambda took: bench.tell(f"{name} answered in {words.seconds(took)}"))


def post_mortem(found: messages.PostMortem) -> list[Line]:
    """All that is known of a failure, the innermost frame last."""
    info = found.info
    lines: list[Line] = [*plain(info.error, "bad")]
    if info.ending:
        lines.append([(info.ending, "bad")])
    if info.line:
        lines.append([("at ", "dim"), (info.line, "accent")])
    for frame in found.frames:
        lines += [[], [(f"{frame.function} ", "bold"), (f"{frame.file}:{frame.line}", "accent")]]
        for source in frame.source:
            here = source.number == frame.line
            margin = f"{'▶' if here else ' '}{source.number:5} "
            code = (source.text.expandtabs(4), "bold" if here else "")
            lines.append([(margin, "accent" if here else "dim"), code])
        for name, value in frame.locals.items():
            lines.append([("      ", ""), (name, "second"), (f" = {value}", "")])
    if not found.frames and found.traceback:
        lines += [[], *plain(found.traceback)]
    if found.log:
        lines += [[], [("Its last lines", "bold accent")]]
        lines += [[(line.text, "dim")] for line in found.log]
    return lines


def _row(one: messages.CaptureInfo) -> list[Cell]:
    failed: Line = [("✖ ", "bad"), (one.error.strip().partition("\n")[0], "bad")]
    return [
        str(one.number), (words.clock(one.time), "dim"), (one.model, "bold"),
        one.id or ("-", "dim"),
        words.seconds(one.seconds), words.size(one.request_bytes), words.size(one.response_bytes),
        str(one.responses), failed if one.error else ("✔ answered", "good"),
    ]  # fmt: skip


def _captured(client: Client, number: int) -> Captured:
    from devkit.tools.inspection import Captures

    return Captures.of(client, numbers=[number]).number(number)


def _replay(client: Client, number: int) -> ReplayReport:
    from devkit.tools.replay import replay

    return replay(client.captures(numbers=[number]), client=client)


def _text(report: ReplayReport, width: int) -> str:
    from rich.console import Console

    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(report)
    return captured.get()
