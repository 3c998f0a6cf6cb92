"""What the stub says on the data socket: responses encoded, small frames kept together, one lock.

A response's description is announced once (SIGNATURE) and named by its slot after that; for the
usual case, small tensors of fixed size, everything but the bytes is prepared per description.
Frames of all threads leave in the order in which they were encoded. When to flush is the
process loop's decision.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Deque,
    Dict,
    FrozenSet,
    List,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np

from devkit.errors import Code, SharedMemoryError, TransportError
from devkit.stub.memory import PlacedBuffer, ResponseMemory
from devkit.stub.requests import REQUEST_RELEASE_RESCHEDULE, InferenceRequest, Leases, PlanState
from devkit.stub.responses import InferenceResponse
from devkit.stub.tensor import Tensor, raw
from devkit.transport import dtypes, messages
from devkit.transport.messages import OWN_RESPONSE_SLAB, Place, Signature, WireResponse

if TYPE_CHECKING:
    from devkit.transport.channel import Channel

_SLOTS = 1024
_PREPARED_PER_PLAN = 256

Key = Tuple[Tuple[str, str, Tuple[int, ...]], ...]


class _Prepared:
    """A description of outputs under one plan, ready to be encoded.

    Attributes:
        slot, outputs: the announced signature (what is left after undeclared and unrequested
            outputs are dropped).
        kept: positions of those outputs in the response, None where all are kept.
        heads: the places of inline tensors of fixed size, None where a tensor is BYTES or large.
        size: bytes of such a response, its head included.
    """

    __slots__ = ("heads", "kept", "outputs", "size", "slot")

    def __init__(self, slot: int, outputs: Key, kept: Optional[List[int]], limit: int) -> None:
        self.slot = slot
        self.outputs = outputs
        self.kept = kept
        self.heads: Optional[List[bytes]] = []
        self.size = messages.RESPONSE_SIZE
        for _, datatype, shape in outputs:
            size = dtypes.SIZES.get(datatype, limit + 1) * dtypes.element_count(shape)
            if size > limit or datatype == "BYTES":
                self.heads = None
                break
            self.heads.append(messages.inline_place(size))
            self.size += messages.PLACE.size + size


class _Borrowed:
    """An output that lies in an input's memory: good only if the model let go of that input."""

    __slots__ = ("buffer", "place", "position", "response")

    def __init__(
        self, response: WireResponse, position: int, buffer: PlacedBuffer, place: Place
    ) -> None:
        self.response = response
        self.position = position
        self.buffer: Optional[PlacedBuffer] = buffer
        self.place = place


class Outbox:
    """Encodes and sends. Every method may be called from any thread."""

    def __init__(
        self,
        channel: Channel,
        memory: ResponseMemory,
        *,
        inline_limit: int,
        declared: FrozenSet[str],
        on_undeclared: Callable[[str], None],
        strict: bool = False,
    ) -> None:
        self._channel = channel
        self._memory = memory
        self.inline_limit = inline_limit
        self._declared = declared
        self._on_undeclared = on_undeclared
        self._strict = strict  # everything passes: the runtime makes an error of it
        self._lock = threading.Lock()
        self._parts: List[bytes] = []
        self._slots: List[Optional[Key]] = [None] * _SLOTS
        self._slot_of: Dict[Key, int] = {}
        self._next_slot = 0
        self._slab_announced = False
        self._dropped: Deque[int] = deque()

    # -- sending ------------------------------------------------------------------------------

    def post(self, frame: bytes) -> None:
        """Send one frame, after whatever is kept back."""
        with self._lock:
            self._parts.append(frame)
            self._flush()

    def keep(self, frame: bytes) -> None:
        """Keep one frame, until `flush`."""
        with self._lock:
            self._parts.append(frame)

    def flush(self) -> None:
        """Send what is kept back."""
        if self._parts or self._dropped:
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        while self._dropped:
            self._parts.append(messages.sequences_frame(messages.DROP, (self._dropped.popleft(),)))
        if self._parts:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts.clear()
            self._channel.send(data)

    def drop(self, sequence: int) -> None:
        """A model let the last array over a held request's inputs go.

        Runs inside garbage collection, maybe in the middle of our own sending: it must not wait.
        """
        self._dropped.append(sequence)
        if self._lock.acquire(blocking=False):
            try:
                self._flush()
            except TransportError:
                pass  # the runtime is gone: the main loop finds out and ends
            finally:
                self._lock.release()

    def store(self, data: Any) -> Place:
        """A copy of `data` in our slab, for a request to another model; `release` frees it."""
        with self._lock:
            return self._memory.store(_flat(data), "request to another model")

    def slab_path(self) -> str:
        """File of our slab; only after something was stored."""
        return str(self._memory.path)

    def release(self, offsets: Tuple[int, ...]) -> None:
        """RELEASE: blocks of our slab that the runtime has written out."""
        with self._lock:
            self._memory.free(offsets)

    # -- results ------------------------------------------------------------------------------

    def result(
        self,
        batch: int,
        started: int,
        ended: int,
        requests: List[InferenceRequest],
        responses: Sequence[Optional[InferenceResponse]],
    ) -> None:
        """Keep the RESULT of a batch whose inputs came inside the frame, until `flush`."""
        with self._lock:
            parts: List[Any] = [b""]
            length = count = 0
            for request, response in zip(requests, responses):
                if response is not None:
                    sequence, plan = request._sequence, request._plan
                    length += self._append(parts, sequence, plan, response, messages.FINAL)
                elif request._release == REQUEST_RELEASE_RESCHEDULE:
                    messages.append_response(parts, _rescheduled(request))
                    length += messages.RESPONSE_SIZE
                else:
                    continue
                count += 1
            parts[0] = messages.result_head(length, batch, started, ended, count)
            # Joined now: the model may reuse its output arrays in the next execute.
            self._parts.append(b"".join(parts))

    def _append(
        self,
        parts: List[Any],
        sequence: int,
        plan: PlanState,
        response: InferenceResponse,
        flags: int,
    ) -> int:
        """Append one response to `parts`; returns how many bytes it takes."""
        if response._error is None and not response._parameters:
            tensors = response._tensors
            prepared = self._prepared(plan, tensors)
            heads = prepared.heads
            if heads is not None:
                parts.append(messages.response_head(sequence, flags, prepared.slot))
                if prepared.kept is not None:
                    tensors = [tensors[position] for position in prepared.kept]
                for head, tensor in zip(heads, tensors):
                    parts.append(head)
                    array = tensor._array
                    parts.append(raw(tensor) if array is None else array)
                return prepared.size
        before = len(parts)
        messages.append_response(parts, self._wire(sequence, plan, response, flags, (), []))
        return sum(map(len, parts[before:]))

    def _prepared(self, plan: PlanState, tensors: List[Tensor]) -> _Prepared:
        key = tuple([(tensor._name, tensor._datatype, tensor._shape) for tensor in tensors])
        prepared: Optional[_Prepared] = plan.signatures.get(key)
        if prepared is None or self._slots[prepared.slot] is not prepared.outputs:
            prepared = self._prepare(plan, key)
        return prepared

    def _prepare(self, plan: PlanState, key: Key) -> _Prepared:
        kept = []
        for position, (name, _, _) in enumerate(key):
            # A config without outputs is one that is still being learned: all of them pass.
            if self._strict:
                kept.append(position)
            elif self._declared and name not in self._declared:
                self._on_undeclared(name)
            elif not plan.outputs or name in plan.outputs:
                kept.append(position)
        outputs = key if len(kept) == len(key) else tuple(key[position] for position in kept)
        slot = self._slot_of.get(outputs)
        if slot is None:
            slot = self._announce(outputs)
        announced = self._slots[slot]
        assert announced is not None
        if len(plan.signatures) >= _PREPARED_PER_PLAN:
            plan.signatures.clear()
        prepared = _Prepared(slot, announced, None if outputs is key else kept, self.inline_limit)
        plan.signatures[key] = prepared
        return prepared

    def _announce(self, outputs: Key) -> int:
        slot = self._next_slot
        self._next_slot = (slot + 1) % _SLOTS
        old = self._slots[slot]
        if old is not None:
            del self._slot_of[old]
        self._slots[slot] = outputs
        self._slot_of[outputs] = slot
        self._parts.append(messages.signature_frame(slot, Signature(outputs)))
        return slot

    # -- responses with large, variable or no tensors -------------------------------------------

    def placed_result(
        self,
        batch: int,
        started: int,
        ended: int,
        requests: List[InferenceRequest],
        responses: List[Optional[InferenceResponse]],
        leases: Leases,
    ) -> None:
        """Keep the RESULT of a batch with inputs in shared memory.

        Both lists are emptied: what lives on after that is what the model kept, and is held.
        """
        borrowed: List[_Borrowed] = []
        with self._lock:
            wires = self._wires(requests, responses, borrowed)
            requests.clear()
            responses.clear()
            self._settle(borrowed, leases)
            self._hold(leases)
            result = messages.Result(batch, started, ended, wires)
            self._parts.append(messages.result_frame(result))

    def _wires(
        self,
        requests: List[InferenceRequest],
        responses: List[Optional[InferenceResponse]],
        borrowed: List[_Borrowed],
    ) -> List[WireResponse]:
        wires = []
        for request, response in zip(requests, responses):
            if response is not None:
                buffers = [data for data in request._data if type(data) is PlacedBuffer]
                sequence, plan = request._sequence, request._plan
                wires.append(
                    self._wire(sequence, plan, response, messages.FINAL, buffers, borrowed)
                )
            elif request._release == REQUEST_RELEASE_RESCHEDULE:
                wires.append(_rescheduled(request))
        return wires

    def _settle(self, borrowed: List[_Borrowed], leases: Leases) -> None:
        """Copy the outputs that lie in an input which the model still holds (and may write to)."""
        views = []
        for loan in borrowed:
            assert loan.buffer is not None
            views.append((loan, loan.buffer.view, loan.buffer.place, loan.buffer.lease.sequence))
            loan.buffer = None
        alive = {sequence for sequence, lease in leases if lease() is not None}
        for loan, view, place, sequence in views:
            if sequence in alive:
                start = loan.place.offset - place.offset
                loan.response.tensors[loan.position] = self._store(
                    view[start : start + loan.place.size]
                )

    def _hold(self, leases: Leases) -> None:
        held = []
        for sequence, reference in leases:
            lease = reference()
            if lease is not None:
                lease.held = True
                held.append(sequence)
        if held:
            self._parts.append(messages.sequences_frame(messages.HOLD, held))

    def hold(self, leases: Leases) -> None:
        """Hold what a batch without responses (failed, decoupled) left alive."""
        with self._lock:
            self._hold(leases)

    def end_batch(self, batch: int, started: int, ended: int) -> None:
        """Keep a RESULT without responses, until `flush`."""
        with self._lock:
            self._parts.append(messages.result_head(0, batch, started, ended, 0))

    def send_response(
        self, sequence: int, plan: PlanState, response: Optional[InferenceResponse], flags: int
    ) -> None:
        """Send one response outside a batch's end: a response sender's."""
        with self._lock:
            if response is None:
                wire = WireResponse(sequence, messages.NOTHING, flags)
            else:
                wire = self._wire(sequence, plan, response, flags, (), [])
            self._parts.append(messages.responses_frame([wire]))
            self._flush()

    def _wire(
        self,
        sequence: int,
        plan: PlanState,
        response: InferenceResponse,
        flags: int,
        buffers: Sequence[PlacedBuffer],
        borrowed: List[_Borrowed],
    ) -> WireResponse:
        error = response._error
        if error is not None:
            return WireResponse(
                sequence, messages.ERROR, flags, error=error._message, code=int(error._code),
                parameters=response._parameters,
            )  # fmt: skip
        prepared = self._prepared(plan, response._tensors)
        wire = WireResponse(
            sequence, messages.OK, flags, prepared.slot, parameters=response._parameters
        )
        positions = prepared.kept if prepared.kept is not None else range(len(prepared.outputs))
        try:
            for position in positions:
                tensor = response._tensors[position]
                self._place(wire, tensor, buffers, borrowed)
        except SharedMemoryError as problem:
            return WireResponse(
                sequence, messages.ERROR, flags, error=problem.message, code=Code.INTERNAL
            )
        return wire

    def _place(
        self,
        wire: WireResponse,
        tensor: Tensor,
        buffers: Sequence[PlacedBuffer],
        borrowed: List[_Borrowed],
    ) -> None:
        data = raw(tensor)
        array = data if isinstance(data, np.ndarray) else None
        size = array.nbytes if array is not None else len(data)
        if size > self.inline_limit:
            if array is None and type(tensor._data) is PlacedBuffer and tensor._data in buffers:
                buffer = tensor._data  # an input handed on untouched
                borrowed.append(_Borrowed(wire, len(wire.tensors), buffer, buffer.place))
                wire.tensors.append(buffer.place)
                return
            for buffer in buffers:
                place = buffer.place_of(array) if array is not None else None
                if place is not None:
                    borrowed.append(_Borrowed(wire, len(wire.tensors), buffer, place))
                    wire.tensors.append(place)
                    return
            wire.tensors.append(self._store(_flat(data)))
        else:
            # A copy: the model may write to its array before the frame leaves.
            wire.tensors.append(array.tobytes() if array is not None else bytes(data))

    def _store(self, data: memoryview) -> Place:
        place = self._memory.store(data)
        if not self._slab_announced:
            self._slab_announced = True
            self._parts.append(messages.region_frame(OWN_RESPONSE_SLAB, str(self._memory.path)))
        return place


def _rescheduled(request: InferenceRequest) -> WireResponse:
    return WireResponse(request._sequence, messages.NOTHING, messages.RESCHEDULE)


def _flat(data: Any) -> memoryview:
    if isinstance(data, np.ndarray):
        return memoryview(data.reshape(-1).view(np.uint8).data)
    return memoryview(data)
