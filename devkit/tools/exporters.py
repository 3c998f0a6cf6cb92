"""Recorded requests written for other tools: perf_analyzer's data, a pytest case, curl, Python.

Pure: records in, texts and bytes out. What perf_analyzer takes was found out by asking it.
"""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract.differences import TOLERANCES
from devkit.contract.recording import Record
from devkit.errors import DevkitError
from devkit.transport import dtypes

INLINE_VALUES = 64
"""Values of a tensor that a test's own text may hold; larger ones lie in a file beside it."""

_READABLE = 1000  # values written as numbers in perf_analyzer's file
_PLAIN = frozenset(dtypes.NUMPY) - {"FP16", "BYTES"}


class ExportFormatError(DevkitError):
    """The requests cannot be written in that form; `remedy` says which can."""


# --- perf_analyzer ------------------------------------------------------------------------------


def perf_analyzer(records: Iterable[Record], *, batching: bool, outputs: bool = False) -> str:
    """JSON for `perf_analyzer --input-data`; requests of a sequence become one stream.

    `batching` says whether the model's config has a batch dimension, which perf_analyzer adds
    itself: each row of a recorded batch is a request. `outputs` adds what is to be answered.
    """
    whole = _whole(records)
    sequences: dict[Any, list[dict[str, Any]]] = {}
    single: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for record in whole:
        header = record.request.header
        rows = _rows(record.request.held("inputs"), batching)
        sequence = (header.get("parameters") or {}).get("sequence_id")
        if sequence:
            sequences.setdefault(sequence, []).extend(rows)
        else:
            single += rows
        if outputs and not sequence:
            answers += _answers(record, len(rows), batching)
    if sequences and single:
        raise ExportFormatError(
            "requests of sequences and others do not go into one file",
            remedy="write those of one model at a time",
        )
    data: dict[str, Any] = {"data": list(sequences.values()) if sequences else single}
    if answers:
        data["validation_data"] = answers
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _whole(records: Iterable[Record]) -> list[Record]:
    found = list(records)
    kept = [record for record in found if record.whole]
    if not kept:
        raise ExportFormatError(
            "there is no request to write" if not found else "only samples of them were kept",
            remedy="record larger requests whole: `devkit record --largest 2GiB`" if found
            else "`devkit captures` lists them",
        )  # fmt: skip
    models = sorted({record.model for record in kept})
    if len(models) > 1:
        raise ExportFormatError(
            f"the requests are for several models: {', '.join(models)}",
            remedy="choose one with --model",
        )
    return kept


def _rows(tensors: Sequence[Any], batching: bool) -> list[dict[str, Any]]:
    """One entry for each row of a batch, or one for the request."""
    arrays = [(held.name, held.datatype, _raw(held)) for held in tensors]
    count = arrays[0][2].shape[0] if batching and arrays else 1
    rows = []
    for number in range(count):
        rows.append({
            name: _content(datatype, array[number] if batching else array)
            for name, datatype, array in arrays
        })  # fmt: skip
    return rows


def _raw(held: Any) -> npt.NDArray[Any]:
    """The array as it travels: BF16 as its bits."""
    array: npt.NDArray[Any] = held.array()
    if held.datatype == "BF16":
        array = (array.view(np.uint32) >> 16).astype(np.uint16)
    return array


def _content(datatype: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    array = np.asarray(array)
    return {"content": _values(datatype, array), "shape": list(array.shape)}


def _values(datatype: str, array: npt.NDArray[Any]) -> Any:
    if datatype == "BYTES":
        try:
            return [_text(item) for item in array.ravel().tolist()]
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(dtypes.encode_bytes(array)).decode()}
    plain = datatype in _PLAIN and array.size <= _READABLE
    if plain and (array.dtype.kind != "f" or bool(np.isfinite(array).all())):
        return array.ravel().tolist()
    return {"b64": base64.b64encode(bytes(dtypes.to_data(array))).decode()}


def _text(item: Any) -> str:
    return item.decode("utf-8") if isinstance(item, bytes) else str(item)


def _answers(record: Record, count: int, batching: bool) -> list[dict[str, Any]]:
    for reply in record.replies:
        if reply.wire.data and not reply.error and reply.wire.whole:
            rows = _rows(reply.wire.held("outputs"), batching)
            if len(rows) == count:
                return rows
    raise ExportFormatError(
        f"request {record.number} has no answer to compare with",
        remedy="leave failed requests out, or write no outputs",
    )


# --- curl ---------------------------------------------------------------------------------------


def curl(record: Record, url: str) -> str:
    """A shell line that sends the request to `url` (`host:port`) and prints the answer as JSON."""
    (record,) = _whole([record])
    header = record.request.header
    path = f"/v2/models/{record.model}"
    if record.version:
        path += f"/versions/{record.version}"
    address = f"{url if '://' in url else 'http://' + url}{path}/infer"
    body: dict[str, Any] = {}
    if header.get("id"):
        body["id"] = header["id"]
    parameters = {k: v for k, v in (header.get("parameters") or {}).items()
                  if k != "binary_data_output"}  # fmt: skip
    if parameters:
        body["parameters"] = parameters
    tensors = record.request.held("inputs")
    values = [_values(held.datatype, _raw(held)) for held in tensors]
    rows: list[dict[str, Any]] = [
        {"name": held.name, "shape": list(held.shape), "datatype": held.datatype}
        for held in tensors
    ]
    outputs = [{"name": row["name"]} for row in header.get("outputs", ())]
    if any(isinstance(value, dict) for value in values):
        return _binary_curl(record, address, body, rows, outputs)
    for row, value in zip(rows, values, strict=True):
        row["data"] = value
    body["inputs"] = rows
    if outputs:
        body["outputs"] = outputs
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return f"curl -s {shlex.quote(address)} -d {shlex.quote(text)}"


def _binary_curl(
    record: Record,
    address: str,
    body: dict[str, Any],
    rows: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
) -> str:
    """With the tensors' bytes in base64, for what JSON has no numbers for or would be long."""
    for row, old in zip(rows, record.request.header["inputs"], strict=True):
        row["parameters"] = {"binary_data_size": old["parameters"]["binary_data_size"]}
    body["inputs"] = rows
    if outputs:
        body["outputs"] = outputs
    head = json.dumps(body, separators=(",", ":")).encode()
    data = head + record.request.data[record.request.header_length :]
    encoded = base64.b64encode(data).decode()
    return (
        f"echo {encoded} | base64 -d | curl -s {shlex.quote(address)} "
        f"-H 'Inference-Header-Content-Length: {len(head)}' "
        "-H 'Content-Type: application/octet-stream' --data-binary @-"
    )


# --- Python -------------------------------------------------------------------------------------


def python_call(record: Record) -> str:
    """Two lines of Python that send the request again; a long one by its number, not its values.

    So is one with BF16, which NumPy has no name for.
    """
    (record,) = _whole([record])
    if _is_long(record) or any(held.datatype == "BF16" for held in record.request.held("inputs")):
        return f"import devkit\ndevkit.replay({record.number})"
    inputs = ", ".join(
        f"{_quoted(held.name)}: {_literal(held)}" for held in record.request.held("inputs")
    )
    options = _options(record.request.header).replace(", correlation_id=", ", sequence_id=")
    version = f", version={_quoted(record.version)}" if record.version else ""
    call = f"devkit.infer({_quoted(record.model)}, {{{inputs}}}{version}{options})"
    if len(record.replies) + record.dropped != 1:  # a stream's responses come one by one
        call = f"list({call.replace('devkit.infer(', 'devkit.connect().stream(', 1)})"
    return f"import devkit, numpy as np\n{call}"


# --- pytest -------------------------------------------------------------------------------------


def pytest_case(records: Iterable[Record], *, file: str = "") -> tuple[str, bool]:
    """(text of a test module, whether it needs the recording `file` beside it).

    Each request is asked of the model by devkit's pytest plugin, and must be answered as it was.
    """
    whole = _whole(records)
    beside = any(_is_long(record) for record in whole)
    if beside and not file:
        raise ExportFormatError(
            "the tensors are too large to stand in a test's text", remedy="name a file to write"
        )
    if any(held.datatype == "BF16" for record in whole for held in record.request.held("inputs")):
        raise ExportFormatError(
            "NumPy has no BF16 to write a test with", remedy="replay the recording instead"
        )
    model = whole[0].model
    tests = [_test(record, beside) for record in whole]
    body = "\n\n\n".join(tests)
    lines = [f'"""Recorded requests of {model!r}, asked again."""'.replace("'", "`"), ""]
    standard = ["import re"] if "re.escape" in body else []
    if beside:
        standard.append("from pathlib import Path")
    lines += [*standard, ""] if standard else []
    if "np." in body:
        lines.append("import numpy as np")
    lines.append("import pytest")
    if beside:
        lines += ["", "from devkit.contract import recording"]
    lines += ["", f"pytestmark = pytest.mark.triton_model({model!r})".replace("'", '"'), ""]
    if beside:
        lines += [
            f'with Path(__file__).with_name("{file}").open("rb") as _stream:',
            "    RECORDED = {one.number: one for one in recording.read(_stream)}",
            "",
        ]
    return "\n".join(lines) + "\n\n" + body + "\n", beside


def _is_long(record: Record) -> bool:
    wires = [("inputs", record.request)]
    wires += [("outputs", reply.wire) for reply in record.replies if reply.wire.data]
    return any(held.count > INLINE_VALUES for key, wire in wires for held in wire.held(key))


def _test(record: Record, beside: bool) -> str:
    header = record.request.header
    name = re.sub(r"\W+", "_", f"{record.model}_{record.number}")
    lines = [f"def test_{name}(triton_model):"]
    if beside:
        lines.append(f"    recorded = RECORDED[{record.number}]")
        lines.append("    inputs = recorded.inputs()")
    else:
        lines.append("    inputs = {")
        for held in record.request.held("inputs"):
            lines.append(f"        {_quoted(held.name)}: {_literal(held)},")
        lines.append("    }")
    streams = len(record.replies) + record.dropped != 1
    call = "list(triton_model.stream(inputs" if streams else "triton_model.infer(inputs"
    call += _options(header) + (")" * (2 if streams else 1))
    if record.error:
        return "\n".join([*lines, *_expects(record.error, call)])
    if streams:
        lines += [
            f"    answers = {call}",
            f"    assert len(answers) == {len(record.replies) + record.dropped}",
        ]
        return "\n".join(lines)
    lines.append(f"    answer = {call}")
    (reply,) = record.replies
    tensors = reply.wire.held("outputs") if reply.wire.data else []
    if beside:
        lines.append("    expected = recorded.outputs()")
    for held in tensors:
        key = _quoted(held.name)
        expected = f"expected[{key}]" if beside else _literal(held)
        lines.append(_assertion(held, f"answer[{key}]", expected))
    return "\n".join(lines)


def _options(header: dict[str, Any]) -> str:
    given = dict(header.get("parameters") or {})
    for left_out in ("binary_data_output", "timeout"):
        given.pop(left_out, None)
    options: dict[str, Any] = {}
    if header.get("id"):
        options["id"] = header["id"]
    if header.get("outputs"):
        options["outputs"] = [row["name"] for row in header["outputs"]]
    for key, name in (("sequence_id", "correlation_id"), ("sequence_start",) * 2,
                      ("sequence_end",) * 2, ("priority",) * 2):  # fmt: skip
        value = given.pop(key, None)
        if value:
            options[name] = value
    if given:
        options["parameters"] = given
    return "".join(f", {key}={_quoted(value)}" for key, value in options.items())


def _quoted(value: Any) -> str:
    """A Python literal, texts in double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)}: {_quoted(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _literal(held: Any) -> str:
    array = held.array()
    if held.datatype == "BYTES":
        values = array.tolist()
        return f"np.array({values!r}, dtype=np.object_)" + _reshaped(array)
    dtype = "np.bool_" if array.dtype == np.bool_ else f"np.{array.dtype.name}"
    text = _numbers(array.tolist())
    return f"np.array({text}, dtype={dtype})" + _reshaped(array)


def _reshaped(array: npt.NDArray[Any]) -> str:
    return "" if array.size else f".reshape({tuple(array.shape)})"


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_numbers(one) for one in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})".replace("'", '"')
    return repr(value)


def _assertion(held: Any, got: str, expected: str) -> str:
    if held.datatype not in TOLERANCES:
        return f"    np.testing.assert_array_equal({got}, {expected})"
    relative, absolute = TOLERANCES[held.datatype]
    return f"    np.testing.assert_allclose({got}, {expected}, rtol={relative}, atol={absolute})"


_RAISED = re.compile(r"message: (?:(\w+): )?(.*?)(?:\n\nAt:|$)", re.DOTALL)


def _expects(error: str, call: str) -> list[str]:
    found = _RAISED.search(error)
    said = found.group(2) if found else error.partition("\n\nAt:")[0]
    first = said.strip().partition("\n")[0]
    return [
        f"    with pytest.raises(Exception, match=re.escape({_quoted(first)})):",
        f"        {call}",
    ]
