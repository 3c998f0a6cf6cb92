"""What a completed configuration says about tensors, instances, versions and scale."""

from __future__ import annotations

from typing import Any

import pytest

from devkit.contract import config as contract
from devkit.errors import ConfigError, LoadError

IO = """backend: "python"
input [ { name: "MODE" data_type: TYPE_STRING dims: [ 1 ] }, { name: "X" data_type: TYPE_FP32 dims: [ -1 ] optional: true } ]
output [ { name: "Y" data_type: TYPE_BF16 dims: [ 2, 2 ] reshape { shape: [ 4 ] } label_filename: "l.txt" } ]
"""


def made(text: str = "", *, gpus: int = 0) -> Any:
    return contract.complete(contract.parse(IO + text), "modes", gpus=gpus)


def names(config: Any) -> list[str]:
    return [spec.name for spec in contract.instances(config)]


def test_tensors_speak_the_protocol() -> None:
    inputs = contract.inputs(made())
    assert inputs["MODE"] == contract.IOSpec("MODE", "BYTES", (1,), (1,))
    assert inputs["X"].optional
    output = contract.outputs(made())["Y"]
    assert (output.datatype, output.dims, output.reshape) == ("BF16", (2, 2), (4,))
    assert output.labels == "l.txt"


def test_batching_model_asks_for_a_batch_dimension() -> None:
    config = made("max_batch_size: 4")
    assert contract.inputs(config)["X"].shape == (-1, -1)
    assert contract.inputs(config)["X"].dims == (-1,)
    assert contract.metadata(config, ["1"])["outputs"][0]["shape"] == [-1, 2, 2]


def test_default_instance_is_named_after_the_model() -> None:
    assert contract.instances(made()) == [contract.InstanceSpec("modes_0", "CPU", 0, 0, 1)]


def test_instances_of_given_groups_carry_the_groups_number() -> None:
    config = made("instance_group [ { count: 2 }, { kind: KIND_MODEL passive: true } ]")
    assert names(config) == ["modes_0_0", "modes_0_1", "modes_1_0"]
    last = contract.instances(config)[-1]
    assert (last.kind, last.group, last.passive) == ("MODEL", 1, True)


def test_gpu_group_has_its_count_on_each_device() -> None:
    config = made("instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 2 ] } ]", gpus=3)
    assert [(s.name, s.device_id) for s in contract.instances(config)] == [
        ("modes_0_0", 0),
        ("modes_0_1", 0),
        ("modes_0_2", 2),
        ("modes_0_3", 2),
    ]


def test_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(LoadError, match="invalid or unsupported gpu id 3"):
        made("instance_group [ { kind: KIND_GPU gpus: [ 3 ] } ]", gpus=3)


def test_rate_limiter_resources_travel_with_the_instance() -> None:
    config = made(
        "instance_group [ { rate_limiter { priority: 2 resources "
        '[ { name: "R" count: 4 global: true } ] } } ]'
    )
    (spec,) = contract.instances(config)
    assert spec.priority == 2
    assert spec.resources == (contract.ResourceSpec("R", 4, is_global=True),)


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", [20]),
        ("version_policy { latest { num_versions: 2 } }", [3, 20]),
        ("version_policy { latest { } }", []),
        ("version_policy { all { } }", [1, 3, 20]),
        ("version_policy { }", [1, 3, 20]),
        ("version_policy { specific { versions: [ 3, 7 ] } }", [3]),
    ],
)
def test_policy_chooses_versions_by_number(policy: str, served: list[int]) -> None:
    assert contract.versions_served(made(policy).version_policy, [20, 1, 3]) == served


def test_scaling_keeps_the_names_of_what_runs() -> None:
    config = made()
    scaled = contract.scale(config, 3)
    assert names(scaled) == ["modes_0", "modes_1", "modes_2"]
    assert names(contract.scale(scaled, 1)) == ["modes_0"]
    assert names(config) == ["modes_0"]


def test_scaled_model_is_written_as_a_plain_count() -> None:
    text = contract.to_pbtxt(contract.scale(made(), 3))
    assert "instance_group [ { count: 3 } ]\n" in text


def test_users_cpu_kind_is_kept_for_machines_with_gpus() -> None:
    config = contract.parse(IO + "instance_group [ { kind: KIND_CPU } ]")
    assert "kind: KIND_CPU" in contract.to_pbtxt(config)


def test_model_cannot_have_no_instances() -> None:
    with pytest.raises(ConfigError, match="cannot have 0 instances"):
        contract.scale(made(), 0)


def test_minimal_text_is_what_a_person_would_write() -> None:
    config = contract.infer_config(
        "sum",
        {"X": ("FP32", (8, 3)), "MODE": ("BYTES", (8, 1))},
        {"Y": ("INT64", (8,))},
        max_batch_size=8,
    )
    assert contract.to_pbtxt(contract.complete(config, "sum")) == (
        'name: "sum"\n'
        'backend: "python"\n'
        "max_batch_size: 8\n"
        "input [\n"
        '  { name: "X" data_type: TYPE_FP32 dims: [ -1 ] },\n'
        '  { name: "MODE" data_type: TYPE_STRING dims: [ -1 ] }\n'
        "]\n"
        'output [ { name: "Y" data_type: TYPE_INT64 dims: [ 1 ] } ]\n'
    )


@pytest.mark.parametrize(
    ("tensor", "batch", "text"),
    [(("FP128", (1,)), 0, "which Triton has not"), (("FP32", ()), 4, "no batch dimension")],
)
def test_sample_that_no_config_describes_is_refused(
    tensor: tuple[str, tuple[int, ...]], batch: int, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        contract.infer_config("m", {"X": tensor}, max_batch_size=batch)


def test_auto_complete_starts_from_a_filled_in_config_without_checks() -> None:
    config = contract.parse('max_batch_size: 4\ninput [ { name: "X" } ]')
    start = contract.auto_complete_input(config, "args")
    assert (start["name"], start["backend"], start["max_batch_size"]) == ("args", "python", 4)
    assert start["version_policy"] == {"latest": {"num_versions": 1}}
    assert start["instance_group"][0]["name"] == "args"
    assert start["default_model_filename"] == "model.py"
    assert contract.from_dict(start).input[0].name == "X"


@pytest.mark.parametrize("text", ["{", "[]", '{"nonsense": 3}', '{"input": [{"data_type": "NO"}]}'])
def test_json_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        contract.from_json(text)


def test_both_spellings_of_json_fields_are_read() -> None:
    config = contract.from_json('{"maxBatchSize": "4", "input": [{"name": "X", "dims": ["3", 4]}]}')
    assert (config.max_batch_size, list(config.input[0].dims)) == (4, [3, 4])


def test_refusal_names_every_version_that_fails() -> None:
    config = contract.parse('input [ { name: "X" dims: [ 1 ] } ]')
    with pytest.raises(contract.CompletionError) as refused:
        contract.complete(config, "m", versions=[1, 3])
    reason = "Invalid argument: model input 'X' must specify 'data_type' for m"
    assert refused.value.reason == reason
    assert refused.value.message == (
        f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason};\n"
        f"version 3 is at UNAVAILABLE state: {reason};\n"
    )


def test_backend_that_nothing_tells_is_refused() -> None:
    with pytest.raises(contract.CompletionError, match="failed to poll") as refused:
        contract.complete(contract.ModelConfig(), "m", backend_default="")
    assert refused.value.reason.startswith("Invalid model name: Could not determine backend")
