"""What the server does around a model: warmup, response cache, restricted APIs, forwarded headers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.parity.asking import (
    Asked,
    Case,
    Grpc,
    Http,
    Pause,
    Quiet,
    durations,
    get,
    given,
    infer,
    load,
    message,
    post,
    replacing,
)
from tests.parity.cases_stats import METRICS, only_lines
from tests.support.around import COLD, WARMED

VALUES = [1.0, 2.0, 3.0, 4.0]


def case(name: str, *asked: Asked, **more: object) -> Case:
    return Case(name, asked, "9", setup="around", issue=9, **more)  # type: ignore[arg-type]


def ask(model: str, *, batch: bool = False, values: list[float] | None = None, **more: Any) -> Http:
    shape = [1, 4] if batch else [4]
    return infer(model, [given("X", "FP32", shape, values or VALUES)], **more)


def stats(model: str) -> Http:
    return get(f"/v2/models/{model}/stats")


def _question(model: str) -> Http:
    if model == "warm_texts":
        return infer(model, [given("X", "BYTES", [2], ["p", "q"])])
    batch = model in ("warm_batch", "warm_batcher", "warm_twice", "warm_sequence")
    sequence: Any = {"parameters": {"sequence_id": 7, "sequence_start": True}}
    return ask(model, batch=batch, **(sequence if model == "warm_sequence" else {}))


def refused(reason: str, model: str) -> dict[str, Any]:
    """The answer to a load that fails for `reason`."""
    error = f"load failed for model '{model}': version 1 is at UNAVAILABLE state: {reason};\n"
    return {
        "status": 400,
        "content-type": "application/json",
        "body": json.dumps({"error": error}, separators=(",", ":")),
    }


# Where several requests of a sample fail, the real server now and then dies of it.
_WARM = "Invalid argument: failed to run warmup sample 'w': "
COLD_MAY_CRASH = {
    "cold_error": refused(f"{_WARM}not today; ", "cold_error"),
    "cold_rows": refused(
        _WARM + "batch size 4 for 'cold_rows_0', max allowed is 2; " * 4, "cold_rows"
    ),
}
WARMUP = [
    *(
        case(
            f"warmup: {model.name}",
            load(model.name), Pause(0.2), stats(model.name), _question(model.name),
            blur=durations,
        )
        for model in WARMED
    ),
    *(
        case(f"warmup: {model.name}", load(model.name), recorded=COLD_MAY_CRASH.get(model.name))
        for model in COLD
    ),
]  # fmt: skip

ONLY_Y: Any = {"outputs": [{"name": "Y"}]}
CACHE = [
    case(
        "cache: the second request alike is a hit, whatever its id and parameters",
        Quiet(load("kept")), ask("kept"), ask("kept"), ask("kept", id="seven"),
        ask("kept", parameters={"a": 1}), ask("kept", values=[4.0, 3.0, 2.0, 1.0]),
        Pause(0.2), stats("kept"), blur=durations,
    ),
    case(
        "cache: outputs asked for are no part of the key",
        Quiet(load("kept")), ask("kept", values=[9.0] * 4, **ONLY_Y), ask("kept", values=[9.0] * 4),
    ),
    case(
        "cache: with a batcher",
        Quiet(load("kept_batched")), ask("kept_batched", batch=True),
        ask("kept_batched", batch=True), Pause(0.2), stats("kept_batched"), blur=durations,
    ),
    case(
        "cache: an error is kept as an answer without outputs",
        Quiet(load("kept_error")), ask("kept_error"), ask("kept_error"), Pause(0.2), stats("kept_error"),
        blur=durations,
    ),
    case(
        "cache: what warmup asked is not kept",
        Quiet(load("kept_warm")), ask("kept_warm", values=[0.0] * 4), Pause(0.2), stats("kept_warm"),
        blur=durations,
    ),
    case(
        "cache: a model that does not ask for it",
        Quiet(load("kept_not")), ask("kept_not"), ask("kept_not"), Pause(0.2), stats("kept_not"),
        blur=durations,
    ),
    case("cache: a decoupled model may not", load("kept_decoupled")),
    case("cache: nor may sequences", load("kept_sequence")),
    case(
        "cache: metrics",
        Quiet(load("kept")), Quiet(ask("kept", values=[5.0] * 4)),
        Quiet(ask("kept", values=[5.0] * 4)), METRICS,
        blur=lambda text: only_lines(
            r"^nv_cache_num_(hits|misses)_per_model\{model=.kept_batched", r"# (HELP|TYPE) nv_cache"
        )(text),
    ),
]  # fmt: skip

FORWARDED = [
    case(
        "forwarded headers: those that the pattern finds, in any case",
        Quiet(load("forward_http")),
        replace(ask("forward_http"), headers={"fwd-a": "1", "FWD-B": "two", "x-Fwd": "3", "other": "z"}),
    ),
    case(
        "forwarded headers: generate has none",
        Quiet(load("forward_generate")),
        replace(
            post("/v2/models/forward_generate/generate", {"X": VALUES}), headers={"fwd-a": "1"}
        ),
        blur=replacing((r'\\"seen', "seen")),
    ),
    case(
        "forwarded metadata",
        Quiet(load("forward_grpc")),
        Grpc(
            "ModelInfer", message("forward_grpc", [("X", "FP32", [4], VALUES)]),
            (("fwd-a", "1"), ("other", "2")),
        ),
    ),
]  # fmt: skip


def guarded(name: str, *asked: Asked) -> Case:
    return Case(name, asked, "9", setup="guarded", issue=9)


def with_key(request: Http, name: str, value: str) -> Http:
    return replace(request, headers={**request.headers, name: value})


INDEX = post("/v2/repository/index", {})
KEY, PREFIX = ("key", "val"), "triton-grpc-protocol-"
LIVE = Grpc("ServerLive", pb.ServerLiveRequest())
GRPC_INDEX = Grpc("RepositoryIndex", pb.RepositoryIndexRequest())
GRPC_INFER = Grpc("ModelInfer", message("plain", [("X", "FP32", [4], VALUES)]))
GUARDED = [
    *(
        guarded(f"restricted: {name}", asked, with_key(asked, "admin-key", "wrong"),
                with_key(asked, "Admin-Key", "right"))
        for name, asked in (
            ("index", INDEX),
            ("load", load("plain")),
            ("config", get("/v2/models/plain/config")),
            ("config by POST", post("/v2/models/plain/config")),
            ("status of a region", get("/v2/systemsharedmemory/status")),
            ("logging", get("/v2/logging")),
            ("trace settings", get("/v2/trace/setting")),
        )
    ),
    guarded("restricted: what is not", get("/v2"), get("/v2/health/live"), ask("plain")),
    guarded("restricted: no such path", get("/v2/nowhere")),
    guarded(
        "restricted: gRPC",
        LIVE, replace(LIVE, metadata=(KEY,)), replace(LIVE, metadata=((PREFIX + "key", "val"),)),
        GRPC_INDEX, replace(GRPC_INDEX, metadata=((PREFIX + "admin-key", "right"),)),
        GRPC_INFER, replace(GRPC_INFER, metadata=((PREFIX + "key", "no"),)),
        replace(GRPC_INFER, metadata=((PREFIX + "key", "val"),)),
        Grpc("ModelReady", pb.ModelReadyRequest(name="plain")),
        Grpc("ServerMetadata", pb.ServerMetadataRequest()),
    ),
]  # fmt: skip
CASES = [*WARMUP, *CACHE, *FORWARDED, *GUARDED]
