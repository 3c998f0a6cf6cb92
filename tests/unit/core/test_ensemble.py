"""Ensembles: a graph of real models, through the engine's door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from devkit.core.request import Description, Request, Response, TensorSpec
from devkit.errors import Code, InferError, LoadError
from tests.unit.core.conftest import Bench

Make = Callable[..., Bench]
TENSOR = '{{ name: "{}" data_type: TYPE_FP32 dims: [ -1 ] }}'
REPEAT = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            sender = request.get_response_sender()
            for index in range(int(x[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + np.float32(index))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def ensemble(*steps: tuple[str, dict[str, str], dict[str, str]], outputs: str = "Y") -> str:
    text = 'platform: "ensemble"\n'
    text += f"input [ {TENSOR.format('X')} ]\n"
    text += f"output [ {', '.join(TENSOR.format(name) for name in outputs.split())} ]\n"
    text += "ensemble_scheduling {\n"
    for name, inputs, written in steps:
        text += f'step {{ model_name: "{name}" model_version: -1\n'
        for key, value in inputs.items():
            text += f'input_map {{ key: "{key}" value: "{value}" }}\n'
        for key, value in written.items():
            text += f'output_map {{ key: "{key}" value: "{value}" }}\n'
        text += "}\n"
    return text + "}\n"


async def started(make: Make, config: str) -> Bench:
    made = make()
    made.write("double")
    made.write("ens", config, code="")
    assert await made.engine.start() == []
    return made


CHAIN = ensemble(("double", {"X": "X"}, {"Y": "mid"}), ("double", {"X": "mid"}, {"Y": "Y"}))


async def test_a_chain_of_steps(bench: Make) -> None:
    made = await started(bench, CHAIN)
    assert (await made.ask("ens", [1, 2])).tolist() == [4.0, 8.0]
    big = np.arange(1, 100_001, dtype=np.float32)
    np.testing.assert_array_equal(await made.ask("ens", big), big * 4)
    assert made.engine.model("double").request_slab().used == 0
    assert made.engine.model("ens").counters.success.count == 2


async def test_steps_that_do_not_depend_on_each_other(bench: Make) -> None:
    made = await started(
        bench,
        ensemble(
            ("double", {"X": "X"}, {"Y": "A"}), ("double", {"X": "A"}, {"Y": "B"}),
            ("double", {"X": "X"}, {"Y": "C"}), outputs="B C",
        ),
    )  # fmt: skip
    response = await made.send("ens", [1])
    values = {
        spec.name: np.frombuffer(buffer, np.float32).tolist()
        for spec, buffer in zip(response.signature.outputs, response.buffers, strict=True)
    }
    assert values == {"B": [4.0], "C": [2.0]}


async def test_a_steps_error_names_the_ensemble_and_keeps_its_code(bench: Make) -> None:
    made = await started(bench, CHAIN)
    with pytest.raises(InferError) as failed:
        await made.ask("ens", [-1])
    assert failed.value.message.startswith(
        "in ensemble 'ens', Failed to process the request(s) for model 'double_0', message: "
    )
    assert failed.value.code is Code.INTERNAL
    assert (await made.ask("ens", [1])).tolist() == [4.0]


async def test_a_missing_step_model_is_told(bench: Make) -> None:
    made = bench()
    made.write("ens", CHAIN, code="")
    (failure,) = await made.engine.start()
    assert isinstance(failure, LoadError)
    assert "contains models that are not available or ambiguous: double" in failure.message


async def test_a_step_that_does_not_load_is_named(bench: Make) -> None:
    made = bench()
    made.write("double", code="raise ValueError('no')")
    made.write("ens", CHAIN, code="")
    failures = await made.engine.start()
    (failure,) = [f for f in failures if f.model == "ens"]
    assert "ensemble 'ens' depends on 'double' which has no loaded version." in failure.message


async def stream(made: Bench, values: list[float]) -> list[list[float] | None]:
    got: list[Response] = []
    done = asyncio.Event()

    def on_response(response: Response) -> None:
        got.append(response)
        if response.final:
            done.set()

    array = np.asarray(values, np.float32)
    description = Description((TensorSpec("X", "FP32", array.shape),))
    made.engine.infer(Request("ens", description, [array.tobytes()], on_response))
    await asyncio.wait_for(done.wait(), 10)
    assert all(response.error is None for response in got)
    return [np.frombuffer(r.buffers[0], np.float32).tolist() if r.buffers else None for r in got]


async def test_a_decoupled_step_sends_the_rest_on_its_way_per_response(bench: Make) -> None:
    made = bench()
    made.write("double")
    made.write(
        "repeat",
        'backend: "python"\n'
        f"input [ {TENSOR.format('X')} ]\noutput [ {TENSOR.format('Y')} ]\n"
        "model_transaction_policy { decoupled: true }",
        REPEAT,
    )
    made.write(
        "ens",
        ensemble(("repeat", {"X": "X"}, {"Y": "mid"}), ("double", {"X": "mid"}, {"Y": "Y"})),
        code="",
    )
    assert await made.engine.start() == []
    assert made.engine.model("ens").decoupled
    answers = await stream(made, [3])
    assert sorted(answer[0] for answer in answers if answer) == [6.0, 8.0, 10.0]
    assert await stream(made, [0]) == [None]


async def test_unloading_with_dependents_unloads_the_steps(bench: Make) -> None:
    made = await started(bench, CHAIN)
    await made.engine.unload("ens", dependents=True)
    assert made.engine.models() == []
