"""The trace and logging extensions: reading and changing settings, alike over HTTP and gRPC.

The settings themselves belong to the engine, those of traces to `observe.trace_extension`; here
are only the checks and the real server's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from devkit.errors import Code, InferError
from devkit.observe.trace_extension import Extension

LOG_FIELDS = (
    "log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format",
)  # fmt: skip
LEVELS = ("TIMESTAMPS", "TENSORS")
FORMATS = ("default", "ISO8601")
NUMBERS = {"trace_rate": 4294967295, "log_frequency": 4294967295, "trace_count": (1 << 31) - 1}

_FIXED_FILE = "trace file location can not be updated through network protocol"
_FIXED_LOG = "log file location can not be updated through network protocol"
_INTEGER = re.compile(r"\s*[+-]?\d+")


class Settings:
    """What clients say of traces and of the log.

    One object serves all front ends of an engine (`of`), so that they show the same.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        tracer = getattr(engine, "traces", None)
        self._traces: Extension = (
            tracer.extension if tracer is not None else Extension(engine.trace_settings)
        )

    @staticmethod
    def of(engine: Any) -> Settings:
        """The engine's settings object, made on first use."""
        found = getattr(engine, "protocol_settings", None)
        if found is None:
            found = engine.protocol_settings = Settings(engine)
        assert isinstance(found, Settings)
        return found

    # -- trace ---------------------------------------------------------------------------------

    def check_model(self, model: str) -> None:
        """Raises InferError where there is no such model."""
        if model and not any(entry.name == model for entry in self._engine.index()):
            raise InferError(f"Request for unknown model : {model}")

    def trace(self, model: str = "") -> dict[str, Any]:
        """Settings in the real server's order; `trace_level` is a list, the rest strings."""
        self.check_model(model)
        return self._traces.show(model)

    def update_trace(self, changes: Mapping[str, Sequence[str] | None], model: str = "") -> None:
        """Apply `changes` (None resets). Raises InferError; then nothing changes."""
        self.check_model(model)
        checked: dict[str, Any] = {}
        for field, values in changes.items():
            if field == "trace_file":
                raise InferError(_FIXED_FILE, Code.UNSUPPORTED)
            if field == "trace_level":
                checked[field] = None if values is None else self._levels(values)
            elif field in NUMBERS:
                checked[field] = None if values is None else _number(field, values[0])
        self._traces.update(checked, model)

    @staticmethod
    def _levels(values: Sequence[str]) -> list[str]:
        if "OFF" in values and len(values) > 1:
            raise InferError("Expect only one trace level 'OFF' is specified")
        return [value for value in LEVELS if value in values]

    # -- logging -------------------------------------------------------------------------------

    def log(self) -> dict[str, Any]:
        """Settings in the real server's order."""
        current = self._engine.log_settings
        return {field: getattr(current, field) for field in LOG_FIELDS}

    def update_log(self, changes: Mapping[str, Any]) -> None:
        """Apply `changes`, whose types the front end has checked."""
        for field, value in changes.items():
            setattr(self._engine.log_settings, field, value)
        if "log_verbose_level" in changes:
            self._engine.set_verbosity(changes["log_verbose_level"])

    @staticmethod
    def refuse_log_file() -> InferError:
        """The answer to a change of the log file."""
        return InferError(_FIXED_LOG, Code.UNSUPPORTED)


def _number(field: str, text: str) -> int:
    """A numeric setting, read and refused as the real server does."""
    match = _INTEGER.match(text)
    if match is None:
        raise InferError(f"Unable to parse '{field}', got: {text}")
    value, top = int(match.group()), NUMBERS[field]
    if field == "trace_count":
        if value < -1:
            raise InferError(f"Unable to parse '{field}'. Expecting value >= -1, got:{text}")
        return value
    if value > top or value < -top:
        raise InferError(
            f"Unable to parse '{field}', value is out of range [ 0, {top} ], got: {text}"
        )
    return value % (top + 1)
