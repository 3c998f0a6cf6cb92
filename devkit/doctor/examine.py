"""The rules run over a repository, a model or a text that is not saved; and repairs.

Nothing here knows a rule by its name: each module of rules registers its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devkit.doctor import answers, calls, configs, environments, live, processes, tensors
from devkit.doctor.rules import ERROR, LEVELS, Edit, Finding, Hit, Rule, registered
from devkit.doctor.subject import Model, Observed, Repository, Target, read
from devkit.errors import DevkitError

MODULES = (configs, answers, tensors, calls, processes, environments, live)
"""Where rules are; their order is the table's."""

_IGNORE = re.compile(r"#.*?\bdevkit:\s*ignore(-file)?(?:\[([\w\s,-]+)\])?")


class DoctorError(DevkitError):
    """There is nothing to examine at the path; `remedy` says what helps."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, the worst first within each model.

    Attributes:
        models: names of those that were looked at.
    """

    findings: tuple[Finding, ...]
    models: tuple[str, ...]
    release: str

    def count(self, severity: str) -> int:
        """How many of a severity."""
        return sum(one.severity == severity for one in self.findings)

    def exit_code(self, *, strict: bool = False) -> int:
        """0 where nothing breaks; with `strict`, where nothing but hints was found."""
        worst = {one.severity for one in self.findings}
        return int(ERROR in worst or (strict and bool(worst - {"hint"})))


def examine(
    path: Path | str,
    *,
    target: Target | None = None,
    observed: Mapping[str, Observed] | None = None,
    texts: Mapping[Path, str] | None = None,
    rules: Sequence[str] = (),
) -> Report:
    """Every finding of a repository or of one model; `rules` narrows it to some.

    `texts` stands for what files hold, `observed` is what a runtime saw of each model.
    """
    path = Path(path).expanduser()
    target = target or Target()
    if not path.exists():
        raise DoctorError(f"{path} does not exist", remedy="name a repository or a model's folder")
    repository, chosen = read(path, target, observed=observed, texts=texts)
    if not chosen or not any(name in repository.models for name in chosen):
        raise DoctorError(
            f"{path} holds no model",
            remedy="a model is a folder with config.pbtxt, or with 1/model.py; a repository holds "
            "such folders",
        )
    wanted = [one for one in registered() if not rules or one.id in rules]
    findings = [
        *_of_models(repository, chosen, wanted),
        *_of_repository(repository, chosen, wanted),
    ]
    findings.sort(key=lambda one: (one.model, LEVELS.index(one.severity), one.file, one.line))
    return Report(tuple(dict.fromkeys(findings)), tuple(chosen), target.release)


def lint(
    file: Path | str, text: str | None = None, *, target: Target | None = None
) -> list[Finding]:
    """Findings of one file, with its model around it; `text` is what an editor holds of it."""
    file = Path(file).expanduser().resolve()
    texts = {file: text} if text is not None else None
    if text is None and not file.is_file():
        raise DoctorError(f"{file} does not exist")
    if not file.parent.is_dir():
        raise DoctorError(f"{file.parent} does not exist")
    report = examine(file, target=target, texts=texts)
    return [one for one in report.findings if one.file == str(file)]


def _of_models(
    repository: Repository, chosen: Iterable[str], rules: Sequence[Rule]
) -> Iterator[Finding]:
    for name in chosen:
        model = repository.models[name]
        for one in rules:
            if one.scope in ("model", "live") and (one.scope == "model" or model.observed):
                yield from _findings(one, one.check(model), model)


def _of_repository(
    repository: Repository, chosen: Iterable[str], rules: Sequence[Rule]
) -> Iterator[Finding]:
    wanted = set(chosen)
    for one in rules:
        if one.scope != "repository":
            continue
        for hit in one.check(repository):
            owner = _owner(repository, hit)
            if owner is not None and owner.name in wanted:
                yield from _findings(one, [hit], owner)


def _owner(repository: Repository, hit: Hit) -> Model | None:
    for model in repository.models.values():
        if hit.place.file.is_relative_to(model.folder):
            return model
    return None


def _findings(rule: Rule, hits: Iterable[Hit], model: Model) -> Iterator[Finding]:
    for hit in hits:
        place = hit.place
        lines = _lines(model, place.file)
        if _is_ignored(rule.id, lines, place.line):
            continue
        text = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
        yield Finding(
            rule.id, rule.severity, hit.message, rule.why, rule.fix, model.name, str(place.file),
            place.line, place.column, place.end_line, place.end_column, rule.source,
            text.strip(), hit.edits,
        )  # fmt: skip


def _lines(model: Model, file: Path) -> list[str]:
    if model.config_text is not None and file == model.config_text.file:
        return model.config_text.text.splitlines()
    for code in model.codes:
        if code.file == file:
            return code.text.splitlines()
    try:
        return file.read_text("utf-8").splitlines() if file.is_file() else []
    except (OSError, UnicodeDecodeError):
        return []


def _is_ignored(rule: str, lines: Sequence[str], line: int) -> bool:
    """Whether the line, a comment right above it, or the file says to pass over the rule."""
    for number, text in enumerate(lines, 1):
        found = _IGNORE.search(text)
        if found is None:
            continue
        names = {one.strip() for one in (found[2] or rule).split(",")}
        here = number == line or (number == line - 1 and text.lstrip().startswith("#"))
        if rule in names and (found[1] or here):
            return True
    return False


# --- repairs ------------------------------------------------------------------------------------


def repair(findings: Iterable[Finding]) -> dict[Path, str]:
    """What the files would hold with every safe edit made; nothing is written."""
    edits: dict[Path, list[Edit]] = {}
    for one in findings:
        for edit in one.edits:
            edits.setdefault(edit.place.file, []).append(edit)
    return {file: _edited(file.read_text("utf-8"), each) for file, each in edits.items()}


def _edited(text: str, edits: Sequence[Edit]) -> str:
    spans = sorted({(*_span(text, one), one.text) for one in edits}, reverse=True)
    last = len(text) + 1
    for start, end, new in spans:
        if end <= last:  # of two that overlap the later one wins, and the next run does the other
            text = text[:start] + new + text[end:]
            last = start
    return text


def _span(text: str, edit: Edit) -> tuple[int, int]:
    place = edit.place
    start = _offset(text, place.line, place.column, place.file.suffix == ".py")
    if not place.end_line:
        return start, start
    return start, _offset(text, place.end_line, place.end_column, place.file.suffix == ".py")


def _offset(text: str, line: int, column: int, in_bytes: bool) -> int:
    """Offset of a place; Python's own columns count bytes."""
    lines = text.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - 1])
    row = lines[line - 1] if line <= len(lines) else ""
    if in_bytes:
        return before + len(row.encode()[: column - 1].decode("utf-8", "ignore"))
    return before + min(column - 1, len(row))
