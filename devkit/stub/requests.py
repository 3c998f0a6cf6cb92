"""`InferenceRequest`: what `execute` gets, and what a model makes to ask another model.

A received request knows its plan (names, types and shapes, shared by all requests alike) and where
its tensors' bytes are; `Tensor` objects are made when the model asks. Parsing the frame that brings
requests lives here too, because it fills their slots directly. Sending lives in `responses`, calls
to other models in `bls`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union
from weakref import ref

from devkit.stub import link, pybind
from devkit.stub.exceptions import NativeEnum, TritonModelException
from devkit.stub.memory import Lease, PlacedBuffer, Regions
from devkit.stub.pybind import MISSING
from devkit.stub.tensor import Tensor, from_wire
from devkit.transport import messages
from devkit.transport.messages import Place, Plan

if TYPE_CHECKING:
    from devkit.stub.outbox import Outbox
    from devkit.stub.responses import InferenceResponseSender

REQUEST_RELEASE_ALL = 1
REQUEST_RELEASE_RESCHEDULE = 2


class MemoryType(NativeEnum):
    """Where a tensor may lie."""

    TRITONSERVER_MEMORY_GPU = 0
    TRITONSERVER_MEMORY_CPU = 1


MemoryType.__module__ = pybind.MODULE


@pybind.native
class PreferredMemory:
    """Where the outputs of a BLS request should lie: a memory type and a device number."""

    __slots__ = ("_device", "_kind")

    _device: int
    _kind: MemoryType

    def __init__(
        self, preferred_memory_type: Any = MISSING, preferred_device_id: int = 0, *args: Any
    ) -> None:
        if (
            not isinstance(preferred_memory_type, MemoryType)
            or not isinstance(preferred_device_id, int)
            or args
        ):
            raise pybind.bad_constructor(
                "PreferredMemory(preferred_memory_type: "
                "triton::backend::python::PreferredMemory::MemoryType, "
                "preferred_device_id: int = 0)",
                (preferred_memory_type,)
                if preferred_device_id == 0 and not args
                else (preferred_memory_type, preferred_device_id, *args),
            )
        self._kind = preferred_memory_type
        self._device = preferred_device_id

    @property
    def on_gpu(self) -> bool:
        """Whether device memory was asked for."""
        return self._kind is MemoryType.TRITONSERVER_MEMORY_GPU


@pybind.native
class InferenceTrace:
    """Trace of a request; pass it to a BLS request to make that one its child."""

    __slots__ = ("_context", "_traced")

    _traced: int  # number of the request it is of, 0 where that one is not traced

    def __init__(self, context: str = "") -> None:
        self._context = context
        self._traced = 0

    def get_context(self) -> Optional[str]:
        """The trace context as JSON text, None where the request is not traced."""
        return self._context or None


class PlanState:
    """A plan and what this process has worked out for it."""

    __slots__ = ("index", "inputs", "outputs", "parameters", "signatures")

    def __init__(self, plan: Plan) -> None:
        self.inputs = plan.inputs
        self.index = {name: number for number, (name, _, _) in enumerate(plan.inputs)}
        self.outputs = frozenset(plan.outputs)
        self.parameters = plan.parameters
        self.signatures: Dict[Tuple[Any, ...], Any] = {}  # outbox's, by the outputs' description


class Called(NamedTuple):
    """What a request made by a model has besides what a received one has."""

    model: str
    version: int
    outputs: Tuple[str, ...]
    parameters: str
    memory: Optional[PreferredMemory]
    trace: Optional[InferenceTrace]


_EMPTY = PlanState(Plan((), ()))
_new = object.__new__
_DEFAULTS: Dict[str, Any] = {
    "request_id": "", "correlation_id": 0, "inputs": MISSING, "requested_output_names": MISSING,
    "model_name": MISSING, "model_version": -1, "flags": 0, "timeout": 0,
    "preferred_memory": None, "trace": None, "parameters": None,
}  # fmt: skip


def _is_list_of(kind: type, value: Any) -> bool:
    """What pybind11 takes for a list: a sequence that is no text."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return False
    return all(isinstance(item, kind) for item in value)


def _acceptable(given: Dict[str, Any]) -> bool:
    """Whether the constructor's arguments have the types that the real one takes."""
    return (
        isinstance(given["request_id"], str)
        and given["correlation_id"] is not None
        and _is_list_of(Tensor, given["inputs"])
        and _is_list_of(str, given["requested_output_names"])
        and isinstance(given["model_name"], str)
        and isinstance(given["model_version"], int)
        and all(isinstance(given[name], int) and given[name] >= 0 for name in ("flags", "timeout"))
        and isinstance(given["preferred_memory"], (PreferredMemory, type(None)))
        and isinstance(given["trace"], (InferenceTrace, type(None)))
    )


def _signature() -> str:
    """The constructor's signature as pybind11 prints it, default objects included."""
    memory = PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU)
    return (
        "InferenceRequest(request_id: str = '', correlation_id: object = 0, "
        "inputs: List[triton::backend::python::PbTensor], requested_output_names: List[str], "
        "model_name: str, model_version: int = -1, flags: int = 0, timeout: int = 0, "
        f"preferred_memory: {pybind.MODULE}.PreferredMemory = {object.__repr__(memory)}, "
        f"trace: {pybind.MODULE}.InferenceTrace = {object.__repr__(InferenceTrace())}, "
        "parameters: object = None)"
    )


@pybind.native
class InferenceRequest:
    """A request for inference.

    `execute` receives a list of them. Made by a model, it asks another model (BLS):
    `InferenceRequest(model_name=..., inputs=[...], requested_output_names=[...]).exec()`.
    """

    __slots__ = (
        "__weakref__",
        "_called",
        "_data",
        "_extra",
        "_id",
        "_inputs",
        "_lease",
        "_outbox",
        "_plan",
        "_release",
        "_sender",
        "_sequence",
    )

    _plan: PlanState
    _data: Sequence[Any]  # a memoryview or a PlacedBuffer for each input
    _inputs: List[Optional[Tensor]]
    _id: str
    _extra: Dict[str, Any]
    _sequence: int
    _outbox: Optional[Outbox]
    _sender: Optional[InferenceResponseSender]
    _release: int
    _lease: Optional[Lease]
    _called: Optional[Called]

    def __init__(
        self,
        request_id: str = "",
        correlation_id: Union[int, str] = 0,
        inputs: Sequence[Tensor] = MISSING,
        requested_output_names: Sequence[str] = MISSING,
        model_name: str = MISSING,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Optional[PreferredMemory] = None,
        trace: Optional[InferenceTrace] = None,
        parameters: Optional[Dict[str, Union[str, int, bool]]] = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _DEFAULTS}
        if args or kwargs or not _acceptable(given):
            changed = {name: value for name, value in given.items() if value is not _DEFAULTS[name]}
            raise pybind.bad_constructor(_signature(), args, {**changed, **kwargs})
        if not isinstance(correlation_id, (int, str)):
            raise TritonModelException("Correlation ID must be integer or string")
        if isinstance(correlation_id, int) and not 0 <= correlation_id < 2**64:
            raise RuntimeError(
                "Unable to cast Python instance to C++ type (#define "
                "PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug mode for details)"
            )
        self._plan = _EMPTY
        self._data = ()
        self._inputs = list(inputs)
        self._id = request_id
        self._extra = {"correlation_id": correlation_id, "flags": flags, "timeout": timeout}
        self._sequence = 0
        self._outbox = None
        self._sender = None
        self._release = REQUEST_RELEASE_ALL
        self._lease = None
        self._called = Called(
            model_name,
            model_version,
            tuple(sorted(set(requested_output_names))),  # a set in the backend, which is in order
            parameters_text(parameters),
            preferred_memory,
            trace,
        )

    def inputs(self) -> List[Tensor]:
        """The input tensors, in no defined order."""
        made = self._inputs
        for number, tensor in enumerate(made):
            if tensor is None:
                self._make(number)
        return list(made)  # type: ignore[arg-type]  # all made now

    def _make(self, number: int) -> Tensor:
        name, datatype, shape = self._plan.inputs[number]
        tensor = self._inputs[number] = from_wire(name, datatype, shape, self._data[number])
        return tensor

    def request_id(self) -> str:
        """The id the client gave, `""` where it gave none."""
        return self._id

    def correlation_id(self) -> Union[int, str]:
        """Id of the sequence the request belongs to, 0 where it belongs to none."""
        found: Union[int, str] = self._extra.get("correlation_id", 0)
        return found

    def requested_output_names(self) -> Set[str]:
        """Names of the outputs that the client wants."""
        if self._called is not None:
            return set(self._called.outputs)
        return set(self._plan.outputs)

    def parameters(self) -> str:
        """The request's parameters as JSON text."""
        if self._called is not None:
            return self._called.parameters
        return self._plan.parameters or "{}"

    def flags(self) -> int:
        """Sequence flags: START 1, END 2."""
        return int(self._extra.get("flags", 0))

    def set_flags(self, flags: int = MISSING, /) -> None:
        """Set the sequence flags of a BLS request."""
        if not isinstance(flags, int) or flags < 0:
            raise pybind.bad_call(
                "set_flags",
                f"(self: {pybind.MODULE}.InferenceRequest, arg0: int) -> None",
                (self, flags),
            )
        self._extra = {**self._extra, "flags": flags}

    def timeout(self) -> int:
        """The client's timeout in microseconds, 0 for none."""
        return int(self._extra.get("timeout", 0))

    def trace(self) -> InferenceTrace:
        """The request's trace, to hand to BLS requests."""
        if self._called is not None and self._called.trace is not None:
            return self._called.trace
        trace = InferenceTrace(self._extra.get("trace", ""))
        if "traced" in self._extra:
            trace._traced = self._sequence
        return trace

    def is_cancelled(self) -> bool:
        """Whether the client has given the request up."""
        current = link.current
        return current is not None and self._sequence in current.cancelled

    def set_release_flags(self, flags: int = MISSING, /) -> None:
        """Say what happens to the request after `execute`: RELEASE_ALL, or RESCHEDULE it."""
        if not isinstance(flags, int):
            raise pybind.bad_call(
                "set_release_flags",
                f"(self: {pybind.MODULE}.InferenceRequest, arg0: int) -> None",
                (self, flags),
            )
        self._release = flags

    def get_response_sender(self) -> InferenceResponseSender:
        """The sender of this request's responses."""
        from devkit.stub.responses import InferenceResponseSender

        if self._sender is None:
            self._sender = InferenceResponseSender._of(self)
        return self._sender

    def exec(self, decoupled: bool = False, *args: Any, **kwargs: Any) -> Any:
        """Run this request on its model and wait: a response, or an iterator if decoupled."""
        from devkit.stub import bls

        return bls.execute(self, decoupled, *args, **kwargs)

    def async_exec(self, decoupled: bool = False, *args: Any, **kwargs: Any) -> Any:
        """The same for `async def execute`: something to await."""
        from devkit.stub import bls

        return bls.execute_async(self, decoupled, *args, **kwargs)


def find_input(request: InferenceRequest, name: str) -> Optional[Tensor]:
    """The input called `name`, None where there is none."""
    if request._called is None:
        number = request._plan.index.get(name)
        if number is None:
            return None
        return request._inputs[number] or request._make(number)
    for tensor in request._inputs:
        if tensor is not None and tensor._name == name:
            return tensor
    return None


Leases = List[Tuple[int, "ref[Lease]"]]


class Inbox:
    """Turns EXECUTE frames into requests."""

    def __init__(self, outbox: Outbox, regions: Regions) -> None:
        self._outbox = outbox
        self._regions = regions
        self.plans: Dict[int, PlanState] = {}
        self.traced: List[int] = []  # of the batch read last: the requests whose spans are wanted

    def read(self, payload: memoryview) -> Tuple[int, List[InferenceRequest], Leases]:
        """Batch number, requests, and the leases of those that have inputs in shared memory."""
        batch, count, offset = messages.read_batch(payload)
        requests: List[InferenceRequest] = []
        leases: Leases = []
        if self.traced:
            self.traced = []
        for _ in range(count):
            sequence, slot, tensors, identity, extra, offset = messages.read_request(
                payload, offset, self.plans
            )
            request: InferenceRequest = _new(InferenceRequest)
            request._plan = self.plans[slot]
            request._data = tensors  # places are replaced below
            request._inputs = [None] * len(tensors)
            request._id = identity
            request._extra = extra
            request._sequence = sequence
            request._outbox = self._outbox
            request._sender = None
            request._release = REQUEST_RELEASE_ALL
            request._lease = None
            request._called = None
            if extra is not messages.NO_EXTRA:
                if "traced" in extra:
                    self.traced.append(sequence)
                if "cancelled" in extra and link.current is not None:
                    link.current.cancel([sequence])
            for tensor in tensors:
                if type(tensor) is Place:
                    leases.append((sequence, self._lend(request)))
                    break
            requests.append(request)
        return batch, requests, leases

    def _lend(self, request: InferenceRequest) -> ref[Lease]:
        lease = Lease(request._sequence, self._outbox.drop)
        request._lease = lease
        request._data = [
            PlacedBuffer(lease, data, self._regions.view(data)) if type(data) is Place else data
            for data in request._data
        ]
        return ref(lease)


def parameters_text(parameters: Any) -> str:
    """JSON text of parameters a model gave. TritonModelException where they may not be sent."""
    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect N8pybind114dictE, got {type(parameters)}")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise TritonModelException(
                f"Expect parameters keys to have type str, found type {type(name)}"
            )
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type {type(value)}"
            )
    return json.dumps(parameters)
