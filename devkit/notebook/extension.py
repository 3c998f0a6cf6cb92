"""`%load_ext devkit`: puts the magics and the error display into an IPython shell, or out of it."""

from __future__ import annotations

from typing import Any

from devkit import workbench
from devkit.notebook.debug_magics import DebugMagics
from devkit.notebook.magics import DevkitMagics

_MAGICS = {"cell": ("model", "config"), "line": ("devkit", "debug_model")}


def load(shell: Any) -> None:
    """Register everything; a second time replaces the first, as `%reload_ext` expects."""
    magics = DevkitMagics(shell)
    shell.register_magics(magics)
    shell.register_magics(DebugMagics(shell, magics))
    workbench.explain = magics.explain
    workbench.note = print  # below the cell that called, like any other word of it


def unload(shell: Any) -> None:
    """Take the magics away and close the connection; runtime and models go on."""
    for kind, names in _MAGICS.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    workbench.explain = workbench.note = None
    workbench.disconnect()
