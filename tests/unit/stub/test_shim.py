"""`import triton_python_backend_utils` outside a server, and inside the real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import devkit.shim

SHIM = Path(devkit.shim.__file__).parent
ROOT = SHIM.parents[1]


def run(code, *path):
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(map(str, path)), "PATH": ""},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_outside_a_server_it_is_ours():
    code = (
        "import triton_python_backend_utils as a; from devkit.stub import pb_utils as b; "
        "print(a is b, a.Tensor)"
    )
    assert run(code, SHIM, ROOT) == "True <class 'c_python_backend_utils.Tensor'>\n"


def test_where_the_backends_built_in_module_exists_the_real_file_is_used(tmp_path):
    """As in the real stub: the built-in module is there, the real file's folder comes last."""
    backend = tmp_path / "backend"
    backend.mkdir()
    (backend / "c_python_backend_utils.py").write_text("")
    (backend / "triton_python_backend_utils.py").write_text("WHO = 'the real one'\n")
    code = "import sys, triton_python_backend_utils as a; print(a.WHO, 'devkit' in sys.modules)"
    assert run(code, SHIM, ROOT, backend) == "the real one False\n"


def test_importing_it_is_cheap_and_pulls_in_numpy_alone():
    code = (
        "import sys; import triton_python_backend_utils; "
        "print(sorted({'asyncio', 'grpc', 'tritonclient', 'debugpy'} & set(sys.modules)))"
    )
    assert run(code, SHIM, ROOT) == "[]\n"
