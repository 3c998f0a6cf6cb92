"""The commands by name, and how an error becomes words and an exit status."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from devkit.cli import (
    adopt,
    debug,
    determinism,
    doctor,
    exits,
    inference,
    models,
    process,
    profile,
    record,
    replay,
    tensors,
    top,
    trace,
    tui,
    why,
)
from devkit.errors import ControlError, DevkitError

app = typer.Typer(
    name="devkit",
    help="The live workbench for models of Triton's Python backend.",
    epilog="Exit status: 0 done; 1 refused, failed or different; 2 not understood; 3 no runtime "
    "answers. Every command but serve and tui takes --json. `devkit --install-completion` adds "
    "completion.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    # Help says its defaults in brackets, which Rich would take for markup: drop, or refuse.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
process.add_to(app)
models.add_to(app)
inference.add_to(app)
trace.add_to(app)
exits.add_to(app)
adopt.add_to(app)
record.add_to(app)
replay.add_to(app)
tensors.add_to(app)
top.add_to(app)
why.add_to(app)
profile.add_to(app)
determinism.add_to(app)
doctor.add_to(app)
tui.add_to(app)
debug.add_to(app)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True),
) -> None:
    if version:
        from devkit import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command line; its exit status."""
    from devkit.cli import output

    try:
        app(list(arguments), standalone_mode=True)
    except SystemExit as ending:
        return _status(ending.code)
    except DevkitError as problem:
        output.failure(problem, as_json="--json" in arguments)
        return 3 if isinstance(problem, ControlError) and output.is_absent(problem) else 1
    except BrokenPipeError:  # `devkit logs | head`
        output.drop_stdout()
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def _status(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else 1
