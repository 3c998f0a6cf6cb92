"""Start of a stub process: makes `devkit` importable and serves one model instance.

    <python> -Xfrozen_modules=off <devkit>/stub/__main__.py --data FD --control FD --bls FD
    <python> -Xfrozen_modules=off <devkit>/stub/__main__.py --zygote FD

devkit need not be installed in that interpreter. Nothing here may leave a trace that a model could
see: `sys.path` gets no folder of ours (a model's own `import memory` must never find our file),
`sys.argv` ends as `['']`. What a stub does is in `process`, what a zygote does in `zygote`.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _register_devkit() -> None:
    """Put a bare `devkit` package in `sys.modules`; its submodules are then found beside us."""
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    # The interpreter put the script's folder first, or the caller's with -m.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    folder = os.path.dirname(_HERE)
    package = ModuleType("devkit")
    package.__path__ = [folder]
    package.__file__ = os.path.join(folder, "__init__.py")
    package.__spec__ = ModuleSpec("devkit", None, origin=package.__file__, is_package=True)
    package.__spec__.submodule_search_locations = [folder]
    sys.modules["devkit"] = package
    # Its own few lines hold `devkit.span`, and import nothing of what a model's process may lack.
    with open(package.__file__, encoding="utf-8") as source:
        exec(compile(source.read(), package.__file__, "exec"), package.__dict__)


def main() -> int:
    """Parse our own few options by hand: argparse would cost a quarter of the start-up time."""
    given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    sys.argv[:] = [""]
    if "devkit" not in sys.modules:
        _register_devkit()
    from devkit.stub import parent

    parent.die_with_parent()
    from devkit.stub import process

    process.prepare()
    if "--zygote" in given:
        from devkit.stub import zygote

        return zygote.serve(int(given["--zygote"]))
    return process.run(int(given["--data"]), int(given["--control"]), int(given["--bls"]))


if __name__ == "__main__":
    sys.exit(main())
