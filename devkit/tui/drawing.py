"""Charts and pictures out of characters. Pure: numbers in, lines out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract import inspection
from devkit.tui.words import BARS, Line, Numbers


def histogram(found: inspection.Histogram, width: int, height: int) -> list[Line]:
    """Upright bars, `height` lines high, the range written below."""
    counts = _resampled(found.counts, width)
    most = max(counts, default=0)
    lines: list[Line] = []
    for level in range(height, 0, -1):
        text = ""
        for count in counts:
            filled = count / most * height if most else 0
            part = min(8, max(0, round((filled - (level - 1)) * 8)))
            if count and level == 1:
                part = max(part, 1)
            text += BARS[part - 1] if part else " "
        top = f" {most}" if level == height else ""
        lines.append([(text, "second"), (top, "dim")])
    low, high = inspection.number(found.edges[0]), inspection.number(found.edges[-1])
    lines.append([(low + high.rjust(max(1, len(counts) - len(low))), "dim")])
    return lines


def _resampled(counts: Sequence[int], width: int) -> list[int]:
    """The counts in at most `width` bars, or each bar several cells wide."""
    if not counts:
        return []
    if len(counts) > width:
        edges = np.linspace(0, len(counts), width + 1).astype(int)
        return [int(sum(counts[a:b])) for a, b in pairwise(edges)]
    times = max(1, width // len(counts))
    return [count for count in counts for _ in range(times)]


def curve(found: inspection.Series, width: int, height: int) -> list[Line]:
    """A series as an area from its lowest value up; of each step the highest."""
    lows = [one for one in found.lowest if one is not None]
    highs = [one for one in found.highest if one is not None]
    if not lows or not highs:
        return [[("no finite value", "dim")]]
    low, high = min(lows), max(highs)
    levels = _levels(found.highest, width, low, high, height)
    labels = {0: inspection.number(high), height - 1: inspection.number(low)}
    return _area(levels, height, labels)


def chart(title: str, unit: str, values: Numbers, width: int, height: int) -> list[Line]:
    """A number over time, from zero up, the newest right; title and last value above."""
    room = width - 8
    shown = [one for one in values if one is not None]
    last = "-" if not values or values[-1] is None else f"{values[-1]:.3g} {unit}".strip()
    head: Line = [(title, "bold"), (f" {last}".rjust(room - len(title)), "accent"), (" " * 8, "")]
    high = max([*shown, 0.0]) or 1.0
    levels = _levels(values or [None], room, 0.0, high, height)
    lines = _area(levels, height, {0: f"{high:.3g}", height - 1: "0"} if shown else {})
    return [head, *([line[0], (f"{line[1][0]:<8}", "dim")] for line in lines)]


def _levels(values: Numbers, columns: int, low: float, high: float, height: int) -> list[int]:
    """How many eighths of a line each column is filled; the highest of the values it stands for."""
    levels = []
    count = len(values)
    for column in range(columns):
        first = column * count // columns
        part = values[first : max(first + 1, (column + 1) * count // columns)]
        there = [one for one in part if one is not None]
        share = (max(there) - low) / ((high - low) or 1.0) if there else 0.0
        levels.append(max(round(share * height * 8), int(share > 0)))
    return levels


def _area(levels: Sequence[int], height: int, labels: dict[int, str]) -> list[Line]:
    lines: list[Line] = []
    for row in range(height):
        under = (height - 1 - row) * 8
        cells = (min(8, max(0, level - under)) for level in levels)
        text = "".join(BARS[cell - 1] if cell else " " for cell in cells)
        label = labels.get(row, "")
        lines.append([(text, "second"), (f" {label}" if label else "", "dim")])
    return lines


def half_blocks(pixels: npt.NDArray[np.uint8], width: int, height: int) -> list[Line]:
    """A picture of at most `width` × `height` cells, two pixels in each."""
    rows, columns, channels = pixels.shape
    if channels == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    elif channels == 4:
        alpha = pixels[:, :, 3:].astype(np.float32) / 255
        pixels = (pixels[:, :, :3] * alpha).astype(np.uint8)
    scale = max(columns / width, rows / (height * 2), 1 / 8)
    wide, high = max(1, round(columns / scale)), max(1, round(rows / scale))
    across = np.minimum((np.arange(wide) + 0.5) * columns / wide, columns - 1).astype(int)
    down = np.minimum((np.arange(high) + 0.5) * rows / high, rows - 1).astype(int)
    shown = pixels[down][:, across]
    if high % 2:
        shown = np.concatenate([shown, shown[-1:]])
    lines: list[Line] = []
    for top, bottom in zip(shown[0::2], shown[1::2], strict=True):
        lines.append([("▀", f"{_hex(a)}/{_hex(b)}") for a, b in zip(top, bottom, strict=True)])
    return lines


def _hex(pixel: Any) -> str:
    return f"#{int(pixel[0]):02x}{int(pixel[1]):02x}{int(pixel[2]):02x}"


def grid(found: inspection.Grid, width: int) -> list[Line]:
    """The upper left of a table, its columns right-aligned."""
    cells = [list(row) for row in found.cells]
    if not cells:
        return []
    wide = [max(len(row[n]) for row in cells if n < len(row)) for n in range(len(cells[0]))]
    lines: list[Line] = []
    for number, row in enumerate(cells):
        line: Line = [(f"{number:>3} ", "dim")]
        room = width - 4
        for text, size in zip(row, wide, strict=False):
            if size + 1 > room:
                line.append(("…", "dim"))
                break
            line.append((text.rjust(size) + " ", ""))
            room -= size + 1
        lines.append(line)
    lines.append([(f"{found.rows} rows × {found.columns} columns", "dim")])
    return lines
