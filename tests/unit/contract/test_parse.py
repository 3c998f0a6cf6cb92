"""A config.pbtxt that cannot be read says where, shows the line, and what to write instead."""

from __future__ import annotations

import pytest

from devkit.contract import config as contract
from devkit.errors import ConfigError

IO = 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]'


def refuse(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        contract.parse(text, "m/config.pbtxt")
    return refused.value


def test_message_shows_the_place_the_line_and_a_mark() -> None:
    error = refuse('backend: "python"\nmax_batch_sise: 4\n')
    assert error.line == "m/config.pbtxt:2"
    assert error.message == (
        'm/config.pbtxt:2:1: Message type "inference.ModelConfig" has no field named '
        '"max_batch_sise".\n'
        "    2 | max_batch_sise: 4\n"
        "      | ^"
    )
    assert error.remedy is not None
    assert error.remedy.startswith("Did you mean `max_batch_size`?")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (IO.replace("dims", "dim"), "Did you mean `dims`?"),
        (IO.replace("FP32", "FLOAT"), "Did you mean `TYPE_FP32`?"),
        (IO.replace("FP32", "FP23"), "Did you mean `TYPE_FP32`?"),
        (IO.replace("TYPE_FP32", '"TYPE_FP32"'), "without quotes"),
        ("backend: python", 'Put the text in double quotes: "python".'),
        ('backend: "python', "Close the quote"),
        ('backend "python"', "Put a colon"),
        ("max_batch_size: 4.5", "Write a whole number"),
        ('max_batch_size: "4"', "Write a whole number"),
        ("max_batch_size: 4294967296", "does not fit"),
        ("max_batch_size: 4\nmax_batch_size: 8", "remove one"),
        (IO.replace("[ 1 ]", "[ 1, ]"), "without a comma after the last one"),
        (IO.replace("} ]", '} { name: "Z" } ]'), "Separate the elements"),
        ("dynamic_batching { }\nsequence_batching { }", "Only one of the two"),
        ('{ "backend": "python" }', "looks like JSON"),
        ("input [ {\n", "close every"),
    ],
)
def test_each_mistake_gets_its_remedy(text: str, remedy: str) -> None:
    assert remedy in (refuse(text).remedy or "")


def test_unclosed_bracket_is_shown_where_it_opens() -> None:
    error = refuse('input [\n  { name: "}" # }\n\n')
    assert error.message == (
        'm/config.pbtxt:2:3: `{` is never closed.\n    2 |   { name: "}" # }\n      |   ^'
    )


def test_mark_stands_under_the_word_behind_tabs() -> None:
    error = refuse("input [\n\t{ nane: 1 } ]")
    assert error.message.splitlines()[1:] == ["    2 |  { nane: 1 } ]", "      |    ^"]


def test_without_a_path_the_file_is_called_by_its_usual_name() -> None:
    with pytest.raises(ConfigError) as refused:
        contract.parse("nonsense: 1")
    assert refused.value.line == "config.pbtxt:1"
