"""`InferenceResponse` and the sender that a decoupled model sends them with."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

from devkit.stub import link, pybind
from devkit.stub.exceptions import TritonError, TritonModelException
from devkit.stub.tensor import Tensor
from devkit.transport import messages

if TYPE_CHECKING:
    from devkit.stub.requests import InferenceRequest, PlanState

RESPONSE_COMPLETE_FINAL = 1
_NO_TENSORS: List[Any] = []  # also tells a default from an argument


@pybind.native
class InferenceResponse:
    """A response: output tensors, or an error (then the outputs are ignored).

    `parameters` is a dict of bool, int or str values that travel with the response.
    """

    __slots__ = ("__weakref__", "_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = _NO_TENSORS,
        error: Optional[TritonError] = None,
        parameters: Optional[Dict[str, Union[str, int, bool]]] = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        tensors = output_tensors if type(output_tensors) is list else _listed(output_tensors)
        if (
            tensors is None
            or args
            or kwargs
            or (error is not None and type(error) is not TritonError)
            or not (parameters is None or isinstance(parameters, dict))
        ):
            raise _bad_response(output_tensors, error, parameters, args, kwargs)
        for tensor in tensors:
            if type(tensor) is not Tensor:
                if tensor is not None:
                    raise _bad_response(output_tensors, error, parameters, args, kwargs)
                raise TritonModelException(
                    "Output tensor for inference response should not be empty."
                )
        self._tensors: List[Tensor] = tensors[:]
        self._error = error
        self._parameters = ""
        if parameters:
            from devkit.stub.requests import parameters_text

            self._parameters = parameters_text(parameters)

    def output_tensors(self) -> List[Tensor]:
        """The output tensors; none where there is an error."""
        return list(self._tensors)

    def has_error(self) -> bool:
        """Whether the response is an error."""
        return self._error is not None

    def error(self) -> Optional[TritonError]:
        """The error, None where there is none."""
        return self._error

    def parameters(self) -> str:
        """The response's parameters as JSON text."""
        return self._parameters or "{}"


def _bad_response(
    tensors: Any, error: Any, parameters: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> TypeError:
    named = {"error": error} if error is not None and not args else {}
    if parameters is not None and not args:
        named["parameters"] = parameters
    given = () if tensors is _NO_TENSORS else (tensors, error, parameters, *args)
    return pybind.bad_constructor(
        f"InferenceResponse(output_tensors: List[{pybind.MODULE}.Tensor] = [], "
        f"error: {pybind.MODULE}.TritonError = None)",
        given if args else given[:1],
        {**named, **kwargs},
    )


def _listed(value: Any) -> Optional[List[Any]]:
    """What pybind11 takes for a list: a sequence that is no text."""
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return list(value)
    return None


@pybind.native
class InferenceResponseSender:
    """Sends the responses of one request, from any thread, until FINAL was sent."""

    __slots__ = ("__weakref__", "_closed", "_lock", "_plan", "_sequence", "sent")

    _closed: bool
    _lock: threading.Lock
    _plan: PlanState
    _sequence: int
    sent: int  # responses so far

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{pybind.MODULE}.InferenceResponseSender: No constructor defined!")

    @classmethod
    def _of(cls, request: InferenceRequest) -> InferenceResponseSender:
        sender: InferenceResponseSender = object.__new__(cls)
        sender._sequence = request._sequence
        sender._plan = request._plan
        sender._closed = False
        sender.sent = 0
        sender._lock = threading.Lock()
        return sender

    def send(
        self, response: Optional[InferenceResponse] = None, flags: int = 0, *args: Any
    ) -> None:
        """Send a response; `flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL` says it is the last."""
        if (
            not (response is None or isinstance(response, InferenceResponse))
            or not isinstance(flags, int)
            or args
        ):
            raise pybind.bad_call(
                "send",
                f"(self: {pybind.MODULE}.InferenceResponseSender, "
                f"response: {pybind.MODULE}.InferenceResponse = None, flags: int = 0) -> None",
                (self, response) if flags == 0 and not args else (self, response, flags, *args),
            )
        current = link.current
        with self._lock:
            if self._closed:
                raise TritonModelException(
                    "Unable to send response. Response sender has been closed."
                )
            if flags not in (0, RESPONSE_COMPLETE_FINAL):
                raise TritonModelException("Unable to send response. Unsupported flag provided.")
            if response is None and flags == 0:
                raise TritonModelException(
                    "Inference Response object must be provided when the response flags is set to "
                    "zero."
                )
            if current is None:
                raise TritonModelException("Unable to send response. There is no server.")
            if not (response or self.sent or current.decoupled):
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final "
                    "before sending a response."
                )
            self._closed = flags == RESPONSE_COMPLETE_FINAL
            self.sent += response is not None
        final = messages.FINAL if self._closed else 0
        if final and current.spans is not None and current.spans.open:
            current.spans.answered(self._sequence)
        current.outbox.send_response(self._sequence, self._plan, response, final)

    @property
    def closed(self) -> bool:
        """Whether FINAL was sent."""
        return self._closed

    def is_cancelled(self) -> bool:
        """Whether the client has given the request up."""
        current = link.current
        return current is not None and self._sequence in current.cancelled
