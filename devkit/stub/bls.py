"""Requests a model makes to other models (BLS), and loading and unloading of models.

Any thread may call, and coroutines of any event loop may await. Nobody owns the socket's reading
end: whoever waits reads, for himself and for the others, so a plain call costs no hand-over between
threads. What the runtime does with a call is its own business.
"""

from __future__ import annotations

import base64
import itertools
import threading
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterator, List, NoReturn, Optional, Tuple

import numpy as np

from devkit.stub import link, pybind
from devkit.stub.exceptions import ErrorCode, TritonError, TritonModelException
from devkit.stub.memory import Lease, PlacedBuffer, Regions
from devkit.stub.pybind import MISSING
from devkit.stub.requests import InferenceRequest
from devkit.stub.responses import InferenceResponse
from devkit.stub.tensor import from_wire, raw
from devkit.transport import messages
from devkit.transport.messages import OWN_RESPONSE_SLAB, Place

if TYPE_CHECKING:
    import asyncio

    from devkit.stub.outbox import Outbox
    from devkit.transport.channel import Channel

parent: ContextVar[int] = ContextVar("parent", default=0)
"""Request that a coroutine works for; outside coroutines `link.current.executing` says it."""

Answer = Dict[str, Any]


class Call:
    """One call under way: answers that came, and who waits for the next."""

    __slots__ = ("answers", "ended", "lent", "number", "waiting")

    def __init__(self, number: int, lent: Tuple[int, ...]) -> None:
        self.number = number
        self.answers: Deque[Tuple[Answer, List[Any]]] = deque()
        self.ended = False
        self.waiting: List[Tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.lent = lent  # blocks of our slab that the request's tensors lie in


class Client:
    """The model's end of the bls socket."""

    def __init__(self, channel: Channel, outbox: Outbox) -> None:
        self._channel = channel
        self._outbox = outbox
        self._regions = Regions()
        self._numbers = itertools.count(1)
        self._calls: Dict[int, Call] = {}
        self._reading = threading.Lock()
        self._changed = threading.Condition()
        self._watched: Dict[asyncio.AbstractEventLoop, int] = {}
        self._slab_announced = False
        self._closed = False

    # -- calling --------------------------------------------------------------------------------

    def infer(self, request: InferenceRequest, decoupled: bool, asynchronous: bool = False) -> Call:
        """Send an inference request."""
        called = request._called
        if called is None:
            return self._refuse_received()
        current = link.current
        assert current is not None
        described = []
        tensors: List[Any] = []
        lent: List[int] = []
        for tensor in request.inputs():
            described.append([tensor._name, tensor._datatype, list(tensor._shape)])
            tensors.append(self._lend(tensor, lent))
        trace = request.trace()
        header = {
            "op": "infer",
            "model": called.model,
            "version": called.version,
            "id": request._id,
            "inputs": described,
            "outputs": list(called.outputs),
            "parameters": called.parameters,
            "trace": trace.get_context() or "",
            "decoupled": decoupled,
            "asynchronous": asynchronous,
            "parent": parent.get() or current.executing,
            **request._extra,
        }
        if trace._traced:
            header["traced"] = trace._traced
        return self._send(header, tensors, tuple(lent))

    @staticmethod
    def _refuse_received() -> NoReturn:
        raise TritonModelException(
            "A request that execute received cannot be executed again; make an InferenceRequest."
        )

    def _lend(self, tensor: Any, lent: List[int]) -> Any:
        """A tensor's bytes for a frame: inline where small, else a place the runtime can read."""
        data = raw(tensor)
        size = data.nbytes if isinstance(data, np.ndarray) else len(data)
        if size <= self._outbox.inline_limit:
            return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)
        place = _place_in_input(data)
        if place is None:
            place = self._outbox.store(data)
            lent.append(place.offset)
            if not self._slab_announced:
                self._slab_announced = True
                path = self._outbox.slab_path()
                self._channel.send(messages.region_frame(OWN_RESPONSE_SLAB, path))
        return place

    def ask(self, operation: str, **arguments: Any) -> Answer:
        """An operation that is no inference, and its one answer."""
        header, _ = self.wait(self._send({"op": operation, **arguments}, (), ()))
        return header

    def _send(self, header: Dict[str, Any], tensors: Any, lent: Tuple[int, ...]) -> Call:
        call = Call(next(self._numbers), lent)
        self._calls[call.number] = call
        header["call"] = call.number
        self._channel.send(messages.bls_frame(messages.BLS_REQUEST, header, tensors))
        return call

    def cancel(self, call: Call) -> None:
        """Give a call up; its answer still comes."""
        if not call.ended:
            self._say({"cancel": call.number})

    def _say(self, message: Dict[str, Any]) -> None:
        self._channel.send(messages.json_frame(messages.BLS_CANCEL, message))

    def _release(self, number: int) -> None:
        """A model let the last array over a response go. Runs inside garbage collection."""
        self._channel.post(messages.json_frame(messages.BLS_CANCEL, {"release": number}))

    # -- waiting --------------------------------------------------------------------------------

    def wait(self, call: Call) -> Tuple[Answer, List[Any]]:
        """The next answer to `call`. Raises TritonModelException when the server is gone."""
        while True:
            with self._changed:
                if call.answers:
                    return call.answers.popleft()
                if self._closed:
                    raise TritonModelException("The server is gone.")
            if self._reading.acquire(blocking=False):
                try:
                    if not call.answers:  # the last reader may have brought it
                        self._read()
                finally:
                    self._leave()
            else:
                with self._changed:
                    self._changed.wait_for(
                        lambda: call.answers or self._closed or not self._reading.locked()
                    )

    async def wait_async(self, call: Call) -> Tuple[Answer, List[Any]]:
        """The same for a coroutine."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._watch(loop)
        try:
            while True:
                with self._changed:
                    if call.answers:
                        return call.answers.popleft()
                    if self._closed:
                        raise TritonModelException("The server is gone.")
                    arrival = loop.create_future()
                    call.waiting.append((loop, arrival))
                await arrival
        finally:
            self._unwatch(loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched[loop] = self._watched.get(loop, 0) + 1
        if self._watched[loop] == 1:
            loop.add_reader(self._channel.fileno(), self._readable)

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched[loop] -= 1
        if not self._watched[loop]:
            del self._watched[loop]
            loop.remove_reader(self._channel.fileno())

    def _readable(self) -> None:
        # A thread that waits may be reading right now; then it brings what there is.
        if self._reading.acquire(blocking=False):
            try:
                if self._channel.pending() or self._channel.ended:
                    self._read()
            finally:
                self._leave()

    def _leave(self) -> None:
        self._reading.release()
        with self._changed:
            self._changed.notify_all()

    def _read(self) -> None:
        """Take in one frame, and all that came with it. Only with `_reading` held."""
        while True:
            received = self._channel.receive()
            if received is None:
                self._close()
                return
            kind, payload = received
            if kind == messages.REGION:
                self._regions.announce(*messages.parse_slot(payload))
            elif kind == messages.BLS_RESPONSE:
                self._deliver(*messages.parse_bls(payload))
            if not self._channel.at_hand:
                return

    def _deliver(self, header: Answer, tensors: List[Any]) -> None:
        call = self._calls.get(header["call"])
        if call is None:
            return
        final = header.get("final", True)
        data = self._placed(header, tensors)
        if final:
            del self._calls[call.number]
            if call.lent:
                self._outbox.release(call.lent)
        with self._changed:
            call.answers.append((header, data))
            call.ended = final
            self._wake(call)

    def _wake(self, call: Call) -> None:
        waiting, call.waiting = call.waiting, []
        for loop, arrival in waiting:
            loop.call_soon_threadsafe(_arrived, arrival)

    def _placed(self, header: Answer, tensors: List[Any]) -> List[Any]:
        if not any(type(tensor) is Place for tensor in tensors):
            return tensors
        number: int = header["release"] if "release" in header else header["call"]
        lease = Lease(number, self._release, of_request=False)
        return [
            PlacedBuffer(lease, tensor, self._regions.view(tensor))
            if type(tensor) is Place
            else tensor
            for tensor in tensors
        ]

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            for call in self._calls.values():
                self._wake(call)
            self._changed.notify_all()


def _arrived(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)


def _place_in_input(data: Any) -> Optional[Place]:
    """Where `data` lies if that is in a request's own input: then the runtime has it already."""
    base = data
    for _ in range(3):  # an array of ours, a view of it, a view of that
        base = getattr(base, "base", None)
        if type(base) is PlacedBuffer and base.lease.of_request:
            return base.place_of(data)
    return None


def _response(header: Answer, tensors: List[Any]) -> InferenceResponse:
    """What the model gets of one answer."""
    error = header.get("error")
    if error is not None:
        code = ErrorCode(header.get("code", int(ErrorCode.INTERNAL)))
        response = InferenceResponse(error=TritonError(error, code))
    else:
        response = InferenceResponse(
            [
                from_wire(name, datatype, tuple(shape), data)
                for (name, datatype, shape), data in zip(header.get("outputs") or (), tensors)
            ]
        )
    response._parameters = header.get("parameters") or ""
    return response


@pybind.native
class ResponseIterator:
    """The responses of a decoupled model, one after the other; ends with the last."""

    __slots__ = ("_call", "_client", "_done", "_first", "_next", "_seen")

    _call: Call
    _client: Client
    _done: bool
    _first: Optional[Tuple[Answer, List[Any]]]
    _next: int
    _seen: List[InferenceResponse]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise pybind.bad_constructor(
            f"ResponseIterator(arg0: {pybind.MODULE}.InferenceResponse)", args, kwargs
        )

    @classmethod
    def _of(cls, client: Client, call: Call, first: Optional[Tuple[Answer, List[Any]]]) -> Any:
        made: ResponseIterator = object.__new__(cls)
        made._client = client
        made._call = call
        made._first = first
        made._done = False
        made._next = 0
        made._seen = []
        return made

    def __iter__(self) -> Iterator[InferenceResponse]:
        if self._done:
            self._next = 0  # the real one keeps the responses too, and begins again
        return self

    def __next__(self) -> InferenceResponse:
        if self._next == len(self._seen):
            if self._done:
                raise StopIteration("Iteration is done for the responses.")
            first, self._first = self._first, None
            header, tensors = first if first is not None else self._client.wait(self._call)
            self._done = header.get("final", True)
            self._seen.append(_response(header, tensors))
        self._next += 1
        return self._seen[self._next - 1]

    def cancel(self) -> None:
        """Tell the model that nobody wants the remaining responses."""
        self._client.cancel(self._call)


def _client() -> Client:
    if link.current is None:
        raise TritonModelException("A request to another model needs a server; there is none.")
    return link.current.bls


def _checked(
    function: str,
    request: InferenceRequest,
    decoupled: Any,
    args: Tuple[Any, ...],
    kwargs: Dict[str, Any],
) -> None:
    if not isinstance(decoupled, (bool, int)) or args or kwargs:
        given = (request,) if decoupled is False and not args else (request, decoupled, *args)
        raise pybind.bad_call(
            function,
            f"(self: {pybind.MODULE}.InferenceRequest, decoupled: bool = False) -> object",
            given,
            kwargs,
        )


def execute(request: InferenceRequest, decoupled: bool, *args: Any, **kwargs: Any) -> Any:
    """`InferenceRequest.exec`."""
    _checked("exec", request, decoupled, args, kwargs)
    client = _client()
    call = client.infer(request, bool(decoupled))
    if decoupled:
        return ResponseIterator._of(client, call, None)
    return _response(*client.wait(call))


def execute_async(request: InferenceRequest, decoupled: bool, *args: Any, **kwargs: Any) -> Any:
    """`InferenceRequest.async_exec`: the request is on its way before anybody awaits it."""
    import asyncio

    _checked("async_exec", request, decoupled, args, kwargs)
    asyncio.get_running_loop()  # raises where there is none, as the real one does
    client = _client()
    call = client.infer(request, bool(decoupled), asynchronous=True)

    async def finish() -> Any:
        answer = await client.wait_async(call)
        if decoupled:
            return ResponseIterator._of(client, call, answer)
        return _response(*answer)

    return asyncio.ensure_future(finish())


def _operate(doing: str, operation: str, **arguments: Any) -> Answer:
    client = _client()
    answer = client.ask(operation, **arguments)
    if answer.get("error") is not None:
        assert link.current is not None
        raise TritonModelException(
            f"Failed to {doing} model: Failed to process the request for model "
            f"'{link.current.instance}', message: {answer['error']}"
        )
    return answer


def load_model(model_name: str = MISSING, config: str = "", files: Any = None) -> None:
    """Load or reload a model of the repository, with its config or files replaced if given.

    `config` is a JSON model configuration; `files` maps `"file:<path>"` to bytes.
    """
    if not isinstance(model_name, str) or not isinstance(config, str):
        raise pybind.bad_call(
            "load_model",
            "(model_name: str, config: str = '', files: object = None) -> None",
            (model_name,) if config == "" else (model_name, config),
        )
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and "
            "file contents"
        )
    encoded = {}
    for path, content in (files or {}).items():
        if not isinstance(content, bytes):
            raise TypeError(
                f"Object of type '{type(content).__name__}' is not an instance of 'bytes'"
            )
        encoded[path] = base64.b64encode(content).decode("ascii")
    _operate("load", "load_model", name=model_name, config=config, files=encoded)


def unload_model(model_name: str = MISSING, unload_dependents: bool = False) -> None:
    """Unload a model; with `unload_dependents` also the models an ensemble is made of."""
    if not isinstance(model_name, str) or not isinstance(unload_dependents, bool):
        raise pybind.bad_call(
            "unload_model",
            "(model_name: str, unload_dependents: bool = False) -> None",
            (model_name,) if unload_dependents is False else (model_name, unload_dependents),
        )
    _operate("unload", "unload_model", name=model_name, dependents=unload_dependents)


def is_model_ready(model_name: str = MISSING, model_version: str = "") -> bool:
    """Whether a model (of that version, if one is named) can serve."""
    if not isinstance(model_name, str) or not isinstance(model_version, str):
        raise pybind.bad_call(
            "is_model_ready",
            "(model_name: str, model_version: str = '') -> bool",
            (model_name,) if model_version == "" else (model_name, model_version),
        )
    answer = _client().ask("is_model_ready", name=model_name, version=model_version)
    return bool(answer.get("value"))
