"""Which part of a tensor is looked at when the whole would take too long: evenly spaced runs.

Runs and not single values, because a fixed step would see one column of a table only; at places
that depend on nothing but the size, so that two tensors of one size are sampled alike. Standard
library only, Python 3.9+.
"""

from __future__ import annotations

from typing import List, Tuple

RUNS = 256


def runs(count: int, limit: int) -> List[Tuple[int, int]]:
    """(start, stop) of the runs that hold at most `limit` of `count` values; one run if all do.

    The first and the last value are always among them.
    """
    if count <= limit:
        return [(0, count)]
    pieces = max(1, min(RUNS, limit // 16))
    length = max(1, limit // pieces)
    last = count - length
    starts = [last * number // max(1, pieces - 1) for number in range(pieces)]
    return [(start, start + length) for start in starts]
