"""What is said of an exception in a model: the real server's text, and what a debugger shows.

The backend reports Python errors through pybind11: `Type: message`, then `At:` with the innermost
frame first. Clients and tests match on that text, so it is rebuilt here to the letter. Nothing here
decides what happens to a request.
"""

from __future__ import annotations

import linecache
import os
import reprlib
import traceback
from types import FrameType, TracebackType
from typing import Any, Dict, List, Optional

import numpy

from devkit import errors

_OURS = os.path.dirname(os.path.abspath(errors.__file__)) + os.sep
_AROUND = 3  # source lines before and after the one that failed
_SAMPLE = 1 << 16  # values of an array that its extremes are taken of
_LIBRARIES = ("torch", "jax", "jaxlib", "cupy", "tensorflow")
_LONGEST = 200  # characters of a local's repr
_MOST = 50  # locals of a frame


def is_ours(filename: str) -> bool:
    """Whether a code file belongs to devkit; such frames are C++ in the real server: not shown."""
    return filename.startswith(_OURS)


def message(problem: BaseException) -> str:
    """`Type: text`, with pybind11's words where there is no text."""
    try:
        text = str(problem)
    except Exception:  # a model's own __str__ may do anything
        text = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
    return f"{type(problem).__name__}: {text or '<EMPTY MESSAGE>'}"


def _innermost(problem: BaseException) -> Optional[FrameType]:
    """The deepest frame of the traceback that is not ours."""
    found = None
    trace = problem.__traceback__
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            found = trace.tb_frame
        trace = trace.tb_next
    return found


def text(problem: BaseException) -> str:
    """What the real server puts after `message: ` or `Internal: `."""
    frame = _innermost(problem)
    if frame is None:
        return message(problem)
    lines = []
    entered = False
    while frame is not None:
        code = frame.f_code
        if not is_ours(code.co_filename):
            lines.append(f"  {code.co_filename}({frame.f_lineno}): {code.co_name}\n")
            entered = True
        elif entered and code.co_filename.endswith(os.path.join("stub", "model.py")):
            break  # below this lies whoever runs the stub
        frame = frame.f_back
    return message(problem) + "\n\nAt:\n" + "".join(lines)


def formatted(problem: BaseException) -> str:
    """Python's usual traceback without devkit's own frames at its top."""
    trace = problem.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(problem), problem, trace))


def _user_entries(problem: BaseException) -> List[TracebackType]:
    entries = []
    trace = problem.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not is_ours(filename) and not filename.startswith("<frozen"):
            entries.append(trace)
        trace = trace.tb_next
    return entries


def line(problem: BaseException, folder: str) -> Optional[str]:
    """`path:line` of the failure: the deepest line under `folder` (the model's own files)."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{problem.filename}:{problem.lineno}"
    entries = _user_entries(problem)
    own = [e for e in entries if e.tb_frame.f_code.co_filename.startswith(folder)]
    for entry in reversed(own or entries):
        return f"{entry.tb_frame.f_code.co_filename}:{entry.tb_lineno}"
    return None


def frames(problem: BaseException) -> List[Dict[str, Any]]:
    """File, line, function and locals of each of the user's frames, outermost first."""
    return [
        {
            "file": entry.tb_frame.f_code.co_filename,
            "line": entry.tb_lineno,
            "function": entry.tb_frame.f_code.co_name,
            "source": _source(entry.tb_frame.f_code.co_filename, entry.tb_lineno),
            "locals": _summaries(entry.tb_frame.f_locals),
        }
        for entry in _user_entries(problem)
    ]


def _source(filename: str, line: int) -> List[List[Any]]:
    """[number, text] of the lines around one: by the time it is looked at the file may differ."""
    first = max(1, line - _AROUND)
    found = [
        [number, linecache.getline(filename, number).rstrip("\n")]
        for number in range(first, line + _AROUND + 1)
    ]
    while found and not found[-1][1]:
        found.pop()
    return found


def _summaries(values: Any) -> Dict[str, str]:
    return {str(name): _summary(value) for name, value in list(values.items())[:_MOST]}


class _Short(reprlib.Repr):
    """Reprs that take no long time of large containers, arrays in words."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 8
        self.maxdeque = self.maxarray = 8
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = _LONGEST

    def repr_ndarray(self, value: Any, level: int) -> str:
        return _array(value)

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(value) if len(value) <= 80 else f"{value[:80]!r}... ({len(value)} bytes)"

    def repr_instance(self, value: Any, level: int) -> str:
        words = _tensor(value)
        if words is not None:
            return words
        try:
            shown = repr(value)
        except Exception:  # a model's own __repr__ may do anything
            return f"<{type(value).__name__} whose repr fails>"
        return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."


_short = _Short()


def _summary(value: Any) -> str:
    try:
        shown = _short.repr(value)
    except Exception:  # a subclass of a container may do anything
        return f"<{type(value).__name__} whose repr fails>"
    return shown if len(shown) <= 2 * _LONGEST else shown[: 2 * _LONGEST - 3] + "..."


def _tensor(value: Any) -> Optional[str]:
    """What is worth saying of a tensor that is no array; None for anything else."""
    kind = type(value)
    if kind.__module__ == "c_python_backend_utils" and kind.__name__ == "Tensor":
        return f"Tensor {value.name()!r} {list(value.shape())}"
    if kind.__module__ == "c_python_backend_utils" and kind.__name__ == "InferenceRequest":
        inputs = ", ".join(f"{n} {t} {list(s)}" for n, t, s in value._plan.inputs)
        return f"InferenceRequest {value.request_id()!r}: {inputs}"
    library = kind.__module__.partition(".")[0]
    if library not in _LIBRARIES or not (hasattr(value, "dtype") and hasattr(value, "shape")):
        return None
    place = getattr(value, "device", "")
    return f"{kind.__name__} {value.dtype} {tuple(value.shape)} {place}".rstrip()


def _array(value: Any) -> str:
    """An array in words: its type, shape, and its values or what they are like."""
    head = f"ndarray {value.dtype} {tuple(value.shape)}"
    if value.size <= 16:
        return f"{head} {value.tolist()!r}"[:_LONGEST]
    if value.dtype.kind not in "iufb":
        return head
    seen = value.flat[:: max(1, value.size // _SAMPLE)]
    words = "" if seen.size == value.size else f" of {seen.size} values"
    if value.dtype.kind == "f":
        finite = seen[numpy.isfinite(seen)]
        if finite.size < seen.size:
            nan = int(numpy.count_nonzero(numpy.isnan(seen)))
            words += f", {nan} NaN" if nan else ""
            odd = seen.size - finite.size - nan
            words += f", {odd} infinite" if odd else ""
        seen = finite
    if not seen.size:
        return head + words
    with numpy.errstate(over="ignore"):
        mean = seen.mean(dtype=numpy.float64)
    return f"{head} min {seen.min():.6g} max {seen.max():.6g} mean {mean:.6g}{words}"
