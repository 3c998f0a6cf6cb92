"""The colours of the workbench, dark and light, and what each tone of a text looks like in them.

Where `NO_COLOR` is set Textual leaves the colours out; signs and weights say the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

DARK = Theme(
    name="devkit-dark",
    primary="#5fb3a1",
    secondary="#82aaff",
    accent="#ffb86b",
    warning="#e6c07b",
    error="#f2777a",
    success="#8fc97c",
    foreground="#d3d7de",
    background="#15181d",
    surface="#1b1f26",
    panel="#262c35",
    dark=True,
    variables={
        "footer-key-foreground": "#ffb86b",
        "input-selection-background": "#82aaff 35%",
        "dim": "#7b8594",
        "cursor-line": "#2c4a52",
        "rest-line": "#252b34",
        "chosen": "#ffb86b",
        "chosen-text": "#15181d",
        "bar-request": "#3c4656",
        "bar-phase": "#56657c",
        "bar-queue": "#8a6f3d",
        "bar-infer": "#3f7f73",
        "bar-execute": "#3f6fae",
        "bar-own": "#7d5aa6",
        "bar-text": "#f1f3f6",
        "code-keyword": "#c792ea",
        "code-string": "#a5d6a7",
        "code-number": "#f0a45d",
        "code-definition": "#82aaff",
    },
)

LIGHT = Theme(
    name="devkit-light",
    primary="#0f766e",
    secondary="#2f55c4",
    accent="#b45309",
    warning="#946200",
    error="#c02d3c",
    success="#2f7d32",
    foreground="#24292f",
    background="#fcfbf8",
    surface="#f4f2ec",
    panel="#e7e4db",
    dark=False,
    variables={
        "footer-key-foreground": "#b45309",
        "input-selection-background": "#2f55c4 25%",
        "dim": "#767c85",
        "cursor-line": "#cfe5e1",
        "rest-line": "#ebe8df",
        "chosen": "#b45309",
        "chosen-text": "#ffffff",
        "bar-request": "#d5d9e0",
        "bar-phase": "#bcc5d3",
        "bar-queue": "#ecd39b",
        "bar-infer": "#a5d5cb",
        "bar-execute": "#b3cdf3",
        "bar-own": "#d8c2ee",
        "bar-text": "#1d2228",
        "code-keyword": "#8e3fb0",
        "code-string": "#2f7d32",
        "code-number": "#b45309",
        "code-definition": "#2f55c4",
    },
)

THEMES = {"dark": DARK, "light": LIGHT}

TONES: dict[str, tuple[str, str, str]] = {
    "dim": ("dim", "", ""),
    "good": ("success", "", ""),
    "bad": ("error", "", ""),
    "warn": ("warning", "", ""),
    "accent": ("accent", "", ""),
    "second": ("secondary", "", ""),
    "bold": ("", "", "bold"),
    "head": ("dim", "", "bold"),
    "cursor": ("", "cursor-line", "bold"),
    "rest": ("", "rest-line", ""),
    "mark": ("background", "primary", "bold"),
    "here": ("chosen-text", "chosen", "bold"),
    "found": ("background", "warning", ""),
    "bar-request": ("bar-text", "bar-request", ""),
    "bar-phase": ("bar-text", "bar-phase", ""),
    "bar-queue": ("bar-text", "bar-queue", ""),
    "bar-infer": ("bar-text", "bar-infer", ""),
    "bar-execute": ("bar-text", "bar-execute", ""),
    "bar-own": ("bar-text", "bar-own", ""),
    "bar-chosen": ("chosen-text", "chosen", "bold"),
    "keyword": ("code-keyword", "", ""),
    "string": ("code-string", "", ""),
    "number": ("code-number", "", ""),
    "comment": ("dim", "", "italic"),
    "definition": ("code-definition", "", "bold"),
}
"""What a piece of text can be: the colours before and behind it by their names, and its weight."""


def style(tone: str, colours: Mapping[str, str]) -> Style:
    """How a tone looks; `#rrggbb` and `#rrggbb/#rrggbb` (of a picture) stand for themselves."""
    if tone.startswith("#"):
        front, _, back = tone.partition("/")
        return Style(color=front, bgcolor=back or None)
    front, back, weight = TONES[tone]
    return Style(
        color=colours[front] if front else None,
        bgcolor=colours[back] if back else None,
        bold="bold" in weight or None,
        italic="italic" in weight or None,
    )
