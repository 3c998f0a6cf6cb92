"""What the workbench shows: filled by the feed and by what the user asks, read by the screens.

Everything in here is a message of the control API as it came. Screens draw from it alone, so a
store that was filled by hand shows the same as a live one. It knows no widget and no socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devkit.contract import inspection
from devkit.control import messages
from devkit.control.tracing import Traces

if TYPE_CHECKING:
    from devkit.control.findings import ExportPlan
    from devkit.tools.verify import VerifyReport

LOG_LINES = 5000

Key = tuple[str, str, str, str]
"""Model, version, instance and the number's name: whose series it is."""


@dataclass
class Look:
    """One tensor as it is looked at: its numbers, and the one view that shows it best."""

    summary: inspection.Summary
    series: inspection.Series | None = None
    grid: inspection.Grid | None = None
    picture: messages.Picture | None = None
    texts: messages.Texts | None = None
    slice: str = ""
    values: str = ""


@dataclass
class Opened:
    """The recorded request whose tensors are shown."""

    capture: messages.CaptureInfo
    tensors: tuple[messages.TensorInfo, ...] = ()
    looks: dict[messages.TensorAddress, Look] = field(default_factory=dict)


@dataclass
class Shown:
    """One variable in the tree of a stopped process."""

    variable: messages.Variable
    depth: int = 0
    path: tuple[str, ...] = ()


@dataclass
class Debug:
    """The debugger, as far as it is seen.

    Attributes:
        session: None where none is attached.
        file: the source that is shown, `text` what it holds.
        said: what was asked at the prompt, and what came of it; (tone, text).
    """

    session: messages.DebugSession | None = None
    frames: tuple[messages.Frame, ...] = ()
    frame: int = 0
    variables: tuple[Shown, ...] = ()
    unfolded: frozenset[tuple[str, ...]] = frozenset()
    breakpoints: messages.Breakpoints = field(default_factory=messages.Breakpoints)
    file: str = ""
    text: str = ""
    said: list[tuple[str, str]] = field(default_factory=list)

    @property
    def here(self) -> int:
        """The line of `file` at which the chosen frame stands, 0 for none."""
        for one in self.frames:
            if one.id == self.frame and one.path == self.file:
                return one.line
        return 0


@dataclass
class Export:
    """What an export would write, and what its verification said.

    Attributes:
        plan: files and what would change in each, as it was found last.
        steps: what was done and how it went; (tone, text).
    """

    model: str = ""
    folder: str = ""
    plan: ExportPlan | None = None
    steps: list[tuple[str, str]] = field(default_factory=list)
    report: VerifyReport | None = None
    running: bool = False


@dataclass
class Store:
    """All of it.

    Attributes:
        workspace: folder of the runtime.
        trouble: why there is no runtime, in a sentence; empty while one answers.
        model: the model that is chosen, on all screens.
        listeners: called with the topic after a change: `connection`, `snapshot`, `history`,
            `captures`, `failures`, `logs`, `opened`, `traces`, `debug`, `export`, `model`.
    """

    workspace: str = ""
    now: Callable[[], float] = time.time
    trouble: str = "connecting"
    snapshot: messages.Snapshot | None = None
    series: dict[Key, tuple[float | None, ...]] = field(default_factory=dict)
    captures: tuple[messages.CaptureInfo, ...] = ()
    failures: tuple[messages.FailureInfo, ...] = ()
    logs: list[messages.LogLine] = field(default_factory=list)
    opened: Opened | None = None
    traces: Traces | None = None
    tracing: str = ""
    debug: Debug = field(default_factory=Debug)
    export: Export = field(default_factory=Export)
    model: str = ""
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def changed(self, *topics: str) -> None:
        """Tell the listeners."""
        for topic in topics:
            for listener in self.listeners:
                listener(topic)

    # -- what the feed brings --------------------------------------------------------------------

    def found(self, snapshot: messages.Snapshot) -> None:
        """A picture of everything."""
        before = self.snapshot
        fresh = bool(self.trouble) or before is None
        self.snapshot, self.trouble = snapshot, ""
        if self.model not in {one.name for one in snapshot.models}:
            loaded = [one.name for one in snapshot.models if one.state == "READY"]
            self.model = next(iter(loaded or [one.name for one in snapshot.models]), "")
            self.changed("model")
        self.changed(*(["connection"] if fresh else []), "snapshot")

    def lost(self, why: str) -> None:
        """The runtime is gone: its numbers are of the past, its sessions over."""
        if self.trouble == why:
            return
        self.trouble = why
        self.series = {}
        self.debug.session, self.debug.frames, self.debug.variables = None, (), ()
        self.debug.frame = 0
        self.tracing = ""
        self.changed("connection", "snapshot", "debug", "traces")

    def began(self) -> None:
        """Another runtime: what the one before had kept is not there any more."""
        self.captures, self.failures, self.logs, self.opened = (), (), [], None
        self.changed("captures", "failures", "logs", "opened")

    def measured(self, history: messages.History) -> None:
        """The numbers of the last seconds."""
        self.series = {
            (one.model, one.version, one.instance, one.name): one.values for one in history.series
        }
        self.changed("history")

    def recorded(self, captures: Sequence[messages.CaptureInfo]) -> None:
        """The recorded requests, the oldest first."""
        if tuple(captures) != self.captures:
            self.captures = tuple(captures)
            self.changed("captures")

    def failed(self, failures: Sequence[messages.FailureInfo]) -> None:
        """What raised or died, the oldest first."""
        self.failures = tuple(failures)
        self.changed("failures")

    def logged(self, lines: Sequence[messages.LogLine]) -> None:
        """More lines of the log."""
        if lines:
            self.logs = [*self.logs, *lines][-LOG_LINES:]
            self.changed("logs")

    # -- what the screens ask --------------------------------------------------------------------

    def the_model(self, name: str = "") -> messages.Model | None:
        """A model by name, the chosen one by default."""
        wanted = name or self.model
        models = self.snapshot.models if self.snapshot else ()
        return next((one for one in models if one.name == wanted), None)

    def values(
        self, model: messages.Model | None, name: str, instance: str = ""
    ) -> tuple[float | None, ...]:
        """A series of a model, an instance or (None) the machine."""
        about = (model.name, model.version) if model else ("", "")
        return self.series.get((*about, instance, name), ())

    def last(self, model: messages.Model | None, name: str, instance: str = "") -> float | None:
        """The newest value of a series."""
        values = self.values(model, name, instance)
        return values[-1] if values else None

    def choose(self, model: str) -> None:
        """Another model is the chosen one."""
        if model and model != self.model:
            self.model = model
            self.changed("model")
