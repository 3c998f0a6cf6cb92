"""The doctor's findings as a notebook or a script handles them: a list that shows itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from devkit.control.findings import Diagnosis, Finding


class Findings(Sequence[Finding]):
    """Findings, the worst first; shows itself as text."""

    def __init__(self, found: Sequence[Finding], models: Sequence[str], release: str) -> None:
        order = {"error": 0, "warning": 1, "hint": 2}
        self._found = sorted(found, key=lambda one: order.get(one.severity, 3))
        self.models = tuple(models)
        self.release = release

    @classmethod
    def of(cls, told: Diagnosis) -> Findings:
        """Those of a runtime's answer."""
        return cls(told.findings, told.models, told.release)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, index: Any) -> Any:
        return self._found[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def text(self) -> str:
        """What was found, for people."""
        count = len(self.models)
        head = f"{count} model{'' if count == 1 else 's'} for Triton {self.release}: "
        if not self._found:
            return head + "nothing to say"
        lines = [head + f"{len(self)} finding{'' if len(self) == 1 else 's'}"]
        for one in self._found:
            lines.append(f"{one.severity} [{one.rule}] {one.model}: {one.message}")
            if one.text:
                lines.append(f"  {one.place.line} | {one.text}")
            lines.append(f"  why  {one.why}")
            lines.append(f"  fix  {one.fix}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How IPython shows it below a cell."""
        printer.text(self.text())
