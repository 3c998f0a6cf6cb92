"""The client's half of the local protocol: inference over a Unix socket, from any thread.

The calling thread sends and receives itself, and spins a moment for the answer: no other thread,
no event loop and no JSON is between a call and the model. What the frames are is
`transport.messages`' business, what a connection may say `protocols.local` explains.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.errors import Code, ControlError, InferError, TransportError, UnknownModelError
from devkit.transport import dtypes, memory, messages
from devkit.transport.channel import Channel
from devkit.transport.memory import Block, Region, Slab

Array = npt.NDArray[Any]


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


SPIN_NANOSECONDS = 200_000 if _cores() > 3 else 0
"""How long a caller spins for its answer before it sleeps; a wake-up costs it about 50 us.

With fewer cores than processes on the way (caller, runtime, model), spinning would take the core of
the one that is waited for.
"""

_CLIENT_SLAB = 2
_PLAN_SLOTS = 1024
_numbers = itertools.count(1)


@dataclass(slots=True)
class Response:
    """One response: named arrays in the model's own order, or flags alone.

    `parameters` are those that the model gave the response.
    """

    outputs: dict[str, Array] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    final: bool = True


def datatype_of(name: str, array: Array) -> str:
    """Protocol type of an input array; InferError where Triton has none."""
    datatype = dtypes.datatype_of(array)
    if datatype is None and array.dtype.name == "bfloat16":  # ml_dtypes, as JAX and others use it
        return "BF16"
    if datatype is None:
        raise InferError(f"input '{name}': Triton has no data type for NumPy's {array.dtype}")
    return datatype


class FastPath:
    """A pool of connections to one runtime's local socket; each call takes an idle one."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        _open_paths.add(self)

    def infer(
        self,
        model: str,
        inputs: dict[str, Array],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        id: str = "",
        parameters: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """One request, its first response; raises what the server answers as InferError.

        A decoupled model's later responses are dropped: use `stream` for such a model.
        """
        for response in self.stream(
            model, inputs, outputs=outputs, version=version, id=id, parameters=parameters,
            extra=extra, timeout=timeout,
        ):  # fmt: skip
            return response
        return Response()

    def stream(
        self,
        model: str,
        inputs: dict[str, Array],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        id: str = "",
        parameters: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Iterator[Response]:
        """One request, all its responses; leaving early cancels the rest."""
        connection = self._take()
        healthy = False
        try:
            until = None if timeout is None else time.monotonic() + timeout
            connection.send(model, version, inputs, tuple(outputs), id, parameters, extra)
            while True:
                response, final = connection.receive(until)
                healthy = final
                if isinstance(response, InferError):
                    raise response
                if final:
                    # Hand the connection back before the caller has the result: it may not
                    # come back to this generator.
                    self._give(connection)
                    connection = None  # type: ignore[assignment]
                if response is not None:
                    yield response
                if final:
                    return
        finally:
            if connection is not None:
                if healthy:
                    self._give(connection)
                else:
                    connection.close()  # which cancels the request in the runtime

    def close(self) -> None:
        """Close the idle connections; the path opens new ones if it is used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> _Connection:
        if os.getpid() != self._pid:  # forked: the sockets belong to the parent
            self._idle, self._lock, self._pid = [], threading.Lock(), os.getpid()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Connection(self.path)

    def _give(self, connection: _Connection) -> None:
        with self._lock:
            self._idle.append(connection)


class _Connection:
    """One socket: its plans, its slab, and one request at a time."""

    def __init__(self, path: str) -> None:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.connect(path)
        except OSError as problem:
            connected.close()
            raise ControlError(
                f"the runtime does not answer at {path}: {problem.strerror}",
                remedy="start one with `devkit serve`",
            ) from problem
        self._socket = connected
        self._channel = Channel(connected, spin=SPIN_NANOSECONDS)
        self._plans: dict[Any, int] = {}
        self._signatures: dict[int, messages.Signature] = {}
        self._responses: Region | None = None
        self._slab: Slab | None = None
        self._blocks: list[Block] = []
        self._sequence = 0

    def send(
        self,
        model: str,
        version: str,
        inputs: dict[str, Array],
        outputs: tuple[str, ...],
        id: str,
        parameters: dict[str, Any] | None,
        extra: dict[str, Any] | None,
    ) -> None:
        """Send one request."""
        described = tuple(
            [(name, datatype_of(name, array), array.shape) for name, array in inputs.items()]
        )
        text = json.dumps(parameters, sort_keys=True) if parameters else ""
        key = (model, version, described, outputs, text)
        news = b""
        slot = self._plans.get(key)
        if slot is None:
            if len(self._plans) >= _PLAN_SLOTS:
                self._plans.clear()
            slot = self._plans[key] = len(self._plans)
            value = [described, outputs, parameters or {}, model, version]
            news = messages.slot_frame(messages.PLAN, slot, value)
        tensors: list[messages.Tensor] = []
        for array in inputs.values():
            data = _data(array)
            if len(data) > messages.INLINE_LIMIT:
                place, region = self._put_away(data)
                news += region
                tensors.append(place)
            else:
                tensors.append(data)
        self._sequence += 1
        parts: list[Any] = [messages.execute_head(self._sequence, 1)]
        messages.append_request(parts, self._sequence, slot, id, extra, tensors)
        frame = messages.frame(messages.EXECUTE, *parts)
        self._channel.send(news + frame if news else frame)

    def _put_away(self, data: memoryview | bytes) -> tuple[messages.Place, bytes]:
        """Copy a large input into this connection's slab, announced the first time."""
        region = b""
        if self._slab is None:
            name = memory.slab_name(os.getpid(), f"client-{next(_numbers)}", "requests")
            self._slab = Slab(name, size=max(1 << 20, len(data)))
            region = messages.region_frame(_CLIENT_SLAB, str(self._slab.path))
        block = self._slab.allocate(len(data), "request")
        self._blocks.append(block)
        block.view()[:] = data
        return messages.Place(_CLIENT_SLAB, block.offset, len(data)), region

    def receive(self, until: float | None) -> tuple[Response | InferError | None, bool]:
        """The next response of the running request (None: flags alone), and whether it is its last.

        Raises TransportError when the runtime is gone, and InferError UNAVAILABLE at `until`.
        """
        while True:
            if until is not None:
                self._wait(until)
            got = self._channel.receive()
            if got is None:
                raise TransportError("the runtime ended before it answered")
            kind, payload = got
            if kind == messages.RESPONSES:
                (wire,) = messages.parse_responses(payload, self._signatures)
                final = bool(wire.flags & messages.FINAL) or wire.kind == messages.ERROR
                if final:
                    self._free_inputs()
                return self._response(wire, final), final
            if kind == messages.SIGNATURE:
                slot, signature = messages.parse_signature(payload)
                self._signatures[slot] = signature
            elif kind == messages.REGION:
                _, (path, offset, size) = messages.parse_slot(payload)
                self._responses = Region(Path(path), offset=offset, size=size)

    def _wait(self, until: float) -> None:
        """Return when a frame is there; raise when it is not there in time."""
        while not self._channel.pending():
            left = until - time.monotonic()
            if left <= 0:
                raise InferError("no answer within the timeout", Code.UNAVAILABLE)
            select.select([self._socket], [], [], left)

    def _response(self, wire: messages.WireResponse, final: bool) -> Response | InferError | None:
        if wire.kind == messages.ERROR:
            code = Code(wire.code)
            return (
                UnknownModelError(wire.error)
                if code is Code.NOT_FOUND
                else InferError(wire.error, code)
            )
        if wire.kind == messages.NOTHING:
            return None
        parameters = json.loads(wire.parameters) if wire.parameters else {}
        response = Response(parameters=parameters, final=final)
        placed: list[int] = []
        rows = self._signatures[wire.signature].outputs
        for (name, datatype, shape), tensor in zip(rows, wire.tensors, strict=True):
            if type(tensor) is messages.Place:
                placed.append(tensor.offset)
                data = self._region().view(tensor.offset, tensor.size)
            else:
                data = tensor  # type: ignore[assignment]  # not a Place, so bytes
            array = dtypes.to_array(datatype, shape, data)
            # A copy: the memory behind a view is the socket's buffer or the runtime's slab.
            response.outputs[name] = array if datatype == "BYTES" else array.copy()
        if placed:
            self._channel.send(messages.sequences_frame(messages.RELEASE, placed))
        return response

    def _region(self) -> Region:
        if self._responses is None:
            raise TransportError("a response lies in a region that was never announced")
        return self._responses

    def _free_inputs(self) -> None:
        for block in self._blocks:
            block.release()
        self._blocks.clear()

    def close(self) -> None:
        """Close the socket and remove the slab."""
        self._channel.close()
        if self._responses is not None:
            self._responses.close()
        if self._slab is not None:
            self._slab.unlink()
            self._slab = None


def _data(array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    return dtypes.to_data(array)


_open_paths: weakref.WeakSet[FastPath] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Remove the slabs that this process made; a killed one's are swept by the next runtime."""
    for path in list(_open_paths):
        if path._pid == os.getpid():
            path.close()
