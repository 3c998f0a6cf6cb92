"""The files a model was loaded from, kept for when they have changed under it.

A save that does not load leaves the old version serving; should one of its instances then die, the
new one must run the code that served, and not the code that does not load. Only sources are kept,
and a mirror of the folder is written only when they really differ. An environment that lies in the
folder (`EXECUTION_ENV_PATH` may name one there) is no source: it is neither kept nor looked into.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LARGEST = 4 << 20
"""Bytes; a larger file is data, which is shared and not kept."""


def is_environment(folder: Path) -> bool:
    """Whether a folder is a venv's or a conda environment's, with its thousands of files."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


def own_files(folder: Path) -> Iterator[Path]:
    """Every file below a model's folder, and the environments there as one path each."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        inner = [name for name in folders if is_environment(here / name)]
        folders[:] = [name for name in folders if name not in inner]
        for name in (*inner, *files):
            yield here / name


class Snapshot:
    """Sources of one model folder as they were when it loaded."""

    def __init__(self, folder: Path, extra: list[str]) -> None:
        """Read every Python file of `folder`, and the files named in `extra`."""
        self.folder = folder
        self._mirror: Path | None = None
        self._sources: dict[Path, bytes] = {}
        found = list(own_files(folder))
        skipped = [path for path in found if path.is_dir()]
        named = [Path(name) for name in extra]
        for path in {*(one for one in found if one.suffix == ".py"), *named}:
            if any(path.is_relative_to(environment) for environment in skipped):
                continue
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
            for path in own_files(self.folder):
                mirrored = self._mirror / path.relative_to(self.folder)
                if path.exists() and path.suffix != ".py" and not mirrored.exists():
                    mirrored.parent.mkdir(parents=True, exist_ok=True)
                    mirrored.symlink_to(path)
        return self._mirror

    def drop(self) -> None:
        """Remove the mirror, if one was written."""
        if self._mirror is not None:
            shutil.rmtree(self._mirror.parent, ignore_errors=True)
            self._mirror = None
