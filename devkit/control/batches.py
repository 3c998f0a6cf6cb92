"""Control calls about why: `/batches`, `/streams`, `/sequences` and `/operations`.

What is kept is `observe`'s, the words are `observe.explain`'s; here they become messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from starlette.requests import Request
from starlette.responses import Response

from devkit.control import messages
from devkit.control.gauges import Call, reply
from devkit.control.watch import Watch, count_of
from devkit.core.model import Model
from devkit.core.request import NullRequest, TensorSpec
from devkit.core.request import Request as CoreRequest
from devkit.observe import explain
from devkit.observe.batches import KeptBatch, KeptResponse, Lane, Stream


def routes(watch: Watch) -> list[Call]:
    """The calls of this module."""

    async def batches(request: Request) -> Response:
        query = request.query_params
        name, version = query.get("model", ""), query.get("version", "")
        model = watch.engine.model(name, version)
        return reply(of_model(watch, model, count_of(query, "count", 50)))

    async def streams(request: Request) -> Response:
        query = request.query_params
        found = watch.batches.streams(query.get("model", ""))
        return reply([_stream(one) for one in found[-count_of(query, "count", 50) :]])

    async def sequences(request: Request) -> Response:
        query = request.query_params
        found = watch.batches.lanes(query.get("model", ""))
        return reply([_lane(one) for one in found[-count_of(query, "count", 200) :]])

    async def operations(request: Request) -> Response:
        query = request.query_params
        found = watch.journal.operations(query.get("model", ""))
        return reply([_operation(watch, one) for one in found[-count_of(query, "count", 50) :]])

    return [
        ("GET", "/batches", batches),
        ("GET", "/streams", streams),
        ("GET", "/sequences", sequences),
        ("GET", "/operations", operations),
    ]


def of_model(watch: Watch, model: Model, count: int) -> messages.Batches:
    """How the requests of a model became batches."""
    reasons = model.counters.reasons
    sizes = model.counters.batches
    return messages.Batches(
        model.name,
        tuple(
            messages.BatchReason(explain.REASONS[reason], explain.why(reason, model), *row)
            for reason, row in sorted(reasons.items(), key=lambda item: -item[1][0])
        ),
        tuple(
            messages.BatchSize(size, row.compute_infer.count, row.compute_infer.ns)
            for size, row in sorted(sizes.items())
        ),
        tuple(_batch(model, one) for one in watch.batches.batches(model, count)),
        tuple(_open(model)),
        tuple(
            messages.OpenRequest(
                one.id, one.model, one.version,
                "abandoned" if one.request is not None else "cancelled", one.seconds,
                "" if one.where == "queue" else one.where, _text(one.correlation_id),
            )
            for one in watch.batches.gone(model.name)[-20:]
        ),
        tuple(explain.advice(model)),
    )  # fmt: skip


def _batch(model: Model, kept: KeptBatch) -> messages.Batch:
    return messages.Batch(
        kept.number, kept.time, model.name, model.version_text, kept.instance, kept.size,
        kept.count, explain.REASONS[kept.reason], explain.why(kept.reason, model),
        kept.input_ns / 1000, kept.infer_ns / 1000, kept.failed,
        tuple(
            messages.BatchedRequest(
                part.id, tensors(part.inputs), part.batch_size, _text(part.correlation_id),
                part.flags, part.queue_ns / 1000, part.outcome,
            )
            for part in kept.parts
        ),
    )  # fmt: skip


def tensors(specs: Iterable[TensorSpec]) -> tuple[messages.Tensor, ...]:
    """Tensors as messages have them."""
    return tuple(messages.Tensor(one.name, one.datatype, tuple(one.shape)) for one in specs)


def _text(identity: int | str) -> str:
    return str(identity) if identity else ""


def _open(model: Model) -> Iterator[messages.OpenRequest]:
    """What waits and runs, the oldest first of each."""
    now = time.monotonic_ns()

    def row(request: CoreRequest, state: str, since: int, instance: str) -> messages.OpenRequest:
        return messages.OpenRequest(
            request.id, model.name, model.version_text, state, max(now - since, 0) / 1e9, instance,
            _text(request.correlation_id),
        )  # fmt: skip

    for instance in model.instances:
        for request in list(instance.pending.values())[:200]:
            if not request.done and type(request) is not NullRequest:
                state = "abandoned" if request.cancelled else "running"
                yield row(request, state, request.times.compute_start, instance.name)
    for request in list(model.scheduler.queue)[:200]:
        yield row(request, "queued", request.times.queue_start, "")


def _stream(kept: Stream) -> messages.Streamed:
    def response(one: KeptResponse) -> messages.StreamedResponse:
        return messages.StreamedResponse(
            one.at, one.final, one.empty, one.error, tensors(one.outputs)
        )

    return messages.Streamed(
        kept.id, kept.model, kept.version, kept.time, kept.state, kept.count,
        tuple(response(one) for one in (*kept.first, *kept.last)),
    )  # fmt: skip


def _lane(kept: Lane) -> messages.SequenceLane:
    return messages.SequenceLane(
        str(kept.correlation_id), kept.model, kept.version, kept.state, kept.started,
        kept.instance, kept.slot, kept.ended, kept.moves,
    )  # fmt: skip


def _operation(watch: Watch, kept: explain.Operation) -> messages.Operation:
    now = time.monotonic()
    return messages.Operation(
        kept.model, kept.kind, kept.state, kept.time,
        kept.seconds if kept.state != "running" else now - kept.began, kept.cause, kept.version,
        tuple(messages.Stage(name, seconds) for name, seconds in kept.durations()),
        explain.blocks(kept, watch.engine.repository.draining), kept.error, kept.line, kept.text(),
    )  # fmt: skip
