"""Python-based backends: one `model.py` in a backend folder serves every model that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.unit.core.conftest import CONFIG, Bench

CODE = """
import os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "factor")) as file:
            self.factor = float(file.read())
        assert __name__ == "model", __name__
        assert pb_utils.get_model_dir() not in sys.path

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            y = x * np.float32(self.factor)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return responses
"""


async def test_two_models_share_a_backend(bench: Callable[..., Bench], tmp_path: Path) -> None:
    (tmp_path / "backends" / "scaler").mkdir(parents=True)
    (tmp_path / "backends" / "scaler" / "model.py").write_text(CODE)
    made = bench(backend_directory=str(tmp_path / "backends"))
    config = CONFIG.replace('"python"', '"scaler"')
    for name, factor in (("double", 2), ("triple", 3)):
        home = made.write(name, config, "raise ValueError('not this one')")
        (home / "1" / "factor").write_text(str(factor))
    assert await made.engine.start() == []
    assert (await made.ask("double", [1])).tolist() == [2.0]
    assert (await made.ask("triple", [1])).tolist() == [3.0]
    served = made.engine.model("double").config
    assert (served.backend, served.runtime, served.default_model_filename) == (
        "scaler", "model.py", ""
    )  # fmt: skip


async def test_a_backend_that_is_not_there_is_refused(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.write("double", CONFIG.replace('"python"', '"scaler"'))
    (failure,) = await made.engine.start()
    assert "unable to find backend library for backend 'scaler'" in failure.message
