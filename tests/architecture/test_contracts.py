"""The shape of the house: who may import whom, and what each process really loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUB = ROOT / "devkit" / "stub" / "__main__.py"


def modules_after(code):
    """Top-level names and dotted names in `sys.modules` after `code` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return set(done.stdout.split())


def tops(names):
    return {name.partition(".")[0] for name in names}


BARE = tops(modules_after("pass"))


def third_party(names):
    """Top-level packages that neither the standard library nor the bare interpreter brought."""
    return {
        name
        for name in tops(names) - BARE - set(sys.stdlib_module_names)
        if not name.startswith("_")
    }


def test_the_import_contracts_hold():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_import_devkit_loads_nothing_but_itself():
    names = modules_after("import devkit")
    assert third_party(names) == {"devkit"}
    assert {name for name in names if name.startswith("devkit.")} == set()


def test_import_devkit_is_quick():
    """Its own share, so that a slow disk or a busy machine is not held against it."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import devkit"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    line = next(one for one in done.stderr.splitlines() if one.endswith(" devkit"))
    assert int(line.split("|")[1]) < 50_000


def test_a_face_loads_no_runtime():
    names = modules_after("import devkit.workbench, devkit.notebook.extension")
    forbidden = ("devkit.runtime", "devkit.core", "devkit.observe", "devkit.protocols.http")
    assert not [name for name in names if name.startswith(forbidden)]
    assert not {"torch", "uvloop", "uvicorn", "starlette"} & tops(names)


def test_the_core_knows_no_http_and_no_grpc_server():
    names = modules_after("import devkit.core.engine")
    forbidden = {"httptools", "starlette", "uvicorn", "httpx", "websockets", "pygrpc_native"}
    assert not forbidden & tops(names)
    assert not [name for name in names if name.startswith(("devkit.protocols", "devkit.control"))]


def test_the_stub_brings_numpy_and_no_other_package():
    """As a stub starts: devkit need not be installed there, so only its own folder is named."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{str(STUB)!r}]\n"
        f"namespace = runpy.run_path({str(STUB)!r}, run_name='stub')\n"
        "sys.modules.pop('devkit', None)\n"
        "namespace['_register_devkit']()\n"
        "import devkit.stub.process, devkit.stub.zygote"
    )
    names = modules_after(code)
    assert third_party(names) <= {"devkit", "numpy", "triton_python_backend_utils"}
    inside = {name for name in names if name.startswith("devkit.")}
    allowed = ("devkit.stub", "devkit.transport", "devkit.errors")
    assert [name for name in inside if not name.startswith(allowed)] == []


@pytest.mark.parametrize("folder", ["stub", "transport"])
def test_what_runs_beside_a_model_parses_as_python_3_9(folder):
    import ast

    files = [*(ROOT / "devkit" / folder).rglob("*.py"), ROOT / "devkit" / "errors.py"]
    for file in files:
        ast.parse(file.read_text(encoding="utf-8"), str(file), feature_version=(3, 9))
