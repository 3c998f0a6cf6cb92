"""One runtime with models of every mode, and requests that wait in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from tests.support.live import DOUBLE_CONFIG, Live, live, write_model

SCALE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            factor = 2
            y = x * factor
            if x[0] < 0:
                raise ValueError("negative")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return answers
"""
X, FACTOR, PRODUCT, RAISE = 8, 9, 10, 12  # lines of it

ASYNC = """
import asyncio
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            await asyncio.sleep(0)
            factor = 2
            y = x * factor
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return answers
"""

DECOUPLED = """
import threading
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request,)).start()

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        sender = request.get_response_sender()
        for number in range(3):
            y = x * number
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            call = pb_utils.InferenceRequest(
                model_name="scale", requested_output_names=["Y"], inputs=[x]
            )
            reply = call.exec()
            y = pb_utils.get_output_tensor_by_name(reply, "Y").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y + 1)]))
        return answers
"""

BATCHING = DOUBLE_CONFIG.replace("[-1]", "[1]") + "max_batch_size: 8\ndynamic_batching { }\n"
PAIR = DOUBLE_CONFIG + "instance_group [ { kind: KIND_CPU count: 2 } ]\n"
SEQUENCES = """
backend: "python"
max_batch_size: 4
input [{ name: "X" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [1] }]
sequence_batching { max_sequence_idle_microseconds: 300000 }
"""


def line_of(code: str, text: str) -> int:
    """Number of the first line of `code` that holds `text`."""
    return next(n for n, line in enumerate(code.splitlines(), 1) if text in line)


class Waiting:
    """A request in a thread of its own."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._answer: Any = None
        self._ask = ask
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except Exception as problem:
            self._answer = problem

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def answer(self, seconds: float = 20.0) -> Any:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the request was never answered"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Workshop:
    """A runtime, its client, and short ways to ask."""

    def __init__(self, runtime: Live) -> None:
        self.runtime = runtime
        self.client: Client = runtime.client()

    def file(self, model: str) -> str:
        return str(self.runtime.repository / model / "1" / "model.py")

    def write(self, name: str, code: str, config: str = DOUBLE_CONFIG) -> Path:
        return write_model(self.runtime.repository, name, code, config)

    def ask(self, model: str, value: float = 5.0, **options: Any) -> float:
        found = self.client.infer(model, {"X": np.array([value], np.float32)}, **options)
        return float(found["Y"].flat[0])

    def later(self, model: str, value: float = 5.0, **options: Any) -> Waiting:
        return Waiting(lambda: self.ask(model, value, **options))

    def states(self, model: str) -> dict[str, str]:
        return {one.name: one.state for one in self.client.model(model).instances}

    def stop_at(self, model: str, line: int, **options: Any) -> Debugging:
        """A breakpoint there, and a debugger."""
        self.client.set_breakpoint(self.file(model), line, **options)
        return self.client.debug(model)

    def clean(self) -> None:
        for session in self.client.debug_sessions():
            session.detach()
        self.client.clear_breakpoints()


@pytest.fixture(scope="module")
def served() -> Iterator[Live]:
    models = {"scale": SCALE, "gather": SCALE, "caller": CALLER, "soon": ASYNC}
    with live(models=models) as runtime:
        client = runtime.client()
        for name, code, config in (
            ("stream", DECOUPLED, DOUBLE_CONFIG + "model_transaction_policy { decoupled: true }"),
            ("pair", SCALE, PAIR),
            ("batched", SCALE.replace("x[0]", "x[0][0]"), BATCHING),
            ("sequence", SCALE.replace("x[0]", "x[0][0]"), SEQUENCES),
        ):
            write_model(runtime.repository, name, code, config)
            client.load(name)
        yield runtime


@pytest.fixture
def workshop(served: Live) -> Iterator[Workshop]:
    made = Workshop(served)
    yield made
    made.clean()
