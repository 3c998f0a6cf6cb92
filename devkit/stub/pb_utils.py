"""`triton_python_backend_utils`, the module that models import as `pb_utils`.

The facade: everything a model may use is named here and defined in the modules beside it. In a stub
`install` puts it into `sys.modules`; elsewhere (notebooks, pytest, an IDE) the shim imports it.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from types import ModuleType
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from devkit.stub import link, pybind
from devkit.stub.bls import ResponseIterator, is_model_ready, load_model, unload_model
from devkit.stub.exceptions import TritonError, TritonModelException
from devkit.stub.logger import Logger
from devkit.stub.metrics import Metric, MetricFamily, MetricKind
from devkit.stub.modelconfig import ModelConfig
from devkit.stub.requests import (
    InferenceRequest,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
    find_input,
)
from devkit.stub.responses import InferenceResponse, InferenceResponseSender
from devkit.stub.tensor import Tensor
from devkit.transport import dtypes

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU

TRITON_STRING_TO_NUMPY: Dict[str, Any] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}
"""NumPy type of each config data type."""


_Request = InferenceRequest  # a name that `without_native` leaves alone


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Optional[Tensor]:
    """The input tensor called `name`, None where the request has none."""
    if type(inference_request) is _Request:
        return find_input(inference_request, name)
    return _named(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Optional[Tensor]:
    """The output tensor called `name`, None where the response has none."""
    return _named(inference_response.output_tensors(), name)


def _named(tensors: List[Tensor], name: str) -> Optional[Tensor]:
    for tensor in tensors:
        if tensor.name() == name:
            return tensor
    return None


def _config_by_name(model_config: Dict[str, Any], kind: str, name: str) -> Optional[Dict[str, Any]]:
    for properties in model_config.get(kind, ()):
        if properties["name"] == name:
            found: Dict[str, Any] = properties
            return found
    return None


def get_input_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """Properties of the input `name` in a config made with `json.loads(args["model_config"])`."""
    return _config_by_name(model_config, "input", name)


def get_output_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """Properties of the output `name` in a config made with `json.loads(args["model_config"])`."""
    return _config_by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Dict[str, Any]) -> bool:
    """Whether a config asks for the decoupled transaction policy."""
    if "model_transaction_policy" not in model_config:
        return False
    return bool(model_config["model_transaction_policy"]["decoupled"])


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """NumPy type of a config data type such as `"TYPE_FP32"`."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


_NUMBERS = dict(enumerate(TRITON_STRING_TO_NUMPY.values(), start=1))
_NUMBERS[1] = np.bool_  # the table by name has Python's bool, this one NumPy's
_OF_NUMPY = {kind: number for number, kind in _NUMBERS.items()}
_OF_NUMPY[np.bytes_] = _OF_NUMPY[np.object_]


def triton_to_numpy_type(data_type: int) -> Any:
    """NumPy type of a data type's number in the server's C API."""
    return _NUMBERS.get(data_type)


def numpy_to_triton_type(data_type: Any) -> Optional[int]:
    """The server's number of a NumPy type, None where it has none."""
    return _OF_NUMPY.get(data_type.type if isinstance(data_type, np.dtype) else data_type)


def serialize_byte_tensor(input_tensor: npt.NDArray[Any]) -> Any:
    """BYTES elements as they travel; `()` for an empty tensor, None for another data type."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    return dtypes.encode_bytes(input_tensor)


def deserialize_bytes_tensor(encoded_tensor: Union[bytes, bytearray]) -> npt.NDArray[Any]:
    """Array of the elements in serialized BYTES data. struct.error where data is missing."""
    try:
        return dtypes.decode_bytes(encoded_tensor)
    except ValueError as problem:
        raise struct.error(str(problem)) from None


def get_model_dir() -> str:
    """Folder of the model's version."""
    return link.current.version_dir if link.current is not None else ""


__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

_NATIVE: Tuple[Any, ...] = (
    InferenceRequest, InferenceResponse, InferenceResponseSender, InferenceTrace, Logger,
    MemoryType, Metric, MetricFamily, MetricKind, PreferredMemory, ResponseIterator, Tensor,
    TritonError, TritonModelException, is_model_ready, load_model, unload_model,
)  # fmt: skip


_OWN_NAME = __name__
_WRAPPED = {"TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU", "get_model_dir"}


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'triton_python_backend_utils' has no attribute '{name}'")


@contextlib.contextmanager
def without_native() -> Iterator[None]:
    """Be what a model's module body sees in the real stub, which adds the rest after its import.

    A model that uses `pb_utils.Tensor` at its top level, an annotation included, does not load.
    """
    scope = globals()
    names = {thing.__name__ for thing in _NATIVE} | _WRAPPED
    hidden = {name: scope.pop(name) for name in names if name in scope}
    try:
        yield
    finally:
        scope.update(hidden)


def install() -> None:
    """Make this module what models import, under both of the real names."""
    globals()["__name__"] = "triton_python_backend_utils"  # as error messages have it
    sys.modules["triton_python_backend_utils"] = sys.modules[_OWN_NAME]
    native = ModuleType(pybind.MODULE, "What the real backend implements in C++.")
    for thing in _NATIVE:
        setattr(native, thing.__name__, thing)
    sys.modules[pybind.MODULE] = native
