"""The widgets' own files: ES modules and a style sheet, written by hand and read from disk.

A widget's module reaches the page as one text, so the modules that it shares with others are put
before it. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "js"

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@functools.cache
def module(*names: str) -> str:
    """The modules as one, in this order: each after those it imports, the widget's own last."""
    parts = []
    for name in names:
        text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
        parts.append(_EXPORT.sub("", _IMPORT.sub("", text)))
    return "\n".join(parts)


@functools.cache
def style() -> str:
    """The style sheet; its colours are the theme's."""
    return (FOLDER / "style.css").read_text(encoding="utf-8")
