"""What a sequence model's requests carry besides their inputs: control tensors and states.

Works out the bytes; when a request runs is `core.sequence`'s. The Python backend never takes a
state from a response: a model sees the initial one in every request (the real server does the
same), so states are constants here.
"""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devkit.contract import tensors
from devkit.core.checks import LONGEST_ID
from devkit.core.request import Buffer, Description, NullRequest, Request, SharedPlace, TensorSpec
from devkit.errors import Code, InferError, LoadError
from devkit.transport import dtypes

START, END = 1, 2

_FORMATS = {"int32_false_true": "<i", "fp32_false_true": "<f", "bool_false_true": "<?"}
_TYPES = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}
_MASKS = {"UINT64": 8, "INT64": 8, "UINT32": 4, "INT32": 4, "BYTES": LONGEST_ID + 4}
_NULLS = itertools.count(1 << 62)
"""Numbers of null requests, where no client's request will ever get."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A START, END or READY control: its bytes where it does not hold, and where it does."""

    name: str
    datatype: str
    false: bytes
    true: bytes


@dataclass(frozen=True, slots=True)
class State:
    """An implicit state: the input a model reads it from, and its initial value."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    data: bytes


class Controls:
    """Control inputs and states of one model, and requests dressed with them."""

    def __init__(self, config: Any, model_dir: Path) -> None:
        self._batched = config.max_batch_size > 0
        self._flags: list[tuple[str, Flag]] = []
        self._correlation: tuple[str, str] | None = None
        for control_input in config.sequence_batching.control_input:
            for control in control_input.control:
                self._add(control_input.name, control)
        self._states = [_state(state, model_dir) for state in config.sequence_batching.state]
        shape = (1, 1) if self._batched else (1,)
        specs = [TensorSpec(flag.name, flag.datatype, shape) for _, flag in self._flags]
        if self._correlation is not None:
            specs.append(TensorSpec(*self._correlation, shape))
        lead = (1,) if self._batched else ()
        specs += [TensorSpec(each.name, each.datatype, lead + each.dims) for each in self._states]
        self._specs = tuple(specs)

    def _add(self, name: str, control: Any) -> None:
        kind = type(control).Kind.Name(control.kind)
        if kind == "CONTROL_SEQUENCE_CORRID":
            self._correlation = (name, tensors.datatype(control.data_type))
            return
        for field, layout in _FORMATS.items():
            values = getattr(control, field)
            if len(values) == 2:
                false, true = (struct.pack(layout, value) for value in values)
                self._flags.append((kind, Flag(name, _TYPES[field], false, true)))

    def problem(self, batch: list[Request]) -> InferError | None:
        """Why a batch cannot run: a TYPE_STRING control holds texts of the full length only.

        The real server hands on a buffer of that length whatever the text's, and its check finds
        more elements than one in the zeros behind a shorter one.
        """
        if self._correlation is None or self._correlation[1] != "BYTES":
            return None
        if all(len(correlation_bytes(each.correlation_id)) == LONGEST_ID + 4 for each in batch):
            return None
        return InferError(
            f"unexpected number of string elements 2 for inference input '{self._correlation[0]}', "
            "expecting 1",
            Code.INVALID_ARG,
        )

    def dressed(self, request: Request) -> tuple[Description, list[Buffer]]:
        """`request`'s description and buffers as the model gets them."""
        base = request.description
        if not self._specs:
            return base, request.buffers
        found = base.memo.get(self)
        if found is None:
            found = base.memo[self] = Description(
                base.inputs + self._specs, base.outputs, base.parameters, base.encoding
            )
            if type(request) is NullRequest:
                found.memo[NullRequest] = True
        return found, request.buffers + self._values(request)

    def _values(self, request: Request) -> list[Buffer]:
        holds = {
            "CONTROL_SEQUENCE_START": bool(request.flags & START),
            "CONTROL_SEQUENCE_END": bool(request.flags & END),
            "CONTROL_SEQUENCE_READY": type(request) is not NullRequest,
        }
        values: list[Buffer] = [
            flag.true if holds[kind] else flag.false for kind, flag in self._flags
        ]
        if self._correlation is not None:
            size = _MASKS[self._correlation[1]]
            values.append(correlation_bytes(request.correlation_id)[:size].ljust(size, b"\0"))
        values.extend(state.data for state in self._states)
        return values

    def null(self, like: Request, model: Any) -> NullRequest:
        """A request for an empty slot of a batch with `like`: same shapes, no content."""
        base = like.description
        description = base.memo.get((self, NullRequest))
        if description is None:
            description = Description(base.inputs)
            description.memo[NullRequest] = True
            base.memo[self, NullRequest] = description
        buffers: list[Buffer] = [
            bytes(each.size if type(each) is SharedPlace else len(each))  # type: ignore[arg-type]
            for each in like.buffers
        ]
        for index, spec in enumerate(base.inputs):
            if spec.datatype == "BYTES":
                buffers[index] = bytes(4 * math.prod(spec.shape))
        null = NullRequest(like.model_name, description, buffers, _ignore)
        null.model, null.batch_size, null.fit_key = model, like.batch_size, like.fit_key
        null.sequence = next(_NULLS)
        null.cancelled = True  # nobody waits for its answer
        return null


def _ignore(response: Any) -> None:
    response.release()


def correlation_bytes(identity: int | str) -> bytes:
    """What a numeric control shows of an id: a number's bytes; of a text its length and start.

    The real server writes the text as a string element wherever it is wanted, so a numeric control
    shows the length prefix and as many characters as fit (and longer ones damage its memory).
    """
    if isinstance(identity, int):
        return struct.pack("<Q", identity & (2**64 - 1))
    text = identity.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(text)) + text


def _state(state: Any, model_dir: Path) -> State:
    datatype = tensors.datatype(state.data_type)
    dims = tuple(max(1, extent) for extent in state.dims)
    size = 4 if datatype == "BYTES" else dtypes.SIZES[datatype]
    data = bytes(size * math.prod(dims))
    for initial in state.initial_state:
        dims = tuple(max(1, extent) for extent in initial.dims) or dims
        data = bytes(size * math.prod(dims))
        if initial.data_file:
            path = model_dir / "initial_state" / initial.data_file
            try:
                data = path.read_bytes()
            except OSError as problem:
                raise LoadError(
                    f"Internal: failed to read initial state '{path}': {problem.strerror}"
                ) from problem
        break
    return State(state.input_name, datatype, dims, data)
