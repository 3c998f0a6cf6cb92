"""The help pages: every command has one, and it says its texts whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from devkit.cli.app import app


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(p, c, id=" ".join(p)) for p, c in _commands(get_command(app))],
)
def test_help_shows_every_text(path: tuple[str, ...], command: Any) -> None:
    """Defaults in brackets are text, not markup that is dropped or refused."""
    context = typer.Context(command, info_name=" ".join(("devkit", *path)))
    shown = "".join(command.get_help(context).split())
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text and not parameter.hidden:
            assert "".join(text.split()) in shown
