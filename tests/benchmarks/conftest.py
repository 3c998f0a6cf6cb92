"""Benchmarks run when asked for (`make bench`): measuring would only disturb the tests, and back."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption(
        "--bench-rounds", type=int, default=3, metavar="N", help="rounds of each server"
    )
    group.addoption("--bench-json", metavar="FILE", help="where the figures go (benchmarks.json)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "bench" in config.getoption("markexpr", ""):
        return
    asleep = [item for item in items if item.get_closest_marker("bench")]
    if asleep:
        config.hook.pytest_deselected(items=asleep)
        items[:] = [item for item in items if item not in asleep]
