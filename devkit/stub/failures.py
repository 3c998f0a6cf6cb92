"""What is said of an exception in a model: the real server's text, and what a debugger shows.

The backend reports Python errors through pybind11: `Type: message`, then `At:` with the innermost
frame first. Clients and tests match on that text, so it is rebuilt here to the letter. Nothing here
decides what happens to a request.
"""

from __future__ import annotations

import os
import traceback
from types import FrameType, TracebackType
from typing import Any, Dict, List, Optional

from devkit import errors

_OURS = os.path.dirname(os.path.abspath(errors.__file__)) + os.sep
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
            "locals": _summaries(entry.tb_frame.f_locals),
        }
        for entry in _user_entries(problem)
    ]


def _summaries(values: Any) -> Dict[str, str]:
    return {str(name): _summary(value) for name, value in list(values.items())[:_MOST]}


def _summary(value: Any) -> str:
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and hasattr(value, "shape"):
        head = f"ndarray {value.dtype} {tuple(value.shape)}"
        return head if value.size > 16 else f"{head} {value.tolist()!r}"[:_LONGEST]
    try:
        shown = repr(value)
    except Exception:  # a model's own __repr__ may do anything
        return f"<{kind.__name__} whose repr fails>"
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."
