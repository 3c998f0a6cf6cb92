"""Completion and explanations in config.pbtxt, also while the text is not yet one."""

from __future__ import annotations

import pytest

from devkit.contract.assistance import _WORDS, explanation, suggestions
from devkit.contract.config import ModelConfig


def at(text: str) -> tuple[str, int, int]:
    """A text with `|` at the place that is meant."""
    before = text.partition("|")[0]
    return text.replace("|", ""), before.count("\n") + 1, len(before) - before.rfind("\n")


def labels(text: str) -> list[str]:
    return [one.label for one in suggestions(*at(text))]


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("max_|", ["max_batch_size"]),
        ('name: "m"\ninp|', ["input"]),
        ("input [ { |", ["name", "data_type", "dims", "optional"]),
        ('input [ { name: "X" da|', ["data_type"]),
        ("input [ { data_type: |", ["TYPE_FP32", "TYPE_STRING"]),
        ("input [ { data_type: TYPE_FP3|", ["TYPE_FP32"]),
        ("input [ { dims: [ 1, 2 ] opt|", ["optional"]),
        ("instance_group [ { count: 2 kind: KIND_|", ["KIND_CPU", "KIND_GPU"]),
        ("instance_group { kind: KIND_CPU }\ndyn|", ["dynamic_batching"]),
        ("dynamic_batching { max_q|", ["max_queue_delay_microseconds"]),
        ("model_transaction_policy { decoupled: |", ["true", "false"]),
        ('ensemble_scheduling { step [ { model_name: "a" }, { in|', ["input_map"]),
        ("backend: |", ['"python"']),
        ("# a comment { [\nmax_|", ["max_batch_size"]),
    ],
)
def test_what_can_be_written(text: str, some: list[str]) -> None:
    assert set(some) <= set(labels(text)), labels(text)


def test_what_is_given_is_not_offered_again() -> None:
    assert "name" not in labels('name: "m"\n|')
    assert "input" in labels("input [ { dims: [ 1 ] } ]\n|")
    (one,) = suggestions(*at("max_batch|"))
    assert (one.insert, one.type) == ("max_batch_size: ", "whole number")
    assert "one by one" in one.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_ba|tch_size: 4", "one by one"),
        ('input [ { name: "X" di|ms: [ 1 ] } ]', "without the batch"),
        ("input [ { data_type: TYPE_ST|RING } ]", "bytes objects"),
        ("instance_group [ { cou|nt: 2 } ]", "each is a process"),
        ("nons|ense: 3", ""),
        ("|", ""),
    ],
)
def test_what_stands_there(text: str, says: str) -> None:
    found = explanation(*at(text))
    assert says in found
    assert bool(found) == bool(says)


def test_every_word_is_of_a_field_that_exists() -> None:
    known: set[str] = set()
    todo, seen = [ModelConfig.DESCRIPTOR], set()
    while todo:
        message = todo.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        prefix = "" if message.name == "ModelConfig" else f"{message.name}."
        known |= {f"{prefix}{field.name}" for field in message.fields}
        todo += [field.message_type for field in message.fields if field.message_type]
    assert set(_WORDS) <= known
