"""What is said between runtime and faces about the way to production: findings, exports.

Messages as those of `control.messages`; the calls are `leaving`'s, the answers `doctor`'s and
`exporting`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from devkit.contract.assistance import Suggestion
from devkit.control import messages


@dataclass(frozen=True, slots=True)
class Place:
    """A piece of a file; lines and columns from 1, the end behind the last character."""

    file: str
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A safe edit: `text` instead of what stands at the place."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One trap that the doctor found.

    Attributes:
        severity: `error`, `warning` or `hint`.
        why: what production makes of it.
        fix: what to do instead.
        text: the line of source.
        changes: what `--fix` would do, where that is safe.
    """

    rule: str
    severity: str
    message: str
    why: str
    fix: str
    model: str
    place: Place
    source: str = ""
    text: str = ""
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor says of some models, for a release of Triton."""

    findings: tuple[Finding, ...]
    models: tuple[str, ...]
    release: str


@dataclass(frozen=True, slots=True)
class LintText:
    """What an editor holds of a file that is not saved; `file` is a path in the model's folder."""

    model: str
    text: str
    file: str = "1/model.py"
    release: str = ""


@dataclass(frozen=True, slots=True)
class ConfigPlace:
    """A place in a `config.pbtxt` that somebody is writing; line and column from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ConfigHelp:
    """What can be written at the place, and what stands there (Markdown; empty for nothing)."""

    suggestions: tuple[Suggestion, ...] = ()
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class ExportAsked:
    """What to export, where to, and in which form.

    Attributes:
        models: names; none means all that are served.
        version: number of the version folder, `next`, or empty for those that are served.
        force: agreed that what is there and differs is replaced.
    """

    dest: str
    models: tuple[str, ...] = ()
    force: bool = False
    full: bool = False
    version: str = ""
    warmup: bool = False
    client: bool = False
    requirements: bool = False
    perf: bool = False
    deploy: bool = False
    environment: str = ""
    release: str = ""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export; `diff` is what changes in it, as a unified diff.

    Attributes:
        state: `new`, `changed`, `removed` or `same`.
    """

    path: str
    bytes: int
    state: str
    diff: str = ""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export would write, or has written.

    Attributes:
        state: `new`, `unchanged` or `differs`; afterwards `written`, `replaced` or `unchanged`.
        brought: files from elsewhere, and from where.
        assumed: what no config said and was taken from sample requests.
        warnings: what the target release lacks, and what could not be written.
    """

    dest: str
    models: tuple[str, ...]
    state: str
    files: tuple[ExportedFile, ...] = ()
    brought: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def used_by(memory: messages.SharedMemory, model: str) -> int:
    """Bytes of shared memory that a model has had in use at most."""
    total = 0
    for slab in memory.slabs:
        owner = slab.name.split("-", 2)[-1]
        if owner.startswith((f"{model}-", f"{model}_")):
            total += max(slab.high_water, slab.used, 0)
    return total
