"""Control calls about tensors that were kept: numbers, slices, pictures, comparisons.

Runtime side only. Everything is computed in side threads; values travel only when asked for, and
no more than a bound of bytes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from devkit.contract import differences, inspection, pictures, recording
from devkit.contract.inspection import Held
from devkit.contract.recording import Record
from devkit.control import calls, messages
from devkit.errors import ControlError
from devkit.observe import tensors
from devkit.transport import dtypes

if TYPE_CHECKING:
    from devkit.control.calls import Row
    from devkit.observe.capture import Capture
    from devkit.observe.failures import Failures
    from devkit.observe.tensors import Looker

SENT = 16 << 20
"""Bytes of values that are sent unless more are asked for."""


def routes(capture: Capture, failures: Failures, looker: Looker) -> list[Row]:
    """What can be asked."""
    topic = _Tensors(capture, failures, looker)
    return [
        ("GET", "/tensors", topic.list),
        ("GET", "/tensors/summary", topic.summary),
        ("GET", "/tensors/values", topic.values),
        ("GET", "/tensors/picture", topic.picture),
        ("GET", "/tensors/series", topic.series),
        ("GET", "/tensors/table", topic.table),
        ("GET", "/tensors/texts", topic.texts),
        ("POST", "/tensors/compare", topic.compare),
    ]


def _address(request: Request) -> messages.TensorAddress:
    query = request.query_params
    return messages.TensorAddress(
        calls.number(request, "capture"), calls.number(request, "failure"),
        calls.number(request, "request", 1), query.get("part", ""), query.get("name", ""),
        calls.number(request, "reply"), calls.number(request, "occurrence"),
    )  # fmt: skip


class _Tensors:
    def __init__(self, capture: Capture, failures: Failures, looker: Looker) -> None:
        self._capture = capture
        self._failures = failures
        self._looker = looker

    def _record(self, at: messages.TensorAddress) -> Record:
        if at.failure:
            record = self._failures.record(at.failure, at.request)
            what, remedy = f"failure {at.failure} with a request {at.request}", "`devkit failures`"
        else:
            record = self._capture.record(at.capture)
            what, remedy = f"recorded request {at.capture}", "`devkit captures` lists those kept"
        if record is None:
            raise ControlError(f"there is no {what} any more", remedy=remedy)
        return record

    async def _look(self, request: Request, view: str, work: Any) -> Any:
        """What `work` finds of the addressed tensor, remembered by the whole query."""
        at = _address(request)
        record = self._record(at)

        def there() -> Any:
            return work(tensors.find(record, at.part, at.name, at.reply, at.occurrence))

        return await self._looker.look((view, str(request.query_params)), there)

    async def list(self, request: Request) -> Response:
        at = _address(request)
        record = self._record(at)
        return calls.reply(await self._looker.look(None, lambda: _rows(at, record)))

    async def summary(self, request: Request) -> Response:
        exact, bins = calls.flag(request, "exact"), calls.number(request, "bins", inspection.BINS)
        found = await self._look(
            request, "summary", lambda held: inspection.summarise(held, exact=exact, bins=bins)
        )
        return calls.reply(found)

    async def series(self, request: Request) -> Response:
        points = min(100_000, calls.number(request, "points", 1000))
        index = request.query_params.get("slice", "")
        found = await self._look(
            request, "series", lambda held: inspection.series(_numeric(held), points, index)
        )
        return calls.reply(found)

    async def table(self, request: Request) -> Response:
        rows = min(10_000, calls.number(request, "rows", 20))
        columns = min(1_000, calls.number(request, "columns", 12))
        index = request.query_params.get("slice", "")
        found = await self._look(
            request, "table", lambda held: inspection.table(held, rows, columns, index)
        )
        return calls.reply(found)

    async def texts(self, request: Request) -> Response:
        limit = min(inspection.TEXTS, calls.number(request, "limit", 100))

        def work(held: Held) -> messages.Texts:
            if not held.text:
                raise ControlError(f"'{held.name}' is {held.datatype}, not BYTES")
            found = tuple(inspection.shown(one) for one in held.texts(limit))
            return messages.Texts(held.count, found)

        return calls.reply(await self._look(request, "texts", work))

    async def picture(self, request: Request) -> Response:
        kind = request.query_params.get("layout", "")
        index = request.query_params.get("slice", "")
        largest = min(4096, calls.number(request, "largest", pictures.LARGEST))

        def work(held: Held) -> messages.Picture:
            array = inspection.cut(_numeric(held), index) if index else _numeric(held).array()
            made = pictures.picture(array, kind, largest)
            if made is None:
                raise ControlError(
                    f"'{held.name}' of shape {list(array.shape)} does not look like a picture",
                    remedy="say which dimension is what: layout HWC, CHW, NHWC, NCHW, HW or NHW",
                )
            return messages.Picture(
                base64.b64encode(made.png).decode(), made.layout, made.width, made.height,
                made.shown, made.count, made.step, made.scaling,
            )  # fmt: skip

        return calls.reply(await self._look(request, "picture", work))

    async def values(self, request: Request) -> Response:
        """A slice, or all, in the binary form of a response."""
        index = request.query_params.get("slice", "")
        limit = calls.number(request, "limit", SENT)
        at = _address(request)
        record = self._record(at)

        def work() -> recording.Wire:
            held = tensors.find(record, at.part, at.name, at.reply, at.occurrence)
            array = inspection.cut(held, index) if index else held.array()
            size = array.nbytes
            if array.dtype == np.object_:
                size = sum(len(one) + 4 for one in array.ravel().tolist())
            if size > limit:
                raise ControlError(
                    f"these are {size:,} bytes",
                    remedy=f"ask for a slice, or for as many with a limit above {limit:,}",
                )
            datatype = dtypes.datatype_of(array) or ""
            row = (at.name, datatype, tuple(array.shape), dtypes.to_data(array))
            return recording.response_wire("", "", [row])

        wire = await self._looker.look(None, work)
        return Response(
            wire.data,
            headers={"Inference-Header-Content-Length": str(wire.header_length)},
            media_type="application/octet-stream",
        )

    async def compare(self, request: Request) -> Response:
        asked = await calls.asked(request, messages.CompareTensors)
        one, other = self._record(asked.left), self._record(asked.right)

        def work() -> differences.Difference:
            left, right = (
                tensors.find(record, at.part, at.name, at.reply, at.occurrence)
                for record, at in ((one, asked.left), (other, asked.right))
            )
            names = tuple(
                f"failure {at.failure}" if at.failure else f"request {at.capture}"
                for at in (asked.left, asked.right)
            )
            return differences.compare(left, right, exact=asked.exact, names=names)

        return calls.reply(await self._looker.look(None, work))


def _numeric(held: Held) -> Held:
    if held.text:
        raise ControlError(f"'{held.name}' is text", remedy="ask for its texts")
    return held


def _rows(at: messages.TensorAddress, record: Record) -> list[messages.TensorInfo]:
    found = []
    seen: dict[tuple[str, int, str], int] = {}
    for part, reply, held in tensors.tensors_of(record):
        key = part, reply, held.name
        occurrence = seen.get(key, 0)
        seen[key] = occurrence + 1
        place = messages.TensorAddress(
            at.capture, at.failure, at.request, part, held.name, reply, occurrence
        )
        found.append(
            messages.TensorInfo(
                place, held.datatype, held.shape, held.bytes, inspection.view_of(held), held.whole
            )
        )
    return found
