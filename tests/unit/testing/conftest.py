"""Writing small models for the tests of `devkit.testing`."""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import threading
import numpy as np
import triton_python_backend_utils as pb_utils

def x_of(request):
    return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()

def answer(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.asarray(value, np.float32))])

class TritonPythonModel:
"""
CONFIG = """
backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [-1] }]
"""
DOUBLE = "def execute(self, requests):\n    return [answer(2 * x_of(r)) for r in requests]\n"


@pytest.fixture
def write(tmp_path):
    """Write a model into the test's repository; `body` is its class's, `config` its config.pbtxt."""

    def write(name, body=DOUBLE, config=CONFIG, more="", files=None, version=1):
        home = tmp_path / "models" / name
        (home / str(version)).mkdir(parents=True, exist_ok=True)
        if config:
            (home / "config.pbtxt").write_text(config + more)
        code = HEAD + textwrap.indent(textwrap.dedent(body), "    ")
        (home / str(version) / "model.py").write_text(code)
        for path, text in (files or {}).items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(textwrap.dedent(text))
        return home

    return write
