"""Traces as timelines, files and words."""

from __future__ import annotations

import itertools
import json
from typing import Any

from devkit.contract import trace_forms, trace_words
from devkit.contract.tracing import OwnSpan, Span, Trace, TracedTensor, families, phases, timeline

MS = 1_000_000
RUNTIME = 100


def traced(number: int, start: float = 0.0, **fields: Any) -> Trace:
    """A request that came at `start` ms: queue 3, input 1, infer 4, output 1, send 1 ms."""
    at = [int((start + each) * MS) + 1 for each in (0, 1, 2, 5, 6, 10, 11, 12)]
    given = {
        "model": "m", "version": "1", "request_id": f"r{number}", "protocol": "HTTP",
        "instance": "m_0", "pid": 200, "batch": number, "instances": 1, "busy": 1,
        "receive_start": at[0], "receive_end": at[1], "request_start": at[1],
        "queue_start": at[2], "compute_start": at[3], "compute_input_end": at[4],
        "compute_output_start": at[5], "compute_end": at[6], "request_end": at[6],
        "complete": at[6], "send_start": at[6], "send_end": at[7],
    }  # fmt: skip
    return Trace(number, **{**given, **fields})


def caused(number: int, parent: Trace, **fields: Any) -> Trace:
    """A call that `parent`'s execute made."""
    start = parent.compute_input_end / MS + 0.5
    none = dict.fromkeys(("receive_start", "receive_end", "send_start", "send_end"), 0)
    at = [int((start + each) * MS) for each in (0, 0.1, 0.2, 0.4, 1.4, 1.5)]
    times = {
        "request_start": at[0], "queue_start": at[1], "compute_start": at[2],
        "compute_input_end": at[3], "compute_output_start": at[4], "compute_end": at[5],
        "request_end": at[5], "complete": at[5],
    }  # fmt: skip
    about = {"model": "child", "instance": "child_0", "pid": 300, "protocol": "BLS"}
    return traced(number, parent=parent.id, request_id="", **{**none, **times, **about, **fields})


def test_phases_follow_each_other_without_a_gap() -> None:
    found = phases(traced(1))
    assert [name for name, _, _ in found] == [
        "receive", "queue", "input", "infer", "output", "send",
    ]  # fmt: skip
    for (_, _, end), (_, start, _) in itertools.pairwise(found[1:]):
        assert end == start


def test_a_refused_request_waited_until_it_was_refused() -> None:
    fields = ("compute_start", "compute_input_end", "compute_output_start", "compute_end")
    one = traced(1, pid=0, instance="", error="Request timeout expired", **dict.fromkeys(fields, 0))
    assert [name for name, _, _ in phases(one)] == ["receive", "queue", "send"]
    assert "queue 9.0 ms (the only instance was busy)" in trace_words.request_words(one)


def test_responses_sent_before_the_last_are_a_stream() -> None:
    one = traced(1, complete=15 * MS, compute_end=15 * MS, send_end=15 * MS + 1)
    assert [name for name, _, _ in phases(one)][-1] == "stream"


def test_families_are_by_the_clients_request() -> None:
    first, second = traced(1), traced(4, 20)
    child = caused(2, first)
    grandchild = caused(3, child)
    assert families([grandchild, second, child, first]) == [[first, child, grandchild], [second]]


def test_lanes_hold_spans_that_never_overlap_halfway() -> None:
    root = traced(1, spans=(OwnSpan("a", 7 * MS, 9 * MS, 200), OwnSpan("b", 8 * MS, 9 * MS, 200)))
    spans = timeline([root, caused(2, root), traced(3, 3.0, pid=201), traced(4, 30.0)], RUNTIME)
    lanes: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        lanes.setdefault((span.pid, span.lane), []).append(span)
    for members in lanes.values():
        for one, other in itertools.combinations(members, 2):
            apart = one.end <= other.start or other.end <= one.start
            inside = (one.start <= other.start and other.end <= one.end) or (
                other.start <= one.start and one.end <= other.end
            )
            assert apart or inside, (one, other)
    assert {span.process for span in spans} == {"runtime", "m_0", "child_0"}
    own = [(span.name, span.kind) for span in spans if span.pid == 200 and span.trace == 1]
    assert own == [("execute", "execute"), ("a", "own"), ("b", "own")]


def test_a_batch_is_one_execute() -> None:
    both = [traced(number, batch=7, batch_size=2) for number in (1, 2)]
    executes = [span for span in timeline(both, RUNTIME) if span.kind == "execute"]
    assert [span.name for span in executes] == ["execute (2 requests)"]


def test_chromes_form_names_processes_and_leads_from_one_to_the_other() -> None:
    root = traced(1, spans=(OwnSpan("tokenize", 7 * MS, 9 * MS, 200, {"words": 3}),))
    events = json.loads(trace_forms.chrome([root, caused(2, root)], RUNTIME))["traceEvents"]
    names = [one["args"]["name"] for one in events if one["name"] == "process_name"]
    assert names == ["runtime (pid 100)", "m_0 (pid 200)", "child_0 (pid 300)"]
    bars = {one["name"]: one for one in events if one["ph"] == "X"}
    assert bars["tokenize"]["args"] == {"trace": 1, "words": 3}
    assert (bars["tokenize"]["pid"], bars["tokenize"]["dur"]) == (200, 2000.0)
    assert min(one["ts"] for one in bars.values()) == 0
    starts = [one["id"] for one in events if one["ph"] == "s"]
    assert sorted(starts) == sorted(one["id"] for one in events if one["ph"] == "f")
    assert len(starts) == 3  # two executes, one call


def stamps(text: str) -> list[str]:
    return [
        each["timestamps"][0]["name"] if "timestamps" in each else sorted(each)[0]
        for each in json.loads(text)
    ]


def test_tritons_form_is_in_the_real_servers_order() -> None:
    tensors = (
        TracedTensor("TENSOR_QUEUE_INPUT", "X", "FP32", (1, 2), "1,2"),
        TracedTensor("TENSOR_BACKEND_OUTPUT", "Y", "BYTES", (1,), '"a"b"'),
    )
    compute = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    begun = ["id", "REQUEST_START", "QUEUE_START"]
    assert stamps(trace_forms.triton([traced(1, tensors=tensors)])) == [
        "HTTP_RECV_START", "HTTP_RECV_END", *begun, "activity", "activity",
        "INFER_RESPONSE_COMPLETE", *compute, "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip
    assert stamps(trace_forms.triton([traced(1, protocol="GRPC")])) == [
        *begun, *compute, "REQUEST_END", "GRPC_WAITREAD_START", "GRPC_WAITREAD_END",
        "INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_END",
    ]  # fmt: skip
    child = json.loads(trace_forms.triton([caused(2, traced(1))]))
    assert child[0] == {"id": 2, "model_name": "child", "model_version": 1, "parent_id": 1}


def test_points_that_were_never_reached_are_left_out() -> None:
    fields = (
        "queue_start", "compute_start", "compute_input_end", "compute_output_start",
        "compute_end", "send_start", "send_end",
    )  # fmt: skip
    refused = traced(1, pid=0, instance="", **dict.fromkeys(fields, 0))
    assert stamps(trace_forms.triton([refused])) == [
        "HTTP_RECV_START", "HTTP_RECV_END", "id", "REQUEST_START", "INFER_RESPONSE_COMPLETE",
        "REQUEST_END",
    ]  # fmt: skip


def test_otlp_spans_are_one_trace_and_hang_together() -> None:
    root = traced(1, spans=(OwnSpan("tokenize", 7 * MS, 9 * MS, 200, {"words": 3, "x": 0.5}),))
    found = trace_forms.otlp([root, caused(2, root)], RUNTIME, 10**18)
    resources = found["resourceSpans"]
    spans = {
        each["name"]: each
        for resource in resources
        for scope in resource["scopeSpans"]
        for each in scope["spans"]
    }
    assert len({each["traceId"] for each in spans.values()}) == 1
    ids = {each["spanId"] for scope in resources for each in scope["scopeSpans"][0]["spans"]}
    orphans = [one["name"] for one in spans.values() if one.get("parentSpanId") not in ids]
    assert orphans == ["InferRequest"]
    assert spans["tokenize"]["attributes"][0] == {"key": "words", "value": {"intValue": "3"}}
    assert int(spans["m"]["startTimeUnixNano"]) == 10**18 + root.request_start
    processes = [resource["resource"]["attributes"][2]["value"] for resource in resources]
    assert processes == [{"intValue": "100"}, {"intValue": "200"}]


def test_words_say_where_the_time_went_and_why() -> None:
    spans = (OwnSpan("tokenize", 7 * MS, 9 * MS, 200), OwnSpan("inner", 8 * MS, 9 * MS, 200))
    root = traced(1, spans=spans, waiting=2)
    text = trace_words.request_words(root, [caused(2, root)])
    assert text == (
        "m r1: 12.0 ms: receive 1.0 ms, queue 3.0 ms (the only instance was busy, 2 others waited "
        "before it), input 1.0 ms, infer 4.0 ms (tokenize 2.0 ms, call of child 1.5 ms), output "
        "1.0 ms, send 1.0 ms"
    )


def test_a_summary_begins_with_the_average() -> None:
    lines = trace_words.summary([traced(n, 20.0 * n) for n in range(1, 8)]).splitlines()
    assert lines[0].startswith("7 requests, 12.0 ms on average (12.0 ms to 12.0 ms): receive")
    assert lines[1] == "the 5 slowest:"
    assert len(lines) == 7
    assert trace_words.summary([]) == "no request was traced"


def test_durations_are_readable() -> None:
    found = [trace_words.duration(ns) for ns in (1_500, 3_100_000, 250_000_000, 1_420_000_000)]
    assert found == ["2 µs", "3.1 ms", "250 ms", "1.42 s"]
