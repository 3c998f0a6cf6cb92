"""How every screen of the terminal workbench looks, at two sizes and in two themes.

The store is filled by hand, so a picture changes only when a screen does:
`pytest tests/faces/test_tui_screens.py --snapshot-update` takes the new ones.
"""

import time

import pytest

from devkit.tui.app import NAMES, Workbench
from tests.support import workbench

SIZES = {"80x24": (80, 24), "140x40": (140, 40)}


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    """The same clock and the same colours on every machine."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", NAMES)
def test_a_screen(snap_compare, screen, size, theme):
    app = Workbench(screen=screen, theme=theme, store=workbench.store())
    assert snap_compare(app, terminal_size=SIZES[size])


def test_without_colours(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = Workbench(screen="trace", store=workbench.store())
    assert snap_compare(app, terminal_size=SIZES["80x24"])


def test_help(snap_compare):
    app = Workbench(screen="debug", store=workbench.store())
    assert snap_compare(app, press=["question_mark"], terminal_size=SIZES["80x24"])
