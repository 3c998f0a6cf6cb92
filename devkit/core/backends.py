"""Where the code of a model comes from that is not its own: Python-based backends.

Those of the backend directory come first; devkit's own (`devkit.backends`) stand in for real ones
that are not written in Python. What such code does is its own business.
"""

from __future__ import annotations

from pathlib import Path

from devkit import backends

BUILT_IN = Path(backends.__file__).parent


def names(directory: str) -> frozenset[str]:
    """Backends that are a `model.py`: those of `directory` (empty for none) and devkit's own."""
    places = [BUILT_IN, *([Path(directory)] if directory else [])]
    return frozenset(path.parent.name for place in places for path in place.glob("*/model.py"))


def file_of(directory: str, backend: str, runtime: str) -> Path:
    """The code of `backend`: `runtime` is the file's name."""
    given = Path(directory, backend, runtime)
    return given if directory and given.is_file() else BUILT_IN / backend / runtime
