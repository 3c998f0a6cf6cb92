"""Unit tests of models without a server: load, ask and finalize one in the test's own process.

    from devkit.testing import infer, load_model, request

    with load_model("models/double") as model:
        assert infer(model, {"X": [1.0, 2.0]})["Y"].tolist() == [2.0, 4.0]

What `execute` returns goes through the very checks that a served model's process makes, and what
the real server would pass over in silence is a `ContractWarning`. Names are fetched from their
homes when first used, because pytest imports this package in every run (`plugin`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devkit.testing.bls import BlsCall
    from devkit.testing.findings import ContractWarning
    from devkit.testing.host import LogLine
    from devkit.testing.live import LiveModel, LiveRuntime
    from devkit.testing.model import ModelUnderTest, infer, load_model
    from devkit.testing.requests import cancel, request

__all__ = [
    "BlsCall",
    "ContractWarning",
    "LiveModel",
    "LiveRuntime",
    "LogLine",
    "ModelUnderTest",
    "cancel",
    "infer",
    "load_model",
    "request",
]

_HOMES = {
    "BlsCall": "bls",
    "ContractWarning": "findings",
    "LiveModel": "live",
    "LiveRuntime": "live",
    "LogLine": "host",
    "ModelUnderTest": "model",
    "cancel": "requests",
    "infer": "model",
    "load_model": "model",
    "request": "requests",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
