"""The client's calls about what was kept: recorded requests, their tensors, failures."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from devkit.contract import differences, inspection, recording
from devkit.contract.recording import Record
from devkit.control import messages
from devkit.control.messages import TensorAddress


class ObservingCalls:
    """Mixed into `Client`, which brings `_call` and `_request`."""

    if TYPE_CHECKING:

        def _call(
            self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
        ) -> Any: ...

        def _request(
            self,
            method: str,
            path: str,
            asked: Any = None,
            query: Mapping[str, Any] | None = None,
            body: bytes | None = None,
        ) -> bytes: ...

    # -- recorded requests -----------------------------------------------------------------------

    def captures(self, name: str = "", **choice: Any) -> list[Record]:
        """The recorded requests of a model, or of all, the oldest first.

        `choice`: `id` (may end with `*`), `failed`, `slower` (seconds), `numbers`, `last`, or
        `failure`, the number of a failure whose requests are meant.
        """
        return recording.read(io.BytesIO(self.recording(name, **choice)))

    def capture_list(self, name: str = "", **choice: Any) -> list[messages.CaptureInfo]:
        """What is recorded, without the tensors; chosen as in `captures`."""
        rows = self._call("GET", "/captures", query=_query(name, **choice))
        return [messages.from_plain(messages.CaptureInfo, row) for row in rows]

    def recording(self, name: str = "", **choice: Any) -> bytes:
        """Recorded requests as the bytes of a recording file; chosen as in `captures`.

        Those of which only a sample was kept are left out, unless `samples` is True.
        """
        return self._request("GET", "/recording", query=_query(name, **choice))

    def add_recording(self, data: bytes) -> list[messages.CaptureInfo]:
        """Put the requests of a recording file into the runtime's ring, to be looked at there."""
        rows = json.loads(self._request("POST", "/captures", body=data))
        return [messages.from_plain(messages.CaptureInfo, row) for row in rows]

    def forget_captures(self, name: str = "", **choice: Any) -> int:
        """Drop recorded requests, chosen as in `captures`; returns how many."""
        return int(self._call("DELETE", "/captures", query=_query(name, **choice))["removed"])

    def capture_settings(self, **changes: Any) -> messages.CaptureSettings:
        """How much is recorded, after `changes` (fields of CaptureSettings) if there are any."""
        now = messages.from_plain(messages.CaptureSettings, self._call("GET", "/captures/settings"))
        if not changes:
            return now
        asked = dataclasses.replace(now, **changes)
        answer = self._call("PUT", "/captures/settings", asked)
        return messages.from_plain(messages.CaptureSettings, answer)

    # -- tensors ---------------------------------------------------------------------------------

    def tensors(
        self, capture: int = 0, *, failure: int = 0, request: int = 1
    ) -> list[messages.TensorInfo]:
        """Every tensor that was kept of a recorded request, or of a request of a failure."""
        query = {"capture": capture, "failure": failure, "request": request}
        rows = self._call("GET", "/tensors", query=query)
        return [messages.from_plain(messages.TensorInfo, row) for row in rows]

    def tensor_summary(
        self, at: TensorAddress, *, exact: bool = False, bins: int = inspection.BINS
    ) -> inspection.Summary:
        """A tensor in numbers, computed in the runtime."""
        found = self._tensor("summary", at, exact=int(exact), bins=bins)
        return messages.from_plain(inspection.Summary, found)

    def tensor_values(
        self, at: TensorAddress, index: str = "", *, limit: int = 16 << 20
    ) -> npt.NDArray[Any]:
        """A slice of a tensor (`0, :, 10:20`), or all of it, up to `limit` bytes."""
        query = {**dataclasses.asdict(at), "slice": index, "limit": limit}
        data = self._request("GET", "/tensors/values", query=query)
        # The JSON header ends where the values begin, and is one object.
        head = data[: 1 << 16].decode("utf-8", "replace")
        header: dict[str, Any] = json.JSONDecoder().raw_decode(head)[0]
        size = sum(row["parameters"]["binary_data_size"] for row in header["outputs"])
        (array,) = recording.Wire(len(data) - size, data).arrays("outputs").values()
        return np.array(array)

    def tensor_picture(
        self, at: TensorAddress, *, layout: str = "", index: str = "", largest: int = 512
    ) -> messages.Picture:
        """A tensor as a PNG; `layout` says which dimension is what where it cannot be seen."""
        found = self._tensor("picture", at, layout=layout, slice=index, largest=largest)
        return messages.from_plain(messages.Picture, found)

    def tensor_series(
        self, at: TensorAddress, *, points: int = 1000, index: str = ""
    ) -> inspection.Series:
        """The values in order, at most `points` of them or their extremes."""
        found = self._tensor("series", at, points=points, slice=index)
        return messages.from_plain(inspection.Series, found)

    def tensor_table(
        self, at: TensorAddress, *, rows: int = 20, columns: int = 12, index: str = ""
    ) -> inspection.Grid:
        """The upper left of a table."""
        found = self._tensor("table", at, rows=rows, columns=columns, slice=index)
        return messages.from_plain(inspection.Grid, found)

    def tensor_texts(self, at: TensorAddress, *, limit: int = 100) -> messages.Texts:
        """The first elements of a BYTES tensor."""
        return messages.from_plain(messages.Texts, self._tensor("texts", at, limit=limit))

    def compare_tensors(
        self, left: TensorAddress, right: TensorAddress, *, exact: bool = False
    ) -> differences.Difference:
        """What differs between two tensors that were kept, worked out in the runtime."""
        asked = messages.CompareTensors(left, right, exact)
        found = self._call("POST", "/tensors/compare", asked)
        return messages.from_plain(differences.Difference, found)

    def _tensor(self, view: str, at: TensorAddress, **more: Any) -> Any:
        return self._call("GET", f"/tensors/{view}", query={**dataclasses.asdict(at), **more})

    # -- failures --------------------------------------------------------------------------------

    def failures(self, name: str = "") -> list[messages.FailureInfo]:
        """What raised or died, of one model or of all, the oldest first."""
        rows = self._call("GET", "/failures", query={"model": name})
        return [messages.from_plain(messages.FailureInfo, row) for row in rows]

    def failure(self, number: int) -> messages.PostMortem:
        """All that is known of a failure."""
        return messages.from_plain(messages.PostMortem, self._call("GET", f"/failures/{number}"))

    def forget_failures(self, name: str = "") -> int:
        """Drop failures; returns how many."""
        return int(self._call("DELETE", "/failures", query={"model": name})["removed"])


def png_of(picture: messages.Picture) -> bytes:
    """The bytes of a picture's PNG."""
    return base64.b64decode(picture.png)


def _query(
    model: str,
    *,
    id: str = "",
    failed: bool = False,
    slower: float = 0.0,
    numbers: Iterable[int] | None = None,
    last: int = 0,
    failure: int = 0,
    samples: bool = False,
) -> dict[str, Any]:
    query: dict[str, Any] = {"model": model}
    if samples:
        query["samples"] = 1
    if id:
        query["id"] = id
    if failed:
        query["failed"] = 1
    if slower:
        query["slower"] = slower
    if numbers is not None:
        query["numbers"] = ",".join(map(str, numbers))
    if last:
        query["last"] = last
    if failure:
        query["failure"] = failure
    return query
