"""Every recorded configuration, read and answered as the real server read and answered it.

`recorded.json` holds the answers of tritonserver 2.51 to the texts in `variants.py`; `record.py`
made it. Equality is of bytes, but for the order inside maps, which the server does not keep.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from devkit.contract import config as contract
from devkit.errors import ConfigError, LoadError

HERE = Path(__file__).parent


def _variants() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("contract_variants", HERE / "variants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.V)


VARIANTS = _variants()
RECORDED: dict[str, Any] = json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))
SERVED = [name for name, entry in RECORDED.items() if entry["status"] == 200]

# Refused by the real server for a reason that is not in the text of the configuration.
BEYOND = {
    "ig_odd_name": "its stub cannot start under such a name",
    "io_optional": "the label file is not there",
    "vp_latest0": "no version is left",
    "vp_specific_none": "no version is left",
    "vp_specific_empty": "no version is left",
    "sb_state_init_file": "the data file is not there",
    "params_env": "the environment is not there",
    "warmup_file": "the data file is not there",
    "warmup_bad_input": "the warm-up request itself is refused",
    "warmup_dtype": "the warm-up request itself is refused",
    "warmup_big": "the warm-up request itself is refused",
    "agents": "the repository agent is not installed",
    "runtime_bad": "the library is not there",
    "metrics_hist": "the field is younger than the recorded server",
    "metrics_empty": "the field is younger than the recorded server",
    "parse_new_field": "the field is younger than the recorded server",
}
REFUSED = [n for n, entry in RECORDED.items() if entry["status"] != 200 and n not in BEYOND]
# Maps with several keys: same content, the server's order is a hash's.
UNORDERED = {"db_prio", "params", "params_many"}


def found(name: str) -> list[int]:
    return [1, 3] if name.startswith("vp_") else [1]


def lookup(name: str, version: int) -> Any:
    if RECORDED.get(name, {}).get("status") != 200:
        return None
    return completed(name) if version in (-1, 1) else False


def completed(name: str) -> Any:
    config = contract.complete(contract.parse(VARIANTS[name]), name)
    return contract.check_ensemble(config, lookup) if config.platform == "ensemble" else config


def test_the_recording_covers_every_variant() -> None:
    assert set(RECORDED) == set(VARIANTS)


@pytest.mark.parametrize("name", SERVED)
def test_config_is_the_servers_byte_for_byte(name: str) -> None:
    ours, theirs = contract.to_json(completed(name)), RECORDED[name]["config"]
    if name in UNORDERED:
        assert json.loads(ours) == json.loads(theirs)
        assert len(ours) == len(theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", SERVED)
def test_metadata_is_the_servers_byte_for_byte(name: str) -> None:
    config = completed(name)
    versions = contract.versions_served(config.version_policy, found(name))
    ours = contract.metadata(config, map(str, versions))
    text = json.dumps(ours, separators=(",", ":"), ensure_ascii=False)
    if name == "io_escapes":
        assert json.loads(text) == json.loads(RECORDED[name]["metadata"])
    else:
        assert text == RECORDED[name]["metadata"]


@pytest.mark.parametrize("name", SERVED)
def test_completing_twice_changes_nothing(name: str) -> None:
    config = contract.complete(contract.parse(VARIANTS[name]), name)
    assert contract.complete(config, name) == config


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("minimal", [True, False])
def test_written_text_means_the_same(name: str, minimal: bool) -> None:
    config = contract.complete(contract.parse(VARIANTS[name]), name)
    text = contract.to_pbtxt(config, minimal=minimal)
    again = contract.complete(contract.parse(text), name)
    assert contract.to_json(again) == contract.to_json(config)


@pytest.mark.parametrize("name", SERVED)
def test_users_own_text_survives_being_made_minimal(name: str) -> None:
    config = contract.parse(VARIANTS[name])
    config.name = name
    text = contract.to_pbtxt(config)
    again = contract.complete(contract.parse(text), name)
    assert contract.to_json(again) == contract.to_json(contract.complete(config, name))


@pytest.mark.parametrize("name", SERVED)
def test_json_means_the_same(name: str) -> None:
    config = contract.complete(contract.parse(VARIANTS[name]), name)
    text = contract.to_json(config)
    assert contract.to_json(contract.from_json(text)) == text


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_is_the_servers(name: str) -> None:
    recorded = RECORDED[name]
    if recorded["status"] == 500 and "failed to read text proto" in recorded["log"][-1]:
        with pytest.raises(ConfigError) as unread:
            contract.parse(VARIANTS[name])
        assert unread.value.remedy
        return
    with pytest.raises(LoadError) as refused:
        completed(name)
    assert refused.value.message == recorded["error"]
    if recorded["status"] == 500:
        assert isinstance(refused.value, contract.CompletionError)
        assert refused.value.stage == "poll"
        cause = f"Poll failed for model directory '{name}': {refused.value.reason}"
        assert recorded["log"][-1] == f'"{cause}"'


@pytest.mark.parametrize("name", BEYOND)
def test_what_the_text_cannot_tell_is_left_to_the_repository(name: str) -> None:
    assert contract.complete(contract.parse(VARIANTS[name]), name).name == name
