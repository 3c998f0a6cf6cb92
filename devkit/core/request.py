"""A request and its responses as the runtime sees them, between a front end and an instance.

Front ends build a `Request` from a `Description` (what many requests share, interned) and the
buffers of this one, hand it to the engine, and get `Response`s through `on_response`, on the event
loop. Nothing here knows a protocol, a socket or a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from devkit.errors import InferError
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.memory import Block, Region


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, protocol datatype (`FP32`, `BYTES`) and shape (with the batch dimension, if any)."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Description:
    """What a request is apart from its bytes and its identity; shared by every request alike.

    Front ends intern it (same bytes of a header, same object), so whatever was worked out for it
    once - validation, the plan slot an instance knows it by - is found again by identity.

    Attributes:
        inputs: in the client's order; `Request.buffers` has the same order.
        outputs: requested output names in the client's order, empty where it named none.
        parameters: request parameters after `sequence_*`, `priority` and `timeout` were taken out.
        encoding: what the front end needs to encode the reply; the core never looks.
        memo: room for what the core works out, by the object it was worked out for.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    encoding: Any = None
    memo: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SharedPlace:
    """Input bytes that already lie in shared memory: `size` bytes at `offset` of `region`.

    `block` is the counted block they lie in when the region is one of our slabs; the core retains
    and releases it. A client's registered region has none.
    """

    region: Region
    offset: int
    size: int
    block: Block | None = None

    def view(self) -> memoryview:
        return self.region.view(self.offset, self.size)


Buffer = ReadableBuffer | SharedPlace


class Cancellable(Protocol):
    """Whoever has a request and can let go of it."""

    def cancel(self, request: Request) -> None: ...


@dataclass(slots=True)
class Times:
    """CLOCK_MONOTONIC nanoseconds, 0 until reached; named as the trace extension's timestamps."""

    request_start: int = 0
    queue_start: int = 0
    compute_start: int = 0
    compute_input_end: int = 0
    compute_output_start: int = 0
    compute_end: int = 0
    request_end: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """One inference request.

    Attributes:
        buffers: bytes of each input, in the order of `description.inputs`.
        on_response: called with each `Response`, the last with `final` set, on the event loop.
            A front end must call `response.release()` when it has written the bytes out.
        correlation_id: 0 or "" where the request belongs to no sequence.
        flags: TRITONSERVER_REQUEST_FLAG_SEQUENCE_START 1 | _END 2.
        timeout: microseconds, 0 for none.
        owner: set while somebody can cancel it (a queue, an instance).
        steer: name of the only instance that may serve it (a debugger's), else empty.
        learning: asks for every output where the config declares none at all (devkit's own door
            learns a config that way; the real server drops them all).
        parent: the request this one was made for (BLS, ensemble step), for traces and circles.
        blocks: counted memory the inputs lie in; given back when the request is over.
        arrival: (protocol, start, end) of its reception, noted while requests are traced.
        trace: what is noted of it if it is traced, else None. A BLS call comes with the trace that
            the model gave it.
        sequence, model, batch_size, fit_key, held: the core's own notes on a request under way.
    """

    model_name: str
    description: Description
    buffers: list[Buffer]
    on_response: Callable[[Response], None]
    model_version: str = ""
    id: str = ""
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    priority: int = 0
    steer: str = ""
    parent: Request | None = None
    learning: bool = False
    blocks: list[Block] = field(default_factory=list)
    owner: Cancellable | None = None
    cancelled: bool = False
    done: bool = False
    sequence: int = 0
    model: Any = None
    batch_size: int = 1
    fit_key: tuple[object, ...] = ()
    held: bool = False
    arrival: tuple[str, int, int] | None = None
    trace: Any = None
    times: Times = field(default_factory=lambda: Times(request_start=time.monotonic_ns()))

    def label(self) -> str:
        """The prefix of most refusals: `[request id: X] `, `<id_unknown>` where there is no id."""
        return f"[request id: {self.id or '<id_unknown>'}] "


class NullRequest(Request):
    """Fills the slot of a sequence with nothing to run, so that others keep theirs.

    The model sees it (READY false) and answers it; nobody gets the answer, and nothing counts it.
    """

    __slots__ = ()


@dataclass(slots=True, eq=False)
class OutputSignature:
    """Description of a response's outputs, one object per distinct one an instance has sent.

    `memo` is room for a front end to keep what it encodes from it (a JSON prefix, ...).
    """

    outputs: tuple[TensorSpec, ...]
    memo: dict[Any, Any] = field(default_factory=dict)


NO_OUTPUTS = OutputSignature(())


@dataclass(slots=True, eq=False)
class Response:
    """One response to a request.

    Attributes:
        model_name, model_version: what served it.
        signature: outputs in the model's own order, only those the config declares and the request
            asked for.
        buffers: bytes of each output; views of shared memory until `release()`.
        error: set instead of outputs.
        parameters: response parameters (`InferenceResponse.parameters()`).
        final: whether it is the request's last. A decoupled model's empty final response has no
            outputs, no error and `empty` set.
    """

    request: Request
    model_name: str
    model_version: str
    signature: OutputSignature = NO_OUTPUTS
    buffers: list[ReadableBuffer] = field(default_factory=list)
    error: InferError | None = None
    parameters: dict[str, Any] | None = None
    final: bool = True
    empty: bool = False
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Give the shared memory behind `buffers` back; they must not be read afterwards."""
        release, self.on_release = self.on_release, None
        if release is not None:
            self.buffers = []
            release()
