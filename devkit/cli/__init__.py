"""The command line: `devkit COMMAND`. One module per group of commands; no logic of its own.

stdout is data, stderr is diagnosis. Exit status: 0 done; 1 refused or failed (a model that does
not load, a request that is answered with an error, a comparison that differs); 2 the command line
cannot be understood (`serve`, like tritonserver: 1); 3 no runtime answers.

Commands import what they need when they run, so that `devkit --help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve"]:
        from devkit.cli.serve import become_runtime

        become_runtime(words[1:])
    from devkit.cli.app import run

    sys.exit(run(words))
