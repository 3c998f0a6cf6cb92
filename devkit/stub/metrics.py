"""`MetricFamily` and `Metric`: a model's own metrics on the server's /metrics page.

What the runtime would refuse is refused here, so that changing a value is a message and no round
trip. The values live in the runtime, where all instances' changes meet; outside a server a metric
keeps its own.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Dict, List, Optional
from weakref import ref

from devkit.stub import link, pybind
from devkit.stub.exceptions import NativeEnum, TritonModelException
from devkit.stub.pybind import MISSING


class MetricKind(NativeEnum):
    """What a metric family counts."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


MetricKind.__module__ = pybind.MODULE

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_numbers = itertools.count(1)

_SUPPORTED = {
    "COUNTER": ("increment", "value"),
    "GAUGE": ("increment", "set", "value"),
    "HISTOGRAM": ("observe",),
}


def _failed(doing: str, text: str) -> TritonModelException:
    instance = link.current.instance if link.current is not None else ""
    return TritonModelException(
        f"{doing}: Failed to process the request for model '{instance}', message: {text}"
    )


def _create(what: str, message: Dict[str, Any]) -> None:
    """Have the runtime make a family or a metric."""
    if link.current is not None:
        reply = link.current.control.call({"op": "metric", **message})
        if reply.get("error") is not None:
            raise _failed(f"Error when creating {what}", reply["error"])


def _delete(kind: str, number: int) -> None:
    if link is not None and link.current is not None:  # None while the interpreter shuts down
        link.current.control.post({"op": "metric", "action": f"delete_{kind}", "id": number})


@pybind.native
class Metric:
    """One metric of a family; made by `MetricFamily.Metric(...)`, gone with this object."""

    __slots__ = ("__weakref__", "_family", "_kind", "_local", "_number")

    _family: ref[MetricFamily]
    _kind: str
    _local: float
    _number: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{pybind.MODULE}.Metric: No constructor defined!")

    @classmethod
    def _of(
        cls, family: MetricFamily, labels: Dict[str, str], buckets: Optional[List[float]]
    ) -> Metric:
        made: Metric = object.__new__(cls)
        made._family = ref(family)  # no more: a family dies when the model lets it go
        made._kind = family._kind
        made._local = 0.0
        made._number = 0
        number = next(_numbers)
        _create(
            "Metric",
            {"action": "create", "family": family._number, "id": number, "labels": labels,
             "buckets": buckets},
        )  # fmt: skip
        made._number = number
        return made

    def __del__(self) -> None:
        if self._number:
            _delete("metric", self._number)

    def _checked(self, action: str, doing: str, given: Any) -> float:
        """The value to send; refuses what this kind of metric cannot do."""
        value = given[0] if len(given) == 1 else None
        if action != "value" and not isinstance(value, (int, float)):
            raise pybind.bad_call(
                action, f"(self: {pybind.MODULE}.Metric, arg0: float) -> None", (self, *given)
            )
        if self._family() is None:
            raise TritonModelException(
                f"Failed to {doing} metric value: Invalid metric operation as the corresponding "
                "'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted "
                "AFTER its corresponding 'Metric' objects have been deleted."
            )
        doing = f"Failed to {doing} metric value"
        if action not in _SUPPORTED[self._kind]:
            raise _failed(
                doing,
                f"TRITONSERVER_METRIC_KIND_{self._kind} does not support {action.capitalize()}",
            )
        if action == "increment" and self._kind == "COUNTER" and value < 0:  # type: ignore[operator]
            raise _failed(
                doing,
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
                "non-negative values.",
            )
        return float(value or 0)

    def _change(self, action: str, given: Any) -> None:
        value = self._checked(action, action, given)
        if link.current is not None:
            link.current.control.send(
                {"op": "metric", "action": action, "id": self._number, "value": value}
            )
        else:
            self._local = value if action == "set" else self._local + value

    def increment(self, *value: float) -> None:
        """Add to a counter or a gauge."""
        self._change("increment", value)

    def set(self, *value: float) -> None:
        """Set a gauge."""
        self._change("set", value)

    def observe(self, *value: float) -> None:
        """Count a value in a histogram."""
        self._change("observe", value)

    def value(self) -> float:
        """The present value of a counter or a gauge, all instances taken together."""
        self._checked("value", "get", ())
        if link.current is None:
            return self._local
        reply = link.current.control.call({"op": "metric", "action": "value", "id": self._number})
        if reply.get("error") is not None:
            raise _failed("Failed to get metric value", reply["error"])
        return float(reply["value"])


@pybind.native
class MetricFamily:
    """A named kind of metric; keep it as long as its metrics."""

    __slots__ = ("__weakref__", "_kind", "_number")

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    _kind: str
    _number: int

    def __init__(
        self,
        name: str = MISSING,
        description: str = MISSING,
        kind: Any = MISSING,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._number = 0
        texts = isinstance(name, str) and isinstance(description, str)
        if not texts or not isinstance(kind, MetricKind) or args or kwargs:
            raise pybind.bad_constructor(
                f"MetricFamily(name: str, description: str, kind: {pybind.MODULE}.MetricKind)",
                (name, description, kind, *args),
                kwargs,
            )
        if not _NAME.fullmatch(name):
            raise _failed("Error when creating MetricFamily", "Invalid metric name")
        self._kind = kind.name
        number = next(_numbers)
        _create(
            "MetricFamily",
            {"action": "family", "id": number, "name": name, "description": description,
             "kind": self._kind},
        )  # fmt: skip
        self._number = number

    def __del__(self) -> None:
        if self._number:
            _delete("family", self._number)

    def Metric(
        self, labels: Optional[Dict[str, str]] = None, buckets: Optional[List[float]] = None
    ) -> Metric:
        """A metric of this family, told from others by its labels; a histogram needs buckets."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if self._kind == "HISTOGRAM" and buckets is None:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        if self._kind != "HISTOGRAM" and buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        for pair in (labels or {}).items():
            if not all(isinstance(text, str) for text in pair):
                raise _failed(
                    "Error when creating Metric", "attempt to access JSON non-string as string"
                )
        if buckets is not None and any(a >= b for a, b in zip(buckets, buckets[1:])):
            raise _failed("Error when creating Metric", "Bucket Boundaries must be strictly sorted")
        return Metric._of(self, labels or {}, buckets)
