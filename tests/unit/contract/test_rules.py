"""Contract warnings: what a response may not be, though the real server says nothing."""

from __future__ import annotations

import pytest

from devkit.contract import rules
from devkit.contract.config import IOSpec

Y = IOSpec("Y", "FP32", (-1, 2), (-1, 2))
BATCHED = {"Y": IOSpec("Y", "FP32", (2,), (-1, 2))}


def ids(findings: list[rules.Finding]) -> list[str]:
    return [finding.rule.id for finding in findings]


def test_good_response_has_no_findings() -> None:
    assert rules.check_response({"Y": Y}, [("Y", "FP32", (5, 2))]) == []


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        ([("Y", "FP64", (5, 2))], ["output-datatype"]),
        ([("Y", "FP32", (5, 3))], ["output-shape"]),
        ([("Y", "FP32", (5,))], ["output-shape"]),
        ([("Z", "FP32", (5, 2))], ["undeclared-output", "missing-output"]),
        ([("Y", "FP32", (5, 2)), ("Y", "FP32", (1, 2))], ["duplicate-output"]),
        ([], ["missing-output"]),
    ],
)
def test_each_fault_is_found(
    answered: list[tuple[str, str, tuple[int, ...]]], expected: list[str]
) -> None:
    assert ids(rules.check_response({"Y": Y}, answered)) == expected


def test_output_nobody_asked_for_may_be_missing() -> None:
    declared = {"Y": Y, "Z": IOSpec("Z", "FP32", (1,), (1,))}
    assert rules.check_response(declared, [("Y", "FP32", (1, 2))], requested=["Y"]) == []


def test_rows_must_match_the_request() -> None:
    findings = rules.check_response(BATCHED, [("Y", "FP32", (3, 2))], batch=4)
    assert ids(findings) == ["output-batch"]
    assert "batch size 3 for a request of batch size 4" in findings[0].message


def test_model_answers_in_the_reshaped_form() -> None:
    declared = {"Y": IOSpec("Y", "FP32", (2, 2), (-1, 2, 2), reshape=(4,))}
    assert rules.check_response(declared, [("Y", "FP32", (3, 4))], batch=3) == []


def test_finding_says_what_happened_and_what_production_does() -> None:
    finding = rules.find("undeclared-output", name="Z")
    assert finding.message == (
        "output 'Z' is not in the model's configuration: the output is dropped without a word, "
        "even when the client asked for it"
    )
    assert finding.rule.remedy


def test_ids_are_unique_and_complete() -> None:
    assert len(rules.RULES) == len(rules._ALL)
    for rule in rules.RULES.values():
        assert all((rule.source, rule.message, rule.production, rule.remedy))
