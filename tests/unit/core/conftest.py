"""A real engine over a model repository made by the test; real stub processes, no front ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devkit.core.engine import Engine
from devkit.core.options import Options
from devkit.core.request import Description, Request, Response, SharedPlace, TensorSpec
from devkit.transport import dtypes, memory

DOUBLE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

FACTOR = 2

class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            first = float(x.flat[0]) if x.size else 0.0
            if first == -1: raise ValueError("asked to fail")
            if first == -2: os._exit(3)
            if first == -3: time.sleep(0.3)
            if first == -4: self.kept.append(x)
            if first == -5: x = self.kept.pop()
            if first == -6: x = np.array([os.getpid()], np.float32) / FACTOR
            if first == -7: x = np.array([len(requests)], np.float32) / FACTOR
            if first == -8:
                time.sleep(0.2)
                os._exit(3)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * np.float32(FACTOR))]))
        return responses
"""
CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


class Bench:
    """An engine, its repository's folder, and short ways to use both."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.options = Options(model_repository=[folder], **options)
        self.engine = Engine(self.options)

    def write(self, name: str, config: str = CONFIG, code: str = DOUBLE, version: int = 1) -> Path:
        home = self.folder / name
        (home / str(version)).mkdir(parents=True, exist_ok=True)
        (home / "config.pbtxt").write_text(config)
        (home / str(version) / "model.py").write_text(code)
        return home

    def send(
        self, name: str, values: Any, *, buffer: SharedPlace | None = None, **extra: Any
    ) -> asyncio.Future[Response]:
        """`buffer` is where the values lie, if it is in shared memory."""
        array = np.asarray(values, np.float32)
        description = Description((TensorSpec("X", "FP32", array.shape),))
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        data = buffer or dtypes.to_data(array)
        request = Request(name, description, [data], future.set_result, **extra)
        future.request = request  # type: ignore[attr-defined]
        self.engine.infer(request)
        return future

    async def ask(self, name: str, values: Any, **extra: Any) -> np.ndarray[Any, Any]:
        response = await self.send(name, values, **extra)
        if response.error is not None:
            raise response.error
        (spec,) = response.signature.outputs
        result = dtypes.to_array(spec.datatype, spec.shape, response.buffers[0]).copy()
        response.release()
        return result


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(tmp_path / "models", **options))
        made[-1].folder.mkdir(exist_ok=True)
        return made[-1]

    yield make
    pids = [i.pid for b in made for m in b.engine.models() for i in m.instances]
    for each in made:
        await each.engine.stop(5.0)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert list(memory.DIRECTORY.glob(f"devkit-{os.getpid()}-*")) == []
