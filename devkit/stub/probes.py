"""Intermediate tensors that a model shows by `devkit.probe`, on their way to the runtime.

A model's own values come in, whatever they are; what cannot be shown is described in words, and
nothing here ever fails the model. Only some executes are shown, a bounded number of bytes of each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, List, Tuple

import numpy as np

from devkit.transport import dtypes, messages, sampling

if TYPE_CHECKING:
    from devkit.stub.link import Link

EVERY = 100_000_000  # nanoseconds, unless the runtime says otherwise
LARGEST = 1 << 20  # bytes of a tensor; of a larger one evenly spaced runs
MOST = 100  # tensors of one execute


class Probes:
    """Decides which executes are shown, and sends what they show.

    Attributes:
        every: nanoseconds between two executes that are shown; 0 shows all.
        largest: bytes that are sent of one tensor.
    """

    def __init__(self, link: Link) -> None:
        self.every = EVERY
        self.largest = LARGEST
        self._link = link
        self._due = 0
        self._execute = -1
        self._left = 0

    def take(self, name: str, value: Any, request: Any = None) -> None:
        """`devkit.probe`: show a value of the batch that is executed, or of one request of it."""
        executing = self._link.executing
        if executing != self._execute:
            self._execute = executing
            now = time.monotonic_ns()
            self._left = MOST if now >= self._due else 0
            if self._left:
                self._due = now + self.every
        if self._left <= 0:
            return
        self._left -= 1
        number = getattr(request, "_sequence", 0) or executing
        if number:
            self._send(str(name), value, number, request is None)

    def _send(self, name: str, value: Any, number: int, batch: bool) -> None:
        try:
            datatype, shape, runs, data = read(value, self.largest)
        except Exception as problem:  # conversions of the user's own types may raise anything
            text = f"<{type(value).__name__} that cannot be shown: {problem}>"
            datatype, shape, runs, data = read(text, self.largest)
        described = {
            "request": number, "batch": batch, "name": name, "datatype": datatype,
            "shape": shape, "runs": runs,
        }  # fmt: skip
        # Before the answer, on the same socket: it is there when the request is recorded.
        self._link.outbox.post(messages.probe_frame(described, data))


def read(value: Any, largest: int) -> Tuple[str, List[int], List[Tuple[int, int]], Any]:
    """(datatype, shape, runs, bytes) of a tensor of any library, a number, a text or a list."""
    if hasattr(value, "as_numpy"):  # a pb_utils.Tensor
        value = value.as_numpy()
    if hasattr(value, "detach"):  # PyTorch
        value = value.detach()
    if not (hasattr(value, "shape") and hasattr(value, "reshape")):
        value = np.asarray(value)
    shape = [int(extent) for extent in value.shape]
    runs = [(0, dtypes.element_count(shape))]
    if not (isinstance(value, np.ndarray) and value.dtype.kind in "OSU"):
        size = int(getattr(value, "itemsize", 0) or getattr(value.dtype, "itemsize", 0) or 8)
        runs = sampling.runs(runs[0][1], max(1, largest // size))
    if len(runs) > 1:
        flat = value.flat if isinstance(value, np.ndarray) else value.reshape(-1)
        array = np.concatenate([_numpy(flat[start:stop]) for start, stop in runs])
    else:
        array, runs = _numpy(value), []
    datatype = dtypes.datatype_of(array)
    if datatype is None or array.dtype.kind == "O":
        texts = [one if isinstance(one, (bytes, str)) else repr(one) for one in array.flat[:10_000]]
        array = np.array(texts, dtype=np.object_)
        if dtypes.element_count(shape) > array.size:
            runs = [(0, array.size)]
        data = dtypes.encode_bytes(array)
        if len(data) > largest:
            data, runs = data[:largest], [(0, 0)]
        return "BYTES", shape, runs, data
    return datatype, shape, runs, dtypes.to_data(array)


def _numpy(value: Any) -> Any:
    """A NumPy array of a tensor of another library, wherever it lies."""
    if isinstance(value, np.ndarray):
        return value
    for step in ("cpu", "get"):  # PyTorch; CuPy
        if hasattr(value, step) and not isinstance(value, np.generic):
            value = getattr(value, step)()
    if str(getattr(value, "dtype", "")).endswith("bfloat16") and hasattr(value, "float"):
        value = value.float()
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array
