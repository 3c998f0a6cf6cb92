"""Requests as `execute` receives them, made of NumPy arrays.

They are the stub's own request objects over bytes of their own, so a model finds in them what it
finds in production: writable arrays, BYTES as objects of `bytes`, parameters as JSON text.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from devkit.contract.config import IOSpec
from devkit.core.request import Description, Request, TensorSpec
from devkit.errors import InferError
from devkit.stub.requests import REQUEST_RELEASE_ALL, InferenceRequest, PlanState
from devkit.stub.tensor import Tensor, raw
from devkit.transport import dtypes
from devkit.transport.messages import Plan

Array = npt.NDArray[Any]

_START, _END = 1, 2
_numbers = itertools.count(1)
cancelled: set[int] = set()
"""Numbers of the requests whose clients gave them up."""


def request(
    inputs: Mapping[str, Any],
    *,
    outputs: Sequence[str] = (),
    id: str = "",
    parameters: Mapping[str, str | int | bool | float] | None = None,
    correlation_id: int | str = 0,
    sequence_start: bool = False,
    sequence_end: bool = False,
    timeout: int = 0,
    priority: int = 0,
    trace: str = "",
    declared: Mapping[str, IOSpec] | None = None,
) -> InferenceRequest:
    """A request as `execute` receives it.

    `inputs` are arrays, what NumPy makes arrays of, or `pb_utils.Tensor`s; text is BYTES. Values
    that are no arrays take the data types of `declared`, a model's inputs. No `outputs` means all
    of the model's. `timeout` is in microseconds, `trace` a trace context as JSON text.
    """
    described, data = [], []
    for name, value in inputs.items():
        datatype, shape, content = _encoded(name, value, (declared or {}).get(name))
        described.append((name, datatype, shape))
        data.append(memoryview(content))
    text = json.dumps(dict(parameters), separators=(",", ":")) if parameters else ""
    made: InferenceRequest = object.__new__(InferenceRequest)
    made._plan = PlanState(Plan(tuple(described), tuple(outputs), text))
    made._data = data
    made._id = id
    made._extra = {
        "correlation_id": correlation_id,
        "flags": _START * sequence_start | _END * sequence_end,
        "timeout": timeout,
        "priority": priority,
        "trace": trace,
    }
    made._sequence = next(_numbers)
    made._outbox = None
    made._lease = None
    made._called = None
    renew(made)
    return made


def renew(made: InferenceRequest) -> None:
    """Make a request as if it had just come: it may be executed again."""
    made._inputs = [None] * len(made._plan.inputs)
    made._sender = None
    made._release = REQUEST_RELEASE_ALL


def received(given: InferenceRequest) -> InferenceRequest:
    """A request as `execute` receives it; one made with the public constructor is converted."""
    called = given._called
    if called is None:
        return given
    made = request(
        {tensor.name(): tensor for tensor in given.inputs()},
        outputs=called.outputs,
        id=given.request_id(),
        correlation_id=given.correlation_id(),
        timeout=given.timeout(),
        trace=given.trace().get_context() or "",
    )
    made._extra["flags"] = given.flags()
    text = json.dumps(json.loads(called.parameters), separators=(",", ":"))
    plan = made._plan
    made._plan = PlanState(Plan(plan.inputs, called.outputs, "" if text == "{}" else text))
    return made


def cancel(given: InferenceRequest) -> None:
    """Give a request up, as a client does: `is_cancelled()` says so from now on."""
    cancelled.add(given._sequence)


def as_core(given: InferenceRequest, model: str, outputs: Sequence[str]) -> Request:
    """The request as the runtime's own checks see it; nobody answers it."""
    specs = tuple(TensorSpec(*one) for one in given._plan.inputs)
    description = Description(specs, tuple(outputs))
    return Request(model, description, list(given._data), lambda _: None, id=given._id)


def _encoded(name: str, value: Any, spec: IOSpec | None) -> tuple[str, tuple[int, ...], bytes]:
    """Data type, shape and bytes of an input."""
    if isinstance(value, Tensor):
        return value._datatype, tuple(value._shape), _bytes_of(value)
    array = _array(name, value, spec)
    datatype = dtypes.datatype_of(array)
    if datatype is None and array.dtype.name == "bfloat16":  # ml_dtypes, as JAX and others use it
        return "BF16", array.shape, array.tobytes()
    if datatype is None:
        raise InferError(f"input '{name}': Triton has no data type for NumPy's {array.dtype}")
    return datatype, array.shape, bytes(dtypes.to_data(array))


def _array(name: str, value: Any, spec: IOSpec | None) -> Array:
    if isinstance(value, np.ndarray) or spec is None or hasattr(value, "__array__"):
        return np.asarray(value)
    if spec.datatype == "BYTES":
        return np.asarray(value, dtype=np.object_)
    try:
        return np.asarray(value, dtype=dtypes.NUMPY.get(spec.datatype))
    except (ValueError, TypeError, OverflowError) as problem:
        raise InferError(f"input '{name}' cannot be made {spec.datatype}: {problem}") from problem


def _bytes_of(tensor: Tensor) -> bytes:
    data = raw(tensor)
    return data.tobytes() if isinstance(data, np.ndarray) else bytes(data)


def wire(tensor: Tensor) -> tuple[tuple[str, str, tuple[int, ...]], memoryview]:
    """Name, data type and shape of a tensor, and its bytes, as they reach whoever asked."""
    return (tensor._name, tensor._datatype, tuple(tensor._shape)), memoryview(_bytes_of(tensor))


def arrays(tensors: Sequence[Tensor]) -> dict[str, Array]:
    """Arrays of tensors by name, as a client gets them: copies; BF16 as its bit patterns."""
    found = {}
    for tensor in tensors:
        (name, datatype, shape), data = wire(tensor)
        array = dtypes.to_array(datatype, shape, data)
        found[name] = array if datatype == "BYTES" else array.copy()
    return found
