"""Whether a model answers what its config declares: asked once for each new form of a response.

The rules are `contract.rules`'; here they meet responses. A finding becomes a warning, told once
for each model and output, and in strict mode the error of the request. Nothing here looks at the
bytes of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from devkit.contract import rules
from devkit.contract.config import IOSpec
from devkit.core.request import OutputSignature

STRICT = frozenset({"undeclared-output", "output-datatype", "output-shape", "output-batch"})
"""Rules that `--strict` makes errors of; the others stay warnings."""

NO_ROWS = -1
"""`Verdict.rows` of a response whose outputs disagree about the batch size."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one form of a response.

    Attributes:
        error: in strict mode, what the request fails with; else empty.
        rows: batch size of the outputs; None where there is none to compare with the request's.
    """

    error: str = ""
    rows: int | None = None


FINE = Verdict()


class Judge:
    """Judges the responses of one instance."""

    def __init__(
        self,
        outputs: Mapping[str, IOSpec],
        *,
        batched: bool,
        decoupled: bool,
        strict: bool,
        warn: Callable[[str, str], None],
    ) -> None:
        self._outputs = outputs
        self._batched = batched
        self._decoupled = decoupled
        self._strict = strict
        self._warn = warn
        self._told: set[tuple[str, str]] = set()

    def verdict(self, signature: OutputSignature, wanted: tuple[str, ...]) -> Verdict:
        """What is wrong with a response of that form, whatever request it answers."""
        if not self._outputs:
            return FINE  # the config is still to be learned
        answered = [(spec.name, spec.datatype, spec.shape) for spec in signature.outputs]
        errors = []
        for finding in rules.check_response(self._outputs, answered, wanted):
            # A stream's responses may each bring a part.
            if finding.rule.id != "missing-output" or not self._decoupled:
                errors += self._tell(finding)
        return Verdict("; ".join(errors), self._rows(signature))

    def _rows(self, signature: OutputSignature) -> int | None:
        if not self._batched or self._decoupled:
            return None
        sizes = {spec.shape[0] for spec in signature.outputs if spec.shape}
        if not sizes:
            return None
        return sizes.pop() if len(sizes) == 1 else NO_ROWS

    def wrong_rows(self, signature: OutputSignature, batch: int) -> str:
        """The batch sizes are not the request's; the error it is in strict mode, or empty."""
        errors = []
        for spec in signature.outputs:
            if spec.shape and spec.shape[0] != batch and spec.name in self._outputs:
                finding = rules.find(
                    "output-batch", name=spec.name, actual=spec.shape[0], expected=batch
                )
                errors += self._tell(finding)
        return "; ".join(errors)

    def _tell(self, finding: rules.Finding) -> list[str]:
        """Warn, the first time for that output; the text where it is an error too."""
        what, _, production = finding.message.partition(": ")
        if self._strict and finding.rule.id in STRICT:
            return [what]
        key = (finding.rule.id, what.split("'")[1] if "'" in what else what)
        if key not in self._told:
            self._told.add(key)
            self._warn(finding.rule.id, f"{what}: {production}")
        return []


def of_model(model: Any, strict: bool, warn: Callable[[str, str], None]) -> Judge:
    """The judge of an instance of `model`."""
    return Judge(
        model.outputs,
        batched=bool(model.max_batch_size),
        decoupled=model.decoupled,
        strict=strict,
        warn=warn,
    )
