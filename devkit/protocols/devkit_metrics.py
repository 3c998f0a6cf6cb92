"""devkit's own numbers as Prometheus text, under `devkit_*`: only with `--devkit-metrics`.

The default page stays the real server's, name for name. Nothing is measured here: counters are the
core's, the rest the last tick of `observe.history`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from devkit.protocols.metrics import Sample, custom_family, family

if TYPE_CHECKING:
    from devkit.observe.gauges import SharedMemoryUse
    from devkit.observe.history import History

Labels = tuple[tuple[str, str], ...]

PER_INSTANCE: tuple[tuple[str, str, str], ...] = (
    ("inferences", "devkit_instance_inference_count", "Inferences that an instance has performed"),
    ("executions", "devkit_instance_exec_count", "Calls of execute of an instance"),
    ("failed", "devkit_instance_request_failure", "Requests that failed in an instance"),
    ("queue_ns", "devkit_instance_queue_duration_us", "Time its requests waited, microseconds"),
    ("input_ns", "devkit_instance_compute_input_duration_us", "Time to hand its inputs over"),
    ("infer_ns", "devkit_instance_compute_infer_duration_us", "Time its requests were executed"),
    ("output_ns", "devkit_instance_compute_output_duration_us", "Time to take its outputs back"),
    ("busy_ns", "devkit_instance_busy_duration_us", "Time inside execute, each batch once"),
)
"""Field of an instance's tally, metric, description."""


def text(engine: Any, history: History, memory: Callable[[], SharedMemoryUse]) -> str:
    """All families, as one page."""
    models = engine.models()
    return "".join((*_models(models), *_instances(models, history), *_memory(memory())))


def _of(model: Any) -> Labels:
    return (("model", model.name), ("version", model.version_text))


def _models(models: Iterable[Any]) -> Iterator[str]:
    models = list(models)
    yield family(
        "devkit_queue_depth", "gauge", "Requests that wait for an instance",
        [(_of(model), len(model.scheduler)) for model in models],
    )  # fmt: skip
    yield family(
        "devkit_in_flight", "gauge", "Requests that instances have now",
        [
            (_of(model), sum(len(b.requests) for one in model.instances for b in one.batches))
            for model in models
        ],
    )  # fmt: skip
    yield custom_family(
        "devkit_batch_size", "HISTOGRAM", "Executions by their batch size",
        [row for model in models for row in _histogram(model)],
    )  # fmt: skip


def _histogram(model: Any) -> list[tuple[str, Labels, float]]:
    own = _of(model)
    total = weighed = 0
    rows: list[tuple[str, Labels, float]] = []
    counted = {size: each.compute_infer.count for size, each in model.counters.batches.items()}
    bounds = [1 << power for power in range(11)]
    for bound in bounds:
        total = sum(count for size, count in counted.items() if size <= bound)
        rows.append(("_bucket", (*own, ("le", str(bound))), total))
    total = sum(counted.values())
    weighed = sum(size * count for size, count in counted.items())
    rows.append(("_bucket", (*own, ("le", "+Inf")), total))
    rows.append(("_sum", own, weighed))
    rows.append(("_count", own, total))
    return rows


def _instances(models: Iterable[Any], history: History) -> Iterator[str]:
    rows = [
        ((*_of(model), ("instance", one.name)), one) for model in models for one in model.instances
    ]
    for field, name, about in PER_INSTANCE:
        scale = 1000 if field.endswith("_ns") else 1
        samples: list[Sample] = [
            (labels, getattr(one.tally, field) // scale) for labels, one in rows
        ]
        yield family(name, "counter", about, samples)
    yield family(
        "devkit_instance_up", "gauge", "1 where the instance's process can take requests",
        [(labels, float(one.state == "ready")) for labels, one in rows],
    )  # fmt: skip
    for name, about, values in (
        ("devkit_process_resident_bytes", "Resident memory of the process", history.rss),
        ("devkit_process_cpu_percent", "Percent of one core over the last second", history.cpu),
    ):
        yield family(
            name, "gauge", about,
            [(labels, values[one.pid]) for labels, one in rows if one.pid in values],
        )  # fmt: skip


def _memory(use: SharedMemoryUse) -> Iterator[str]:
    total: list[Sample] = [((), use.total)] if use.total else []
    yield family("devkit_shm_total_bytes", "gauge", "Size of /dev/shm", total)
    yield family(
        "devkit_shm_free_bytes", "gauge", "Free in /dev/shm", [((), use.free)] if use.total else []
    )  # fmt: skip
    for name, about, field in (
        ("devkit_slab_size_bytes", "Size of a shared-memory slab", "size"),
        ("devkit_slab_used_bytes", "Bytes of a slab in use", "used"),
        ("devkit_slab_high_water_bytes", "Most bytes of a slab ever in use", "high_water"),
        ("devkit_slab_blocks", "Blocks of a slab in use", "blocks"),
    ):
        yield family(
            name, "gauge", about,
            [
                ((("slab", slab.name),), getattr(slab, field))
                for slab in use.slabs
                if getattr(slab, field) >= 0
            ],
        )  # fmt: skip
