"""Traces as files that other programs read: Triton's own, Chrome's, and OpenTelemetry's.

Triton's is a list of small objects in the order of the real server's, for its `trace_summary.py`.
Chrome's opens in Perfetto and speedscope. OTLP is the JSON that a collector takes by HTTP. Pure:
whoever calls writes or sends them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from devkit.contract.tracing import Span, Trace, TracedTensor, phases, timeline

_RECEIVE = {
    "HTTP": ("HTTP_RECV_START", "HTTP_RECV_END"),
    "GRPC": ("GRPC_WAITREAD_START", "GRPC_WAITREAD_END"),
}
_SEND = {
    "HTTP": ("HTTP_SEND_START", "HTTP_SEND_END"),
    "GRPC": ("GRPC_SEND_START", "GRPC_SEND_END"),
}
_COMPUTE = (
    ("COMPUTE_START", "compute_start"), ("COMPUTE_INPUT_END", "compute_input_end"),
    ("COMPUTE_OUTPUT_START", "compute_output_start"), ("COMPUTE_END", "compute_end"),
)  # fmt: skip

Stamp = tuple[str, str]
"""A timestamp's name, and the trace's field it is in."""


# --- Triton's -----------------------------------------------------------------------------------


def triton(traces: Sequence[Trace]) -> str:
    """A whole file in the real server's form."""
    parts = [triton_events(one, one.id, one.parent) for one in traces]
    return "[" + ",".join(part for part in parts if part) + "]"


def triton_events(trace: Trace, number: int, parent: int = 0, *, timestamps: bool = True) -> str:
    """The objects of one trace under the id `number`, joined by commas; empty if it has none.

    Of the level TENSORS alone the real server writes no timestamps, not even the model's name.
    """
    parts = []
    tensors = [_tensor(number, one) for one in trace.tensors]
    if timestamps:
        before, after = _order(trace.protocol, bool(trace.pid))
        for template, fields in before[:-1]:
            parts.append(_filled(template, fields, trace, number))
        named = f'{{"id":{number},{_model(trace.model, trace.version)}'
        if trace.request_id:
            named += f',"request_id":{_json(trace.request_id)}'
        if parent:
            named += f',"parent_id":{parent}'
        parts.append(named + "}")
        parts.append(_filled(*before[-1], trace, number))
        parts += tensors
        parts.append(_filled(*after, trace, number))
    else:
        parts = tensors
    return ",".join(part for part in parts if part)


@functools.lru_cache(256)
def _model(name: str, version: str) -> str:
    return f'"model_name":{_json(name)},"model_version":{int(version or 1)}'


Template = tuple[str, tuple[str, ...]]
"""Timestamps with room for their numbers, and the trace's fields that go there."""


@functools.cache
def _order(protocol: str, executed: bool) -> tuple[list[Template], Template]:
    """What comes before the tensors (around the model's name), and what after them.

    Over HTTP the server's own part comes first and last; over gRPC all of it is told at the end.
    """
    received: list[Stamp] = []
    sent: list[Stamp] = []
    complete: list[Stamp] = []
    if protocol in _RECEIVE:
        received = list(zip(_RECEIVE[protocol], ("receive_start", "receive_end"), strict=True))
        sent = list(zip(_SEND[protocol], ("send_start", "send_end"), strict=True))
        complete = [("INFER_RESPONSE_COMPLETE", "complete")]
    own = [("REQUEST_START", "request_start"), ("QUEUE_START", "queue_start")]
    ended = [*(_COMPUTE if executed else ()), ("REQUEST_END", "request_end")]
    if protocol == "GRPC":
        return [_template(own)], _template([*ended, *received, *complete, *sent])
    before = [_template(received)] if received else []
    return [*before, _template(own)], _template([*complete, *ended, *sent])


def _template(stamps: Sequence[Stamp]) -> Template:
    one = '{"id":%d,"timestamps":[{"name":"NAME","ns":%d}]}'
    text = ",".join(one.replace("NAME", name) for name, _ in stamps)
    return text, tuple(field for _, field in stamps)


def _filled(template: str, fields: Sequence[str], trace: Trace, number: int) -> str:
    numbers: list[int] = []
    for field in fields:
        numbers += (number, getattr(trace, field))
    if 0 in numbers:  # a point that was never reached is left out
        parts = template.replace("},{", "}\n{").split("\n")
        return ",".join(
            part % (number, ns) for part, ns in zip(parts, numbers[1::2], strict=True) if ns
        )
    return template % tuple(numbers)


def _tensor(number: int, one: TracedTensor) -> str:
    described = {
        "name": one.name,
        "data": one.data,
        "shape": ",".join(map(str, one.shape)),
        "dtype": one.datatype,
    }
    return _json({"id": number, "activity": one.activity, "tensor": described})


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# --- Chrome's -----------------------------------------------------------------------------------


def chrome(traces: Sequence[Trace], runtime: int) -> str:
    """A file for Perfetto, speedscope and `chrome://tracing`: a lane per process and thread.

    Arrows lead from a request to its `execute`, and from a model to the requests it caused.
    """
    spans = timeline(traces, runtime)
    first = min((span.start for span in spans), default=0)
    return _json(
        {"displayTimeUnit": "ms", "traceEvents": list(_chrome_events(spans, traces, first))}
    )


def _chrome_events(
    spans: Sequence[Span], traces: Sequence[Trace], first: int
) -> Iterator[dict[str, Any]]:
    named: set[tuple[int, int]] = set()
    processes: set[int] = set()
    for span in spans:
        if span.pid not in processes:
            processes.add(span.pid)
            yield _meta("process_name", span.pid, 0, f"{span.process} (pid {span.pid})")
        if (span.pid, span.lane) not in named:
            named.add((span.pid, span.lane))
            yield _meta("thread_name", span.pid, span.lane, span.lane_name)
    for span in spans:
        yield {
            "name": span.name, "cat": span.kind, "ph": "X", "pid": span.pid, "tid": span.lane,
            "ts": (span.start - first) / 1e3, "dur": (span.end - span.start) / 1e3,
            "args": {"trace": span.trace, **span.attributes},
        }  # fmt: skip
    yield from _arrows(spans, traces, first)


def _meta(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _arrows(spans: Sequence[Span], traces: Sequence[Trace], first: int) -> Iterator[dict[str, Any]]:
    lanes = {span.trace: span for span in spans if span.kind == "request"}
    known = {one.id: one for one in traces}
    number = 0

    def arrow(name: str, at: int, start: tuple[int, int], end: tuple[int, int], until: int) -> Any:
        nonlocal number
        number += 1
        common = {"name": name, "cat": "flow", "id": number}
        yield {**common, "ph": "s", "pid": start[0], "tid": start[1], "ts": (at - first) / 1e3}
        yield {
            **common, "ph": "f", "bp": "e", "pid": end[0], "tid": end[1],
            "ts": (until - first) / 1e3,
        }  # fmt: skip

    for one in traces:
        lane = lanes[one.id]
        here = (lane.pid, lane.lane)
        if one.executed:
            there = (one.pid, one.pid)
            yield from arrow("execute", one.compute_start, here, there, one.compute_input_end)
        above = known.get(one.parent)
        if above is not None:
            place = lanes[above.id]
            caller = (above.pid, above.pid) if above.executed else (place.pid, place.lane)
            yield from arrow(one.protocol.lower(), one.start, caller, here, one.start)


# --- OpenTelemetry's ----------------------------------------------------------------------------

_INTERNAL, _SERVER = 1, 2


def otlp(
    traces: Sequence[Trace], runtime: int, offset: int, *, service: str = "devkit"
) -> dict[str, Any]:
    """An ExportTraceServiceRequest as JSON; `offset` makes nanoseconds since 1970 of our times.

    Spans are named as the real server's OpenTelemetry mode names them: `InferRequest`, the model,
    `compute`; the model's own spans lie in the latter.
    """
    known = {one.id: one for one in traces}

    def root(one: Trace) -> int:
        while one.parent in known:
            one = known[one.parent]
        return one.id

    by_process: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for one in traces:
        trace_id = _identity(f"{runtime}/{offset // 10**9}/{root(one)}", 16)
        own, above = f"{runtime}/{one.id}", f"{runtime}/{one.parent}/compute"
        make = _maker(trace_id, own, offset)
        mine = by_process.setdefault((runtime, service), [])
        mine += _request_spans(one, make, own, above if one.parent in known else "")
        theirs = by_process.setdefault((one.pid, one.instance), []) if one.pid else []
        theirs += [
            make(each.name, f"own/{index}", each.start, each.end, f"{own}/compute", each.attributes)
            for index, each in enumerate(one.spans)
        ]
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": _attributes({
                        "service.name": service, "service.instance.id": name, "process.pid": pid,
                    })
                },
                "scopeSpans": [{"scope": {"name": "devkit"}, "spans": spans}],
            }
            for (pid, name), spans in by_process.items()
            if spans
        ]
    }  # fmt: skip


def _request_spans(
    one: Trace, make: Callable[..., dict[str, Any]], own: str, parent: str
) -> Iterator[dict[str, Any]]:
    about: dict[str, Any] = {
        "triton.model_name": one.model, "triton.model_version": one.version,
        "triton.trace_id": one.id, "triton.trace_parent_id": one.parent,
    }  # fmt: skip
    if one.request_id:
        about["triton.request_id"] = one.request_id
    if one.instance:
        about["devkit.instance"] = one.instance
    if not parent and one.protocol in _RECEIVE:
        (first, second), (third, fourth) = _RECEIVE[one.protocol], _SEND[one.protocol]
        events = [
            (first, one.receive_start), (second, one.receive_end),
            ("INFER_RESPONSE_COMPLETE", one.complete), (third, one.send_start),
            (fourth, one.send_end),
        ]  # fmt: skip
        yield make("InferRequest", "root", one.start, one.end, "", {}, events, _SERVER)
        parent = f"{own}/root"
    events = [
        ("REQUEST_START", one.request_start), ("QUEUE_START", one.queue_start),
        ("REQUEST_END", one.request_end),
    ]  # fmt: skip
    end = max(one.request_end, one.request_start)
    request = make(one.model, "request", one.request_start, end, parent, about, events)
    if one.error:
        request["status"] = {"code": 2, "message": one.error}
    yield request
    if not one.executed:
        # What an ensemble's steps lie in.
        yield make("steps", "compute", one.queue_start, end, f"{own}/request", {})
        return
    for name, start, until in phases(one):
        if name in ("queue", "input", "output"):
            yield make(name, name, start, until, f"{own}/request", {})
    events = [(name, getattr(one, key)) for name, key in _COMPUTE]
    yield make(
        "compute", "compute", one.compute_start, one.compute_end, f"{own}/request",
        {"devkit.batch": one.batch, "devkit.batch_size": one.batch_size}, events,
    )  # fmt: skip


def _maker(trace_id: str, own: str, offset: int) -> Callable[..., dict[str, Any]]:
    def make(
        name: str, part: str, start: int, end: int, parent: str, attributes: dict[str, Any],
        events: Sequence[tuple[str, int]] = (), kind: int = _INTERNAL,
    ) -> dict[str, Any]:  # fmt: skip
        span: dict[str, Any] = {
            "traceId": trace_id,
            "spanId": _identity(f"{own}/{part}", 8),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(start + offset),
            "endTimeUnixNano": str(max(start, end) + offset),
            "attributes": _attributes(attributes),
        }
        if parent:
            span["parentSpanId"] = _identity(parent, 8)
        if events:
            span["events"] = [
                {"timeUnixNano": str(ns + offset), "name": event} for event, ns in events if ns
            ]
        return span

    return make


def _identity(text: str, size: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * size]


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
