"""Numbers and lines as the terminal workbench writes them. Pure; knows no widget."""

from __future__ import annotations

import time
from collections.abc import Sequence

MINUTE = 60
BARS = "▁▂▃▄▅▆▇█"

Run = tuple[str, str]
"""A piece of text and its tones, separated by spaces (`good bold`); see `themes.TONES`."""

Line = list[Run]
"""One line of the screen."""

Numbers = Sequence[float | None]


def size(count: int) -> str:
    """Bytes, short enough for a column: `12.3 MiB`; `-` where unknown."""
    if count < 0:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def seconds(value: float) -> str:
    """A duration: `38 µs`, `3.1 ms`, `1.4 s`, `4 min`, `3 h 20 min`."""
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{value * 1e3:.1f} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"
    if value < 100:
        return f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def minutes(value: float) -> str:
    """How long something has run, in steps that seldom change: `3 min`, `2 h 5 min`."""
    whole = max(0, int(value // 60))
    if whole >= 60:
        return f"{whole // 60} h {whole % 60} min"
    return f"{whole} min" if whole else "under a minute"


def number(value: float | None) -> str:
    """A rate or a count; `-` where there is none."""
    if value is None:
        return "-"
    if value >= 10_000:
        return f"{value / 1000:.1f}k"
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


def milliseconds(value: float | None) -> str:
    """A time given in milliseconds."""
    return "-" if value is None else seconds(value / 1000)


def clock(moment: float) -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def bars(values: Numbers, width: int, most: float = 0.0) -> str:
    """The last minute (a value a second) as small bars, the newest right; blank for nothing."""
    step = max(1, MINUTE // width)
    last = [one or 0.0 for one in values[-step * width :]]
    ends = range(len(last), 0, -step)
    shown = [sum(part := last[max(0, end - step) : end]) / len(part) for end in ends][::-1]
    most = max([most, *shown], default=0.0)
    if not most:
        return " " * width
    text = "".join(BARS[min(round(one / most * 7), 7)] if one else " " for one in shown)
    return text.rjust(width)


def meter(share: float, width: int) -> str:
    """How much of something is used: `██████▌···`."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    part = " ▏▎▍▌▋▊▉"[rest] if rest else ""
    return ("█" * full + part).ljust(width, "·")


def shape(extents: Sequence[int]) -> str:
    """A tensor's shape: `[3, 224, 224]`."""
    return "[" + ", ".join(map(str, extents)) + "]"


def cut(text: str, width: int) -> str:
    """The text, or its beginning and `…`."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def tail(text: str, width: int) -> str:
    """The text, or `…` and its end: for paths."""
    return text if len(text) <= width else "…" + text[len(text) - max(width - 1, 0) :]


def plural(count: int, word: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def state_mark(state: str) -> Run:
    """A state as a sign that needs no colour, and its tone."""
    return _MARKS.get(state, ("○", "dim"))


_MARKS: dict[str, Run] = {
    "READY": ("●", "good"), "ready": ("●", "good"), "busy": ("◆", "good"),
    "running": ("●", "good"), "LOADING": ("◌", "warn"), "UNLOADING": ("◌", "warn"),
    "starting": ("◌", "warn"), "restarting": ("◌", "warn"), "attaching": ("◌", "warn"),
    "waiting": ("◌", "warn"), "debugging": ("■", "accent"), "stopped": ("■", "accent"),
    "UNAVAILABLE": ("✖", "bad"), "dead": ("✖", "bad"), "ended": ("○", "dim"),
}  # fmt: skip
