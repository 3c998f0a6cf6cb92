"""What the shell offers at Tab: names of models, asked of the runtime of this folder.

Shell completion itself is typer's: `devkit --install-completion`.
"""

from __future__ import annotations


def models(incomplete: str) -> list[str]:
    """Models whose name begins so; none where no runtime answers, and no word about it."""
    from devkit.errors import DevkitError

    try:
        from devkit.cli import output

        return [one.name for one in output.connect("").models() if one.name.startswith(incomplete)]
    except DevkitError:
        return []
