"""`Logger`: a model's lines in the server's log."""

from __future__ import annotations

import os
import sys
from typing import Any

from devkit.stub import link, pybind
from devkit.stub.exceptions import NativeEnum
from devkit.stub.pybind import MISSING


class LogLevel(NativeEnum):
    """How much a line in the log matters."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


LogLevel.__module__ = pybind.MODULE

_LETTERS = {"INFO": "I", "WARNING": "W", "ERROR": "E", "VERBOSE": "I"}


def _write(level: str, message: str) -> None:
    frame = sys._getframe(2)
    file, line = os.path.basename(frame.f_code.co_filename), frame.f_lineno
    current = link.current
    if current is None:
        if level != "VERBOSE":
            print(f'{_LETTERS[level]} {file}:{line}] "{message}"', file=sys.stderr)
    elif level != "VERBOSE" or current.control.verbose > 0:
        current.control.log(level, message, file, line)


def _checked(function: str, message: Any) -> None:
    if not isinstance(message, str):
        raise pybind.bad_call(function, "(message: str) -> None", (message,))


class Logger:
    """Writes to the server's log with the model's file and line; use the class, not an instance.

    Outside a server the lines go to stderr.
    """

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{pybind.MODULE}.Logger: No constructor defined!")

    @staticmethod
    def log(message: str = MISSING, level: Any = LogLevel.INFO) -> None:
        """Write `message` at `level`, which is INFO where none is given."""
        if not isinstance(message, str) or not isinstance(level, LogLevel):
            raise pybind.bad_call(
                "log",
                f"(message: str, level: {pybind.MODULE}.Logger.LogLevel = <LogLevel.INFO: 0>) "
                "-> None",
                (message,) if level is LogLevel.INFO else (message, level),
            )
        _write(level.name, message)

    @staticmethod
    def log_info(message: str = MISSING) -> None:
        """Write `message` as information."""
        _checked("log_info", message)
        _write("INFO", message)

    @staticmethod
    def log_warn(message: str = MISSING) -> None:
        """Write `message` as a warning."""
        _checked("log_warn", message)
        _write("WARNING", message)

    @staticmethod
    def log_error(message: str = MISSING) -> None:
        """Write `message` as an error."""
        _checked("log_error", message)
        _write("ERROR", message)

    @staticmethod
    def log_verbose(message: str = MISSING) -> None:
        """Write `message` if the server logs verbosely."""
        _checked("log_verbose", message)
        _write("VERBOSE", message)


Logger.__module__ = pybind.MODULE
Logger.LogLevel = LogLevel  # type: ignore[attr-defined]
