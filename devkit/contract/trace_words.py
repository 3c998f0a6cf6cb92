"""Where the time of a request went, in words: what a person reads first of a trace.

Numbers come from the trace alone. Why a request waited is told from what stood in its way when it
came. Pure, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence

from devkit.contract.tracing import OwnSpan, Trace, families, phases

_SHOWN = 5
_WORTH_NAMING = 0.05
"""A phase below this share of the whole is left out of a request's sentence."""


def duration(ns: float) -> str:
    """Nanoseconds for people: `38 µs`, `3.1 ms`, `1.42 s`."""
    if ns < 999_500:
        return f"{ns / 1e3:.0f} µs"
    if ns < 999_500_000:
        return f"{ns / 1e6:.1f} ms" if ns < 99_950_000 else f"{ns / 1e6:.0f} ms"
    return f"{ns / 1e9:.2f} s"


def why_waited(trace: Trace) -> str:
    """What a request waited for in the queue; empty where nothing is known."""
    if not trace.instances:
        return ""
    if trace.busy >= trace.instances:
        who = (
            "the only instance was busy"
            if trace.instances == 1
            else f"all {trace.instances} instances were busy"
        )
        if trace.waiting:
            others = "another" if trace.waiting == 1 else f"{trace.waiting} others"
            who += f", {others} waited before it"
        return who
    if trace.delay:
        return f"the batcher waits up to {duration(trace.delay * 1e3)} for a fuller batch"
    return ""


def request_words(trace: Trace, caused: Sequence[Trace] = ()) -> str:
    """One request in a sentence; `caused` are the requests it caused itself."""
    whole = max(trace.end - trace.start, 1)
    parts = []
    for name, start, end in phases(trace):
        within = _within(trace, caused, name)
        taken = end - start
        if name not in ("infer", "stream") and taken < whole * _WORTH_NAMING:
            continue
        note = why_waited(trace) if name == "queue" else within
        parts.append(f"{name} {duration(taken)}" + (f" ({note})" if note else ""))
    if not trace.pid and caused:
        parts += [_named(one) for one in caused]
    told = f"{trace.model}{f' {trace.request_id}' if trace.request_id else ''}: {duration(whole)}"
    if parts:
        told += ": " + ", ".join(parts)
    if trace.batch_size > 1:
        told += f"; one of {trace.batch_size} requests of a batch"
    if trace.error:
        told += f"; failed: {trace.error.splitlines()[0]}"
    return told


def _within(trace: Trace, caused: Sequence[Trace], phase: str) -> str:
    """What the model was busy with: the outermost of its own spans, and calls of other models."""
    if phase not in ("infer", "stream"):
        return ""

    def here(at: int) -> bool:
        return (at < trace.compute_output_start) == (phase == "infer")

    parts: dict[str, list[int]] = {}
    for own in outermost(trace.spans):
        if here(own.start):
            parts.setdefault(own.name, []).append(own.end - own.start)
    calls: dict[str, list[int]] = {}
    for one in caused:
        if here(one.start):
            calls.setdefault(f"call of {one.model}", []).append(one.end - one.start)
    return ", ".join(_counted(name, times) for name, times in (*parts.items(), *calls.items()))


def outermost(spans: Sequence[OwnSpan]) -> list[OwnSpan]:
    """Those that lie in no other of the same thread."""
    found: list[OwnSpan] = []
    last: dict[int, OwnSpan] = {}
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        above = last.get(span.thread)
        if above is None or span.start >= above.end:
            found.append(span)
            last[span.thread] = span
    return found


def _counted(name: str, times: Sequence[int]) -> str:
    text = f"{name} {duration(sum(times))}"
    return text if len(times) == 1 else f"{text} in {len(times)}"


def _named(trace: Trace) -> str:
    return f"{trace.model} {duration(trace.end - trace.start)}"


def summary(traces: Sequence[Trace]) -> str:
    """Several requests: where the time went on average, then the slowest ones one by one."""
    groups = families(traces)
    if not groups:
        return "no request was traced"
    lines = []
    if len(groups) > 1:
        lines.append(_average([group[0] for group in groups]))
    slowest = sorted(groups, key=lambda group: group[0].start - group[0].end)
    if len(groups) > _SHOWN:
        lines.append(f"the {_SHOWN} slowest:")
    for group in slowest[:_SHOWN]:
        lines += _told(group)
    return "\n".join(lines)


def _told(group: Sequence[Trace]) -> list[str]:
    """A request and what it caused, indented by depth."""
    depth = {group[0].id: 0}
    lines = []
    for one in group:
        level = depth.setdefault(one.id, depth.get(one.parent, -1) + 1)
        caused = [other for other in group if other.parent == one.id]
        lines.append("  " * level + request_words(one, caused))
    return lines


def _average(roots: Sequence[Trace]) -> str:
    count = len(roots)
    sums: dict[str, int] = {}
    for one in roots:
        for name, start, end in phases(one):
            sums[name] = sums.get(name, 0) + end - start
    ends = sorted(one.end - one.start for one in roots)
    whole = sum(ends)
    parts = [f"{name} {duration(total / count)}" for name, total in sums.items()]
    failed = sum(bool(one.error) for one in roots)
    text = (
        f"{count} requests, {duration(whole / count)} on average "
        f"({duration(ends[0])} to {duration(ends[-1])}): {', '.join(parts)}"
    )
    return text + (f"; {failed} failed" if failed else "")
