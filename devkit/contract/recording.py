"""Recorded requests: the KServe v2 binary wire form of a request and its answers, and their file.

What is recorded is what a client would have sent over HTTP: a JSON header and the tensors' bytes
behind it. So a recording replays anywhere: here, on the real server, in perf_analyzer. Nothing
here decides what is recorded, and nothing here sends anything.

The file is `devkit-recording 1`, a newline, and per record one line of JSON followed by the bytes
it counts: the request's, then those of each response.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from devkit.errors import DevkitError
from devkit.transport import dtypes
from devkit.transport.dtypes import ReadableBuffer

MAGIC = b"devkit-recording 1\n"

TensorRow = tuple[str, str, tuple[int, ...], ReadableBuffer]
"""(name, protocol datatype, shape, bytes) of a tensor."""


class RecordingError(DevkitError):
    """A file that is no recording, or one cut short; nothing of it was used."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A message in wire form: `header_length` bytes of JSON, then the tensors' bytes."""

    header_length: int
    data: bytes

    @property
    def header(self) -> dict[str, Any]:
        """The JSON header."""
        parsed: dict[str, Any] = json.loads(self.data[: self.header_length])
        return parsed

    def arrays(self, key: str) -> dict[str, npt.NDArray[Any]]:
        """Arrays of `inputs` or `outputs`, by name."""
        found = {}
        offset = self.header_length
        for row in self.header.get(key, ()):
            size = row["parameters"]["binary_data_size"]
            data = self.data[offset : offset + size]
            found[row["name"]] = dtypes.to_array(row["datatype"], row["shape"], data)
            offset += size
        return found


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: tensors in `wire`, or `error` with Triton's code; `wire` may hold neither."""

    wire: Wire
    error: str = ""
    code: int = 0
    final: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """One request and everything that was answered.

    Attributes:
        time: when it came, seconds since 1970.
        seconds: from then until its last response.
        version: the version that was asked for; empty where any would do.
    """

    number: int
    model: str
    version: str
    time: float
    seconds: float
    request: Wire
    replies: tuple[Reply, ...]

    @property
    def id(self) -> str:
        """The request's own id, empty where it has none."""
        return str(self.request.header.get("id", ""))

    @property
    def error(self) -> str:
        """The first error among the replies, empty where there is none."""
        return next((reply.error for reply in self.replies if reply.error), "")

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return len(self.request.data) + sum(len(reply.wire.data) for reply in self.replies)

    def inputs(self) -> dict[str, npt.NDArray[Any]]:
        """The request's tensors."""
        return self.request.arrays("inputs")

    def outputs(self) -> dict[str, npt.NDArray[Any]]:
        """The tensors of the first response that has any."""
        for reply in self.replies:
            if reply.wire.data and not reply.error:
                return reply.wire.arrays("outputs")
        return {}


def request_wire(
    inputs: Sequence[TensorRow],
    outputs: Sequence[str] = (),
    *,
    id: str = "",
    parameters: dict[str, Any] | None = None,
) -> Wire:
    """A request as `tritonclient.http` would send it; every output is asked for in binary."""
    header: dict[str, Any] = {}
    if id:
        header["id"] = id
    if parameters:
        header["parameters"] = parameters
    header["inputs"] = [_described(row) for row in inputs]
    if outputs:
        header["outputs"] = [
            {"name": name, "parameters": {"binary_data": True}} for name in outputs
        ]
    else:
        header.setdefault("parameters", {})
        header["parameters"] = {**header["parameters"], "binary_data_output": True}
    return _wire(header, inputs)


def response_wire(
    model: str,
    version: str,
    outputs: Sequence[TensorRow],
    *,
    id: str = "",
    parameters: dict[str, Any] | None = None,
) -> Wire:
    """A response as the server would send it in binary form."""
    header: dict[str, Any] = {}
    if id:
        header["id"] = id
    header |= {"model_name": model, "model_version": version}
    if parameters:
        header["parameters"] = parameters
    header["outputs"] = [_described(row) for row in outputs]
    return _wire(header, outputs)


def _described(row: TensorRow) -> dict[str, Any]:
    name, datatype, shape, data = row
    return {
        "name": name,
        "shape": list(shape),
        "datatype": datatype,
        "parameters": {"binary_data_size": len(data)},
    }


def _wire(header: dict[str, Any], rows: Sequence[TensorRow]) -> Wire:
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    return Wire(len(text), b"".join((text, *(row[3] for row in rows))))


def write(stream: BinaryIO, records: Iterable[Record]) -> int:
    """Write a recording; returns how many records it holds."""
    stream.write(MAGIC)
    count = 0
    for record in records:
        line = {
            "number": record.number,
            "model": record.model,
            "version": record.version,
            "time": record.time,
            "seconds": record.seconds,
            "request": [record.request.header_length, len(record.request.data)],
            "replies": [
                {
                    "wire": [reply.wire.header_length, len(reply.wire.data)],
                    "error": reply.error,
                    "code": reply.code,
                    "final": reply.final,
                }
                for reply in record.replies
            ],
        }
        stream.write(json.dumps(line, separators=(",", ":")).encode("utf-8") + b"\n")
        stream.write(record.request.data)
        for reply in record.replies:
            stream.write(reply.wire.data)
        count += 1
    return count


def read(stream: BinaryIO) -> list[Record]:
    """All records of a recording; RecordingError where it is none or incomplete."""
    if stream.readline() != MAGIC:
        raise RecordingError("not a recording of devkit", remedy="`devkit record` makes one")
    records = []
    while line := stream.readline():
        try:
            records.append(_read_record(json.loads(line), stream))
        except (ValueError, KeyError, TypeError) as problem:
            raise RecordingError(
                f"record {len(records) + 1} of the recording cannot be read: {problem}"
            ) from problem
    return records


def _read_record(line: dict[str, Any], stream: BinaryIO) -> Record:
    request = _read_wire(line["request"], stream)
    replies = tuple(
        Reply(_read_wire(row["wire"], stream), row["error"], row["code"], row["final"])
        for row in line["replies"]
    )
    return Record(
        line["number"], line["model"], line["version"], line["time"], line["seconds"],
        request, replies,
    )  # fmt: skip


def _read_wire(lengths: Sequence[int], stream: BinaryIO) -> Wire:
    header_length, length = lengths
    data = stream.read(length)
    if len(data) != length:
        raise ValueError(f"{length - len(data)} bytes are missing at its end")
    return Wire(header_length, data)


def rows_of(arrays: dict[str, npt.NDArray[Any]]) -> list[TensorRow]:
    """Tensor rows of named arrays; RecordingError where Triton has no type for one."""
    rows: list[TensorRow] = []
    for name, array in arrays.items():
        datatype = dtypes.datatype_of(np.asarray(array))
        if datatype is None:
            raise RecordingError(f"'{name}': Triton has no data type for {array.dtype}")
        rows.append((name, datatype, tuple(array.shape), dtypes.to_data(array)))
    return rows
