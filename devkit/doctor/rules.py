"""What a rule and a finding are, and the list of all rules. Knows none of them by name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ERROR, WARNING, HINT = "error", "warning", "hint"
LEVELS = (ERROR, WARNING, HINT)

README = "python_backend README"
CONFIGURATION = "Triton model configuration reference"
OBSERVED = "observed on tritonserver 2.51"


@dataclass(frozen=True, slots=True)
class Place:
    """A piece of a file; lines and columns from 1, the end behind the last character."""

    file: Path
    line: int = 1
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    @classmethod
    def of(cls, file: Path, node: ast.AST) -> Place:
        """Where a node of a parsed file stands."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end = getattr(node, "end_lineno", None) or line
        return cls(file, line, column + 1, end, (getattr(node, "end_col_offset", None) or 0) + 1)


@dataclass(frozen=True, slots=True)
class Edit:
    """A safe change: `text` instead of what the place spans (nothing, where it has no end)."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule's function yields: where, and what is wrong there."""

    place: Place
    message: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One trap.

    Attributes:
        id: stable name, as in `# devkit: ignore[id]`.
        severity: `error` (it breaks), `warning` (it hurts) or `hint`.
        what: the habit, in words.
        why: what production makes of it.
        fix: what to do instead.
        source: where the behaviour is known from.
        scope: `model`, `repository` or `live`; what `check` is called with.
        fixable: whether `--fix` can do it.
    """

    id: str
    severity: str
    what: str
    why: str
    fix: str
    source: str
    scope: str
    check: Callable[[Any], Iterable[Hit]]
    fixable: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One case of a rule broken, complete and ready to show."""

    rule: str
    severity: str
    message: str
    why: str
    fix: str
    model: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    source: str = ""
    text: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def fixable(self) -> bool:
        """Whether `repair` can do it."""
        return bool(self.edits)


_RULES: dict[str, Rule] = {}

Check = Callable[[Any], Iterable[Hit]]


def rule(
    id: str,
    severity: str,
    what: str,
    *,
    why: str,
    fix: str,
    source: str = README,
    scope: str = "model",
    fixable: bool = False,
) -> Callable[[Check], Check]:
    """Register the function below as the check of a rule."""

    def register(check: Check) -> Check:
        assert id not in _RULES, id
        _RULES[id] = Rule(id, severity, what, why, fix, source, scope, check, fixable)
        return check

    return register


def registered() -> Iterator[Rule]:
    """The rules of the modules imported so far."""
    yield from _RULES.values()


def every_rule() -> list[Rule]:
    """All of them, in the order of the table."""
    from devkit.doctor.examine import MODULES  # which imports every module of rules

    order = [module.__name__ for module in MODULES]
    return sorted(_RULES.values(), key=lambda one: order.index(one.check.__module__))
