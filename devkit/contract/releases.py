"""What Triton's container releases have: Python and NumPy of the stub, and features by release.

Pure knowledge. The stub's Python is that of the container's Ubuntu (3.10 up to 24.10, 3.12 since);
its support of NumPy 2 came with a newer pybind11 (python_backend pull request 384, named as a
known issue of 2.51 and 2.52). Releases before 24.10 are here for what they lack.
"""

from __future__ import annotations

from dataclasses import dataclass

from devkit.errors import ConfigError

DEFAULT = "24.10"
"""The release whose server `devkit verify` asks."""

_FIRST, _LAST = (23, 1), (26, 9)


@dataclass(frozen=True, slots=True)
class Release:
    """One container release.

    Attributes:
        python: version of the interpreter that the stub embeds.
        numpy: highest major version of NumPy that the stub can hand arrays over with.
    """

    name: str
    python: str
    numpy: int

    @property
    def image(self) -> str:
        """The container with the Python backend."""
        return f"nvcr.io/nvidia/tritonserver:{self.name}-py3"

    def has(self, feature: str) -> bool:
        """Whether a feature of `FEATURES` is there."""
        return key(self.name) >= key(FEATURES[feature].since)


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that not every release has.

    Attributes:
        name: as it is said in a warning.
        call: the name in `pb_utils` that shows its use; empty where none does.
    """

    name: str
    since: str
    call: str = ""


FEATURES: dict[str, Feature] = {
    "async-decoupled": Feature("async BLS calls in a decoupled model", "24.04"),
    "numpy-2": Feature("NumPy 2 in the stub", "24.12"),
    "response-parameters": Feature("parameters of an InferenceResponse", "25.02"),
    "is-ready": Feature("a model's own `is_ready`", "26.02", "is_ready"),
}


def key(name: str) -> tuple[int, int]:
    """A release's name as numbers; ConfigError where it is none."""
    year, point, month = name.partition(".")
    if not (point and year.isdigit() and month.isdigit() and 1 <= int(month) <= 12):
        raise ConfigError(
            f"'{name}' is no Triton release",
            remedy="write it as the container is named: 24.10, 25.03 …",
        )
    return int(year), int(month)


def find(name: str) -> Release:
    """The release of that name; ConfigError where nothing is known of it."""
    number = key(name)
    if not _FIRST <= number <= _LAST:
        raise ConfigError(
            f"Triton {name} is not in the table of releases",
            remedy=f"known are {names()[0]} to {names()[-1]}",
        )
    python = "3.10" if number <= (24, 10) else "3.12"
    return Release(name, python, 2 if number >= key(FEATURES["numpy-2"].since) else 1)


def names() -> list[str]:
    """All that are known, the oldest first."""
    found, (year, month) = [], _FIRST
    while (year, month) <= _LAST:
        found.append(f"{year}.{month:02}")
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return found
