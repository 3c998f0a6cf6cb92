"""`Tensor`: a name and an array, made by a model or lying where a request brought it.

An array of an input is made when the model asks for it. Small inputs are copied out of the frame
they came in (models may write to them); large ones are views of shared memory. How bytes travel is
`outbox`'s business, DLPack is `dlpack`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt

from devkit.stub import pybind
from devkit.stub.exceptions import TritonModelException
from devkit.stub.pybind import MISSING
from devkit.transport import dtypes

if TYPE_CHECKING:
    from devkit.stub.memory import PlacedBuffer

_DATATYPES = dict(dtypes.FROM_NUMPY)
_new = object.__new__


@pybind.native
class Tensor:
    """A named tensor, the unit that requests and responses are made of.

    `Tensor(name, array)` keeps the very array it is given; one that is not C-contiguous is copied.
    `Tensor.from_dlpack(name, tensor)` wraps memory of another framework.
    """

    __slots__ = ("__weakref__", "_array", "_data", "_datatype", "_name", "_shape")

    _name: str
    _datatype: str
    _shape: Tuple[int, ...]
    _array: Optional[npt.NDArray[Any]]
    _data: Any

    def __init__(
        self,
        name: str = MISSING,
        array: npt.NDArray[Any] = MISSING,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not isinstance(array, np.ndarray) or not isinstance(name, str) or args or kwargs:
            raise pybind.bad_constructor(
                "Tensor(arg0: str, arg1: numpy.ndarray)", (name, array, *args), kwargs
            )
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        datatype = _DATATYPES.get(array.dtype) or _unlisted(array)
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._name = name
        self._datatype = datatype
        self._shape = array.shape
        self._array = array
        self._data = None

    def name(self) -> str:
        """Name of the tensor."""
        return self._name

    def shape(self) -> List[int]:
        """Dimensions, the batch dimension included."""
        return list(self._shape)

    def triton_dtype(self) -> str:
        """Raises TypeError: the backend has this method, but no Python type for what it returns."""
        raise TypeError(
            "Unable to convert function return value to a Python type! The signature was\n"
            f"\t(self: {pybind.MODULE}.Tensor) -> TRITONSERVER_datatype_enum"
        )

    def is_cpu(self) -> bool:
        """Whether the tensor lies in host memory."""
        return getattr(self._data, "is_cpu", True)

    def as_numpy(self) -> npt.NDArray[Any]:
        """The tensor as a NumPy array: writable, and the same object at every call."""
        array = self._array
        if array is None:
            array = self._array = _materialise(self)
        return array

    def to_dlpack(self) -> Any:
        """A DLPack capsule over the same memory."""
        from devkit.stub import dlpack

        return dlpack.capsule_of(self)

    @staticmethod
    def from_dlpack(name: str = MISSING, tensor: Any = MISSING, /) -> Tensor:
        """A Tensor over the memory of a DLPack capsule or of any object with `__dlpack__`."""
        from devkit.stub import dlpack

        if not isinstance(name, str) or tensor is MISSING:
            raise pybind.bad_call(
                "from_dlpack",
                f"(self: str, arg0: object) -> {pybind.MODULE}.Tensor",
                (name, tensor),
            )
        return dlpack.tensor_from(name, tensor)

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> Tuple[int, int]:
        return getattr(self._data, "device", (1, 0))


def _unlisted(array: npt.NDArray[Any]) -> str:
    """Datatype of an array whose dtype is in no table: fixed-width bytes count as BYTES."""
    if array.dtype.kind == "S":
        return "BYTES"
    raise TritonModelException("NumPy dtype is not supported.")


def from_wire(
    name: str, datatype: str, shape: Tuple[int, ...], data: Union[memoryview, PlacedBuffer]
) -> Tensor:
    """A Tensor over the bytes a frame or a region holds."""
    tensor: Tensor = _new(Tensor)
    tensor._name = name
    tensor._datatype = datatype
    tensor._shape = shape
    tensor._array = None
    tensor._data = data
    return tensor


def _materialise(tensor: Tensor) -> npt.NDArray[Any]:
    datatype, data, shape = tensor._datatype, tensor._data, tensor._shape
    dtype = dtypes.NUMPY.get(datatype)
    if dtype is None:
        raise TritonModelException(
            "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and "
            "from_dlpack() instead."
        )
    if not tensor.is_cpu():
        raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
    if type(data) is memoryview:
        if datatype == "BYTES":
            return dtypes.decode_bytes(data).reshape(shape)
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, bytearray(data))
        return array
    if datatype == "BYTES":
        return dtypes.decode_bytes(data.view).reshape(shape)
    placed: npt.NDArray[Any] = data.array(dtype, shape)
    return placed


def raw(tensor: Tensor) -> Any:
    """The tensor's bytes in C order, as something a frame or a region can take."""
    array = tensor._array
    if array is not None:
        return dtypes.encode_bytes(array) if tensor._datatype == "BYTES" else array
    data = tensor._data
    return data if type(data) is memoryview else data.view
