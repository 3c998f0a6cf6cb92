"""Models of other backends that devkit runs by Python models of its own: PyTorch, ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from devkit.control.client import Client
from devkit.errors import InferError, LoadError
from tests.support.live import Live, live

FP32 = "input [ { name: %r data_type: TYPE_FP32 dims: [2] } ]\n"


def folder(repository: Path, name: str, config: str) -> Path:
    home = repository / name
    (home / "1").mkdir(parents=True)
    (home / "config.pbtxt").write_text(config.replace("'", '"'))
    return home / "1"


def torch_models(repository: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a - b, a + b

    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            if bool((x < 0).any()):
                raise ValueError("negative")
            return {"twice": x * 2, "half": x / 2}

    both = "".join(FP32 % name for name in ("IN__1", "IN__0"))
    outputs = "".join(
        f"output [ {{ name: '{name}' data_type: TYPE_FP32 dims: [2] }} ]\n"
        for name in ("OUT__1", "OUT__0")
    )
    batching = "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 50000 }\n"
    home = folder(
        repository, "numbered", "platform: 'pytorch_libtorch'\n" + batching + both + outputs
    )
    torch.jit.script(Net()).save(str(home / "model.pt"))
    named = "".join(
        f"output [ {{ name: '{name}' data_type: TYPE_FP32 dims: [2] }} ]\n"
        for name in ("half", "twice")
    )
    home = folder(repository, "named", "backend: 'pytorch'\n" + FP32 % "x" + named)
    torch.jit.script(Named()).save(str(home / "model.pt"))


def onnx_models(repository: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "x"], ["square"])],
        "squares",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2])],
        [helper.make_tensor_value_info("square", TensorProto.FLOAT, ["rows", 2])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    home = folder(repository, "squares", "backend: 'onnxruntime'\nmax_batch_size: 4\n")
    onnx.save(made, str(home / "model.onnx"))


PIPE = """
platform: "ensemble"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_FP32 dims: [2] }, { name: "B" data_type: TYPE_FP32 dims: [2] } ]
output [ { name: "C" data_type: TYPE_FP32 dims: [2] } ]
ensemble_scheduling { step [
  { model_name: "numbered" model_version: -1
    input_map { key: "IN__0" value: "A" } input_map { key: "IN__1" value: "B" }
    output_map { key: "OUT__0" value: "difference" } },
  { model_name: "squares" model_version: -1
    input_map { key: "x" value: "difference" } output_map { key: "square" value: "C" } }
] }
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Live]:
    with live() as runtime:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="`torch.jit")  # what such files are made with
            torch_models(runtime.repository)
        onnx_models(runtime.repository)
        pipe = folder(runtime.repository, "pipe", PIPE)
        assert pipe.is_dir()
        client = runtime.client()
        for name in ("numbered", "named", "squares", "pipe"):
            client.load(name)
        yield runtime


@pytest.fixture
def client(served: Live) -> Client:
    return served.client()


def rows(*values: float) -> np.ndarray:
    return np.array([[each, each] for each in values], np.float32)


def test_inputs_and_outputs_go_by_their_numbers(client: Client):
    given = {"IN__0": rows(5, 7), "IN__1": rows(2, 3)}
    found = client.infer("numbered", given)
    assert found["OUT__0"].tolist() == [[3, 3], [4, 4]]
    assert found["OUT__1"].tolist() == [[7, 7], [10, 10]]


def test_requests_of_one_batch_run_together(client: Client):
    from concurrent.futures import ThreadPoolExecutor

    def ask(number: int) -> float:
        given = {"IN__0": rows(number, number), "IN__1": rows(1, 1)}
        return float(client.infer("numbered", given)["OUT__0"][1, 0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(8))) == [number - 1 for number in range(8)]


def test_names_of_arguments_and_of_a_dict(client: Client):
    found = client.infer("named", {"x": np.array([2, 4], np.float32)})
    assert (found["twice"].tolist(), found["half"].tolist()) == ([4, 8], [1, 2])


def test_what_the_program_raises_is_the_answer(client: Client):
    with pytest.raises(InferError, match="negative"):
        client.infer("named", {"x": np.array([-1, 4], np.float32)})


def test_an_onnx_file_completes_its_config(client: Client):
    config = client.config("squares")
    assert [each["name"] for each in config["input"]] == ["x"]
    assert config["output"][0]["dims"] in ([2], ["2"])
    assert client.infer("squares", {"x": rows(3)})["square"].tolist() == [[9, 9]]


def test_an_ensemble_over_both(client: Client):
    assert client.infer("pipe", {"A": rows(5), "B": rows(2)})["C"].tolist() == [[9, 9]]


def test_a_backend_that_devkit_lacks_says_so(client: Client, served: Live):
    repository = served.repository
    config = "backend: 'tensorrt'\n" + FP32 % "x" + (FP32 % "y").replace("input", "output")
    folder(repository, "engine", config)
    with pytest.raises(
        LoadError, match="unable to find backend library for backend 'tensorrt'"
    ) as no:
        client.load("engine")
    assert "onnxruntime" in (no.value.remedy or "")
