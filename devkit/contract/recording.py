"""Recorded requests: the KServe v2 binary wire form of a request and its answers, and their file.

What is recorded is what a client would have sent over HTTP: a JSON header and the tensors' bytes
behind it. So a recording replays anywhere: here, on the real server, in perf_analyzer. Nothing
here decides what is recorded, and nothing here sends anything.

The file is `devkit-recording 1`, a newline, and per record one line of JSON followed by the bytes
it counts: the request's, then those of each response.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from devkit.contract.inspection import Held
from devkit.errors import DevkitError
from devkit.transport import dtypes
from devkit.transport.dtypes import ReadableBuffer

MAGIC = b"devkit-recording 1\n"

TensorRow = tuple[str, str, tuple[int, ...], ReadableBuffer]
"""(name, protocol datatype, shape, bytes) of a tensor."""

Runs = Sequence[Sequence[int]]
"""(start, stop) of the values of a tensor that were kept, where not all were."""

_RUNS = "devkit_runs"


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
        """Arrays of `inputs` or `outputs`, by name; those kept in part only are left out."""
        found = {}
        offset = self.header_length
        for row in self.header.get(key, ()):
            size = row["parameters"]["binary_data_size"]
            data = self.data[offset : offset + size]
            if _RUNS not in row["parameters"]:
                found[row["name"]] = dtypes.to_array(row["datatype"], row["shape"], data)
            offset += size
        return found

    def held(self, key: str) -> list[Held]:
        """Tensors of `inputs` or `outputs` to look at, whole or in part, without a copy."""
        found = []
        offset = self.header_length
        view = memoryview(self.data)
        for row in self.header.get(key, ()):
            size = row["parameters"]["binary_data_size"]
            runs = row["parameters"].get(_RUNS, ())
            data = view[offset : offset + size]
            found.append(Held(row["name"], row["datatype"], row["shape"], data, runs))
            offset += size
        return found

    @property
    def whole(self) -> bool:
        """Whether every tensor was kept whole."""
        if not self.data:
            return True
        header = self.header
        rows = [*header.get("inputs", ()), *header.get("outputs", ())]
        return not any(_RUNS in row.get("parameters", {}) for row in rows)


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: tensors in `wire`, or `error` with Triton's code; `wire` may hold neither."""

    wire: Wire
    error: str = ""
    code: int = 0
    final: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """A tensor that the model showed by `devkit.probe` while it worked on the request.

    Attributes:
        seconds: after the request came.
        batch: whether it was shown for the whole batch that the request was in.
        runs: of the values that were kept; empty where all were.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes
    seconds: float = 0.0
    batch: bool = True
    runs: tuple[tuple[int, int], ...] = ()

    def held(self) -> Held:
        """To look at."""
        return Held(self.name, self.datatype, self.shape, self.data, self.runs)


@dataclass(frozen=True, slots=True)
class Record:
    """One request and everything that was answered.

    Attributes:
        probes: intermediate tensors that the model showed.
        dropped: responses of a long stream that were not kept.
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
    probes: tuple[Probe, ...] = ()
    dropped: int = 0

    @property
    def whole(self) -> bool:
        """Whether the request can be sent again: all of its bytes were kept."""
        return self.request.whole

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
        answered = sum(len(reply.wire.data) for reply in self.replies)
        return len(self.request.data) + answered + sum(len(one.data) for one in self.probes)

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
    runs: Mapping[str, Runs] | None = None,
) -> Wire:
    """A request as `tritonclient.http` would send it; every output is asked for in binary.

    `runs` says of which tensors the rows hold a part only; such a request cannot be sent.
    """
    header: dict[str, Any] = {}
    if id:
        header["id"] = id
    if parameters:
        header["parameters"] = parameters
    header["inputs"] = [_described(row, runs) for row in inputs]
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
    runs: Mapping[str, Runs] | None = None,
) -> Wire:
    """A response as the server would send it in binary form; `runs` as in `request_wire`."""
    header: dict[str, Any] = {}
    if id:
        header["id"] = id
    header |= {"model_name": model, "model_version": version}
    if parameters:
        header["parameters"] = parameters
    header["outputs"] = [_described(row, runs) for row in outputs]
    return _wire(header, outputs)


def _described(row: TensorRow, runs: Mapping[str, Runs] | None) -> dict[str, Any]:
    name, datatype, shape, data = row
    parameters: dict[str, Any] = {"binary_data_size": len(data)}
    if runs and name in runs:
        parameters[_RUNS] = [list(run) for run in runs[name]]
    return {"name": name, "shape": list(shape), "datatype": datatype, "parameters": parameters}


def _wire(header: dict[str, Any], rows: Sequence[TensorRow]) -> Wire:
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    return Wire(len(text), b"".join((text, *(row[3] for row in rows))))


def matching(
    records: Iterable[Record],
    *,
    model: str = "",
    id: str = "",
    failed: bool = False,
    slower: float = 0.0,
    numbers: Iterable[int] | None = None,
    last: int = 0,
) -> list[Record]:
    """The records that are of `model`, have the request id `id` (an id or the beginning of one
    with a `*`), failed, took longer than `slower` seconds; of those the `last` ones.
    """
    chosen = None if numbers is None else frozenset(numbers)
    found = [
        one for one in records
        if (not model or one.model == model)
        and (chosen is None or one.number in chosen)
        and (not failed or one.error)
        and one.seconds >= slower
        and (not id or one.id == id or (id.endswith("*") and one.id.startswith(id[:-1])))
    ]  # fmt: skip
    return found[-last:] if last else found


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
        if record.dropped:
            line["dropped"] = record.dropped
        if record.probes:
            line["probes"] = [
                [one.name, one.datatype, one.shape, one.seconds, one.batch, one.runs, len(one.data)]
                for one in record.probes
            ]
        stream.write(json.dumps(line, separators=(",", ":")).encode("utf-8") + b"\n")
        stream.write(record.request.data)
        for reply in record.replies:
            stream.write(reply.wire.data)
        for probe in record.probes:
            stream.write(probe.data)
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
    probes = tuple(
        Probe(
            name, datatype, tuple(shape), _read_bytes(length, stream), seconds, batch,
            tuple((start, stop) for start, stop in runs),
        )
        for name, datatype, shape, seconds, batch, runs, length in line.get("probes", ())
    )  # fmt: skip
    return Record(
        line["number"], line["model"], line["version"], line["time"], line["seconds"],
        request, replies, probes, line.get("dropped", 0),
    )  # fmt: skip


def _read_wire(lengths: Sequence[int], stream: BinaryIO) -> Wire:
    header_length, length = lengths
    return Wire(header_length, _read_bytes(length, stream))


def _read_bytes(length: int, stream: BinaryIO) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise ValueError(f"{length - len(data)} bytes are missing at its end")
    return data


def rows_of(arrays: dict[str, npt.NDArray[Any]]) -> list[TensorRow]:
    """Tensor rows of named arrays; RecordingError where Triton has no type for one."""
    rows: list[TensorRow] = []
    for name, array in arrays.items():
        datatype = dtypes.datatype_of(np.asarray(array))
        if datatype is None:
            raise RecordingError(f"'{name}': Triton has no data type for {array.dtype}")
        rows.append((name, datatype, tuple(array.shape), dtypes.to_data(array)))
    return rows
