"""The screen Models: every model with its instances, live, and what can be done with them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from devkit.control import messages
from devkit.tui import drawing, words
from devkit.tui.dialogs import Ask, Confirm, plain, wrapped
from devkit.tui.lines import Cell, Column, Lines, Table
from devkit.tui.pane import Pane
from devkit.tui.words import Line

Key = tuple[str, str]
"""Name of a model, and of an instance of it or empty."""

COLUMNS = (
    Column("MODEL / INSTANCE", 18, fills=True, most=36),
    Column("STATE", 11),
    Column("INFER/S", 7, right=True),
    Column("LAST MIN", 10, keep=6),
    Column("QUEUE", 5, right=True, keep=5),
    Column("LATENCY", 8, right=True, keep=7),
    Column("FAILED", 6, right=True, keep=4),
    Column("BUSY", 5, right=True, keep=2),
    Column("CPU", 5, right=True, keep=2),
    Column("MEMORY", 9, right=True, keep=8),
)


CHART_SECONDS = 90
CHARTS = (("inferences", "inferences", "/s"), ("latency", "latency", "ms"),
          ("in the queue", "queue", ""))  # fmt: skip
"""What is drawn of the chosen model where there is room: title, the number's name, unit."""


class ModelsPane(Pane):
    """The tree of models and instances."""

    NAME = "models"
    TITLE = "Models"
    TOPICS = frozenset({"snapshot", "history", "model"})
    ABOUT = "Every model of the repositories, the processes of each, and what they do now."
    START = "#models-tree"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "load", "Load", tooltip="Load it, or swap it for what its files say now"),
        Binding("u", "unload", "Unload", tooltip="Stop serving it; what runs is finished"),
        Binding("r", "reload", "Reload", tooltip="Start it afresh and swap it without a gap"),
        Binding("plus,equals_sign", "scale(1)", "More", key_display="+",
                tooltip="One instance more"),
        Binding("minus", "scale(-1)", "Fewer", key_display="-", tooltip="One instance less"),
        Binding("e", "edit", "Edit", tooltip="Open it in $EDITOR, at the line of its last error"),
        Binding("d", "debug", "Debug", tooltip="Attach a debugger to it (screen Debug)"),
        Binding("t", "trace", "Trace", tooltip="Trace its next requests (screen Trace)"),
        Binding("c", "config", "Config", show=False, tooltip="Show its completed config.pbtxt"),
        Binding("w", "why", "Why", show=False,
                tooltip="What its last loads did, and how its requests became batches"),
        Binding("s", "stack", "Stack", show=False, tooltip="Where its threads are now"),
        Binding("p", "profile", "Profile", show=False,
                tooltip="Sample it for five seconds and save a speedscope file"),
        Binding("i", "infer", "Send", show=False, tooltip="Send it a made-up request"),
        Binding("x", "export", "Export", show=False, tooltip="Export it (screen Export)"),
        Binding("L", "logs", "Logs", show=False, tooltip="Its log (screen Logs)"),
    ]  # fmt: skip

    def compose(self) -> ComposeResult:
        """The tree, and what is chosen in it."""
        with Vertical(id="models-body"):
            tree = Table(COLUMNS, id="models-tree", classes="box")
            tree.empty = "no models: give `devkit serve` a repository, or write a %%model cell"
            yield tree
            yield Lines(id="models-about", classes="box")
        yield Lines(id="models-charts", classes="box")

    def on_mount(self) -> None:
        """Name the parts."""
        self.query_one("#models-tree", Table).entitle("Models")
        self.query_one("#models-charts").can_focus = False

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self, topic: str = "") -> None:
        """The tree, and the chosen one's facts."""
        tree = self.query_one("#models-tree", Table)
        rows: list[tuple[Key, list[Cell]]] = []
        for model in self.store.snapshot.models if self.store.snapshot else ():
            rows.append(((model.name, ""), self._model(model)))
            for number, one in enumerate(model.instances):
                last = number == len(model.instances) - 1
                rows.append(((model.name, one.name), self._instance(model, one, last)))
        tree.show_rows(rows)
        if topic == "model" and self.chosen[0] != self.store.model:
            tree.point_at((self.store.model, ""))
        self._draw_about()

    @property
    def chosen(self) -> Key:
        """Model and instance under the cursor."""
        key = self.query_one("#models-tree", Table).key
        return key if isinstance(key, tuple) else ("", "")

    def _model(self, model: messages.Model) -> list[Cell]:
        mark, tone = words.state_mark(model.state)
        store = self.store
        state = model.state.lower() or "not loaded"
        if model.state == "READY" and model.error:
            mark, tone, state = "!", "warn", "older serves"
        if model.state == "READY" and not model.error and model.warnings:
            state = f"ready, {len(model.warnings)} !"
        name: Line = [(f"{mark} ", tone), (model.name, "bold")]
        if len(model.versions) > 1 or model.version not in ("", "1"):
            name.append((f" {model.version}", "dim"))
        memory = sum(one.process.rss for one in model.instances if one.process)
        fails = model.failures
        return [
            name,
            (state, tone),
            words.number(store.last(model, "inferences")) if model.state else "",
            (words.bars(store.values(model, "inferences"), 10), "accent"),
            str(model.pending) if model.state else "",
            words.milliseconds(store.last(model, "latency")) if model.state else "",
            (str(fails), "bad") if fails else ("0" if model.state else ""),
            "",
            "",
            words.size(memory) if memory else "",
        ]

    def _instance(self, model: messages.Model, one: messages.Instance, last: bool) -> list[Cell]:
        mark, tone = words.state_mark(one.state)
        store, process = self.store, one.process
        name: Line = [("  └ " if last else "  ├ ", "dim"), (f"{mark} ", tone), (one.name, "")]
        busy = store.last(model, "busy", one.name)
        cpu = store.last(model, "cpu", one.name)
        restarts = f" ({one.restarts}×)" if one.restarts else ""
        return [
            name,
            (one.state + restarts, tone),
            words.number(store.last(model, "inferences", one.name)),
            (words.bars(store.values(model, "busy", one.name), 10, 100.0), "second"),
            "",
            "",
            "",
            "-" if busy is None else f"{busy:.0f} %",
            "-" if cpu is None else f"{cpu:.0f} %",
            words.size(process.rss) if process else "-",
        ]

    def _draw_about(self) -> None:
        about = self.query_one("#models-about", Lines)
        name, instance = self.chosen
        model = self.store.the_model(name)
        about.entitle(instance or name)
        self._draw_charts(model)
        if model is None:
            about.show([])
            return
        one = next((each for each in model.instances if each.name == instance), None)
        lines = _facts_of_instance(one) if one else _facts(model)
        about.show(wrapped(lines, max(20, about.size.width - 3)))

    def _draw_charts(self, model: messages.Model | None) -> None:
        charts = self.query_one("#models-charts", Lines)
        if not charts.display:
            return
        if model is None or not model.state:
            charts.show([])
            return
        charts.entitle(f"{model.name}, the last {CHART_SECONDS} seconds")
        width = (charts.size.width - 6) // len(CHARTS)
        height = max(2, charts.size.height - 1)
        parts = []
        for title, name, unit in CHARTS:
            values = self.store.values(model, name)[-CHART_SECONDS:]
            parts.append(drawing.chart(title, unit, values, width, height))
        charts.show([
            [(" ", ""), *(run for part in row for run in [*part, ("  ", "")])]
            for row in zip(*parts, strict=True)
        ])  # fmt: skip

    # -- what the user does ----------------------------------------------------------------------

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Another row: that model is the chosen one on every screen."""
        if event.lines.id == "models-tree":
            self.store.choose(self.chosen[0])
            self._draw_about()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Enter on a row: the whole of what is known."""
        name, instance = self.chosen
        model = self.store.the_model(name)
        if event.lines.id != "models-tree" or model is None:
            return
        one = next((each for each in model.instances if each.name == instance), None)
        if one is not None:
            self.bench.read(one.name, _facts_of_instance(one))
        else:
            self.bench.read(model.name, [*_facts(model), *plain(model.error, "bad")])

    def _chosen_name(self) -> str:
        name = self.chosen[0]
        if not name:
            self.bench.tell("no model is chosen", "warning")
        return name

    def _change(self, name: str, verb: str, task: object) -> None:
        self.bench.tell(f"{verb} {name}")
        feed = self.bench.feed

        def done(_: object) -> None:
            self.bench.tell(f"{name}: done")
            if feed is not None:
                feed.stale("snapshot")

        self.bench.call(task, done)  # type: ignore[arg-type]

    def action_load(self) -> None:
        """Load it."""
        if name := self._chosen_name():
            self._change(name, "loading", lambda client: client.load(name))

    def action_unload(self) -> None:
        """Stop serving it."""
        if name := self._chosen_name():
            self._change(name, "unloading", lambda client: client.unload(name))

    def action_reload(self) -> None:
        """Swap it."""
        if name := self._chosen_name():
            self._change(name, "reloading", lambda client: client.reload(name))

    def action_scale(self, by: int) -> None:
        """More or fewer instances."""
        model = self.store.the_model(self._chosen_name())
        if model is None:
            return
        count = len(model.instances) + by
        if count < 1:
            self.bench.tell("a loaded model has at least one instance; u unloads it", "warning")
            return
        name = model.name
        self._change(name, f"scaling to {count}:", lambda client: client.scale(name, count))

    def action_edit(self) -> None:
        """Its file, at the line that was at fault last."""
        model = self.store.the_model(self._chosen_name())
        if model is not None:
            self.bench.edit(model.file or f"{model.folder}/config.pbtxt", last_line(model))

    def action_debug(self) -> None:
        """Attach a debugger."""
        name, instance = self.chosen
        if self._chosen_name():
            self.store.choose(name)
            self.bench.action_open("debug")
            from devkit.tui.debug import DebugPane

            self.bench.query_one(DebugPane).attach(name, instance)

    def action_trace(self) -> None:
        """Trace it."""
        if self._chosen_name():
            from devkit.tui.trace import TracePane

            self.bench.action_open("trace")
            self.bench.query_one(TracePane).action_record()

    def action_export(self) -> None:
        """Export it."""
        if self._chosen_name():
            self.bench.action_open("export")

    def action_logs(self) -> None:
        """Its log."""
        name, instance = self.chosen
        if self._chosen_name():
            from devkit.tui.logs import LogsPane

            self.bench.query_one(LogsPane).only(name, instance)
            self.bench.action_open("logs")

    def action_config(self) -> None:
        """Its completed config."""
        if name := self._chosen_name():
            self.bench.call(
                lambda client: client.config_text(name),
                lambda text: self.bench.read(f"{name}: config.pbtxt", plain(text)),
            )

    def action_why(self) -> None:
        """Loads and batches, in words."""
        name = self._chosen_name()
        if not name:
            return

        def shown(found: tuple[list[messages.Operation], messages.Batches]) -> None:
            operations, batches = found
            lines: list[Line] = [[("Loads", "bold accent")]]
            for one in operations:
                lines.append([(words.clock(one.time) + " ", "dim"), (one.text, "")])
                lines += [[("  waits: ", "warn"), (one.blocks, "")]] if one.blocks else []
            lines += [[], [("Batches", "bold accent")]]
            total = sum(one.executions for one in batches.reasons)
            for reason in batches.reasons:
                share = f"{reason.executions / total:5.0%} of {total}  "
                lines.append([(share, "second"), (reason.why, "")])
            lines += [[("hint: ", "warn"), (one, "")] for one in batches.advice]
            lines += [] if total else [[("it has executed nothing yet", "dim")]]
            self.bench.read(f"Why: {name}", lines)

        self.bench.call(lambda client: (client.operations(name), client.batches(name)), shown)

    def action_stack(self) -> None:
        """Where its threads are."""
        name, instance = self.chosen
        if not self._chosen_name():
            return

        def shown(found: list[messages.Stack]) -> None:
            lines: list[Line] = []
            for one in found:
                lines.append([(f"{one.instance}, pid {one.pid}", "bold accent")])
                lines += [[(one.note, "warn")]] if one.note else []
                for thread in one.threads:
                    lines += [[(thread.name, "second")], *plain(thread.stack), []]
            self.bench.read(f"Where {instance or name} is", lines)

        self.bench.call(lambda client: client.stack(name, instance), shown)

    def action_profile(self) -> None:
        """Sample it, into a file."""
        name, instance = self.chosen
        if not self._chosen_name():
            return
        from pathlib import Path

        file = Path(f"{name}.speedscope.json").absolute()
        self.bench.tell(f"sampling {instance or name} for five seconds")
        self.bench.call(
            lambda client: file.write_bytes(client.profile(name, instance)),
            lambda _: self.bench.tell(f"{file} written; speedscope and Perfetto open it"),
        )

    def action_infer(self) -> None:
        """A request made up from its config."""
        name = self._chosen_name()
        model = self.store.the_model(name)
        if model is None or model.state != "READY":
            self.bench.tell("it is not served", "warning")
            return
        from devkit.tui.requests import send_sample

        send_sample(self.bench, name)

    def action_remove(self) -> None:
        """Delete a cell's model, after asking."""
        name = self._chosen_name()
        if not name:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._change(name, "removing", lambda client: client.remove_model(name))

        self.app.push_screen(Confirm(f"Unload {name} and delete its files?"), answered)

    def action_scale_to(self) -> None:
        """A number of instances to type."""
        name = self._chosen_name()

        def answered(text: str | None) -> None:
            if text and text.isdigit():
                count = int(text)
                self._change(name, f"scaling to {count}:", lambda client: client.scale(name, count))

        if name:
            self.app.push_screen(Ask(f"How many instances of {name}?"), answered)


def last_line(model: messages.Model) -> int:
    """The line of its own file that its last error or warning names; 1 where none does."""
    import re

    found = re.findall(rf'File "{re.escape(model.file)}", line (\d+)', model.error)
    if found:
        return int(found[-1])
    for one in model.warnings:
        path, _, line = one.line.rpartition(":")
        if path == model.file and line.isdigit():
            return int(line)
    return 1


def _facts(model: messages.Model) -> list[Line]:
    lines: list[Line] = []
    if model.remark:
        lines.append([(model.remark, "bad" if model.state != "READY" else "warn")])
    if model.error:
        lines.append([("✖ ", "bad"), (model.error.strip().splitlines()[-1], "bad")])
    for label, tensors in (("in", model.inputs), ("out", model.outputs)):
        for one in tensors:
            optional = "  optional" if one.optional else ""
            lines.append([(f"{label:<4}", "dim"), (one.name, "bold"), (" ", ""),
                          (f"{one.datatype} {words.shape(one.shape)}", "second"),
                          (optional, "dim")])  # fmt: skip
    batching = f"batches up to {model.max_batch_size}" if model.max_batch_size else "no batching"
    mode = ", decoupled" if model.decoupled else ""
    lines.append([("mode ", "dim"), (f"{model.platform or 'python'}, {batching}{mode}", "")])
    if model.inferences or model.failures:
        counts = f"{model.inferences} inferences in {model.executions} executions"
        lines.append([("done ", "dim"), (counts, "")])
        if model.failures:
            lines[-1].append((f" {model.failures} failed", "bad"))
    if model.load_seconds:
        lines.append([("load ", "dim"), (words.seconds(model.load_seconds), "")])
    if model.file or model.folder:
        lines.append([("file ", "dim"), (model.file or model.folder, "")])
    for warned in model.warnings:
        lines.append([("! ", "warn"), (f"{warned.text} ", ""), (warned.line, "accent"),
                      (f" ({warned.count}×)", "dim")])  # fmt: skip
    lines += [[("assumed ", "dim"), (sentence, "")] for sentence in model.assumed]
    return lines


def _facts_of_instance(one: messages.Instance) -> list[Line]:
    lines: list[Line] = [
        [("pid  ", "dim"), (str(one.pid), "bold"), (f"  {one.kind} {one.device}", "")],
        [("load ", "dim"), (f"{words.seconds(one.load_seconds)}, {one.started or '-'} start", "")],
        [("done ", "dim"), (f"{one.executes} executes, {one.in_flight} in flight", "")],
    ]
    process = one.process
    if process is not None:
        lines.append([
            ("mem  ", "dim"), (f"rss {words.size(process.rss)}, pss {words.size(process.pss)}, "
                               f"own {words.size(process.uss)}", ""),
        ])  # fmt: skip
        lines.append([
            ("     ", ""), (f"{process.threads} threads, {process.open_files} open files", ""),
        ])  # fmt: skip
        if process.gpu >= 0:
            lines.append([("gpu  ", "dim"), (words.size(process.gpu), "")])
    if one.restarts:
        lines.append([("restarted ", "warn"), (f"{one.restarts}×", "")])
    if one.last_words:
        lines += [[("last words", "warn")], *plain(one.last_words)]
    return lines
