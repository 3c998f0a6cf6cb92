"""The metrics port: Prometheus text with the names, labels and order of the real server.

It reads the engine's counters and the machine's; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import psutil

from devkit.protocols.http.routes import fixed
from devkit.protocols.http.server import Connection, Head, Route, Server
from devkit.transport.memory import Block

CONTENT_TYPE = "text/plain; charset=utf-8"
REASONS = ("OTHER", "BACKEND", "CANCELED", "REJECTED")

Sample = tuple[tuple[tuple[str, str], ...], float]
"""Labels and value."""


def _micro(field: str) -> Callable[[Any], int]:
    return lambda row: getattr(row.inference_stats, field).ns // 1000


PER_MODEL: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
    (
        "nv_inference_request_success",
        "Number of successful inference requests, all batch sizes",
        lambda row: row.inference_stats.success.count,
    ),
    (
        "nv_inference_request_failure",
        "Number of failed inference requests, all batch sizes",
        lambda row: row.inference_stats.fail.count,
    ),
    (
        "nv_inference_count",
        "Number of inferences performed (does not include cached requests)",
        lambda row: row.inference_count,
    ),
    (
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        lambda row: row.execution_count,
    ),
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        _micro("success"),
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        _micro("queue"),
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        _micro("compute_input"),
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        _micro("compute_infer"),
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds (does not include cached "
        "requests)",
        _micro("compute_output"),
    ),
)
PER_CACHED_MODEL: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
    (
        "nv_cache_num_hits_per_model",
        "Number of cache hits per model",
        lambda counters: counters.cache_hit.count,
    ),
    (
        "nv_cache_hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        lambda counters: counters.cache_hit.ns // 1000,
    ),
    (
        "nv_cache_num_misses_per_model",
        "Number of cache misses per model",
        lambda counters: counters.cache_miss.count,
    ),
    (
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        lambda counters: counters.cache_miss.ns // 1000,
    ),
)
CACHE: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
    ("nv_cache_util", "Cache utilization [0.0 - 1.0]", lambda cache: cache.utilization),
    ("nv_cache_num_entries", "Number of responses stored in response cache", len),
    (
        "nv_cache_num_hits",
        "Number of cache hits in response cache",
        lambda cache: cache.hits,
    ),
    (
        "nv_cache_num_misses",
        "Number of cache misses in response cache",
        lambda cache: cache.misses,
    ),
    (
        "nv_cache_num_lookups",
        "Number of cache lookups in response cache",
        lambda cache: cache.hits + cache.misses,
    ),
    (
        "nv_cache_num_evictions",
        "Number of cache evictions in response cache",
        lambda cache: cache.evictions,
    ),
    (
        "nv_cache_lookup_duration",
        "Total cache lookup duration (hit and miss), in microseconds",
        lambda cache: cache.lookup_ns // 1000,
    ),
    (
        "nv_cache_insertion_duration",
        "Total cache insertion duration, in microseconds",
        lambda cache: cache.insertion_ns // 1000,
    ),
)
_PENDING = "Instantaneous number of pending requests awaiting execution per-model."


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """`{a="b"}`, names in alphabetical order; "" without labels."""
    pairs = []
    for name, value in sorted(labels):
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


def number_text(value: float) -> str:
    """Sixteen digits as the real server writes them; NaN and infinities as Prometheus does."""
    if value != value:
        return "Nan"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return f"{float(value):.16g}"


def family(name: str, kind: str, description: str, samples: Iterable[Sample]) -> str:
    """One metric family; nothing where it has no samples."""
    lines = [f"{name}{label_text(labels)} {number_text(value)}" for labels, value in samples]
    if not lines:
        return ""
    return "\n".join((f"# HELP {name} {description}", f"# TYPE {name} {kind}", *lines, ""))


def custom_family(
    name: str,
    kind: str,
    description: str,
    samples: Iterable[tuple[str, tuple[tuple[str, str], ...], float]],
) -> str:
    """One family of a model's; a sample says what is appended to the name (`_bucket`, `_sum`)."""
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind.lower()}"]
    for suffix, labels, value in samples:
        # `le` of a bucket stays behind the labels of the metric itself.
        bounds = [each for each in labels if suffix == "_bucket" and each[0] == "le"]
        text = label_text(each for each in labels if each not in bounds)
        if bounds:
            text = f"{text[:-1]},{label_text(bounds)[1:]}" if text else label_text(bounds)
        lines.append(f"{name}{suffix}{text} {number_text(value)}")
    return "\n".join((*lines, "")) if len(lines) > 2 else ""


class Exposition:
    """The text of one engine's metrics, and `more` behind it where that is asked for."""

    def __init__(self, engine: Any, more: Callable[[], str] | None = None) -> None:
        self._engine = engine
        self._more = more
        self._cpu: tuple[float, float] | None = None

    def text(self) -> str:
        """All families, as one page."""
        rows = self._engine.statistics()
        models = {(model.name, str(model.version)): model for model in self._engine.models()}
        parts = []
        for name, description, read in PER_MODEL:
            samples: list[Sample] = []
            for row in rows:
                own = (("model", row.name), ("version", row.version))
                if name == "nv_inference_request_failure":
                    samples += self._failures(row, own, models)
                else:
                    samples.append((own, read(row)))
            parts.append(family(name, "counter", description, samples))
        cache = getattr(self._engine, "cache", None)
        if cache is not None:
            parts += self._cached(models)
        # The real server's page has the counters first, then the gauges, then the histograms, in
        # each part its own before those of models.
        parts += self._custom("COUNTER")
        parts.append(self._pending(rows, models))
        if cache is not None:
            parts += [family(name, "gauge", about, [((), read(cache))])
                      for name, about, read in CACHE]  # fmt: skip
        parts += self._machine()
        parts += self._custom("GAUGE")
        parts += self._custom("HISTOGRAM")
        if self._more is not None:
            parts.append(self._more())
        return "".join(parts)

    @staticmethod
    def _failures(
        row: Any, own: tuple[tuple[str, str], ...], models: dict[tuple[str, str], Any]
    ) -> list[Sample]:
        counters = getattr(models.get((row.name, row.version)), "counters", None)
        known = dict(getattr(counters, "failures", {}))
        if not known:
            known = {"BACKEND": row.inference_stats.fail.count}
        return [((*own, ("reason", reason)), known.get(reason, 0)) for reason in REASONS]

    @staticmethod
    def _cached(models: dict[tuple[str, str], Any]) -> list[str]:
        cached = {own: model for own, model in models.items() if model.cache is not None}
        return [
            family(
                name, "counter", about,
                [((("model", own[0]), ("version", own[1])), read(model.counters))
                 for own, model in cached.items()],
            )
            for name, about, read in PER_CACHED_MODEL
        ]  # fmt: skip

    @staticmethod
    def _pending(rows: Iterable[Any], models: dict[tuple[str, str], Any]) -> str:
        samples: list[Sample] = []
        for row in rows:
            counters = getattr(models.get((row.name, row.version)), "counters", None)
            own = (("model", row.name), ("version", row.version))
            samples.append((own, getattr(counters, "pending", 0)))
        return family("nv_inference_pending_request_count", "gauge", _PENDING, samples)

    def _machine(self) -> list[str]:
        memory = psutil.virtual_memory()
        gauges = (
            (
                "nv_pinned_memory_pool_total_bytes",
                "Pinned memory pool total memory size, in bytes",
                268435456,  # the real server's default; devkit pins nothing
            ),
            (
                "nv_pinned_memory_pool_used_bytes",
                "Pinned memory pool used memory size, in bytes",
                0,
            ),
            ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", self._utilization()),
            ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", memory.total),
            (
                "nv_cpu_memory_used_bytes",
                "CPU used memory (RAM), in bytes",
                memory.total - memory.available,
            ),
        )
        return [family(name, "gauge", about, [((), value)]) for name, about, value in gauges]

    def _utilization(self) -> float:
        """Since the last call; 0 on the first."""
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        now = (sum(times), idle)
        before, self._cpu = self._cpu, now
        if before is None or now[0] <= before[0]:
            return 0.0
        return max(0.0, min(1.0, 1.0 - (now[1] - before[1]) / (now[0] - before[0])))

    def _custom(self, kind: str) -> list[str]:
        """Families of one kind that models made, from an engine that keeps them."""
        read = getattr(self._engine, "custom_metrics", None)
        families = [each for each in read() if each.kind == kind] if read else []
        return [
            custom_family(each.name, kind, each.description, each.samples()) for each in families
        ]


class MetricsFront:
    """Serves an engine's metrics; any path but `/metrics` is an empty 200, as in Triton."""

    def __init__(self, engine: Any, more: Callable[[], str] | None = None) -> None:
        self._exposition = Exposition(engine, more)
        self._page = Route(self._answer)
        self._refused = fixed(405, "text/plain", b'{"error":"Method Not Allowed"}')
        self._empty = fixed(200, CONTENT_TYPE, b"")
        self._server = Server(self._route)

    def _route(self, method: str, path: str) -> Route:
        if path != "/metrics":
            return self._empty
        return self._page if method == "GET" else self._refused

    def _answer(
        self, connection: Connection, head: Head, body: memoryview, block: Block | None
    ) -> None:
        connection.reply(200, CONTENT_TYPE, self._exposition.text().encode())

    async def start(self, host: str = "127.0.0.1", port: int = 8002) -> int:
        """Listen; the port in use, also where `port` was 0. Raises OSError where it is taken."""
        return await self._server.start(host, port)

    async def stop(self, grace: float = 0.0) -> None:
        """Close."""
        await self._server.stop(grace)
