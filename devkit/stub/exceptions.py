"""`TritonModelException` and `TritonError`: what a model raises and what it answers with."""

from __future__ import annotations

import enum
from typing import Any

from devkit.stub import pybind
from devkit.stub.pybind import MISSING


class TritonModelException(Exception):
    """Raised by pb_utils when a model asks for what cannot be done, and by models themselves.

    A batch whose `execute` raises it fails with `TritonModelException: <message>`.
    """


TritonModelException.__module__ = pybind.MODULE


class NativeEnum(enum.Enum):
    """Like pybind11's enums: no int, but converts to one and compares by value."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NativeEnum):
            return type(self) is type(other) and self.value == other.value
        return isinstance(other, int) and self.value == other

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class ErrorCode(NativeEnum):
    """What a `TritonError` is about."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


ErrorCode.__name__ = "__ErrorCode"  # as the real module shows it
ErrorCode.__module__ = pybind.MODULE


@pybind.native
class TritonError:
    """An error to answer a request with: a message and one of the codes below.

    Attributes:
        UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS,
        CANCELLED: what `code` may be; the server turns it into an HTTP or gRPC status.
    """

    __slots__ = ("_code", "_message")

    _code: ErrorCode
    _message: str

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(
        self, message: str = MISSING, code: Any = ErrorCode.INTERNAL, *args: Any, **kwargs: Any
    ) -> None:
        if not isinstance(message, str) or not isinstance(code, ErrorCode) or args or kwargs:
            given = (message,) if code is self.INTERNAL and not args else (message, code, *args)
            raise pybind.bad_constructor(
                f"TritonError(message: str, code: {pybind.MODULE}.TritonError.__ErrorCode = "
                "<__ErrorCode.INTERNAL: 1>)",
                given,
                kwargs,
            )
        self._message = message
        self._code = code

    def message(self) -> str:
        """The text the client gets."""
        return self._message

    def code(self) -> Any:
        """The error code, `INTERNAL` unless another was given."""
        return self._code
