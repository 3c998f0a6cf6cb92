"""The files a model was loaded from, kept for when they have changed under it.

A save that does not load leaves the old version serving; should one of its instances then die, the
new one must run the code that served, and not the code that does not load. Only sources are kept,
and a mirror of the folder is written only when they really differ.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_LARGEST = 4 << 20
"""Bytes; a larger file is data, which is shared and not kept."""


class Snapshot:
    """Sources of one model folder as they were when it loaded."""

    def __init__(self, folder: Path, extra: list[str]) -> None:
        """Read every Python file of `folder`, and the files named in `extra`."""
        self.folder = folder
        self._mirror: Path | None = None
        self._sources: dict[Path, bytes] = {}
        named = [Path(name) for name in extra]
        for path in {*folder.rglob("*.py"), *named}:
            if path.is_relative_to(folder) and path.is_file() and path.stat().st_size < _LARGEST:
                self._sources[path.relative_to(folder)] = path.read_bytes()

    def changed(self) -> bool:
        """Whether a source is not what it was."""
        for relative, content in self._sources.items():
            path = self.folder / relative
            if not path.is_file() or path.read_bytes() != content:
                return True
        return False

    def place(self) -> Path:
        """The folder to load from: the model's own, or a mirror with the sources as they were."""
        if not self.changed():
            return self.folder
        if self._mirror is None:
            self._mirror = Path(tempfile.mkdtemp(prefix="devkit-serving-")) / self.folder.name
            for relative, content in self._sources.items():
                path = self._mirror / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            for path in self.folder.rglob("*"):
                mirrored = self._mirror / path.relative_to(self.folder)
                if path.is_file() and path.suffix != ".py" and not mirrored.exists():
                    mirrored.parent.mkdir(parents=True, exist_ok=True)
                    mirrored.symlink_to(path)
        return self._mirror

    def drop(self) -> None:
        """Remove the mirror, if one was written."""
        if self._mirror is not None:
            shutil.rmtree(self._mirror.parent, ignore_errors=True)
            self._mirror = None
