"""The screen Trace: the next requests followed through every process, as a timeline."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from devkit.control.client import Client
from devkit.control.tracing import FORMATS, Traces
from devkit.tui import words
from devkit.tui.dialogs import Ask, plain, wrapped
from devkit.tui.lines import Lines
from devkit.tui.pane import Pane
from devkit.tui.timeline import Timeline
from devkit.tui.words import Line

COUNT = 20
_LOOK = 0.5


class TracePane(Pane):
    """Recording, the timeline, and where the time went."""

    NAME = "trace"
    TITLE = "Trace"
    TOPICS = frozenset({"traces", "model"})
    ABOUT = "Where the time of requests goes: each through every process, phase by phase."
    START = "#trace-chart"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "record", "Record", tooltip="Trace the next requests of the chosen model"),
        Binding("T", "record_some", "Record N", show=False,
                tooltip="Trace so many requests, of any model if none is named"),
        Binding("s", "stop", "Stop", tooltip="Enough: show what came"),
        Binding("plus,equals_sign", "zoom(2)", "In", key_display="+", tooltip="Zoom in"),
        Binding("minus", "zoom(0.5)", "Out", key_display="-", tooltip="Zoom out"),
        Binding("0", "fit", "All", tooltip="Show all of it"),
        Binding("z", "focus_span", "Fit span", tooltip="Zoom to the chosen span"),
        Binding("less_than_sign,comma,shift+left", "pan(-1)", "Left", show=False, key_display="<",
                tooltip="Move the window to the left"),
        Binding("greater_than_sign,full_stop,shift+right", "pan(1)", "Right", show=False,
                key_display=">", tooltip="Move the window to the right"),
        Binding("w", "save", "Save", tooltip="Write a file: .json opens in Perfetto"),
    ]  # fmt: skip

    _enough = False

    def compose(self) -> ComposeResult:
        """The chart, and words."""
        yield Timeline(id="trace-chart", classes="box")
        yield Lines(id="trace-about", classes="box")

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self, topic: str = "") -> None:
        """The chart, and what is chosen in it."""
        chart = self.query_one("#trace-chart", Timeline)
        traces = self.store.traces
        told = words.plural(len(traces), "traced request") if traces else "Trace"
        chart.entitle(self.store.tracing or told)
        chart.load(traces)
        self._draw_about()

    def _draw_about(self) -> None:
        about = self.query_one("#trace-about", Lines)
        chart = self.query_one("#trace-chart", Timeline)
        chart.entitle(subtitle=chart.window)
        traces, span = self.store.traces, chart.chosen
        lines: list[Line] = []
        if traces is None:
            about.entitle("")
            who = self.store.model or "any model"
            hint = f"t traces the next {COUNT} requests to {who}, whoever sends them."
            lines = [[(self.store.tracing or hint, "dim")]]
        elif span is not None:
            about.entitle(span.name)
            at = f"  at {words.seconds((span.start - chart.first) / 1e9)}"
            took = (words.seconds((span.end - span.start) / 1e9), "bold accent")
            lines = [
                [took, (f"  {span.kind} in {span.process}, {span.lane_name}", ""), (at, "dim")]
            ]
            for key, value in span.attributes.items():
                lines.append([(f"{key} ", "dim"), (str(value), "")])
            lines.append([])
        if traces is not None:
            lines += plain(traces.summary()) if len(traces) else [[("no request came", "dim")]]
        about.show(wrapped(lines, max(20, about.size.width - 3)))

    def on_timeline_changed(self, event: Timeline.Changed) -> None:
        """Another span, or another window."""
        self._draw_about()

    # -- what the user does ----------------------------------------------------------------------

    def action_record(self) -> None:
        """The next requests of the chosen model."""
        self._record(self.store.model, COUNT)

    def action_record_some(self) -> None:
        """So many requests."""

        def answered(text: str | None) -> None:
            parts = (text or "").split()
            count = next((int(one) for one in parts if one.isdigit()), COUNT)
            model = next((one for one in parts if not one.isdigit()), "")
            if parts:
                self._record(model, count)

        hint = "a number, and the name of a model or nothing for any"
        self.app.push_screen(Ask("Trace", f"{COUNT} {self.store.model}", hint), answered)

    def _record(self, model: str, count: int) -> None:
        if self.store.tracing:
            self.bench.tell("it records already; s ends it", "warning")
            return
        self._enough = False
        who = model or "any model"
        self._told(f"recording {who}: 0 of {count}")

        def take(client: Client) -> Traces:
            with client.start_trace(model, count) as run:
                while not self._enough and not run.wait(_LOOK):
                    told = f"recording {who}: {run.session.collected} of {count}"
                    self.bench.post(partial(self._told, told))
                return run.stop()

        self.bench.call(take, self._took, failed=self._failed)
        if self.bench.client is None:
            self._told("")

    def _told(self, text: str) -> None:
        self.store.tracing = text
        self.store.changed("traces")

    def _took(self, traces: Traces) -> None:
        self.store.tracing, self.store.traces = "", traces
        self.store.changed("traces")

    def _failed(self, problem: object) -> None:
        from devkit.errors import DevkitError

        self._told("")
        if isinstance(problem, DevkitError):
            self.bench.show_problem(problem)

    def action_stop(self) -> None:
        """Enough."""
        self._enough = True

    def action_zoom(self, times: float) -> None:
        """In or out, around the chosen span."""
        self.query_one("#trace-chart", Timeline).zoom(times)

    def action_pan(self, by: int) -> None:
        """A quarter of the window aside."""
        self.query_one("#trace-chart", Timeline).pan(by * 0.25)

    def action_fit(self) -> None:
        """All of it."""
        self.query_one("#trace-chart", Timeline).fit()

    def action_focus_span(self) -> None:
        """The chosen span fills the window."""
        self.query_one("#trace-chart", Timeline).fit_chosen()

    def action_save(self) -> None:
        """Into a file."""
        traces = self.store.traces
        if traces is None:
            self.bench.tell("nothing is recorded", "warning")
            return

        def answered(text: str | None) -> None:
            if text:
                name, _, format = text.partition(" ")
                file = Path(name).expanduser().absolute()
                self.bench.work(
                    lambda: traces.save(file, format.strip() or "chrome"),
                    lambda _: self.bench.tell(f"{file} written"),
                )

        hint = f"a file, then one of {', '.join(FORMATS)} (chrome: Perfetto, speedscope)"
        self.app.push_screen(Ask("Save the traces", "trace.json chrome", hint), answered)
