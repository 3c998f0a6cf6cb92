"""`config.pbtxt` read: text to `ModelConfig`, and what to do about text that is not one.

The grammar is protobuf's own text format; here its errors get the place, the line and a remedy.
Whether the configuration makes sense is `completion`'s affair.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pool, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from devkit.errors import ConfigError

# "2:32 : 'the whole line': the complaint"; the line is shown apart, so it goes.
_PLACE = re.compile(r"^\d+:\d+ : (?:'.*': )?", re.DOTALL)
_NO_FIELD = re.compile(r'Message type "([\w.]+)" (?:has no field named|should not have) "([^"]+)"')
_NO_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named ("?)(\w+)')


def parse(text: str, path: str = "") -> Any:
    """`ModelConfig` of the text of a `config.pbtxt`.

    Raises ConfigError, whose message shows `path`, line and column, the line itself and a mark
    under the place; `line` is `path:line`, and `remedy` says what to write instead.
    """
    config = ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise _explained(error, text, path or "config.pbtxt") from None
    return config


def _explained(error: text_format.ParseError, text: str, path: str) -> ConfigError:
    number, column = error.GetLine() or 1, error.GetColumn() or 1
    what = _PLACE.sub("", str(error)).strip()
    opened = _unclosed(text)
    if opened and what.startswith("Expected") and _at_end(text, number):
        number, column, bracket = opened
        what = f"`{bracket}` is never closed."
    lines = text.splitlines() or [""]
    number = min(number, len(lines))
    line = lines[number - 1].expandtabs(1)
    column = min(column, len(line) + 1)
    shown = f"{number:>5} | {line}\n      | {' ' * (column - 1)}^"
    return ConfigError(
        f"{path}:{number}:{column}: {what}\n{shown}",
        line=f"{path}:{number}",
        remedy=_remedy(what, text, line[column - 1 :]),
    )


def _remedy(what: str, text: str, rest: str) -> str:
    """What to do next, from the parser's complaint and the text at the place it means."""
    if found := _NO_FIELD.search(what):
        return _suggest_field(*found.groups())
    if found := _NO_VALUE.search(what):
        return _suggest_value(*found.groups())
    if "never closed" in what:
        return "The text ends too early: close every `{` with `}` and every `[` with `]`."
    if text.lstrip().startswith("{"):
        return (
            "This looks like JSON. config.pbtxt is protobuf text: `name: value` lines, no quotes "
            "around field names, no outer braces."
        )
    if "specified along with" in what:
        return "Only one of the two may be given: remove the other."
    if "multiple times" in what or "should not have multiple" in what:
        return "The field takes one value: remove one of the lines."
    return _suggest_syntax(what, rest)


def _suggest_field(message: str, field: str) -> str:
    descriptor = descriptor_pool.Default().FindMessageTypeByName(message)
    names = [known.name for known in descriptor.fields]
    return f"{_did_you_mean(field, names)}{message.split('.')[-1]} has: {', '.join(names)}."


def _suggest_value(enum: str, quote: str, value: str) -> str:
    names = list(descriptor_pool.Default().FindEnumTypeByName(enum).values_by_name)
    if quote and value in names:
        return f"Write {value} without quotes."
    aliases = {"TYPE_FLOAT": "TYPE_FP32", "TYPE_DOUBLE": "TYPE_FP64", "TYPE_BYTES": "TYPE_STRING"}
    hint = f"Did you mean `{aliases[value]}`? " if value in aliases else ""
    return f"{hint or _did_you_mean(value, names)}Use one of {', '.join(names)}."


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"Did you mean `{close[0]}`? " if close else ""


def _suggest_syntax(what: str, rest: str) -> str:
    word = re.match(r"[A-Za-z_][\w.]*", rest)
    if "string" in what.lower():
        if word:
            return f'Put the text in double quotes: "{word[0]}".'
        return "Close the quote on the same line, and put text in double quotes."
    if "integer" in what.lower():
        return "Write a whole number here, without quotes and without a comma after the last one."
    if "out of range" in what:
        return "The number does not fit the field: most take 32 bits, dims and times 64."
    if 'Expected ":"' in what or "Expected ':'" in what:
        return "Put a colon between the field's name and its value."
    if rest.startswith("{"):
        return "Separate the elements of a list with commas: `[ { ... }, { ... } ]`."
    return "See the field's form in Triton's model configuration reference; each `{` needs its `}`."


_TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\#[^\n]*|[\[\]{}<>]')


def _unclosed(text: str) -> tuple[int, int, str] | None:
    """Line, column and sign of the innermost bracket that nothing closes."""
    opened: list[re.Match[str]] = []
    for token in _TOKENS.finditer(text):
        if token[0] in "[{<":
            opened.append(token)
        elif token[0] in "]}>" and opened:
            opened.pop()
    if not opened:
        return None
    before = text[: opened[-1].start()]
    return before.count("\n") + 1, len(before) - before.rfind("\n"), opened[-1][0]


def _at_end(text: str, line: int) -> bool:
    """Whether only blank lines and comments follow `line`."""
    rest = (each.strip() for each in text.splitlines()[line:])
    return not any(each and not each.startswith("#") for each in rest)
