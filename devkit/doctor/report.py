"""Findings in the forms that editors and CI systems read: lines, JSON, GitHub, SARIF; the table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devkit.doctor.rules import Finding, every_rule

_GITHUB = {"error": "error", "warning": "warning", "hint": "notice"}
_SARIF = {"error": "error", "warning": "warning", "hint": "note"}


def line(finding: Finding, base: Path | None = None) -> str:
    """`file:line:col: severity: message [rule]`, as compilers say it."""
    where = f"{shown(finding.file, base)}:{max(1, finding.line)}:{max(1, finding.column)}"
    return f"{where}: {finding.severity}: {finding.message} [{finding.rule}]"


def shown(file: str, base: Path | None = None) -> str:
    """A path as short as it can be."""
    try:
        return str(Path(file).relative_to((base or Path.cwd()).resolve()))
    except ValueError:
        return file


def plain(finding: Finding) -> dict[str, Any]:
    """A finding as JSON says it."""
    return {
        "rule": finding.rule, "severity": finding.severity, "message": finding.message,
        "why": finding.why, "fix": finding.fix, "model": finding.model, "file": finding.file,
        "line": finding.line, "column": finding.column, "end_line": finding.end_line,
        "end_column": finding.end_column, "source": finding.source, "text": finding.text,
        "fixable": finding.fixable,
    }  # fmt: skip


def github(finding: Finding, base: Path | None = None) -> str:
    """An annotation on a pull request, as GitHub's runners read it from a job's output."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    file = escaped(shown(finding.file, base)).replace(":", "%3A").replace(",", "%2C")
    where = f"file={file},line={max(1, finding.line)},col={max(1, finding.column)}"
    text = escaped(f"{finding.message}. {finding.why}. {finding.fix}")
    return f"::{_GITHUB[finding.severity]} {where},title=devkit {finding.rule}::{text}"


def sarif(findings: Iterable[Finding], base: Path | None = None) -> str:
    """SARIF 2.1.0, which code-scanning pages read."""
    rules = [
        {
            "id": one.id,
            "shortDescription": {"text": one.what},
            "fullDescription": {"text": one.why},
            "help": {"text": one.fix},
            "defaultConfiguration": {"level": _SARIF[one.severity]},
        }
        for one in every_rule()
    ]
    results = [
        {
            "ruleId": one.rule,
            "level": _SARIF[one.severity],
            "message": {"text": one.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": Path(shown(one.file, base)).as_posix()},
                        "region": {
                            "startLine": max(1, one.line), "startColumn": max(1, one.column),
                        },
                    }
                }
            ],
        }
        for one in findings
    ]  # fmt: skip
    tool = {"driver": {"name": "devkit doctor", "rules": rules}}
    return json.dumps(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": tool, "results": results}],
        },
        indent=2,
    )


def table() -> str:
    """Every rule as a Markdown table: `python -m devkit.doctor.report`."""
    rows = ["| rule | | what | in production | instead |", "| --- | --- | --- | --- | --- |"]
    for one in every_rule():
        mark = f"{one.severity}{', `--fix`' if one.fixable else ''}"
        cells = (f"`{one.id}`", mark, one.what, f"{one.why} ({one.source})", one.fix)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
