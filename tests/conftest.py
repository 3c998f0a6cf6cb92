"""What every test shares: those that need a GPU run when they are asked for (`pytest -m gpu`)."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "gpu" in config.getoption("markexpr", ""):
        return
    asleep = [item for item in items if item.get_closest_marker("gpu")]
    if asleep:
        config.hook.pytest_deselected(items=asleep)
        items[:] = [item for item in items if item not in asleep]
