"""The screen Export: what would be written for the real server, the writing, and the proof."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import ClassVar

from rich.console import Console
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from devkit.control.client import Client
from devkit.control.findings import ExportAsked, ExportPlan
from devkit.errors import DevkitError
from devkit.tools import exporting
from devkit.tools.verify import VerifyReport, verify
from devkit.tui import words
from devkit.tui.dialogs import Confirm, plain, wrapped
from devkit.tui.lines import Lines
from devkit.tui.pane import Pane
from devkit.tui.words import Line

_VERDICTS = {"same": ("✔", "good"), "close": ("≈", "warn"), "differs": ("✖", "bad")}
_DIFF = {"+": "good", "-": "bad", "@": "second"}


class ExportPane(Pane):
    """Files and differences on one side, steps and verdicts on the other."""

    NAME = "export"
    TITLE = "Export"
    TOPICS = frozenset({"export", "model"})
    ABOUT = "The chosen model as the real Triton server takes it, and the real server's word on it."
    START = "#export-files"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "preview", "Preview", tooltip="What would be written, and how it differs"),
        Binding("x", "export", "Export", tooltip="Write it"),
        Binding("v", "verify", "Verify",
                tooltip="Ask the real server the recorded requests, and compare its answers"),
        Binding("f", "folder", "Folder", tooltip="Another folder"),
        Binding("d", "details", "Details", tooltip="The whole report of the verification"),
        Binding("c", "config", "Config", tooltip="The completed config of the model"),
    ]  # fmt: skip

    def compose(self) -> ComposeResult:
        """Where to, then what and how it went."""
        with Horizontal(id="export-where"):
            yield Static("", id="export-name", markup=False)
            yield Input("export", placeholder="folder of a model repository", id="export-folder")
        with Vertical(id="export-body"):
            yield Lines(id="export-files", classes="box")
            yield Lines(id="export-steps", classes="box")

    def on_mount(self) -> None:
        """Name the parts."""
        self.query_one("#export-steps", Lines).entitle("Steps")
        self.query_one("#export-steps", Lines).follows = True

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self, topic: str = "") -> None:
        """Both sides."""
        store = self.store
        if store.export.model != store.model:
            store.export.model, store.export.plan = store.model, None
            if topic == "model":
                self.action_preview()
        self.query_one("#export-name", Static).update(f"{store.model or 'no model'} to")
        files = self.query_one("#export-files", Lines)
        found = store.export.plan
        files.entitle(_title(found) if found else "Files")
        lines = _files(found) if found else [
            [("p shows what would be written, x writes it, v verifies it.", "dim")]
        ]  # fmt: skip
        files.show(wrapped(lines, max(20, files.size.width - 2)))
        steps = self.query_one("#export-steps", Lines)
        steps.entitle(subtitle="running" if store.export.running else "")
        lines = [[(text, tone)] for tone, text in store.export.steps]
        if store.export.report is not None:
            lines += report_lines(store.export.report)
        steps.show(wrapped(lines, max(20, steps.size.width - 2)))

    # -- what the user does ----------------------------------------------------------------------

    def arrive(self) -> None:
        """Show at once what would be written."""
        if self.store.export.plan is None and self.bench.client is not None:
            self.action_preview()

    @property
    def folder(self) -> Path:
        """Where it is written; relative to the workspace."""
        text = self.query_one("#export-folder", Input).value.strip() or "export"
        snapshot = self.store.snapshot
        place = Path(snapshot.runtime.workspace) if snapshot else Path.cwd()
        return place / Path(text).expanduser()

    def _say(self, tone: str, text: str) -> None:
        self.store.export.steps += [(tone, line) for line in text.splitlines()]
        self.store.changed("export")

    def action_folder(self) -> None:
        """Type another."""
        self.query_one("#export-folder").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Look there."""
        self.query_one("#export-files").focus()
        self.action_preview()

    def action_preview(self) -> None:
        """What would be written."""
        asked = self._asked()
        if asked is None or self.bench.client is None:
            return

        def shown(found: ExportPlan) -> None:
            self.store.export.plan = found
            self.store.changed("export")

        def failed(problem: DevkitError) -> None:
            self.store.export.plan = None
            self._failed(problem)

        self.bench.call(
            lambda client: exporting.plan(client, asked), shown, newest="plan", failed=failed
        )

    def _asked(self, force: bool = False) -> ExportAsked | None:
        name = self.store.model
        return ExportAsked(str(self.folder), (name,), force) if name else None

    def _failed(self, problem: DevkitError) -> None:
        self._say("bad", f"✖ {problem.message.strip()}")
        if problem.remedy:
            self._say("dim", f"  {problem.remedy}")

    def action_export(self) -> None:
        """Write it; what is there and differs is replaced after asking."""
        found = self.store.export.plan
        if found is not None and found.state == "differs":
            question = f"{found.dest} holds something else. Replace it?"
            self.app.push_screen(Confirm(question), lambda yes: self._write(True) if yes else None)
        else:
            self._write(False)

    def _write(self, force: bool) -> None:
        asked = self._asked(force)
        if asked is None:
            return

        def written(found: ExportPlan) -> None:
            count = words.plural(len(found.files), "file")
            self._say("good", f"✔ {found.dest}: {found.state}, {count}")
            for sentence in found.assumed:
                self._say("dim", f"  assumed {sentence}")
            for warning in found.warnings:
                self._say("warn", f"! {warning}")
            self.action_preview()

        self.bench.call(lambda client: exporting.write(client, asked), written, failed=self._failed)

    def action_verify(self) -> None:
        """Ask the real server, step by step."""
        state = self.store.export
        path = self.folder / self.store.model
        if state.running or not self.store.model:
            return
        if not path.is_dir():
            self.bench.tell("it is not exported yet: x does", "warning")
            return
        state.running, state.report = True, None
        self._say("bold", f"verifying {path}")

        def task(client: Client) -> VerifyReport:
            quiet = Console(file=io.StringIO())  # its progress bars would write over the screen
            return verify(
                path, client=client, consent=self._ask_from_thread, console=quiet,
                progress=lambda text: self.bench.post(lambda: self._say("dim", f"· {text}")),
            )  # fmt: skip

        def done(report: VerifyReport) -> None:
            state.running, state.report = False, report
            self.store.changed("export")

        def failed(problem: DevkitError) -> None:
            state.running = False
            self._failed(problem)

        self.bench.call(task, done, failed=failed)
        if self.bench.client is None:
            state.running = False

    def _ask_from_thread(self, question: str) -> bool:
        """Ask the user, and wait for the answer where nobody else is kept waiting."""
        answered, answer = threading.Event(), [False]

        def close(yes: bool | None) -> None:
            answer[0] = bool(yes)
            answered.set()

        def ask() -> None:
            self.app.push_screen(Confirm(question), close)

        self.bench.post(ask)
        answered.wait()
        if answer[0]:
            self.bench.post(lambda: self._say("dim", "· fetching the real server (once)"))
        return answer[0]

    def action_details(self) -> None:
        """The whole report."""
        report = self.store.export.report
        if report is not None:
            width = max(40, min(self.app.size.width - 14, 116))
            self.bench.read("Verification", plain(report.text(width)))

    def action_config(self) -> None:
        """The config that would be written."""
        name = self.store.model
        if name:
            self.bench.call(
                lambda client: client.config_text(name),
                lambda text: self.bench.read(f"{name}: completed config", plain(text)),
            )


def _title(found: ExportPlan) -> str:
    told = {"new": "is new", "unchanged": "is there, unchanged", "differs": "would change"}
    return f"{words.tail(found.dest, 44)} {told.get(found.state, found.state)}"


_SIGNS = {"new": ("+ ", "good"), "changed": ("~ ", "warn"), "removed": ("- ", "bad")}


def _files(found: ExportPlan) -> list[Line]:
    lines: list[Line] = []
    for file in found.files:
        sign = _SIGNS.get(file.state, ("  ", ""))
        lines.append([sign, (f"{words.size(file.bytes):>9}  ", "dim"), (file.path, "bold")])
    lines += [[("  from ", "dim"), (one, "")] for one in found.brought]
    lines += [[("  assumed ", "dim"), (one, "")] for one in found.assumed]
    lines += [[("! ", "warn"), (one, "warn")] for one in found.warnings]
    for file in found.files:
        if file.diff and file.state == "changed":
            lines += [[], [(file.path, "warn bold")]]
            lines += [[(line, _DIFF.get(line[:1], ""))] for line in file.diff.splitlines()]
    return lines


def report_lines(report: VerifyReport) -> list[Line]:
    """What the real server said, a line for each request, and the sum of it at the end."""
    lines: list[Line] = []
    for model in report.models:
        if model.error or model.metadata:
            lines.append([("✖ ", "bad"), (model.error or model.metadata, "bad")])
        for text in (model.skipped, model.note):
            lines += [[("· ", "dim"), (text, "dim")]] if text else []
        for request in model.requests:
            mark, tone = _VERDICTS[request.verdict]
            lines.append([(f"{mark} ", tone), (f"{request.origin} {request.number}", ""),
                          (f"  {request.against}", "dim")])  # fmt: skip
            for output in request.outputs:
                if output.verdict != "same":
                    lines.append([("    ", ""), (f"{output.name} {output.verdict}: ", tone),
                                  (output.detail, "")])  # fmt: skip
    mark, tone = _VERDICTS[report.verdict]
    return [*lines, [(f"{mark} {report.summary()}", f"{tone} bold")]]
