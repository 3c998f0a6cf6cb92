"""The doctor: traps of production, found in a model's files before a real server shows them.

Reads files, runs nothing of the user's, and asks no runtime: what a live one has seen comes in as
plain values. `examine` and `lint` are the doors; a rule is a small function in a topical module.
"""

from __future__ import annotations

from devkit.doctor.examine import Report, examine, lint, repair
from devkit.doctor.rules import ERROR, HINT, WARNING, Edit, Finding, Rule, every_rule
from devkit.doctor.subject import Observed, Target

__all__ = [
    "ERROR",
    "HINT",
    "WARNING",
    "Edit",
    "Finding",
    "Observed",
    "Report",
    "Rule",
    "Target",
    "every_rule",
    "examine",
    "lint",
    "repair",
]
