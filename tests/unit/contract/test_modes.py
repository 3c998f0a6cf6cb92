"""The table of modes: complete, unambiguous, and the same in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from devkit.contract import modes

README = Path(__file__).parents[3] / "README.md"


def test_every_combination_has_a_line() -> None:
    found = {modes.find(*combination) for combination in modes.combinations()}
    assert found == set(modes.TABLE)
    assert {row.outcome for row in found} == set(modes.OUTCOMES)


def test_no_such_combination() -> None:
    with pytest.raises(KeyError):
        modes.find("default", "sync", "exec", "nobody")


@pytest.mark.parametrize(
    ("combination", "outcome"),
    [
        (("default", "async", "none", ""), "serial"),
        (("decoupled", "async", "none", ""), "works"),
        (("default", "sync", "exec", "decoupled"), "refused"),
        (("default", "sync", "exec", "itself"), "hangs"),
        (("decoupled", "async", "async_exec(decoupled=True)", "itself"), "works"),
        (("decoupled", "async", "exec", "default"), "serial"),
    ],
)
def test_outcomes(combination: tuple[str, str, str, str], outcome: str) -> None:
    assert modes.find(*combination).outcome == outcome


def test_notes_at_loading() -> None:
    assert modes.note(decoupled=False, asynchronous=False) == ""
    assert "before the instance takes the next batch" in modes.note(False, True)
    assert "since 24.04" in modes.note(True, True)


def test_readme_has_the_table() -> None:
    assert modes.markdown() in README.read_text(), "run python -m devkit.contract.modes"
