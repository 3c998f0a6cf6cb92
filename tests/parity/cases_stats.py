"""FACTS 8: statistics, metrics, trace and log settings, shared-memory status."""

from __future__ import annotations

import re

from tritonclient.grpc import service_pb2 as pb

from tests.parity.asking import (
    Asked,
    Blur,
    Case,
    Grpc,
    Http,
    Pause,
    Quiet,
    X,
    act,
    act_batch,
    durations,
    get,
    infer,
    post,
    replacing,
)

STATS = get("/v2/models/actor/stats")
METRICS = Http("GET", "/metrics", door="metrics")


def only_lines(*wanted: str) -> Blur:
    """Keeps the metrics lines that match, sorted; values of times and memory become N."""

    def blur(text: str) -> str:
        head, _, body = text.partition('"body": "')
        lines = sorted(
            line
            for line in body.removesuffix('"}').split("\\n")
            if any(re.search(pattern, line) for pattern in wanted)
        )
        return head + '"body": "' + "\\n".join(lines) + '"}'

    return blur


def counted(*asked: Http) -> tuple[Asked, ...]:
    """What was counted after each of these, one statistics answer each."""
    # The real server counts a moment after it has answered.
    return tuple(step for request in asked for step in (Quiet(request), Pause(0.1), STATS))


CASES = [
    Case(
        "stats of a fresh model",
        (get("/v2/models/add_sub/stats"),),
        "8",
        status=200,
        setup="counting",
    ),
    Case(
        "stats count",
        counted(
            act("double"),
            act("raise_value"),
            act("error_default"),
            act("return_empty"),
            infer("actor", [X]),
            act("double", outputs=[{"name": "NO"}]),
            act("other_name"),
        ),
        "8",
        status=200,
        blur=durations,
        setup="counting",
    ),
    Case(
        "stats of batches",
        (
            Quiet(act_batch("double", "actor_batch", 1)),
            Quiet(act_batch("double", "actor_batch", 3)),
            Quiet(act_batch("double", "actor_batch", 3)),
            Pause(0.1),
            get("/v2/models/actor_batch/stats"),
        ),
        "8",
        status=200,
        blur=durations,
        setup="counting",
    ),
    Case(
        "stats of a version",
        (get("/v2/models/add_sub/versions/1/stats"),),
        "8",
        status=200,
        setup="counting",
    ),
    Case(
        "stats of all",
        (get("/v2/models/stats"),),
        "8",
        status=200,
        blur=durations,
        setup="counting",
    ),
    Case(
        "stats of unknown model",
        (get("/v2/models/nobody/stats"),),
        "8",
        status=400,
        says="requested model 'nobody' is not available",
    ),
    Case("stats of unknown version", (get("/v2/models/actor/versions/9/stats"),), "8"),
    Case(
        "grpc stats",
        (Grpc("ModelStatistics", pb.ModelStatisticsRequest(name="add_sub")),),
        "8",
        status="OK",
        setup="counting",
    ),
    Case(
        "metrics counters",
        (METRICS,),
        "8",
        status=200,
        blur=only_lines(
            r"^nv_inference_(request_success|request_failure|count|exec_count|pending_request_count)\{model="
        ),
        setup="counting",
    ),
    Case(
        "metrics help and type",
        (METRICS,),
        "8",
        status=200,
        blur=only_lines("^# "),
        setup="counting",
    ),
    Case(
        "metrics series",
        (METRICS,),
        "8",
        status=200,
        blur=lambda text: replacing((r"(nv_[a-z_]+(\{[^}]*\})?) [\d.e+-]+", r"\1 N"))(
            only_lines("^nv_")(text)
        ),
        setup="counting",
    ),
    Case("metrics other path", (Http("GET", "/other", door="metrics"),), "8", status=200),
    Case("metrics root", (Http("GET", "/", door="metrics"),), "8", status=200),
    Case("metrics post", (Http("POST", "/metrics", b"", door="metrics"),), "8"),
    Case("trace setting", (get("/v2/trace/setting"),), "8", status=200, says="trace_rate"),
    Case("trace setting of a model", (get("/v2/models/actor/trace/setting"),), "8", status=200),
    Case(
        "trace setting of unknown model",
        (get("/v2/models/nobody/trace/setting"),),
        "8",
        status=400,
        says="Request for unknown model : nobody",
    ),
    Case(
        "trace setting, unknown key",
        (post("/v2/trace/setting", {"nothing": "5"}),),
        "8",
        status=200,
    ),
    Case(
        "trace setting, rate",
        (
            post("/v2/trace/setting", {"trace_rate": "5"}),
            post("/v2/trace/setting", {"trace_rate": "1000"}),
        ),
        "8",
        status=200,
        issue=3,
    ),
    Case("logging", (get("/v2/logging"),), "8", status=200, says="log_verbose_level"),
    Case(
        "logging, verbose",
        (
            post("/v2/logging", {"log_verbose_level": 1}),
            post("/v2/logging", {"log_verbose_level": 0}),
        ),
        "8",
        status=200,
    ),
    Case(
        "logging, format",
        (
            post("/v2/logging", {"log_format": "ISO8601"}),
            post("/v2/logging", {"log_format": "default"}),
        ),
        "8",
        status=200,
    ),
    Case("logging, unknown key", (post("/v2/logging", {"nothing": 1}),), "8", status=200),
    Case(
        "logging, wrong type",
        (post("/v2/logging", {"log_info": 5}),),
        "8",
        status=500,
        says="attempt to access JSON non-boolean as boolean",
    ),
    Case(
        "logging, file",
        (post("/v2/logging", {"log_file": "x"}),),
        "8",
        status=501,
        says="log file location can not be updated",
    ),
    Case(
        "shared memory status", (get("/v2/systemsharedmemory/status"),), "8", status=200, says="[]"
    ),
    Case(
        "cuda shared memory status",
        (get("/v2/cudasharedmemory/status"),),
        "8",
        status=200,
        says="[]",
    ),
    Case(
        "shared memory of unknown region",
        (get("/v2/systemsharedmemory/region/x/status"),),
        "8",
        status=404,
        says="Unable to find system shared memory region: 'x'",
    ),
    Case(
        "shared memory without key",
        (
            post(
                "/v2/systemsharedmemory/region/a/register",
                {"key": "/nowhere", "offset": 0, "byte_size": 10},
            ),
        ),
        "8",
        status=500,
        says="Unable to open shared memory region: '/nowhere'",
    ),
    Case(
        "shared memory unregister unknown",
        (post("/v2/systemsharedmemory/region/a/unregister"),),
        "8",
        status=200,
    ),
    Case(
        "shared memory unregister all",
        (post("/v2/systemsharedmemory/unregister"),),
        "8",
        status=200,
    ),
]
