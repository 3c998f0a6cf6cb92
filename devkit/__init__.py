"""devkit: the live workbench for models of Triton's Python backend.

The public names, and nothing behind them yet: each is fetched from its home when it is first used,
so that `import devkit` costs a few milliseconds wherever it stands, also inside a model. No logic
lives here. Python 3.9+ and standard library only, because a model's own process imports it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, ContextManager, Optional

if TYPE_CHECKING:
    from devkit import errors
    from devkit.notebook.widgets import dashboard, timeline
    from devkit.workbench import (
        adopt,
        captures,
        compare,
        config,
        connect,
        diagnose,
        export,
        export_all,
        failures,
        infer,
        inspect,
        load,
        models,
        reload,
        remove,
        replay,
        scale,
        trace,
        tracing,
        unload,
        verify,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "adopt",
    "captures",
    "compare",
    "config",
    "connect",
    "dashboard",
    "diagnose",
    "errors",
    "export",
    "export_all",
    "failures",
    "infer",
    "inspect",
    "load",
    "models",
    "probe",
    "reload",
    "remove",
    "replay",
    "scale",
    "span",
    "timeline",
    "trace",
    "tracing",
    "unload",
    "verify",
]

_WIDGETS = frozenset({"dashboard", "timeline"})
_WORKBENCH = frozenset(__all__) - _WIDGETS - {"__version__", "errors", "probe", "span"}

_open_span: Optional[Callable[[str, "dict[str, Any]"], ContextManager[None]]] = None
"""Set by the process that runs a model, where spans are recorded; None everywhere else."""


_take_probe: Optional[Callable[..., None]] = None
"""Set by the process that runs a model, while somebody may look; None everywhere else."""


class _NoSpan:
    """What `span` gives where nobody records."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NO_SPAN = _NoSpan()


def span(name: str, **attributes: Any) -> ContextManager[None]:
    """Mark a part of `execute` in the trace: `with devkit.span("tokenize"): ...`.

    Costs next to nothing where no trace is taken. A `model.py` that must also run where devkit is
    not installed guards the import.
    """
    if _open_span is None:
        return _NO_SPAN
    return _open_span(name, attributes)


def probe(name: str, value: Any, request: Any = None) -> Any:
    """Show an intermediate tensor with the request it belongs to, and return it.

    `devkit.inspect` and `devkit tensors` show it beside inputs and outputs. It counts for the
    whole batch, or for `request` alone. Costs next to nothing where nobody looks; an export to the
    real server works without devkit.
    """
    if _take_probe is not None:
        _take_probe(name, value, request)
    return value


def __getattr__(name: str) -> Any:
    import importlib

    if name in _WORKBENCH:
        _show_in_notebooks()
        value = getattr(importlib.import_module("devkit.workbench"), name)
    elif name in _WIDGETS:
        value = getattr(importlib.import_module("devkit.notebook.widgets"), name)
    elif name == "errors":
        value = importlib.import_module("devkit.errors")
    else:
        raise AttributeError(f"module 'devkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def _show_in_notebooks() -> None:
    """In a Jupyter kernel, what the workbench returns shows itself as a widget."""
    import sys

    if "ipykernel" in sys.modules:
        from devkit.notebook import widgets
        from devkit.tools.inspection import Shown

        Shown.bundle = staticmethod(widgets.bundle)


def __dir__() -> "list[str]":
    return sorted(set(globals()) | set(__all__))


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext devkit`: adds `%%model`, `%%config` and `%devkit` to the notebook."""
    from devkit.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext devkit`: takes them away again; the models go on."""
    from devkit.notebook.extension import unload

    unload(shell)
