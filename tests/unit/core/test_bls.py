"""Models that call other models, through real stubs on both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.core.conftest import CONFIG, Bench

Make = Callable[..., Bench]

CALLER = """
import asyncio
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def call(self, x, model="double"):
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["Y"], inputs=[pb_utils.Tensor("X", x)])

    def EXECUTE
"""
SYNC = """execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answer = self.call(x).exec()
            if answer.has_error():
                responses.append(pb_utils.InferenceResponse(error=answer.error()))
                continue
            y = pb_utils.get_output_tensor_by_name(answer, "Y").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y + 1)]))
        return responses
"""
ASYNC = """execute(self, requests):
        return asyncio.run(self.all(requests))

    async def all(self, requests):
        xs = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        answers = await asyncio.gather(*(self.call(x).async_exec() for x in xs for _ in range(10)))
        total = sum(pb_utils.get_output_tensor_by_name(a, "Y").as_numpy() for a in answers)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", total)])]
"""
STREAM = """execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            got = []
            for answer in self.call(x, "repeat").exec(decoupled=True):
                if answer.output_tensors():
                    got.append(pb_utils.get_output_tensor_by_name(answer, "Y").as_numpy()[0])
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(got, np.float32))]))
        return responses
"""
LOST = SYNC.replace("self.call(x)", 'self.call(x, "nobody")')


async def started(make: Make, execute: str, **others: tuple[str, str]) -> Bench:
    made = make()
    made.write("double")
    made.write("caller", CONFIG, CALLER.replace("EXECUTE", execute))
    for name, (config, code) in others.items():
        made.write(name, config, code)
    assert await made.engine.start() == []
    return made


async def test_exec_small_and_large(bench: Make) -> None:
    made = await started(bench, SYNC)
    assert (await made.ask("caller", [1, 2])).tolist() == [3.0, 5.0]
    big = np.arange(1, 100_001, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(await made.ask("caller", big), big * 2 + 1)
    await made.ask("caller", [1])
    for name in ("caller", "double"):
        assert made.engine.model(name).request_slab().used == 0


async def test_async_exec_runs_together(bench: Make) -> None:
    made = await started(bench, ASYNC)
    assert (await made.ask("caller", [1])).tolist() == [20.0]


async def test_a_decoupled_model_answers_as_an_iterator(bench: Make) -> None:
    from tests.unit.core.test_ensemble import REPEAT

    config = CONFIG + "model_transaction_policy { decoupled: true }"
    made = await started(bench, STREAM, repeat=(config, REPEAT))
    assert (await made.ask("caller", [4])).tolist() == [4.0, 5.0, 6.0, 7.0]
    assert (await made.ask("caller", [0])).tolist() == []


async def test_an_unknown_model_is_an_error_response(bench: Make) -> None:
    made = await started(bench, LOST)
    response = await made.send("caller", [1])
    assert response.error is not None
    assert response.error.message == (
        "Model nobody - Error when running inference: Failed for execute the inference request. "
        "Model 'nobody' is not ready."
    )


async def test_an_error_of_the_callee_comes_as_a_response(bench: Make) -> None:
    made = await started(bench, SYNC)
    response = await made.send("caller", [-1])
    assert response.error is not None
    assert response.error.message.startswith(
        "Failed to process the request(s) for model 'double_0', message: ValueError: asked to fail"
    )
    assert (await made.ask("caller", [1])).tolist() == [3.0]


@pytest.mark.parametrize("mode", ["none", "explicit"])
async def test_loading_a_model_needs_explicit_control(bench: Make, mode: str) -> None:
    execute = """execute(self, requests):
        if not pb_utils.is_model_ready("double"):
            pb_utils.load_model("double")
        ready = pb_utils.is_model_ready("double")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([ready], np.float32))])]
"""
    made = bench(model_control_mode=mode, load_model=["caller"])
    made.write("caller", CONFIG, CALLER.replace("EXECUTE", execute))
    if mode == "explicit":
        made.write("double")
    assert await made.engine.start() == []
    if mode == "none":
        response = await made.send("caller", [1])
        assert response.error is not None
        assert "explicit model load / unload is not allowed" in response.error.message
    else:
        assert (await made.ask("caller", [1])).tolist() == [1.0]
    assert Path(made.folder).exists()


SELF = SYNC.replace("self.call(x)", 'self.call(x, "caller")')


async def test_a_call_that_waits_for_its_caller_is_told_of(bench: Make) -> None:
    made = bench(bls_circle_grace_secs=0.2)
    made.write("caller", CONFIG, CALLER.replace("EXECUTE", SELF))
    told: list[str] = []
    made.engine.taps.warnings.append(lambda event: told.append(event.message))
    assert await made.engine.start() == []
    response = await made.send("caller", [1])
    assert response.error is not None
    assert "can never be served: caller_0 -> caller_0 (instances: 'caller' has 1)" in (
        response.error.message
    )
    assert len(told) == 1


async def test_without_a_grace_it_is_only_told_of(bench: Make) -> None:
    made = bench()
    made.write("caller", CONFIG, CALLER.replace("EXECUTE", SELF))
    told: list[str] = []
    made.engine.taps.warnings.append(lambda event: told.append(event.rule))
    assert await made.engine.start() == []
    waiting = made.send("caller", [1])
    while not told:
        await asyncio.sleep(0.01)
    assert told == ["bls-circle"]
    assert not waiting.done()
    made.engine.model("caller").instances[0].process.kill()
    assert (await waiting).error is not None


async def test_a_free_instance_is_no_circle(bench: Make) -> None:
    made = bench(bls_circle_grace_secs=0.2)
    code = (
        CALLER.replace("EXECUTE", SELF)
        .replace(
            "answer = self.call",
            'if x[0] == 0:\n                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))\n                continue\n            answer = self.call',
        )
        .replace("self.call(x,", "self.call(x - 1,")
    )
    made.write("caller", CONFIG + "instance_group [ { count: 3 } ]", code)
    assert await made.engine.start() == []
    assert (await made.ask("caller", [2])).tolist() == [2.0]
    response = await made.send("caller", [5])
    assert response.error is not None
    assert "can never be served" in response.error.message
