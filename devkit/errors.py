"""The error tree every part of devkit shares.

Here live the exceptions and Triton's error codes, and nothing that knows HTTP, gRPC or a
terminal: each front end owns the table that maps a `Code` to its own status.
Standard library only, Python 3.9+, because the stub imports it inside users' interpreters.
"""

from __future__ import annotations

import enum
from typing import Optional


class Code(enum.IntEnum):
    """Triton's error codes, numbered as `pb_utils.TritonError` numbers them."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class DevkitError(Exception):
    """Anything devkit refuses or fails at; catch it to catch all of them.

    Attributes:
        message: what went wrong, as one text a user can act on.
        model: name of the model concerned, if one is.
        instance: name of the model instance concerned, if one is.
        line: `path:line` in the user's own files, if the cause has one.
        remedy: what to do next, if devkit knows.
    """

    def __init__(
        self,
        message: str,
        *,
        model: Optional[str] = None,
        instance: Optional[str] = None,
        line: Optional[str] = None,
        remedy: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.model = model
        self.instance = instance
        self.line = line
        self.remedy = remedy


class InferError(DevkitError):
    """A request the server refuses, or that failed; `message` is the real server's own text.

    Raised while a request is decoded, checked or queued, and carried by a `Response` once an
    instance has it. Clients match on the text, so nothing may be added to it.
    """

    def __init__(
        self, message: str, code: Code = Code.INVALID_ARG, *, model: Optional[str] = None
    ) -> None:
        super().__init__(message, model=model)
        self.code = code


class UnknownModelError(InferError):
    """No such model, or no such version of it. Name one that `devkit models` lists."""

    def __init__(self, message: str, *, model: Optional[str] = None) -> None:
        super().__init__(message, Code.NOT_FOUND, model=model)


class ConfigError(DevkitError):
    """A `config.pbtxt` that cannot be read or does not hold together; the file names the line."""


class LoadError(DevkitError):
    """A model that does not load; `message` is what the real server answers to the load request.

    `code` decides the status a front end gives; `traceback` is the model's own, when there is one.
    """

    def __init__(
        self,
        message: str,
        code: Code = Code.INVALID_ARG,
        *,
        model: Optional[str] = None,
        line: Optional[str] = None,
        remedy: Optional[str] = None,
        traceback: Optional[str] = None,
    ) -> None:
        super().__init__(message, model=model, line=line, remedy=remedy)
        self.code = code
        self.traceback = traceback


class TransportError(DevkitError):
    """The peer of a channel went away or sent what no version of it sends. Nothing to retry."""


class SharedMemoryError(DevkitError):
    """Shared memory is full or a region cannot be mapped; `remedy` names the size to ask for."""


class ControlError(DevkitError):
    """The runtime could not be reached, or refused a call. `remedy` says how to start it."""


class DebugError(DevkitError):
    """The debugger refused, or cannot do what was asked now: nothing is stopped, it is off, ..."""
