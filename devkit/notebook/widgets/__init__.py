"""What a notebook shows live: `devkit.dashboard`, `devkit.timeline`, tensors and failures.

Each is a widget of Python and a hand-written ES module in `js/`. Runs in the kernel; what is shown
comes through `devkit.control.client`. Needs `pip install 'triton-devkit[lab]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devkit.errors import DevkitError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from devkit.contract.tracing import Span, Trace
    from devkit.control.tracing import Traces
    from devkit.notebook.widgets.board import Dashboard
    from devkit.notebook.widgets.trace import Timeline

_MISSING = "pip install 'triton-devkit[lab]' into the environment of this kernel"


class WidgetsMissing(DevkitError):
    """The packages that widgets need are not in this environment; install the `lab` extra."""


def _ready() -> None:
    try:
        import anywidget  # noqa: F401
    except ImportError as problem:
        raise WidgetsMissing("widgets need the package anywidget", remedy=_MISSING) from problem


def dashboard() -> Dashboard:
    """The models, processes and memory of this workspace's runtime, live while it is in sight.

    It stops when it is closed (`.close()`) and when the runtime ends.
    """
    _ready()
    from devkit.notebook.widgets.board import dashboard as made

    return made()


def timeline(trace: Traces | Trace | Iterable[Trace | Span] | str | Path) -> Timeline:
    """A timeline to zoom and pan in: a lane for each request, process and thread.

    `trace` is what `devkit.trace` and `devkit.tracing` bring, one trace of it, spans, or a file
    that `devkit trace --out` wrote (Chrome's form, or OpenTelemetry's).
    """
    _ready()
    from devkit.notebook.widgets.trace import timeline as made

    return made(trace)


def bundle(subject: Any) -> Any:
    """How IPython shows what `devkit.inspect`, `compare` and `failures` return."""
    try:
        _ready()
    except WidgetsMissing:
        return {}
    from devkit.notebook.widgets.failures import FailureViewer
    from devkit.notebook.widgets.tensors import Inspector
    from devkit.tools.inspection import (
        Captured,
        Comparison,
        Failed,
        FailureList,
        Inspection,
        TensorView,
    )  # fmt: skip

    if isinstance(subject, (Inspection, TensorView, Captured, Comparison)):
        return Inspector(subject)._repr_mimebundle_()
    if isinstance(subject, Failed):
        return FailureViewer(FailureList([subject]))._repr_mimebundle_()
    if isinstance(subject, FailureList):
        return FailureViewer(subject, subject.again)._repr_mimebundle_()
    return {}
