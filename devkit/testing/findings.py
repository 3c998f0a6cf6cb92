"""Contract warnings as Python warnings, at the model's own line.

pytest lists them at the end of its run and `-W error::devkit.testing.ContractWarning` makes them
failures. What the rules are is `devkit.contract.rules`' business.
"""

from __future__ import annotations

import warnings


class ContractWarning(UserWarning):
    """The model did what a real server answers with silence or worse; the text says what.

    Attributes:
        rule: the rule's stable name, `no-response` or `output-datatype` for example.
    """

    def __init__(self, message: str, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


def warn(rule: str, message: str, line: str) -> None:
    """Warn of a broken rule; `line` is `path:number` in the model's files."""
    path, _, number = line.rpartition(":")
    warnings.warn_explicit(
        ContractWarning(message, rule),
        ContractWarning,
        path or line,
        int(number) if number.isdigit() else 1,
    )
