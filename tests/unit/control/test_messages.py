"""The seam to the faces: every message survives JSON, and versions may differ a little."""

import dataclasses
import json

import pytest

from devkit.control import messages
from devkit.control.messages import (
    Endpoint,
    Event,
    Instance,
    Learn,
    Model,
    ModelOptions,
    Owner,
    Process,
    PutModel,
    Runtime,
    SharedMemory,
    Slab,
    Snapshot,
    Tensor,
    from_json,
    from_plain,
    to_json,
)

RUNTIME = Runtime(1, "/w", 2.5, "/c", "/l", (Endpoint("http", "0.0.0.0", 8000),))
SNAPSHOT = Snapshot(
    7,
    RUNTIME,
    models=(
        Model(
            "m",
            inputs=(Tensor("X", "FP32", (-1, 4)),),
            instances=(Instance("m_0", "m", process=Process(5, rss=10)),),
        ),
    ),
    memory=SharedMemory(10, 5, (Slab("s", 10, owners=(Owner("r", 3),)),)),
)


@pytest.mark.parametrize(
    "message",
    [
        SNAPSHOT,
        RUNTIME,
        Event(1, 2.0, "log", text="x"),
        PutModel({"1/model.py": "x"}, ModelOptions(instances=2, preferred_batch_size=(4, 8))),
        Learn((Tensor("X", "FP32", (1,)),)),
        messages.LoadModel({"a": [1, {"b": None}]}),
        messages.Failure("no", code=3),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_survives_json(message):
    assert from_json(type(message), to_json(message)) == message


def test_every_message_can_be_read_back_from_its_defaults():
    for kind in vars(messages).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            with pytest.raises(ValueError, match="must be an object"):
                from_plain(kind, 5)


def test_an_unknown_field_of_a_newer_runtime_is_ignored():
    assert from_plain(Process, {"pid": 4, "temperature": 40}) == Process(4)


def test_a_missing_field_takes_its_default_and_a_required_one_is_named():
    assert from_plain(Tensor, {"name": "X", "datatype": "FP32", "shape": []}).optional is False
    with pytest.raises(ValueError, match="Tensor: 'datatype' is missing"):
        from_plain(Tensor, {"name": "X"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 5, "datatype": "FP32", "shape": []},
        {"name": "X", "datatype": "FP32", "shape": 5},
        {"name": "X", "datatype": "FP32", "shape": ["a"]},
        {"name": "X", "datatype": "FP32", "shape": [True]},
        {"name": "X", "datatype": "FP32", "shape": [], "optional": 1},
    ],
)
def test_a_field_of_the_wrong_type_is_refused(wrong):
    with pytest.raises(ValueError, match=r"Tensor\.(name|shape|optional) must be"):
        from_plain(Tensor, wrong)


def test_messages_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RUNTIME.pid = 3  # type: ignore[misc]


def test_a_wildcard_address_is_shown_as_one_can_call_it():
    assert RUNTIME.url("http") == "localhost:8000"
    assert RUNTIME.url("grpc") == ""
    assert Endpoint("http", "::1", 5).url == "[::1]:5"


def test_json_is_plain():
    assert json.loads(to_json(SNAPSHOT))["models"][0]["inputs"][0]["shape"] == [-1, 4]
