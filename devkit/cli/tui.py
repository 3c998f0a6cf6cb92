"""`devkit tui`: the terminal workbench, where its library is installed."""

from __future__ import annotations

import typer

from devkit.cli.process import WORKSPACE

SCREENS = ("models", "requests", "tensors", "trace", "memory", "logs", "debug", "export")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tui)


def tui(
    screen: str = typer.Argument("models", help=f"Screen to begin with: {', '.join(SCREENS)}."),
    theme: str = typer.Option("dark", "--theme", help="dark or light; NO_COLOR=1 for no colours."),
    workspace: str = WORKSPACE,
) -> None:
    """Open the workbench in this terminal: models, requests, tensors, traces, debugger, export.

    `?` shows the keys of a screen, Ctrl-P finds any command, q leaves; the runtime goes on.
    """
    import importlib.util
    import sys

    from devkit.errors import DevkitError

    if screen not in SCREENS:
        raise typer.BadParameter(f"'{screen}' is none of {', '.join(SCREENS)}", param_hint="SCREEN")
    if theme not in ("dark", "light"):
        raise typer.BadParameter(f"'{theme}' is neither dark nor light", param_hint="--theme")
    if importlib.util.find_spec("textual") is None:
        raise DevkitError(
            "the terminal workbench needs Textual, which is not installed",
            remedy=f"{sys.executable} -m pip install 'triton-devkit[tui]'",
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise DevkitError(
            "the terminal workbench needs a terminal",
            remedy="every action has a command of its own for scripts: `devkit --help`",
        )
    from devkit.tui.app import run

    run(workspace, screen=screen, theme=theme)
