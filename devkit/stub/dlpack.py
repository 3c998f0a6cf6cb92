"""DLPack: handing a tensor's memory to another framework, and taking theirs, without a copy.

The structures of dlpack.h, by ctypes, because NumPy's own DLPack has no BF16 and older ones no
bool. A capsule made here keeps its Tensor alive until the consumer lets go; a Tensor made here
keeps the producer's memory. Device memory is carried along and copied to the host only when it
must travel.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, c_char_p, c_int, c_void_p, py_object
from typing import Any, Dict, List, Tuple

import numpy as np

from devkit.stub.exceptions import TritonModelException
from devkit.stub.tensor import Tensor, from_wire
from devkit.transport import dtypes

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_ON_HOST = (CPU, CUDA_HOST, CUDA_MANAGED)
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6

_TYPES: Dict[str, Tuple[int, int]] = {
    "BOOL": (_BOOL, 8), "UINT8": (_UINT, 8), "UINT16": (_UINT, 16), "UINT32": (_UINT, 32),
    "UINT64": (_UINT, 64), "INT8": (_INT, 8), "INT16": (_INT, 16), "INT32": (_INT, 32),
    "INT64": (_INT, 64), "FP16": (_FLOAT, 16), "BF16": (_BFLOAT, 16), "FP32": (_FLOAT, 32),
    "FP64": (_FLOAT, 64),
}  # fmt: skip
_DATATYPES = {described: datatype for datatype, described in _TYPES.items()}


class _Device(ctypes.Structure):
    _fields_ = [("kind", c_int), ("number", c_int)]


class _DataType(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _Device),
        ("dimensions", c_int),
        ("dtype", _DataType),
        ("shape", POINTER(ctypes.c_int64)),
        ("strides", POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", _Deleter)]

_NAME, _USED = b"dltensor", b"used_dltensor"
_new_capsule = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
# A capsule that is being destroyed must not be touched as an object: by address, then.
_dying_is_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_dying_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

_exported: Dict[int, Tuple[Any, ...]] = {}
"""By address of the structure: what an exported capsule needs alive."""


def _delete(managed: Any) -> None:
    """The consumer let go."""
    _exported.pop(ctypes.addressof(managed.contents), None)


def _capsule_dies(capsule: int) -> None:
    if _dying_is_valid(capsule, _NAME):  # nobody consumed it
        _exported.pop(_dying_pointer(capsule, _NAME), None)


_deleter = _Deleter(_delete)
_destructor = PYFUNCTYPE(None, c_void_p)(_capsule_dies)


def capsule_of(tensor: Tensor) -> Any:
    """A capsule named `dltensor` over the tensor's own memory."""
    described = _TYPES.get(tensor._datatype)
    if described is None:
        raise TritonModelException("DLPack does not have support for string tensors.")
    address, device, owner = _memory(tensor)
    shape = (ctypes.c_int64 * len(tensor._shape))(*tensor._shape)
    managed = _Managed()
    managed.tensor.data = address
    managed.tensor.device = _Device(*device)
    managed.tensor.dimensions = len(tensor._shape)
    managed.tensor.dtype = _DataType(described[0], described[1], 1)
    managed.tensor.shape = ctypes.cast(shape, POINTER(ctypes.c_int64))
    managed.deleter = _deleter
    where = ctypes.addressof(managed)
    _exported[where] = (managed, shape, owner)
    return _new_capsule(where, _NAME, ctypes.cast(_destructor, c_void_p))


def _memory(tensor: Tensor) -> Tuple[int, Tuple[int, int], Any]:
    """Address and device of a tensor's bytes, and what keeps them."""
    if isinstance(tensor._data, Imported):
        return tensor._data.address, tensor._data.device, tensor._data
    if tensor._datatype == "BF16":
        # NumPy cannot say BF16: the same bytes under a type of the same size.
        bits = tensor._array
        if bits is None:
            words = from_wire(tensor._name, "UINT16", tensor._shape, tensor._data)
            bits = tensor._array = words.as_numpy()
        return bits.__array_interface__["data"][0], (CPU, 0), bits
    array = tensor.as_numpy()
    return array.__array_interface__["data"][0], (CPU, 0), array


class Imported:
    """Memory of another framework, given back when the last array and Tensor over it are gone."""

    __slots__ = ("__array_interface__", "__weakref__", "_managed", "address", "device", "size")

    def __init__(self, managed: Any, size: int) -> None:
        contents = managed.contents.tensor
        self._managed = managed
        self.address = (contents.data or 0) + contents.byte_offset
        self.device = (int(contents.device.kind), int(contents.device.number))
        self.size = size

    @property
    def is_cpu(self) -> bool:
        """Whether the host can read it."""
        return self.device[0] in _ON_HOST

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)

    def array(self, dtype: np.dtype[Any], shape: Tuple[int, ...]) -> Any:
        """An array over host memory."""
        if not self.size:
            return np.empty(shape, dtype)
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (self.address, False),
        }
        return np.asarray(self)

    @property
    def view(self) -> memoryview:
        """The bytes, fetched from the device where they lie there."""
        if not self.size:
            return memoryview(b"")
        if self.is_cpu:
            return memoryview(self.array(np.dtype(np.uint8), (self.size,)))
        return memoryview(_fetch(self.address, self.size, self.device[1]))


def _fetch(address: int, size: int, device: int) -> bytearray:
    """Copy device memory to the host with the driver's own calls; no framework is needed."""
    driver = ctypes.CDLL("libcuda.so.1")
    context = c_void_p()
    target = bytearray(size)
    buffer = (ctypes.c_char * size).from_buffer(target)
    for status in (
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        driver.cuCtxPushCurrent_v2(context),
        driver.cuMemcpyDtoH_v2(buffer, ctypes.c_uint64(address), ctypes.c_size_t(size)),
        driver.cuCtxPopCurrent_v2(ctypes.byref(c_void_p())),
        driver.cuDevicePrimaryCtxRelease_v2(device),
    ):
        if status:
            raise TritonModelException(f"Failed to copy the tensor from the GPU: error {status}.")
    return target


def tensor_from(name: str, producer: Any) -> Tensor:
    """A Tensor over the memory of a capsule, or of any object with `__dlpack__`."""
    capsule = producer
    if type(producer).__name__ != "PyCapsule":
        if not hasattr(producer, "__dlpack__") or not hasattr(producer, "__dlpack_device__"):
            raise TritonModelException(
                "Provided tensor is not supported. Tensor must be a DLPack capsule"
                "         or have `__dlpack__` and `__dlpack_device__` attributes"
            )
        kind, _ = producer.__dlpack_device__()
        # Stream 1 is CUDA's legacy default stream, which our copies use.
        capsule = producer.__dlpack__(stream=1) if int(kind) == CUDA else producer.__dlpack__()
    if not name:
        raise TritonModelException("Tensor name cannot be an empty string.")
    if not _is_valid(capsule, _NAME):
        raise TritonModelException(
            "DLPack capsule was consumed already, or is none: it must be named 'dltensor'."
        )
    managed = ctypes.cast(_pointer_of(capsule, _NAME), POINTER(_Managed))
    described = managed.contents.tensor
    shape = tuple(described.shape[axis] for axis in range(described.dimensions))
    if not _is_contiguous(described, shape):
        raise TritonModelException(
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in "
            "C-Order are supported."
        )
    datatype = _DATATYPES.get((described.dtype.code, described.dtype.bits))
    if datatype is None or described.dtype.lanes != 1:
        raise TritonModelException("DLPack tensor's data type is not supported.")
    size = dtypes.SIZES[datatype] * dtypes.element_count(shape)
    _rename(capsule, _USED)
    memory = Imported(managed, size)
    tensor = from_wire(name, datatype, shape, memory)  # type: ignore[arg-type]
    return tensor


def _is_contiguous(described: Any, shape: Tuple[int, ...]) -> bool:
    if not described.strides or 0 in shape:
        return True
    strides = _strides(described, len(shape))
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _strides(described: Any, dimensions: int) -> List[int]:
    return [described.strides[axis] for axis in range(dimensions)]
