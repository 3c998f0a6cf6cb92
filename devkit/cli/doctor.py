"""`devkit doctor` and `devkit lint`: traps of production, for people, editors and CI."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.doctor import Finding
    from devkit.doctor.examine import Report

RELEASE = typer.Option("", "--triton", help="Release to deploy on, such as 25.03 [24.10].")
_STYLE = {"error": "bold red", "warning": "yellow", "hint": "cyan"}


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
    app.command()(lint)


def doctor(
    subject: str = typer.Argument(
        "", metavar="[REPO|MODEL]", help="Repository, model folder, or name of a served model."
    ),
    fix: bool = typer.Option(False, "--fix", help="Make the safe changes."),
    dry_run: bool = typer.Option(False, "--dry-run", help="With --fix: only show the changes."),
    strict: bool = typer.Option(False, "--strict", help="Warnings count as errors."),
    rule: list[str] = typer.Option([], "--rule", help="Only this rule; repeatable."),
    form: str = typer.Option("", "--format", help="text, short, json, github or sarif."),
    release: str = RELEASE,
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Look for what works here and fails in production (exit status 1 where something breaks).

    A folder's files are looked at as they are; a served model (or, without an argument, all of
    them) also by what the runtime has seen.
    """
    from devkit.cli import output

    report = _report(subject, release, rule, workspace)
    if fix:
        changed = _repair(report.findings, dry_run)
        if changed and not dry_run:
            report = _report(subject, release, rule, workspace)
    chosen = "json" if json else form or "text"
    _show(report.findings, chosen, report)
    if chosen == "text":
        output.note(_summary(report))
    raise typer.Exit(report.exit_code(strict=strict))


def lint(
    files: list[Path] = typer.Argument(..., help="model.py, other Python files, config.pbtxt."),
    stdin: bool = typer.Option(False, "--stdin", help="The text of the one FILE comes on stdin."),
    form: str = typer.Option("short", "--format", help="short, json, github or sarif."),
    strict: bool = typer.Option(False, "--strict", help="Warnings count as errors."),
    release: str = RELEASE,
    json: bool = JSON,
) -> None:
    """One line for each finding (file:line:column: severity: message [rule]), for editors."""
    from devkit.doctor import examine
    from devkit.doctor import lint as lint_file
    from devkit.doctor.examine import Report

    target = _target(release)
    if stdin and len(files) != 1:
        raise typer.BadParameter("--stdin takes exactly one FILE")
    found: list[Finding] = []
    for file in files:
        if file.is_dir():
            found += examine(file, target=target).findings
        else:
            text = sys.stdin.read() if stdin else None
            found += lint_file(file, text, target=target)
    _show(found, "json" if json else form)
    raise typer.Exit(Report(tuple(found), (), target.release).exit_code(strict=strict))


def _target(release: str) -> Any:
    from devkit.doctor import Target

    target = Target(release) if release else Target()
    assert target.known  # a release without an entry is said at once
    return target


def _report(subject: str, release: str, rules: Sequence[str], workspace: str) -> Report:
    from devkit.cli import output
    from devkit.doctor import every_rule, examine

    unknown = set(rules) - {one.id for one in every_rule()}
    if unknown:
        raise typer.BadParameter(f"there is no rule {', '.join(sorted(unknown))}")
    if subject and (Path(subject).expanduser().exists() or "/" in subject):
        return examine(subject, target=_target(release), rules=rules)
    return _of_runtime(output.connect(workspace).doctor(subject, release=release), rules)


def _of_runtime(told: Any, rules: Sequence[str]) -> Report:
    """The runtime's findings in the doctor's own form, which every output takes."""
    from devkit.doctor import Edit, Finding
    from devkit.doctor.examine import Report
    from devkit.doctor.rules import Place

    def place(one: Any) -> Place:
        return Place(Path(one.file), one.line, one.column, one.end_line, one.end_column)

    found = tuple(
        Finding(
            one.rule, one.severity, one.message, one.why, one.fix, one.model, one.place.file,
            one.place.line, one.place.column, one.place.end_line, one.place.end_column,
            one.source, one.text,
            tuple(Edit(place(change.place), change.text) for change in one.changes),
        )
        for one in told.findings if not rules or one.rule in rules
    )  # fmt: skip
    return Report(found, told.models, told.release)


def _repair(findings: Sequence[Finding], dry_run: bool) -> list[Path]:
    """Make the safe changes, or show them."""
    from devkit.cli import output
    from devkit.doctor import repair

    changed = []
    for file, text in repair(findings).items():
        before = file.read_text("utf-8")
        if text == before:
            continue
        changed.append(file)
        if dry_run:
            lines = difflib.unified_diff(
                before.splitlines(), text.splitlines(), str(file), str(file), lineterm="", n=1
            )
            output.note("\n".join(lines))
        else:
            file.write_text(text, "utf-8")
            output.note(f"changed {file}")
    return changed


def _show(findings: Sequence[Finding], form: str, report: Report | None = None) -> None:
    from devkit.cli import output
    from devkit.doctor import report as forms

    if form == "json":
        rows = [forms.plain(one) for one in findings]
        if report is None:
            output.as_json(rows)
        else:
            told = {"models": report.models, "release": report.release, "findings": rows}
            output.as_json(told)
    elif form == "sarif":
        typer.echo(forms.sarif(findings))
    elif form in ("short", "github"):
        line = forms.line if form == "short" else forms.github
        for one in findings:
            typer.echo(line(one))
    elif form == "text":
        _show_text(findings)
    else:
        raise typer.BadParameter(f"'{form}' is none", param_hint="--format")


def _show_text(findings: Sequence[Finding]) -> None:
    from rich.text import Text

    from devkit.cli import output
    from devkit.doctor import report as forms

    console = output.console()
    for one in findings:
        where = f"{forms.shown(one.file)}:{max(1, one.line)}"
        head = Text.assemble(
            (one.severity, _STYLE[one.severity]), " ", (f"[{one.rule}]", "bold"), f" {one.message}"
        )
        console.print(head)
        console.print(Text(f"  {where}", "dim"))
        if one.text:
            console.print(Text(f"    {one.line} | {one.text}"))
        console.print(Text(f"  why  {one.why}"))
        fixable = " (--fix)" if one.fixable else ""
        console.print(Text(f"  fix  {one.fix}{fixable}"))
        console.print()


def _summary(report: Report) -> str:
    count = len(report.models)
    models = f"{count} model{'' if count == 1 else 's'}"
    if not report.findings:
        return f"{models} for Triton {report.release}: nothing to say"
    parts = [
        f"{number} {severity}{'' if number == 1 else 's'}"
        for severity in ("error", "warning", "hint")
        if (number := report.count(severity))
    ]
    return f"{models} for Triton {report.release}: {', '.join(parts)}"
