"""The looks of the real module's C++ classes: their module name and pybind11's own error texts.

Models in the field match on these texts (and so do their tests); nothing else lives here.
"""

from __future__ import annotations

from typing import Any, Dict, NoReturn, Optional, Sequence, Tuple, Type, TypeVar

MODULE = "c_python_backend_utils"

T = TypeVar("T")


class _Missing:
    """Stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "..."


MISSING: Any = _Missing()


def native(kind: Type[T]) -> Type[T]:
    """Class decorator: names the module and the missing attributes as the C++ class does."""
    name = f"{MODULE}.{kind.__name__}"

    def missing(self: Any, attribute: str) -> NoReturn:
        raise AttributeError(f"'{name}' object has no attribute '{attribute}'")

    kind.__module__ = MODULE
    kind.__getattr__ = missing  # type: ignore[attr-defined]
    return kind


def _invoked(args: Sequence[Any], kwargs: Optional[Dict[str, Any]]) -> str:
    shown = ", ".join(repr(value) for value in args if value is not MISSING)
    if kwargs:
        named = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        shown += ("; " if shown else "") + "kwargs: " + named
    return shown


def bad_constructor(
    signature: str,
    args: Sequence[Any],
    kwargs: Optional[Dict[str, Any]] = None,
) -> TypeError:
    """TypeError of a constructor; `signature` is what follows the module name."""
    return TypeError(
        "__init__(): incompatible constructor arguments. The following argument types are "
        f"supported:\n    1. {MODULE}.{signature}\n\nInvoked with: {_invoked(args, kwargs)}"
    )


def bad_call(
    function: str,
    signature: str,
    args: Sequence[Any],
    kwargs: Optional[Dict[str, Any]] = None,
) -> TypeError:
    """TypeError of a method or function; `signature` is what pybind11 prints after `1. `."""
    return TypeError(
        f"{function}(): incompatible function arguments. The following argument types are "
        f"supported:\n    1. {signature}\n\nInvoked with: {_invoked(args, kwargs)}"
    )


def split(args: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """`args` without what was not given."""
    return tuple(value for value in args if value is not MISSING)
