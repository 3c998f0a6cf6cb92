"""Metrics that models make (`pb_utils.MetricFamily`), all instances' changes taken together.

A family is one for all who name it, a metric one for all who give it the same labels; both go when
the last instance that made them lets go or ends. How they are printed is the metrics front's.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

Labels = tuple[tuple[str, str], ...]
Holder = tuple[Any, int]
"""An instance, and the number it knows the object by."""

Sample = tuple[str, Labels, float]
"""What is appended to the family's name (`_bucket`, `_sum`, ... or nothing), labels, value."""


@dataclass(eq=False, slots=True)
class Value:
    """One metric: a number, or a histogram's buckets (counts by upper bound, not cumulative)."""

    labels: Labels
    value: float = 0.0
    bounds: tuple[float, ...] = ()
    counts: list[int] = field(default_factory=list)
    holders: set[Holder] = field(default_factory=set)

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.value += value


@dataclass(eq=False, slots=True)
class Family:
    """A family: name, description, kind (`COUNTER`, `GAUGE`, `HISTOGRAM`) and its metrics."""

    name: str
    description: str
    kind: str
    metrics: dict[Labels, Value] = field(default_factory=dict)
    holders: set[Holder] = field(default_factory=set)

    def samples(self) -> list[Sample]:
        """What a scrape gets, in the order in which the metrics were made."""
        found: list[Sample] = []
        for metric in self.metrics.values():
            if self.kind != "HISTOGRAM":
                found.append(("", metric.labels, metric.value))
                continue
            total = sum(metric.counts)
            found += [("_count", metric.labels, total), ("_sum", metric.labels, metric.value)]
            seen = 0
            for bound, count in zip(metric.bounds, metric.counts, strict=False):
                seen += count
                found.append(("_bucket", (*metric.labels, ("le", f"{bound:g}")), seen))
            found.append(("_bucket", (*metric.labels, ("le", "+Inf")), total))
        return found


class CustomMetrics:
    """Every family of a runtime's models."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._made_families: dict[Holder, Family] = {}
        self._made: dict[Holder, tuple[Family, Value]] = {}

    def families(self) -> list[Family]:
        """In the order in which they were first made."""
        return list(self._families.values())

    def handle(self, instance: Any, message: dict[str, Any]) -> dict[str, Any] | None:
        """Act on an instance's message; the reply where it waits for one."""
        action = message["action"]
        holder = (instance, message["id"])
        reply: dict[str, Any] = {"op": "reply", "call": message.get("call")}
        if action == "family":
            reply["error"] = self._family(holder, message)
        elif action == "create":
            reply["error"] = self._create(holder, (instance, message["family"]), message)
        elif action == "value":
            made = self._made.get(holder)
            if made is None:
                reply["error"] = "the metric is gone"
            else:
                reply["value"] = made[1].value
        elif action == "delete_metric":
            self._drop_metric(holder)
        elif action == "delete_family":
            self._drop_family(holder)
        else:
            self._change(holder, action, float(message["value"]))
        return reply if message.get("call") is not None else None

    def ended(self, instance: Any) -> None:
        """An instance is gone, and with it what only it held."""
        for holder in [each for each in self._made if each[0] is instance]:
            self._drop_metric(holder)
        for holder in [each for each in self._made_families if each[0] is instance]:
            self._drop_family(holder)

    def _family(self, holder: Holder, message: dict[str, Any]) -> str | None:
        name, kind = message["name"], message["kind"]
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, message["description"], kind)
        elif family.kind != kind:
            return f"Metric name already exists with a different kind: {name}"
        elif family.description != message["description"]:
            return f"Metric name already exists with a different description: {name}"
        family.holders.add(holder)
        self._made_families[holder] = family
        return None

    def _create(self, holder: Holder, owner: Holder, message: dict[str, Any]) -> str | None:
        family = self._made_families.get(owner)
        if family is None:
            return "the metric family is gone"
        labels = tuple(sorted((message.get("labels") or {}).items()))
        metric = family.metrics.get(labels)
        if metric is None:
            bounds = tuple(message.get("buckets") or ())
            metric = family.metrics[labels] = Value(labels, bounds=bounds)
            metric.counts = [0] * (len(bounds) + 1)
        metric.holders.add(holder)
        self._made[holder] = (family, metric)
        return None

    def _change(self, holder: Holder, action: str, value: float) -> None:
        made = self._made.get(holder)
        if made is None:
            return  # its family went first; the model was told
        metric = made[1]
        if action == "increment":
            metric.value += value
        elif action == "set":
            metric.value = value
        else:
            metric.observe(value)

    def _drop_metric(self, holder: Holder) -> None:
        made = self._made.pop(holder, None)
        if made is None:
            return
        family, metric = made
        metric.holders.discard(holder)
        if not metric.holders:
            family.metrics.pop(metric.labels, None)

    def _drop_family(self, holder: Holder) -> None:
        family = self._made_families.pop(holder, None)
        if family is None:
            return
        family.holders.discard(holder)
        if not family.holders:
            self._families.pop(family.name, None)
