"""Several models in one interpreter: each finds its own `1.model` and its own helpers.

A served model has a process to itself; here the folders and modules of the model that runs are in
`sys.path` and `sys.modules`, and those of the others are put aside until they run.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

_lock = threading.RLock()
_present: Surroundings | None = None


class Surroundings:
    """Folders that a model may import from, and the modules it has imported from them."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [os.path.abspath(folder) for folder in folders]
        self._added: list[str] = []
        self._foreign = set(sys.modules)  # a test beside the model is no module of the model's
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this model's modules in place; those of the one before return afterwards."""
        before = _present
        self._enter()
        try:
            yield
        finally:
            if before is not None and before is not self:
                before._enter()

    def _enter(self) -> None:
        global _present
        with _lock:
            if _present is self:
                return
            if _present is not None:
                _present._put_aside()
            self._added = [one for one in dict.fromkeys(self._folders) if one not in sys.path]
            sys.path += self._added
            sys.modules.update(self._modules)
            importlib.invalidate_caches()  # the files may be younger than the last look
            _present = self

    def _put_aside(self) -> None:
        self._modules = {
            name: module
            for name, module in list(sys.modules.items())
            if name not in self._foreign and self._owns(module)
        }
        for name in self._modules:
            del sys.modules[name]
        for folder in self._added:
            if folder in sys.path:
                sys.path.remove(folder)

    def _owns(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        places = [file] if isinstance(file, str) else list(getattr(module, "__path__", ()))
        return any(
            place == folder or place.startswith(folder + os.sep)
            for place in map(str, places)
            for folder in self._folders
        )

    def leave(self) -> None:
        """Take this model's modules out for good."""
        global _present
        with _lock:
            if _present is self:
                self._put_aside()
                _present = None
            self._modules = {}
