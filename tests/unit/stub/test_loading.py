"""Loading: what the model finds, what a failure says, auto-completion, the end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import devkit
from devkit.transport import messages


def test_what_a_model_sees(start, tmp_path):
    stub = start(
        """
        import json, os, sys
        import numpy as np
        import triton_python_backend_utils as pb_utils
        import c_python_backend_utils
        import helper
        import model as again

        class TritonPythonModel:
            def initialize(self, args):
                self.found = {
                    "args": args, "argv": sys.argv, "name": __name__, "file": __file__,
                    "tail": sys.path[-2:], "helper": helper.WORD, "cwd": os.getcwd(),
                    "ours": [p for p in sys.path if p.rstrip("/").endswith("/devkit/stub")],
                    "tensor": c_python_backend_utils.Tensor is pb_utils.Tensor,
                    "env": os.environ["FROM_THE_TEST"], "modules": sorted(sys.modules),
                }
            def execute(self, requests):
                text = json.dumps(self.found)
                out = pb_utils.Tensor("Y", np.array([text], dtype=object))
                return [pb_utils.InferenceResponse([out])]
        """,
        helper="WORD = 'found'\n",
    )
    ready = stub.initialize(env={"FROM_THE_TEST": "yes"})
    version = stub.model_dir / "1"
    assert ready["execute"] is True
    assert ready["is_ready"] is False
    assert ready["python"].startswith("3.")
    assert ready["files"] == [str(version / "helper.py"), str(version / "model.py")]
    stub.plan(0, {})
    found = json.loads(stub.arrays(stub.infer().responses[0])["Y"][0])
    assert found["argv"] == [""]
    assert found["name"] == "1.model"
    assert found["file"] == str(version / "model.py")
    assert found["tail"] == [str(version), str(stub.model_dir)]
    assert found["helper"] == "found"
    assert found["ours"] == []
    assert found["tensor"] is True
    assert found["env"] == "yes"
    assert found["args"]["model_instance_name"] == "m_0"
    third_party = {"tritonclient", "starlette", "uvloop", "orjson", "pytest", "google", "httptools"}
    assert not third_party & {name.partition(".")[0] for name in found["modules"]}


def test_the_module_name_is_version_and_file(serve):
    stub = serve("""
    def execute(self, requests):
        return [answer(np.array([__name__], dtype=object))]
    """)
    stub.plan(0, {})
    assert stub.arrays(stub.infer().responses[0])["Y"][0] == b"1.model"


def test_a_default_model_filename(start):
    stub = start("raise RuntimeError('not this one')", other="class TritonPythonModel:\n    pass\n")
    path = stub.model_dir / "1" / "other.py"
    ready = stub.initialize(model_path=str(path), module_name="1.other")
    assert not ready["failed"]
    assert ready["files"] == [str(path)]


CLASS = "class TritonPythonModel:\n"
FAILURES = [
    (
        CLASS + "    def initialize(self, args):\n        raise ValueError('boom')\n",
        "ValueError: boom\n\nAt:\n  {path}(3): initialize\n",
        "initialize",
        3,
    ),
    (
        CLASS + "    def __init__(self):\n        raise ValueError('boom')\n",
        "ValueError: boom\n\nAt:\n  {path}(3): __init__\n",
        "initialize",
        3,
    ),
    (
        CLASS + "    def initialize(self, args):\n        import sys; sys.exit(1)\n",
        "SystemExit: 1\n\nAt:\n  {path}(3): initialize\n",
        "initialize",
        3,
    ),
    (
        CLASS + "    def execute(self, requests)\n        pass\n",
        "SyntaxError: expected ':' (model.py, line 2)",
        "import",
        2,
    ),
    ("x = 1\n", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'", "import", None),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text", "stage", "line"), FAILURES)
def test_a_load_that_fails(start, code, text, stage, line):
    stub = start(code)
    answer = stub.initialize()
    path = f"{stub.model_dir}/1/model.py"
    assert answer["failed"]
    assert answer["error"] == text.format(path=path)
    assert answer["stage"] == stage
    assert answer["line"] == (f"{path}:{line}" if line else None)
    assert stub.popen.wait(10) == 1


def test_a_failed_import_shows_the_import_system_as_the_real_stub_does(start):
    stub = start("import does_not_exist_xyz\n")
    lines = stub.initialize()["error"].splitlines()
    assert lines[0] == "ModuleNotFoundError: No module named 'does_not_exist_xyz'"
    assert lines[3] == f"  {stub.model_dir}/1/model.py(1): <module>"
    shown = [line.split("): ")[1] for line in lines[4:]]
    assert shown == [
        "_call_with_frames_removed", "exec_module", "_load_unlocked", "_find_and_load_unlocked",
        "_find_and_load",
    ]  # fmt: skip


def test_a_process_that_ends_while_loading(start):
    stub = start("import os\nos._exit(7)\n")
    assert stub.initialize() == {"failed": True, "error": None}
    assert stub.popen.wait(10) == 7


def test_auto_complete(start):
    stub = start("""
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [4]})
            config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [4]})
            config.set_max_batch_size(4)
            config.set_dynamic_batching()
            return config
    """)
    answer = stub.initialize("auto_complete", config={"name": "m", "max_batch_size": 0})
    assert answer["config"] == {
        "name": "m",
        "max_batch_size": 4,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [4]}],
        "dynamic_batching": {},
    }
    assert stub.popen.wait(10) == 0


def test_auto_complete_without_the_function_changes_nothing(start):
    stub = start("class TritonPythonModel:\n    pass\n")
    assert stub.initialize("auto_complete", config={"name": "m"})["config"] == {"name": "m"}


@pytest.mark.parametrize("returned", ["None", "5"])
def test_auto_complete_must_return_the_config(start, returned):
    stub = start(f"""
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            return {returned}
    """)
    answer = stub.initialize("auto_complete", config={"name": "m"})
    assert answer["error"] == (
        "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
    )
    assert answer["stage"] == "auto_complete_config"


def test_auto_complete_that_raises(start):
    stub = start("""
    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            raise ValueError("boom in auto")
    """)
    answer = stub.initialize("auto_complete")
    path = f"{stub.model_dir}/1/model.py"
    assert (
        answer["error"] == f"ValueError: boom in auto\n\nAt:\n  {path}(4): auto_complete_config\n"
    )


def test_finalize_runs_and_the_process_ends(serve):
    stub = serve("""
    def finalize(self):
        print("FINALIZED", flush=True)
    """)
    assert stub.finalize() == {"error": None}
    assert stub.popen.wait(10) == 0
    assert stub.popen.stdout.read() == b"FINALIZED\n"


def test_finalize_that_raises_is_told(serve):
    stub = serve("""
    def finalize(self):
        raise ValueError("boom")
    """)
    assert stub.finalize()["error"].startswith("ValueError: boom\n\nAt:\n")
    assert stub.popen.wait(10) == 0


def test_ctrl_c_and_sigterm_are_left_to_the_runtime(serve):
    stub = serve("""
    def execute(self, requests):
        return [answer(X(r)) for r in requests]
    """)
    stub.plan(0, {"X": ("BYTES", [1])})
    for number in (2, 15):
        stub.popen.send_signal(number)
        assert stub.infer(b"\x01\0\0\0a").responses
    stub.finalize()


def test_the_end_of_the_socket_ends_the_stub_after_finalize(serve):
    stub = serve("""
    def finalize(self):
        print("FINALIZED", flush=True)
    """)
    stub.data.close()
    assert stub.popen.wait(10) == 0
    assert stub.popen.stdout.read() == b"FINALIZED\n"


def test_a_stub_inside_endless_user_code_ends_with_the_runtime(serve):
    stub = serve("""
    def execute(self, requests):
        print("IN", flush=True)
        while True:
            time.sleep(0.01)
    """)
    stub.plan(0, {})
    stub.execute(stub.request())
    assert stub.popen.stdout.readline() == b"IN\n"
    for end in (stub.data, stub.control, stub.bls):
        end.close()
    assert stub.popen.wait(10) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_stub_dies_with_its_parent():
    """Even one that holds the other ends of its own sockets, which no EOF could reach."""
    script = f"""
import os, socket, subprocess, sys
pairs = [socket.socketpair() for _ in range(3)]
fds = [end.fileno() for pair in pairs for end in pair]
stub = {devkit.__path__[0]!r} + "/stub/__main__.py"
child = subprocess.Popen([sys.executable, "-Xfrozen_modules=off", stub, "--data",
    str(pairs[0][1].fileno()), "--control", str(pairs[1][1].fileno()), "--bls",
    str(pairs[2][1].fileno())], pass_fds=fds)
print(child.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        pid = int(parent.stdout.readline())
        while not _waits(pid):
            pass
        # The pipe ends when the last process that has its other end is gone; the stub had it too.
        assert parent.communicate(b"\n", timeout=10) == (b"", None)


def _waits(pid: int) -> bool:
    """The stub has come as far as importing NumPy."""
    with open(f"/proc/{pid}/maps") as maps:
        return "_multiarray_umath" in maps.read()


def test_the_large_responses_file_is_gone_at_the_end(serve):
    stub = serve("""
    def execute(self, requests):
        return [answer(np.zeros(5000, np.float32))]
    """)
    stub.plan(0, {})
    stub.infer()
    path = stub.regions[messages.OWN_RESPONSE_SLAB].path
    assert path.exists()
    stub.finalize()
    assert stub.popen.wait(10) == 0
    assert not path.exists()
