"""Requests made up from a config."""

from __future__ import annotations

from devkit.contract import config as contract
from devkit.tools.samples import sample_requests
from tests.support.models import TYPES
from tests.support.repository import python_config, tensor


def config(*parts: str) -> contract.ModelConfig:
    return contract.complete(contract.parse(python_config(*parts)), "m")


def shapes(text: contract.ModelConfig, name: str = "X") -> list[tuple[int, ...]]:
    return [wire.arrays("inputs")[name].shape for wire in sample_requests(text)]


def test_fixed_dimensions_are_kept() -> None:
    assert shapes(config(tensor("input", "X", "FP32", "2, 3"))) == [(2, 3)]


def test_free_dimensions_take_several_extents() -> None:
    assert shapes(config(tensor("input", "X", "FP32", "2, -1"))) == [(2, 1), (2, 3)]


def test_batches_of_one_and_more() -> None:
    batching = config(tensor("input", "X", "FP32", "4"), "max_batch_size: 8\n")
    assert shapes(batching) == [(1, 4), (3, 4)]
    single = config(tensor("input", "X", "FP32", "4"), "max_batch_size: 1\n")
    assert shapes(single) == [(1, 4)]


def test_every_type_has_values_and_they_are_always_the_same() -> None:
    every = config(*(tensor("input", name, name, "5") for name in (*TYPES, "BF16")))
    (first,), (second,) = sample_requests(every), sample_requests(every)
    assert first == second
    arrays = first.arrays("inputs")
    assert set(arrays) == {*TYPES, "BF16"}
    assert all(array.shape == (5,) for array in arrays.values())
    assert arrays["STRING"].tolist()[0] == b"devkit"
