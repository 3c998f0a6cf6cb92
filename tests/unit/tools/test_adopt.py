"""What people have already becomes a model that runs, and that the doctor does not mind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from devkit.doctor import Target, examine
from devkit.testing import load_model
from devkit.tools.adopt import AdoptError, Adoption, adopt, parse_input

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)
"""
SAVE = """
import sys
import torch
from safetensors.torch import save_file

sys.path.insert(0, sys.argv[1])
from net import Net

net = Net()
with torch.no_grad():
    net.layer.weight.fill_(1.0)
    net.layer.bias.fill_(0.5)
torch.save(net.state_dict(), "state.pt")
save_file(net.state_dict(), "net.safetensors")
torch.save(net, "whole.pt")
torch.jit.trace(net, torch.ones(1, 4)).save("traced.pt")
"""
ONNX = """
import onnx
from onnx import TensorProto, helper

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1])
node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
graph = helper.make_graph([node], "sum", [x], [y], [axes])
opset = [helper.make_opsetid("", 13)]
onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "sum.onnx")
"""
FUNCTION = """
import numpy as np


def shade(image: np.ndarray, gamma: float, title: str):
    return {"SHADED": np.asarray(image) ** gamma, "TITLE": title.upper()}
"""
HANDLER = """
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Order(BaseModel):
    prices: list[float]
    count: int


class Total(BaseModel):
    total: float
    currency: str


@app.post("/total")
async def total(order: Order) -> Total:
    return Total(total=sum(order.prices) * order.count, currency="EUR")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "net.py").write_text(NET)
    (folder / "shade.py").write_text(FUNCTION)
    (folder / "shop.py").write_text(HANDLER)
    for script in (SAVE, ONNX):
        subprocess.run([sys.executable, "-c", script, str(folder)], cwd=folder, check=True)
    return folder


def answer(made: Adoption, **inputs: object) -> dict[str, np.ndarray]:
    """What the model answers; the doctor must have nothing to say of it."""
    report = examine(made.folder, target=Target(cores=4))
    assert [one.rule for one in report.findings] == []
    with load_model(made.folder) as model:
        return dict(model.infer(inputs))


def test_a_function(files: Path, tmp_path: Path) -> None:
    made = adopt(files / "shade.py", tmp_path)
    assert (made.name, made.kind, made.max_batch_size) == ("shade", "function", 0)
    assert [(one.name, one.datatype) for one in made.inputs] == [
        ("image", "FP32"), ("gamma", "FP32"), ("title", "BYTES"),
    ]  # fmt: skip
    found = answer(made, image=np.array([2, 3], np.float32), gamma=[2.0], title=["hi"])
    assert found["SHADED"].tolist() == [4, 9]
    assert found["TITLE"].tolist() == [b"HI"]
    assert "adopted" not in made.files
    with pytest.raises(AdoptError, match="exists"):
        adopt(files / "shade.py", tmp_path)


def test_a_web_handler(files: Path, tmp_path: Path) -> None:
    made = adopt(files / "shop.py", tmp_path)
    assert (made.kind, [one.name for one in made.inputs]) == ("handler", ["prices", "count"])
    found = answer(made, prices=np.array([1.5, 2], np.float32), count=np.array([2]))
    assert found["total"].tolist() == [7.0]
    assert found["currency"].tolist() == [b"EUR"]


ROWS = np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32)
WANTED = [[10.5, 10.5], [0.5, 0.5]]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("file", "entry", "kind"),
    [
        ("net.safetensors", "net.py:Net", "state"),
        ("state.pt", "net.py:Net", "state"),
        ("whole.pt", "", "pickle"),
        ("traced.pt", "", "torchscript"),
    ],
)
def test_weights_and_networks(
    file: str, entry: str, kind: str, files: Path, tmp_path: Path
) -> None:
    made = adopt(files / file, tmp_path, entry=entry)
    assert made.kind == kind
    assert (made.max_batch_size, made.inputs[0].dims, made.outputs[0].dims) == (8, (4,), (2,))
    assert answer(made, **{made.inputs[0].name: ROWS})["OUTPUT"].tolist() == WANTED


def test_an_onnx_file(files: Path, tmp_path: Path) -> None:
    made = adopt(files / "sum.onnx", tmp_path)
    assert (made.kind, made.max_batch_size) == ("onnx", 8)
    assert answer(made, x=ROWS)["y"].tolist() == [[10], [0]]


def test_a_class_of_networks(files: Path, tmp_path: Path) -> None:
    made = adopt(files / "net.py", tmp_path, weights=files / "state.pt")
    assert answer(made, x=ROWS)["OUTPUT"].tolist() == WANTED
    assert made.files == ("1/model.py", "1/net.py", "1/state.pt", "config.pbtxt")


def test_what_cannot_be_adopted(files: Path, tmp_path: Path) -> None:
    with pytest.raises(AdoptError, match="is no file"):
        adopt(files / "nothing.py", tmp_path)
    with pytest.raises(AdoptError, match="holds weights only"):
        adopt(files / "net.safetensors", tmp_path)
    (tmp_path / "two.py").write_text("def a(x): ...\ndef b(x): ...\n")
    with pytest.raises(AdoptError, match="a, b"):
        adopt(tmp_path / "two.py", tmp_path / "out")
    (tmp_path / "bad.py").write_text("def a(x):\n    return 1 / 0\n")
    with pytest.raises(AdoptError, match="ZeroDivisionError"):
        adopt(tmp_path / "bad.py", tmp_path / "out")
    with pytest.raises(AdoptError, match="is no input"):
        parse_input("X:4")
    assert list((tmp_path / "out").iterdir()) == []
