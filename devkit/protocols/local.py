"""The shortest way in: another process of this machine, over a Unix socket, in `transport` frames.

`devkit.infer` comes through here. A connection says once what its requests look like (`PLAN`, with
the model's name) and where its shared memory is (`REGION`), then sends `EXECUTE` frames of one
request and gets `RESPONSES`, each response's outputs described once by `SIGNATURE`. Large inputs
lie in the client's slab and go to the model as they lie; large outputs are put into a slab of this
server and given back by `RELEASE`. Closing the connection cancels what it waits for.

Control of models and anything a person reads is not here: that is the control API's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from devkit.core.request import (
    Buffer,
    Description,
    OutputSignature,
    Request,
    Response,
    SharedPlace,
    TensorSpec,
)
from devkit.errors import Code, DevkitError, InferError
from devkit.transport import memory, messages
from devkit.transport.dtypes import ReadableBuffer
from devkit.transport.memory import Block, Region, Slab

if TYPE_CHECKING:
    from devkit.core.options import Options

log = logging.getLogger("devkit.local")

_MALFORMED = (ValueError, KeyError, TypeError, IndexError, OSError, struct.error, DevkitError)

CHUNK = 256 * 1024
SIGNATURE_SLOTS = 1024


class Engine(Protocol):
    """What this front asks of `core.engine.Engine`."""

    options: Options
    tracer: Any

    def infer(self, request: Request) -> None: ...

    def withdraw(self, request: Request) -> None: ...


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a slot stands for; `inputs` is what `messages` counts the tensors by."""

    inputs: tuple[TensorSpec, ...]
    description: Description
    model: str
    version: str


class LocalServer:
    """Serves the local protocol on a listening Unix socket, in the running event loop."""

    def __init__(self, engine: Engine, listener: socket.socket) -> None:
        self.engine = engine
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._connections: set[_Connection] = set()
        self._slab: Slab | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        self._loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """Close every connection and the listener; requests that run are cancelled."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            connection.close()
        if self._slab is not None:
            self._slab.unlink()
            self._slab = None

    def slabs(self) -> list[Slab]:
        """For the gauges."""
        return [self._slab] if self._slab is not None else []

    def response_slab(self) -> Slab:
        """Where large outputs lie until their client has copied them; one for all connections."""
        if self._slab is None:
            options = self.engine.options
            self._slab = Slab(
                memory.slab_name(os.getpid(), "local", "responses"),
                size=options.shm_default_byte_size,
                step=options.shm_growth_byte_size,
            )
        return self._slab

    def forget(self, connection: _Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)

    def _accept(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connected.setblocking(False)
        connection = _Connection(self, connected, self._loop)
        self._connections.add(connection)


class _Connection:
    """One client: its plans, its regions, the requests it waits for.

    It reads and writes the socket itself: a small answer leaves in the same turn of the loop in
    which the model gave it.
    """

    def __init__(
        self, server: LocalServer, connected: socket.socket, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._server = server
        self._engine = server.engine
        self._socket = connected
        self._loop = loop
        self._reader = messages.FrameReader()
        self._plans: dict[int, _Plan] = {}
        self._regions: dict[int, Region] = {}
        self._running: dict[int, Request] = {}
        self._signatures: OrderedDict[OutputSignature, int] = OrderedDict()
        self._blocks: dict[int, Block] = {}
        self._unsent = bytearray()
        self._announced = False
        self._closed = False
        loop.add_reader(connected, self._readable)

    # -- in ------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            for kind, payload in self._reader.feed(data):
                self._on_frame(kind, payload)
        except _MALFORMED as problem:
            # Whatever sent this is no client of ours, or of another version: nothing to answer.
            log.warning("a local connection was closed: %s: %s", type(problem).__name__, problem)
            self.close()

    def _on_frame(self, kind: int, payload: memoryview) -> None:
        if kind == messages.EXECUTE:
            sequence, requests = messages.parse_execute(payload, self._plans)  # type: ignore[arg-type]
            for wire, plan in requests:
                self._execute(sequence, wire, plan)  # type: ignore[arg-type]
        elif kind == messages.PLAN:
            self._plan(payload)
        elif kind == messages.REGION:
            slot, (path, offset, size) = messages.parse_slot(payload)
            old = self._regions.pop(slot, None)
            self._regions[slot] = Region(_inside(path), offset=offset, size=size)
            if old is not None:
                old.close()
        elif kind == messages.RELEASE:
            for offset in messages.parse_sequences(payload):
                self._blocks.pop(offset).release()
        elif kind == messages.BLS_CANCEL:
            for sequence in messages.parse_sequences(payload):
                if sequence in self._running:
                    self._engine.withdraw(self._running[sequence])
        else:
            raise ValueError(f"unexpected frame of kind {kind}")

    def _plan(self, payload: memoryview) -> None:
        slot, (inputs, outputs, parameters, model, version) = messages.parse_slot(payload)
        specs = tuple(TensorSpec(name, kind, tuple(shape)) for name, kind, shape in inputs)
        description = Description(specs, tuple(outputs), parameters)
        self._plans[slot] = _Plan(specs, description, model, version)

    def _execute(self, sequence: int, wire: messages.WireRequest, plan: _Plan) -> None:
        buffers: list[Buffer] = [
            self._place(tensor) if type(tensor) is messages.Place else tensor  # type: ignore[misc]  # not a Place, so bytes
            for tensor in wire.tensors
        ]
        request = Request(
            plan.model, plan.description, buffers, partial(self._answer, sequence), plan.version,
            wire.id,
        )  # fmt: skip
        request.learning = True
        if wire.extra:
            for name in ("correlation_id", "flags", "timeout", "priority", "steer"):
                if name in wire.extra:
                    setattr(request, name, wire.extra[name])
        self._running[sequence] = request
        if self._engine.tracer is not None:
            arrived = request.times.request_start
            request.arrival = ("LOCAL", arrived, arrived)
        try:
            self._engine.infer(request)
        except InferError as refusal:
            del self._running[sequence]
            self._refuse(sequence, refusal)

    def _place(self, tensor: messages.Place) -> SharedPlace:
        place = SharedPlace(self._regions[tensor.region], tensor.offset, tensor.size)
        place.view()  # raises here, where the client is at fault, if it lies beyond the region
        return place

    # -- out -----------------------------------------------------------------------------------

    def _answer(self, sequence: int, response: Response) -> None:
        if response.final:
            self._running.pop(sequence, None)
        trace = response.request.trace
        if trace is not None:
            trace.sending()
        try:
            if not self._closed:
                self._send(self._encode(sequence, response))
        except DevkitError as problem:  # no shared memory left for the outputs
            self._refuse(sequence, InferError(problem.message, Code.INTERNAL))
        finally:
            response.release()
        if trace is not None:
            trace.sent()

    def _refuse(self, sequence: int, refusal: InferError) -> None:
        wire = messages.WireResponse(
            sequence, messages.ERROR, error=refusal.message, code=int(refusal.code)
        )
        self._send(messages.responses_frame([wire]))

    def _encode(self, sequence: int, response: Response) -> bytes:
        wire = messages.WireResponse(sequence, flags=messages.FINAL if response.final else 0)
        if response.parameters:
            wire.parameters = json.dumps(response.parameters)
        if response.error is not None:
            wire.kind = messages.ERROR
            wire.error, wire.code = response.error.message, int(response.error.code)
            return messages.responses_frame([wire])
        if response.empty:
            wire.kind = messages.NOTHING
            return messages.responses_frame([wire])
        news = b""
        slot = self._signatures.get(response.signature)
        if slot is None:
            slot, news = self._sign(response.signature)
        wire.signature = slot
        wire.tensors = response.buffers  # type: ignore[assignment]  # bytes are tensors
        if any(len(buffer) > messages.INLINE_LIMIT for buffer in response.buffers):
            wire.tensors, region = self._put_away(response.buffers)
            news += region
        return news + messages.responses_frame([wire])

    def _sign(self, signature: OutputSignature) -> tuple[int, bytes]:
        if len(self._signatures) < SIGNATURE_SLOTS:
            slot = len(self._signatures)
        else:
            _, slot = self._signatures.popitem(last=False)
        self._signatures[signature] = slot
        outputs = tuple((one.name, one.datatype, one.shape) for one in signature.outputs)
        return slot, messages.signature_frame(slot, messages.Signature(outputs))

    def _put_away(self, buffers: list[ReadableBuffer]) -> tuple[list[messages.Tensor], bytes]:
        """Copy large outputs into the response slab, and announce it the first time."""
        slab = self._server.response_slab()
        tensors: list[messages.Tensor] = []
        taken: list[Block] = []
        try:
            for buffer in buffers:
                if len(buffer) <= messages.INLINE_LIMIT:
                    tensors.append(buffer)
                    continue
                block = slab.allocate(len(buffer), "local client")
                taken.append(block)
                block.view()[:] = buffer
                tensors.append(
                    messages.Place(messages.OWN_RESPONSE_SLAB, block.offset, len(buffer))
                )
        except BaseException:
            for block in taken:
                block.release()
            raise
        self._blocks.update((block.offset, block) for block in taken)
        if self._announced:
            return tensors, b""
        self._announced = True
        return tensors, messages.region_frame(messages.OWN_RESPONSE_SLAB, str(slab.path))

    def _send(self, data: bytes) -> None:
        if self._closed:
            return
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._loop.call_soon(self.close)
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.add_writer(self._socket, self._writable)
        self._unsent += data

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def close(self) -> None:
        """End the connection: cancel its requests, give back everything it held."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._server.forget(self)
        for request in list(self._running.values()):
            self._engine.withdraw(request)
        for block in self._blocks.values():
            block.release()
        self._blocks.clear()
        # A region stays open while a cancelled request may still be read from it by the model;
        # its mapping ends with the last view.
        for region in self._regions.values():
            if not self._running:
                region.close()
        self._regions.clear()


def _inside(path: str) -> Path:
    """The region's file, which must lie directly in the shared-memory folder."""
    candidate = Path(path)
    if candidate.parent != memory.DIRECTORY or candidate.is_symlink():
        raise ValueError(f"{path} is not in {memory.DIRECTORY}")
    return candidate
