"""The magics: `%%model`, `%%config`, `%devkit`.

Each reads its line, asks the runtime, and shows a display object. What a cell means is in `cells`,
how errors look in `tracebacks` and `explain`; the runtime is reached through `devkit.workbench`.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import display

from devkit import workbench
from devkit.contract import config as contract
from devkit.control import messages
from devkit.control.client import Client
from devkit.errors import ConfigError, DevkitError, LoadError
from devkit.notebook import cells, options, views
from devkit.notebook.cells import Cell
from devkit.notebook.display import Note
from devkit.notebook.explain import attach
from devkit.notebook.options import ModelOptions, UsageError

_USAGE = """\
%%model NAME [--instances N] [--max-batch-size B] [--dynamic-batching] [--decoupled]
             [--start-method warm|spawn] [--parameter KEY=VALUE]...
                       the cell is the model: class TritonPythonModel, or one function
%%config NAME          the cell is the model's config.pbtxt
%devkit                the models of this runtime, and where it is
%devkit config NAME    the config.pbtxt a model has now
%devkit log [NAME]     the last lines of the log
%devkit doctor [NAME]  what works here and fails in production
%debug_model NAME      step through its execute; `%debug_model --help`"""


_CONFIG_HEADER = "# %%config"
"""First line of a config that a cell gave; stands for the magic's own line."""


def _advice(client: Client, name: str) -> list[str]:
    """What would break in production, a sentence each; `%devkit doctor` says the rest."""
    try:
        found = client.doctor(name).findings
    except DevkitError:  # advice that cannot be had is no reason for a cell to fail
        return []
    return [
        f"Line {one.place.line}: {one.message}. {one.why} [{one.rule}]"
        for one in found
        if one.severity == "error"
    ]


@magics_class
class DevkitMagics(Magics):  # type: ignore[misc]
    """State: which cell each model was made of, and configs written before their model."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._serving: dict[str, Cell] = {}
        self._attempt: Cell | None = None
        self._configs: dict[str, str] = {}

    # --- magics ---------------------------------------------------------------------------------

    @cell_magic  # type: ignore[untyped-decorator]
    def model(self, line: str, body: str) -> None:
        """Make the cell the live model NAME; `%devkit help` lists the options."""
        self.guarded(lambda: self._model(line, body))

    @cell_magic  # type: ignore[untyped-decorator]
    def config(self, line: str, body: str) -> None:
        """Make the cell the `config.pbtxt` of the model NAME, now or when its cell is run."""
        self.guarded(lambda: self._config(line, body))

    @line_magic  # type: ignore[untyped-decorator]
    def devkit(self, line: str) -> None:
        """Show the runtime: `%devkit [status|models|config NAME|log [NAME]|doctor [NAME]|help]`."""
        self.guarded(lambda: self._devkit(line))

    def explain(self, error: DevkitError) -> None:
        """Make `error` show the lines of its model's cell; see `devkit.workbench.explain`."""
        attach(error, self.cell_of, code_name=self._code_name, names=self.shell.user_ns)

    # --- what they do ---------------------------------------------------------------------------

    def _model(self, line: str, body: str) -> None:
        asked = options.parse(line)
        cell = cells.from_magic(line, body, model=asked.name, number=self._number())
        client = workbench.connect()
        message = asked.message(self._config_for(asked, Path(client.runtime.scratch)))
        handle = None
        if not asked.quiet:
            handle = display(Note(asked.name, "starting…"), display_id=True)
        card: Any = Note(asked.name, "interrupted", tone="warn")
        try:
            model = client.put_model(asked.name, {"1/model.py": cell.source}, message)
            self._serving[asked.name] = cell
            notes = _advice(client, asked.name)
            card = views.card(model, notes=notes, function=cell.function)
        except (LoadError, ConfigError) as error:
            self._attempt = cell
            card = self._failed(client, asked.name, error)
            raise
        finally:
            if handle is not None:
                handle.update(card)

    def _config(self, line: str, body: str) -> None:
        (name,) = self._words(line, 1, "%%config NAME")
        options.model_name(name)
        text = f"{_CONFIG_HEADER} {name}\n{body}"  # line N of the cell is line N of the file
        contract.parse(text, self._label(name))
        client = workbench.connect()
        known = self._find(client, name)
        if known is None or not known.scratch:
            self._configs[name] = text
            display(Note(name, f"config kept; it is used when a cell `%%model {name}` is run"))
            return
        model = client.put_model(name, {}, messages.ModelOptions(config=text))
        self._configs[name] = text
        display(views.card(model))

    def _devkit(self, line: str) -> None:
        command, *rest = shlex.split(line) or ["status"]
        if command in ("status", "models") and not rest:
            client = workbench.connect()
            display(views.runtime(client.status()))
        elif command == "config" and len(rest) == 1:
            display(Note(rest[0], "config.pbtxt", workbench.config(rest[0])))
        elif command == "log" and len(rest) <= 1:
            lines = workbench.connect().logs(model=rest[0] if rest else "")
            display(Note("log", ", ".join(rest), "\n".join(views.log_line(one) for one in lines)))
        elif command == "doctor" and len(rest) <= 1:
            told = workbench.diagnose(rest[0] if rest else "")
            display(Note("doctor", ", ".join(rest), told.text()))
        elif command == "help":
            display(Note("devkit", "", _USAGE))
        else:
            raise UsageError(f"%devkit does not know {line!r}", remedy=_USAGE)

    # --- helpers --------------------------------------------------------------------------------

    def guarded(self, step: Callable[[], None]) -> None:
        """Run a magic; its error shows cell lines, and none of IPython's frames or ours."""
        try:
            step()
        except DevkitError as error:
            attempt, self._attempt = self._attempt, None
            headline = self._headline(error, attempt)
            attach(
                error,
                lambda file: self.cell_of(file, attempt),
                code_name=self._code_name,
                names=self.shell.user_ns,
                headline=headline,
                callers=False,
            )
            raise

    def _config_for(self, asked: ModelOptions, scratch: Path) -> str | None:
        """Text of the config that `%%config` gave, with what the `%%model` line adds to it.

        A kernel that was restarted finds what an earlier one wrote, by its first line.
        """
        text = self._configs.get(asked.name)
        file = scratch / asked.name / "config.pbtxt"
        if text is None and file.is_file():
            written = file.read_text(encoding="utf-8")
            text = written if written.startswith(_CONFIG_HEADER) else None
        if text is None or not asked.changes_config():
            return text
        config = contract.parse(text, self._label(asked.name))
        asked.apply(config)
        return f"{_CONFIG_HEADER} {asked.name}\n{contract.to_pbtxt(config)}"

    def _failed(self, client: Client, name: str, error: DevkitError) -> Any:
        """The card of a cell that did not load: what serves meanwhile, if anything does."""
        model = self._find(client, name)
        if model is None or model.state != "READY":
            return Note(name, "did not load; nothing serves under this name", tone="bad")
        cell = self._serving.get(name)
        keeps = (
            f"this cell did not load; the version of {cell.label} keeps serving"
            if cell
            else ("this cell did not load; the version before it keeps serving")
        )
        return views.card(model, tone="bad", notes=(keeps,), state="READY, older version")

    def _headline(self, error: DevkitError, attempt: Cell | None) -> str:
        if attempt is None or not isinstance(error, LoadError):
            return ""
        return f"model {attempt.model!r} did not load"

    @staticmethod
    def _find(client: Client, name: str) -> messages.Model | None:
        return next((one for one in client.models() if one.name == name), None)

    def _label(self, name: str) -> str:
        number = self._number()
        return f"Cell In[{number}]" if number else f"config of {name}"

    def cell_of(self, file: str, attempt: Cell | None = None) -> Cell | None:
        """The cell behind a model's file: the one just tried, else the one that serves."""
        path = Path(file)
        if path.name != "model.py":
            return None
        if len(path.parts) < 4:  # a SyntaxError's text names the file alone
            return attempt
        name = path.parts[-3]
        if ".devkit" not in path.parts:
            return None
        if attempt is not None and attempt.model == name:
            return attempt
        return self._serving.get(name) or cells.from_file(name, path)

    def _code_name(self, file: str) -> str:
        found = self.shell.compile.format_code_name(file)
        return " ".join(found) if found else f"File {file}"

    def _number(self) -> int:
        """The number of the cell that runs now; 0 where the code comes from no cell.

        Read off the stack: versions of IPython differ in when they count `execution_count` up.
        """
        frame = inspect.currentframe()
        while frame is not None:
            label = self._code_name(frame.f_code.co_filename)
            if found := re.fullmatch(r"Cell In\[(\d+)\]", label):
                return int(found.group(1))
            frame = frame.f_back
        return 0

    @staticmethod
    def _words(line: str, count: int, usage: str) -> list[str]:
        words = shlex.split(line)
        if len(words) != count:
            raise UsageError(f"{usage}: got {line!r}", remedy=f"write it as {usage}")
        return words
