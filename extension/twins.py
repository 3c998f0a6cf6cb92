"""Writes `src/messages.ts`: the control API's messages as TypeScript, from the Python dataclasses.

`python extension/twins.py` writes the file; a test of devkit compares it with what this would
write, so that the two sides of the seam cannot drift apart. Comments come along.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from pathlib import Path
from typing import Any, Union

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).parent / "src" / "messages.ts"
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", Any: "any"}


def written() -> str:
    """The whole file."""
    from devkit.contract import differences, inspection, tracing
    from devkit.control import findings, messages

    names: dict[type, str] = {}
    for module in (messages, tracing, inspection, differences, findings):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in names:
                taken = f"I{name}" in names.values()
                prefix = module.__name__.rpartition(".")[2].capitalize() if taken else ""
                names[kind] = f"I{prefix}{name}"
    parts = [
        "// Written by extension/twins.py from devkit/control/messages.py and its neighbours:",
        "// change those, then run it again. Everything is a frozen picture; nothing writes to it.",
        "",
        f"export const VERSION = {messages.VERSION};",
    ]
    parts += [_interface(kind, names) for kind in sorted(names, key=lambda one: names[one])]
    return "\n".join(parts) + "\n"


def _interface(kind: type, names: dict[type, str]) -> str:
    own = inspect.getdoc(kind) or ""
    text = own.partition("\n\nAttributes:")[0]
    lines = ["", "/**", *(f" * {line}".rstrip() for line in text.splitlines()), " */"]
    lines.append(f"export interface {names[kind]} {{")
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        lines.append(f"  readonly {field.name}: {_type(hints[field.name], names)};")
    return "\n".join([*lines, "}"])


def _type(hint: Any, names: dict[type, str]) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint is type(None):
        return "null"
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " | ".join(_type(each, names) for each in given)
    if origin is typing.Literal:
        return " | ".join(f"'{each}'" for each in given)
    if origin in (tuple, list) and (len(given) == 1 or given[-1] is Ellipsis):
        inner = _type(given[0], names)
        return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
    if origin is tuple:
        return "readonly [" + ", ".join(_type(each, names) for each in given) + "]"
    if origin is dict:
        return f"{{ readonly [key: string]: {_type(given[1], names)} }}"
    return names.get(hint, "any") if isinstance(hint, type) else "any"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    TARGET.write_text(written(), encoding="utf-8")
