"""Where the code of a model comes from that is not its own: Python-based backends.

Those of the backend directory come first; devkit's own (`devkit.backends`) stand in for real ones
that are not written in Python. What such code does is its own business.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devkit import backends
from devkit.errors import Code, LoadError

FORCE_CPU = "FORCE_CPU_ONLY_INPUT_TENSORS"
BUILT_IN = Path(backends.__file__).parent


def names(directory: str) -> frozenset[str]:
    """Backends that are a `model.py`: those of `directory` (empty for none) and devkit's own."""
    places = [BUILT_IN, *([Path(directory)] if directory else [])]
    return frozenset(path.parent.name for place in places for path in place.glob("*/model.py"))


def check_parameters(config: Any) -> None:
    """Refuse what the Python backend refuses of a config's `parameters`; raises LoadError."""
    if FORCE_CPU in config.parameters:
        value = config.parameters[FORCE_CPU].string_value
        if value not in ("yes", "no"):
            raise LoadError(
                # The stray quote is the backend's.
                f"Unsupported: Incorrect value for {FORCE_CPU}: {value}'",
                Code.UNSUPPORTED,
                remedy='it is "yes" (the default) or "no"',
            )


def file_of(directory: str, backend: str, runtime: str) -> Path:
    """The code of `backend`: `runtime` is the file's name."""
    given = Path(directory, backend, runtime)
    return given if directory and given.is_file() else BUILT_IN / backend / runtime
