"""The sequence batcher: slots, backlog, controls, ids, idle sequences, and what it refuses.

Every request is answered with the batch it was in, so the answers alone tell what was scheduled.
"""

from __future__ import annotations

from typing import Any

from tests.parity.asking import Case, Http, Pause, Together, given, infer, replacing
from tests.support.sequences import SEQUENCES

SINGLE = {model.name for model in SEQUENCES if "max_batch_size: 0" in (model.config or "")}


def part(model: str, id: str, sequence: Any = None, flags: str = "", batch: int = 1) -> Http:
    """One request: S in `flags` starts the sequence, E ends it."""
    shape = [1] if model in SINGLE else [batch, 1]
    parameters: dict[str, Any] = {} if sequence is None else {"sequence_id": sequence}
    if "S" in flags:
        parameters["sequence_start"] = True
    if "E" in flags:
        parameters["sequence_end"] = True
    data = [1.0] * (1 if model in SINGLE else batch)
    return infer(model, [given("X", "FP32", shape, data)], id=id, parameters=parameters)


def parts(model: str, *requests: tuple[Any, ...], gap: float = 0.06) -> Together:
    """Several requests, each a little after the one before; (id, sequence, flags)."""
    return Together(tuple(part(model, *each) for each in requests), gap)


# Which instance is the first to be free is chance on the real server.
either = replacing((r"direct_pair_0_[01]", "direct_pair_0_N"))


def case(name: str, *asked: Any) -> Case:
    return Case(
        f"sequence: {name}",
        asked,
        "4",
        setup="sequences",
        issue=3,
        blur=either,
    )


CASES = [
    case(
        "three slots",
        parts("direct", ("a", 1, "S"), ("b", 2, "S"), ("c", 3, "S")),
        parts("direct", ("d", 3, ""), ("e", 2, ""), ("f", 1, "")),
        parts("direct", ("g", 1, "E"), ("h", 2, "E"), ("i", 3, "E")),
    ),
    case(
        "the fourth waits for a slot",
        parts("direct", ("a", 1, "S"), ("b", 2, "S"), ("c", 3, "S")),
        parts("direct", ("d", 4, "S"), ("e", 1, "E")),
        parts("direct", ("f", 4, "E"), ("g", 2, "E"), ("h", 3, "E")),
    ),
    case(
        "two instances",
        parts("direct_pair", *((f"s{number}", number, "S") for number in range(1, 6)), ("x", 1, "E")),
        parts("direct_pair", *((f"e{number}", number, "E") for number in range(2, 6))),
    ),
    case(
        "started twice",
        *(part("direct", *each) for each in (("a", 1, "S"), ("b", 1, "S"), ("c", 1), ("d", 1, "E"))),
        part("direct", "e", 1),
    ),
    case("not started", part("direct", "a", 1), part("direct", "b", 1, "E")),
    case("no id", part("direct", "a"), part("direct", "b", 0, "SE"), part("direct", "c", "", "SE")),
    case("a text id", part("direct", "a", "abc", "SE")),
    case("batch of two", part("direct", "a", 1, "SE", 2), part("oldest", "b", 1, "SE", 2)),
    case("batch too large", part("direct", "a", 1, "SE", 9)),
    case(
        "ids as text",
        *(part("text_ids", *each) for each in (("a", "abc", "SE"), ("b", 7, "SE"))),
        part("text_ids", "c", "x" * 128, "SE"),
        part("text_ids", "d", "x" * 129, "SE"),
    ),
    case(
        "ids as UINT32",
        part("small_ids", "a", 5, "SE"),
        part("small_ids", "b", 2**33 + 1, "SE"),
        part("small_ids", "c", "abc", "SE"),
    ),
    case("ids as INT32", part("signed_ids", "a", 2**31 + 5, "SE"), part("signed_ids", "b", 7, "SE")),
    case(
        "no controls",
        parts("no_controls", ("a", 1, "S"), ("b", 2, "S"), ("c", 2, "E"), ("d", 1, "E"), gap=0.2),
    ),
    case(
        "one slot, the rest waits",
        parts("alone", ("a", 1, "S"), ("b", 2, "S"), ("c", 3, "S"), ("d", 2, "E"), ("e", 1, "E"), ("f", 3, "E")),
    ),
    case(
        "restarted while it waits",
        parts("alone", ("a", 1, "S"), ("b", 2, "S"), ("c", 2, "S"), ("d", 2, "E"), ("e", 1, "E")),
    ),
    case("idle", part("short", "a", 1, "S"), Pause(2.0), part("short", "b", 1)),
    case(
        "an idle one gives its slot up",
        parts("short", ("a", 1, "S"), ("b", 2, "SE")),
    ),
    case(
        "oldest",
        parts("oldest", ("a", 1, "S"), ("b", 2, "S")),
        parts("oldest", ("c", 2, "E"), ("d", 3, "SE"), ("e", 1, "E"), gap=0.25),
    ),
    case(
        "oldest waits for a batch",
        parts("oldest_waits", ("a", 1, "S"), ("b", 2, "S")),
        part("oldest_waits", "c", 1, "E"),
        part("oldest_waits", "d", 2, "E"),
    ),
    case("direct waits for slots", part("waits", "a", 1, "S"), parts("waits", ("b", 2, "SE"), ("c", 1, "E"))),
]  # fmt: skip
