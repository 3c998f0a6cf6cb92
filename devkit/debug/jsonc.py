"""JSON with comments and trailing commas, read with the place of every value, so that a part of it
can be replaced in the text and all the rest stays as its owner wrote it. Text in, text out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


class JsoncError(ValueError):
    """The text is no JSON, with comments or without; it says at which line."""


@dataclass(slots=True)
class Node:
    """A value: what it is, and where it begins and ends in the text.

    Attributes:
        members: of an object, the nodes by key; of an array there are `items`.
        after: end of the last comma or value inside, where something may be appended.
        comma: whether a comma follows the last value inside.
    """

    value: Any
    start: int
    end: int = 0
    members: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    after: int = 0
    comma: bool = False


def parse(text: str) -> Node:
    """The value that a text holds. Raises JsoncError."""
    reader = _Reader(text)
    found = reader.value(reader.blank(0))
    rest = reader.blank(found.end)
    if rest != len(text):
        raise reader.error(rest, "nothing may follow")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def error(self, at: int, what: str) -> JsoncError:
        line = self._text.count("\n", 0, at) + 1
        return JsoncError(f"line {line}: {what}")

    def blank(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        return found.end() if found is not None else at

    def value(self, at: int) -> Node:
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(at)
        if first == "[":
            return self._array(at)
        if first == '"':
            return self._string(at)
        found = _SCALAR.match(self._text, at)
        if found is None:
            raise self.error(at, "a value is missing")
        return Node(json.loads(found.group()), at, found.end())

    def _string(self, at: int) -> Node:
        found = _STRING.match(self._text, at)
        if found is None:
            raise self.error(at, "a text in quotes is missing, or has no end")
        try:
            return Node(json.loads(found.group()), at, found.end())
        except ValueError as problem:
            raise self.error(at, str(problem)) from None

    def _object(self, start: int) -> Node:
        node = Node({}, start, after=start + 1)
        at = self.blank(start + 1)
        while self._text[at : at + 1] != "}":
            key = self._string(at)
            at = self.blank(key.end)
            if self._text[at : at + 1] != ":":
                raise self.error(at, "a colon is missing")
            member = self.value(self.blank(at + 1))
            node.members[key.value] = member
            node.value[key.value] = member.value
            at = self._next(node, member, "}")
        node.end = at + 1
        return node

    def _array(self, start: int) -> Node:
        node = Node([], start, after=start + 1)
        at = self.blank(start + 1)
        while self._text[at : at + 1] != "]":
            item = self.value(at)
            node.items.append(item)
            node.value.append(item.value)
            at = self._next(node, item, "]")
        node.end = at + 1
        return node

    def _next(self, node: Node, inside: Node, closing: str) -> int:
        """Where the next value inside begins, or the closing bracket stands."""
        node.after, node.comma = inside.end, False
        at = self.blank(inside.end)
        if self._text[at : at + 1] == ",":
            node.after, node.comma = at + 1, True
            return self.blank(at + 1)
        if self._text[at : at + 1] != closing:
            raise self.error(at, f"a comma or {closing} is missing")
        return at


def replaced(text: str, node: Node, by: str) -> str:
    """The text with another one in the place of a value."""
    return text[: node.start] + by + text[node.end :]


def appended(text: str, node: Node, added: str, indent: str) -> str:
    """The text with one more value (or `key: value`) at the end of an array or object."""
    filled = bool(node.items or node.members)
    comma = "," if filled and not node.comma else ""
    # A comment behind the last value stays with it.
    line_end = text.find("\n", node.after, node.end)
    trailing = text[node.after : line_end] if line_end >= 0 else ""
    if trailing.strip().startswith("//") or (trailing and not trailing.strip()):
        head = text[: node.after] + comma + text[node.after : line_end]
        rest = text[line_end:]
    else:
        head, rest = text[: node.after] + comma, text[node.after :]
    if not rest[:1].isspace() or "\n" not in rest[: len(rest) - len(rest.lstrip())]:
        rest = "\n" + indent[:-4] + rest.lstrip(" \t")
    return f"{head}\n{indent}{added}{rest}"
