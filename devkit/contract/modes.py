"""Which ways of running and calling models go together, and since which release of Triton.

One table. A model is default or decoupled, its `execute` a function or a coroutine function; it
calls other models (BLS) in one of four ways, and those are default or decoupled themselves, or the
caller itself with no instance to spare. Loading takes its notes from here, running its warnings,
the README its table (`python -m devkit.contract.modes`), and the parity tests a case for each
combination. How a call is made is the stub's business, finding circles the runtime's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

MODES = ("default", "decoupled")
EXECUTES = ("sync", "async")
CALLS = ("none", "exec", "async_exec", "exec(decoupled=True)", "async_exec(decoupled=True)")
CALLEES = ("default", "decoupled", "itself")
OUTCOMES = ("works", "serial", "refused", "hangs")

_PLAIN = ("exec", "async_exec")
_BLOCKING = ("exec", "exec(decoupled=True)")
_AWAITED = ("async_exec", "async_exec(decoupled=True)")
_OTHERS = ("default", "decoupled")
_README = "python_backend README"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what it is about, and what happens then.

    Attributes:
        modes, executes, calls, callees: the combinations it covers.
        outcome: `works` (the instance takes more requests meanwhile), `serial` (it works, and the
            instance takes the next batch when this one is over), `refused`, or `hangs`.
        since: release that brought it, "" where it is older than what anybody still runs.
        source: where that is said; every line was also seen on tritonserver 2.51 (24.10).
        words: what to know, in a sentence.
    """

    modes: tuple[str, ...]
    executes: tuple[str, ...]
    calls: tuple[str, ...]
    callees: tuple[str, ...]
    outcome: str
    since: str
    source: str
    words: str


# The first line that covers a combination counts.
TABLE = (
    Row(
        MODES, ("sync",), ("none",), (), "serial", "", _README,
        "Batches run one after the other; more at once need more instances, or (decoupled) threads "
        "that send after `execute` has returned.",
    ),
    Row(
        ("default",), ("async",), ("none",), (), "serial", "", "server issue 7888",
        "The coroutine runs to its end before the instance takes the next batch: it overlaps the "
        "calls of one batch, never two batches.",
    ),
    Row(
        ("decoupled",), ("async",), ("none",), (), "works", "24.04",
        f"{_README}, pull request 350",
        "Coroutines share one event loop: the next request starts while this one awaits. Nothing "
        "limits how many run at once.",
    ),
    Row(
        MODES, EXECUTES, _PLAIN, ("decoupled",), "refused", "23.03", _README,
        "A decoupled model is called with `decoupled=True`; without it the response is an error.",
    ),
    Row(
        ("decoupled",), EXECUTES, _PLAIN, ("itself",), "refused", "23.03", _README,
        "So is a decoupled model's call to itself.",
    ),
    Row(
        ("decoupled",), ("async",), _AWAITED, (*_OTHERS, "itself"), "works", "24.04",
        f"{_README}, pull requests 157 and 350",
        "Other requests run while the call is awaited; refused before 24.04. Iterating over the "
        "responses of `decoupled=True` blocks the event loop until the next one is there.",
    ),
    Row(
        MODES, EXECUTES, CALLS[1:], ("itself",), "hangs", "21.08", f"{_README}, Limitation",
        "A call to the own model, directly or in a circle, with no instance free is never served. "
        "devkit warns, and fails the call after `--bls-circle-grace-secs`.",
    ),
    Row(
        ("decoupled",), ("async",), _BLOCKING, _OTHERS, "serial", "24.04", _README,
        "A blocking call in a coroutine stops the event loop that all requests of the instance "
        "share: await `async_exec` instead.",
    ),
    Row(
        MODES, ("sync",), ("exec",), ("default",), "serial", "21.08", _README,
        "The call blocks, and with it the instance.",
    ),
    Row(
        ("default",), ("async",), ("exec",), ("default",), "serial", "21.08", _README,
        "The call blocks; calls that are to overlap are made with `async_exec`.",
    ),
    Row(
        MODES, EXECUTES, ("async_exec",), ("default",), "serial", "", _README,
        "Calls of one batch overlap (`asyncio.gather`); the next batch waits for all of them. In "
        "a plain `execute` it needs `asyncio.run`.",
    ),
    Row(
        MODES, EXECUTES, CALLS[3:], _OTHERS, "serial", "23.03", _README,
        "An iterator of responses, the last of a decoupled model's empty; a default model gives "
        "one.",
    ),
)  # fmt: skip


def combinations() -> Iterator[tuple[str, str, str, str]]:
    """Every mode, execute, call and callee there is; the callee is "" where none is called."""
    for mode, execute, call in product(MODES, EXECUTES, CALLS):
        for callee in CALLEES if call != "none" else ("",):
            yield mode, execute, call, callee


def find(mode: str, execute: str, call: str = "none", callee: str = "") -> Row:
    """The line for a combination. KeyError: there is no such combination."""
    for row in TABLE:
        if (
            mode in row.modes
            and execute in row.executes
            and call in row.calls
            and (callee in row.callees or not callee)
        ):
            return row
    raise KeyError((mode, execute, call, callee))


def call_name(asynchronous: bool, decoupled: bool) -> str:
    """The call as the table names it."""
    return ("async_exec" if asynchronous else "exec") + ("(decoupled=True)" if decoupled else "")


def mode_name(decoupled: bool) -> str:
    """The mode as the table names it."""
    return "decoupled" if decoupled else "default"


def note(decoupled: bool, asynchronous: bool) -> str:
    """What to say when a model loads; "" where there is nothing to know."""
    if not asynchronous:
        return ""
    row = find(mode_name(decoupled), "async")
    since = f" (since {row.since})" if row.since else ""
    return f"async execute in {mode_name(decoupled)} mode{since}: {row.words}"


def markdown() -> str:
    """The table for the README."""
    lines = ["| mode | execute | call | callee | | since | |", "| " + "--- | " * 7]
    lines[1] = lines[1].rstrip()
    for row in TABLE:
        calls = "any call" if row.calls == CALLS[1:] else " ".join(f"`{c}`" for c in row.calls)
        cells = (
            _any(row.modes, MODES), _any(row.executes, EXECUTES),
            "" if row.calls == ("none",) else calls, _any(row.callees, CALLEES),
            f"**{row.outcome}**", row.since, f"{row.words} ({row.source})",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def _any(chosen: tuple[str, ...], of: tuple[str, ...]) -> str:
    return "any" if chosen == of else ", ".join(chosen)


if __name__ == "__main__":
    print(markdown(), end="")
