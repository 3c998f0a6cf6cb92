"""Reads the spans back from a file of traces: Chrome's form, and OpenTelemetry's JSON.

Pure, text in. Times are nanoseconds since whatever the file counts from. What `trace_forms` wrote
comes back as it was; other programs' files in these forms do, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from devkit.contract.tracing import Span
from devkit.errors import DevkitError


class TraceFileError(DevkitError):
    """A file that holds no spans; write one with `devkit trace --out FILE`."""


def read(text: str) -> list[Span]:
    """The spans of a file, ordered by start."""
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise _unknown(f"it is no JSON: {problem}") from problem
    events = found.get("traceEvents") if isinstance(found, dict) else found
    try:
        if isinstance(found, dict) and "resourceSpans" in found:
            spans = list(_otlp(found["resourceSpans"]))
        elif isinstance(events, list) and any("ph" in one for one in events):
            spans = list(_chrome(events))
        elif isinstance(events, list) and any("timestamps" in one for one in events):
            raise _unknown("it is in Triton's form, which says nothing of processes")
        else:
            raise _unknown("it has neither traceEvents nor resourceSpans")
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise _unknown(f"{type(problem).__name__}: {problem}") from problem
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _unknown(why: str) -> TraceFileError:
    return TraceFileError(
        f"the spans of this file cannot be read: {why}",
        remedy="write one with `devkit trace --out FILE`, without a --format or with `otlp`",
    )


def _chrome(events: Iterable[dict[str, Any]]) -> Iterator[Span]:
    processes: dict[Any, str] = {}
    lanes: dict[tuple[Any, Any], str] = {}
    complete = []
    for one in events:
        if one.get("ph") == "M" and one["name"] == "process_name":
            processes[one["pid"]] = one["args"]["name"].removesuffix(f" (pid {one['pid']})")
        elif one.get("ph") == "M" and one["name"] == "thread_name":
            lanes[one["pid"], one["tid"]] = one["args"]["name"]
        elif one.get("ph") == "X":
            complete.append(one)
    for one in complete:
        pid, lane = one.get("pid", 0), one.get("tid", 0)
        about = dict(one.get("args", {}))
        trace = about.pop("trace", 0)
        start = round(one["ts"] * 1e3)
        yield Span(
            one["name"], one.get("cat", ""), start, start + round(one.get("dur", 0) * 1e3),
            int(pid), processes.get(pid, f"process {pid}"), int(lane),
            lanes.get((pid, lane), f"thread {lane}"), int(trace), 0, about,
        )  # fmt: skip


def _otlp(resources: Iterable[dict[str, Any]]) -> Iterator[Span]:
    for resource in resources:
        about = _attributes(resource.get("resource", {}))
        pid = int(about.get("process.pid", 0))
        process = str(about.get("service.instance.id") or about.get("service.name") or "process")
        spans = [one for scope in resource["scopeSpans"] for one in scope["spans"]]
        lanes = _lanes(spans)
        for one in spans:
            known = _attributes(one)
            lane = lanes[one["traceId"]]
            yield Span(
                one["name"], "", int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"]),
                pid, process, lane, f"requests {lane + 1}",
                int(known.pop("triton.trace_id", 0)), 0, known,
            )  # fmt: skip


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for one in holder.get("attributes", ()):
        ((kind, value),) = one["value"].items()
        found[one["key"]] = int(value) if kind == "intValue" else value
    return found


def _lanes(spans: Iterable[dict[str, Any]]) -> dict[str, int]:
    """A lane for each trace, such that those of one lane never overlap."""
    extents: dict[str, tuple[int, int]] = {}
    for one in spans:
        start, end = int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"])
        first, last = extents.get(one["traceId"], (start, end))
        extents[one["traceId"]] = (min(first, start), max(last, end))
    free: list[int] = []
    found = {}
    for trace, (start, end) in sorted(extents.items(), key=lambda item: item[1]):
        lane = next((index for index, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        found[trace] = lane
    return found
