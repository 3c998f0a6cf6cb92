"""Control calls that look into an instance: `/models/NAME/stack` and `/models/NAME/profile`.

How that is done is `observe.profile`'s business.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response

from devkit.control import messages
from devkit.control.gauges import Call, reply
from devkit.control.watch import Watch
from devkit.core.instance import Instance
from devkit.errors import ControlError
from devkit.observe import profile as profiles

_TYPES = {
    "speedscope": "application/json", "flamegraph": "image/svg+xml", "raw": "text/plain",
}  # fmt: skip


def routes(watch: Watch) -> list[Call]:
    """The calls of this module."""

    async def stack(request: Request) -> Response:
        chosen = _instances(watch, request)
        return reply(await asyncio.gather(*(_stack(one) for one in chosen)))

    async def profile(request: Request) -> Response:
        try:
            asked = messages.from_json(messages.TakeProfile, await request.body() or b"{}")
        except ValueError as problem:
            raise ControlError(f"the call cannot be understood: {problem}") from problem
        instance = _busiest(_instances(watch, request, asked.instance))
        data = await profiles.record(
            instance, asked.seconds, rate=asked.rate, format=asked.format, native=asked.native,
            idle=asked.idle, pause=asked.pause,
        )  # fmt: skip
        headers = {"X-Devkit-Instance": instance.name}
        return Response(data, media_type=_TYPES[asked.format], headers=headers)

    return [
        ("GET", "/models/{name}/stack", stack),
        ("POST", "/models/{name}/profile", profile),
    ]


def _instances(watch: Watch, request: Request, named: str = "") -> list[Instance]:
    """The instances of the model, or the one that is named (`add_sub_0`, or just `0`)."""
    query = request.query_params
    model = watch.engine.model(request.path_params["name"], query.get("version", ""))
    wanted = named or query.get("instance", "")
    found = [
        one
        for one in model.instances
        if one.state != "dead" and wanted in ("", one.name, one.name.removeprefix(model.name + "_"))
    ]
    if not found:
        names = ", ".join(one.name for one in model.instances) or "none: it is an ensemble"
        raise ControlError(
            f"model '{model.name}' has no instance '{wanted}' that runs"
            if wanted
            else f"model '{model.name}' has no process of its own",
            model=model.name,
            remedy=f"its instances: {names}",
        )
    return found


def _busiest(instances: list[Instance]) -> Instance:
    """The one that has worked most: where no instance is named, it has most to show."""
    return max(instances, key=lambda one: (bool(one.batches), one.tally.busy_ns))


async def _stack(instance: Instance) -> messages.Stack:
    running = [request for batch in instance.batches for request in batch.requests]
    started = instance.batches[0].sent if instance.batches else 0
    found = await profiles.stack(instance)
    return messages.Stack(
        instance.name, instance.pid,
        tuple(messages.ThreadStack(name, text) for name, text in found.threads),
        tuple(request.id for request in running),
        (time.monotonic_ns() - started) / 1e9 if started else 0.0, found.note,
    )  # fmt: skip
