"""The debugger under a cell: what is shown and clicked, and what a cell may ask of it.

One face of a session that lives in the runtime. A click is answered by the kernel, so a cell that
waits for a debugged request would keep the buttons from working (kernels without subshells do one
thing at a time): requests are sent from a thread of their own, by `send`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.control import messages
from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from devkit.debug import shown
from devkit.debug.follow import Follower
from devkit.errors import DebugError, DevkitError
from devkit.notebook import debug_views as views
from devkit.notebook.display import Table
from devkit.tools.debugging import Places, Sent

_BUTTONS = (
    # name, words, icon, what it tells on hovering, whether it needs a stop
    ("continue", "Continue", "play", "On to the next stop", True),
    ("next", "Step", "arrow-right", "The next line of this function", True),
    ("step_in", "In", "arrow-down", "Into what this line calls", True),
    ("step_out", "Out", "arrow-up", "On to where this function was called", True),
    ("pause", "Pause", "pause", "Stop at the next line that runs", False),
    ("next_request", "Next request", "bullseye", "Stop the next request, too", False),
    ("off", "Detach", "sign-out", "Leave; the instance goes on", False),
)


_BLOCKED = (
    "A cell waits for this request, so the kernel cannot hear these buttons: interrupt it (■). The "
    "request stays where it is, and the buttons work. `%debug_model NAME --send {...}` never waits."
)


class DebugPanel:
    """A debugger on one instance.

    Attributes:
        session: all that a debugger can do, as `devkit.connect().debug(...)` gives it.
        sent: the request that was sent by this panel last, if one was.
        places: what stops for its sake only.
    """

    def __init__(
        self,
        client: Client,
        session: Debugging,
        *,
        label: views.Label = str,
        places: Places | None = None,
        cell: int = 0,
    ) -> None:
        self.session = session
        self.sent: Sent | None = None
        self._client = client
        self._label = label
        self.places = places or Places(client)
        self._cell = cell
        self._frames: list[messages.Frame] = []
        self._frame = 0
        self._values: dict[str, str] = {}
        self._lock = threading.RLock()
        self._widget: _Widget | None = None
        self._follower = Follower(client, session, self._changed)
        with contextlib.suppress(ImportError):
            self._widget = _Widget(self)

    # -- what a cell may ask ---------------------------------------------------------------------

    @property
    def told(self) -> messages.DebugSession:
        """How the session is."""
        return self._follower.told

    def wait(self, seconds: float = 60.0) -> messages.DebugSession:
        """How it is once it stands. Raises DebugError where it does not in time."""
        found = self._follower.until(lambda told: told.state == "stopped", seconds)
        if found is None or found.state == "ended":
            return self.session.wait_stopped(0.0)  # says why not
        return found

    def send(
        self, inputs: Mapping[str, npt.ArrayLike] | Callable[[], dict[str, Any]], **options: Any
    ) -> Sent:
        """Send a request to the debugged instance from a thread; the cell does not wait for it.

        The answer is shown in the panel, and `answer()` gives it.
        """
        if callable(inputs):
            ask = inputs
        else:
            arrays, model = dict(inputs), self.told.model

            def ask() -> dict[str, Any]:
                return self._client.infer(model, arrays, debug=True, **options)

        self.sent = Sent(ask, self._answered)
        return self.sent

    def answer(self, seconds: float = 60.0) -> dict[str, Any]:
        """The outputs of the request that `send` sent, once it has been answered."""
        if self.sent is None:
            raise DebugError("this panel has sent no request", remedy="send one: `--send {...}`")
        return self.sent.answer(seconds)

    def variables(self) -> Table:
        """The local variables where it stands."""
        found = shown.own(self.session.locals(self._frame_id()).values())
        rows = [(each.name, shown.kind(each), shown.value(each, 100)) for each in found]
        told = self.told
        where = views.place(told.line, self._label) if told.line else ""
        return Table("variables", ("name", "type", "value"), rows, [where], "none")

    def tensor(self, expression: str) -> npt.NDArray[Any]:
        """A copy of a tensor of the stopped process, whole and in its shape."""
        summary, values = self.session.tensor(expression, count=0, frame=self._frame_id())
        count = int(np.prod(summary.shape))
        if count:
            _, values = self.session.tensor(expression, count=count, frame=self._frame_id())
        return values.reshape(summary.shape)

    def set(self, name: str, value: str) -> messages.Variable:
        """Give a variable another value, written as an expression: `set("factor", "10")`."""
        with self._lock:
            made = self.session.set(name, value, frame=self._frame_id())
            self._render()
        return made

    def move(self, how: str, into: str = "") -> messages.DebugSession:
        """`continue`, `next`, `step_in`, `step_out`: go on, and wait until it has been done."""
        told = self.session.resume() if how == "continue" else self.session.step(how, into=into)
        self._follower.heard(told)
        return told

    def off(self) -> None:
        """End the debugger: the instance goes on, and what this panel set is taken away."""
        self.places.undo()
        with contextlib.suppress(DevkitError):
            self.session.detach()

    # -- how it is shown -------------------------------------------------------------------------

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        with self._lock:
            lines, found = self._looked()
            bundle: dict[str, Any] = {
                "text/plain": views.text(self.told, self._label, lines, found)
            }
            if self._widget is not None:
                bundle |= self._widget.view()
            else:
                parts = (views.head(self.told, self._label), views.source(lines),
                         views.variables(found))  # fmt: skip
                bundle["text/html"] = views.STYLE + "".join(parts)
            return bundle

    def _ipython_display_(self) -> None:
        """The magic has shown it below its own cell; in any other it is shown again."""
        if not self._cell or _cell_number() != self._cell:
            self.show()

    def show(self) -> None:
        """Show it below the cell that runs."""
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)

    def __repr__(self) -> str:
        return views.text(self.told, self._label)

    def _looked(self) -> tuple[list[shown.Line], list[messages.Variable]]:
        """The source and the variables of the frame that is looked at."""
        told = self.told
        if told.state != "stopped":
            return [], []
        try:
            if not self._frames:
                self._frames = self.session.stack(told.thread)
            frame = self._frames[min(self._frame, len(self._frames) - 1)]
            points = self._client.breakpoints().breakpoints
            return (
                shown.excerpt(frame.path, frame.line, points),
                list(self.session.locals(frame.id).values()),
            )
        except (DevkitError, IndexError):
            return [], []  # it has gone on meanwhile; the next change is on its way

    def _frame_id(self) -> int:
        return self._frames[self._frame].id if self._frame < len(self._frames) else 0

    def _changed(self, told: messages.DebugSession) -> None:
        with self._lock:
            self._frames, self._frame = [], 0
            self._render()

    def _answered(self, sent: Sent) -> None:
        if self._widget is not None:
            self._widget.answered(sent)

    def _render(self) -> None:
        if self._widget is None:
            return
        lines, found = self._looked()
        now = {each.name: each.value for each in found}
        changed = frozenset(
            name for name, value in now.items()
            if self._values and self._values.get(name) != value
        )  # fmt: skip
        if found:
            self._values = now
        self._widget.render(self.told, lines, found, changed, self._frames, self._frame)

    # -- what is clicked -------------------------------------------------------------------------

    def click(self, name: str) -> None:
        """A button; raises DebugError where it cannot be done now."""
        if name == "off":
            self.off()
        elif name == "next_request":
            self.session.take("next")
        else:
            self._follower.heard(self.session.move(name))

    def into(self, model: str) -> DebugPanel | None:
        """Go on, and stop in the model that is called; the panel of that one."""
        before = self.places.numbers()
        self._follower.heard(self.session.move("next", into=model))
        self.places.own_new(before)
        for session in self._client.debug_sessions():
            if session.told.model == model:
                return DebugPanel(self._client, session, label=self._label)
        return None

    def settle(self, seconds: float) -> None:
        """Wait until it stands, or its request has been answered without."""
        sent = self.sent
        self._follower.until(
            lambda told: told.state == "stopped" or (sent is not None and not sent.waits), seconds
        )

    def look_at(self, frame: int) -> None:
        """Another frame of the stack."""
        with self._lock:
            if frame != self._frame and frame < len(self._frames):
                self._frame = frame
                self._values = {}
                self._render()

    def evaluate(self, text: str) -> messages.Variable:
        """An expression's value where it stands, or a statement run there."""
        with self._lock:
            found = self.session.evaluate(text, frame=self._frame_id())
            self._render()  # a statement may have changed what is shown
        return found


def _cell_waits() -> bool:
    """Whether the kernel's own thread waits for an inference right now."""
    own = threading.main_thread().ident
    frame = sys._current_frames().get(own or 0)
    while frame is not None:
        if frame.f_code is Client.infer.__code__:
            return True
        frame = frame.f_back
    return False


def _cell_number() -> int:
    from IPython import get_ipython

    shell = get_ipython()
    return int(shell.execution_count) if shell is not None else 0


class _Widget:
    """The panel as ipywidgets draw it."""

    def __init__(self, panel: DebugPanel) -> None:
        import ipywidgets as widgets

        self._panel = panel
        self._label = panel._label
        self._rendering = False
        self._style = widgets.HTML(views.STYLE, layout={"display": "none"})
        self._head = widgets.HTML()
        self._buttons: dict[str, Any] = {}
        for name, words, icon, tip, _ in _BUTTONS:
            made = widgets.Button(
                description=words, icon=icon, tooltip=tip, layout={"width": "auto"}
            )
            made.on_click(lambda _, name=name: self._guarded(lambda: panel.click(name)))
            self._buttons[name] = made
        self._into = widgets.Button(icon="sign-in", layout={"width": "auto", "display": "none"})
        self._into.on_click(lambda _: self._guarded(self._go_into))
        self._source = widgets.HTML(layout={"width": "100%"})
        self._stack = widgets.Dropdown(
            description="Frame", layout={"width": "auto", "max_width": "640px", "display": "none"}
        )
        self._stack.observe(self._frame_chosen, "value")
        self._variables = widgets.HTML()
        self._ask = widgets.Text(
            placeholder="evaluate here: x.mean(), or factor = 10", continuous_update=False,
            layout={"width": "420px", "display": "none"},
        )  # fmt: skip
        self._ask.observe(self._asked, "value")
        self._result = widgets.HTML()
        self._message = widgets.HTML()
        self._answer = widgets.HTML()
        self._box = widgets.VBox(
            [
                self._style, self._head,
                widgets.HBox([*self._buttons.values(), self._into],
                             layout={"flex_flow": "row wrap"}),
                self._message, self._source, self._stack, self._variables,
                widgets.HBox([self._ask, self._result]), self._answer,
            ],
            layout={"border": "1px solid var(--jp-border-color2, #8884)", "padding": "8px 12px",
                    "max_width": "860px", "overflow": "hidden"},
        )  # fmt: skip
        self.render(panel.told, [], [], frozenset(), [], 0)

    def view(self) -> dict[str, Any]:
        """What makes a front end draw it."""
        found = self._box._repr_mimebundle_()
        bundle = found[0] if isinstance(found, tuple) else found
        return {key: value for key, value in bundle.items() if key != "text/plain"}

    def render(
        self,
        told: messages.DebugSession,
        lines: list[shown.Line],
        found: list[messages.Variable],
        changed: frozenset[str],
        frames: list[messages.Frame],
        frame: int,
    ) -> None:
        """Show how it is now."""
        stands = told.state == "stopped"
        self._head.value = views.head(told, self._label)
        for name, _, _, _, needs_stop in _BUTTONS:
            off = told.state == "ended" or (needs_stop and not stands)
            self._buttons[name].disabled = off
        self._buttons["pause"].disabled = told.state != "running"
        self._buttons["next_request"].disabled = told.state == "ended" or told.take != "marked"
        self._into.layout.display = "" if stands and told.callee else "none"
        self._into.description = f"Into {told.callee}" if told.callee else ""
        self._source.value = views.source(lines)
        self._variables.value = views.variables(found, changed)
        self._ask.layout.display = "" if stands else "none"
        if not stands:
            self._result.value = ""
        self._show_frames(frames, frame)
        self._message.value = views.problem(_BLOCKED) if stands and _cell_waits() else ""

    def _show_frames(self, frames: list[messages.Frame], frame: int) -> None:
        self._rendering = True
        try:
            self._stack.options = [
                (f"{shown.clean(each.name)}  {self._label(each.path)}, line {each.line}", number)
                for number, each in enumerate(frames)
            ]
            if frames:
                self._stack.value = frame
            self._stack.layout.display = "" if len(frames) > 1 else "none"
        finally:
            self._rendering = False

    def answered(self, sent: Sent) -> None:
        """The request that the panel sent has been answered."""
        self._answer.value = (
            views.problem(sent.error) if sent.error else views.answer(sent.answer())
        )

    def _go_into(self) -> None:
        """The called model's debugger is shown below this one's."""
        made = self._panel.into(self._panel.told.callee)
        if made is not None and made._widget is not None:
            self._box.children = (*self._box.children, made._widget._box)

    def _frame_chosen(self, change: Any) -> None:
        if not self._rendering and change["new"] is not None:
            self._guarded(lambda: self._panel.look_at(int(change["new"])))

    def _asked(self, change: Any) -> None:
        text = str(change["new"]).strip()
        if not text:
            return
        try:
            self._result.value = views.value(self._panel.evaluate(text))
        except DevkitError as problem:
            self._result.value = views.problem(problem.message)
        self._ask.value = ""

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except DevkitError as problem:
            remedy = f" ({problem.remedy})" if problem.remedy else ""
            self._message.value = views.problem(f"{problem.message}{remedy}")
