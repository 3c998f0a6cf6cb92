"""`devkit.dashboard`: models, instances and memory of the runtime, a picture a second.

A thread asks the runtime while somebody can see the widget, and waits without a sound while
nobody can; it ends with the widget and with the runtime.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import traitlets

from devkit import workbench
from devkit.control import messages
from devkit.control.client import Client
from devkit.errors import DevkitError
from devkit.notebook.display import duration, frame, size
from devkit.notebook.widgets import assets, still
from devkit.notebook.widgets.base import Widget

EVERY = 1.0  # seconds
POINTS = 120
_SLAB = re.compile(r"devkit-\d+-(.+)_\d+-(requests|responses)")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")
_MODEL_SERIES = {
    "inferences": "inferences", "latency": "latency", "queue": "queue", "batch_size": "batch size",
}  # fmt: skip
_OWN_SERIES = {"shm_free": "/dev/shm free", "shm_ours": "ours of it", "gpu_busy": "GPU busy"}


def state_of(client: Client, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything that is shown, as the runtime has it now; `before` is the state a moment ago."""
    snapshot = client.status()
    history = client.history(seconds=POINTS)
    recent = client.capture_list(last=1000)
    earlier = before.get("counted", {}) if before else {}
    passed = snapshot.time - before["time"] if before and before.get("time") else 0.0
    models = [one for one in snapshot.models if one.state or one.instances]
    counted = {
        one.name + model.version: one.work.requests
        for model in models for one in model.instances if one.work is not None
    }  # fmt: skip
    shown = []
    for model in models:
        times = [each.seconds for each in recent if each.model == model.name]
        shown.append({
            **_model(model, times, _held(snapshot.memory.slabs, model.name, "requests")),
            "instances": [
                _instance(one, snapshot.memory.slabs, _rate(one, model, counted, earlier, passed))
                for one in model.instances
            ],
            "gpu": any(one.process and one.process.gpu >= 0 for one in model.instances),
            "series": _series(history, model.name, _MODEL_SERIES),
        })  # fmt: skip
    return {
        "facts": _facts(snapshot), "models": shown, "memory": _memory(snapshot, history),
        "clock": time.strftime("%H:%M:%S", time.localtime(snapshot.time)), "gone": "",
        "time": snapshot.time, "counted": counted,
    }  # fmt: skip


def _facts(snapshot: messages.Snapshot) -> list[str]:
    facts = [f"pid {snapshot.runtime.pid}"]
    facts += [f"{one.protocol} {one.url}" for one in snapshot.runtime.endpoints]
    if snapshot.process is not None:
        facts.append(
            f"{size(max(snapshot.process.rss, 0))}, CPU {snapshot.process.cpu_percent:.0f} %"
        )
    return facts


def _model(model: messages.Model, times: list[float], held: int) -> dict[str, Any]:
    facts = [f"version {model.version}"] if model.version else []
    facts.append(f"{model.inferences:,} inferences in {model.executions:,} executions")
    if model.failures:
        facts.append(f"{model.failures:,} failed")
    facts.append(f"{model.pending:,} waiting")
    if held:
        facts.append(f"{size(held)} shared for its requests")
    work = model.work
    if work is not None and work.requests:
        spent = [("queue", work.queue_ns), ("input", work.input_ns), ("infer", work.infer_ns),
                 ("output", work.output_ns)]  # fmt: skip
        facts.append(
            "mean "
            + ", ".join(f"{name} {duration(ns / work.requests / 1e9)}" for name, ns in spent)
        )
    if times:
        ranked = sorted(times)
        facts.append(
            f"p50 {duration(_rank(ranked, 0.5))}, p99 {duration(_rank(ranked, 0.99))} "
            f"of {len(ranked):,} recorded"
        )
    return {
        "name": model.name, "state": model.state, "facts": facts, "remark": model.remark,
        "sizes": [[one.size, one.executions] for one in model.batch_sizes],
    }  # fmt: skip


def _rank(ranked: Sequence[float], share: float) -> float:
    return ranked[min(len(ranked) - 1, math.ceil(share * len(ranked)) - 1)]


def _instance(one: messages.Instance, slabs: Sequence[messages.Slab], rate: str) -> dict[str, Any]:
    process = one.process or messages.Process(one.pid)
    return {
        "name": one.name, "state": one.state, "pid": one.pid, "rate": rate,
        "cpu": f"{process.cpu_percent:.0f} %", "inFlight": str(one.in_flight),
        "failed": str(one.work.failed) if one.work is not None else "",
        "rss": process.rss, "pss": process.pss, "uss": process.uss, "gpu": process.gpu,
        "shm": _held(slabs, one.name, "responses"),
    }  # fmt: skip


def _rate(
    one: messages.Instance, model: messages.Model, counted: dict[str, int],
    earlier: dict[str, int], passed: float,
) -> str:  # fmt: skip
    key = one.name + model.version
    if passed <= 0 or key not in earlier or key not in counted:
        return ""
    rate = max(counted[key] - earlier[key], 0) / passed
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def owner_of(slab: str) -> tuple[str, str]:
    """Whose a slab is, and what is in it, as its name tells: an instance's `responses`, the
    `requests` of a model, or what local clients hold.
    """
    found = _SLAB.fullmatch(slab)
    return (found[1], found[2]) if found else ("local clients", slab.rpartition("-")[2])


def _held(slabs: Sequence[messages.Slab], name: str, what: str) -> int:
    """Bytes of shared memory that an instance or a model holds."""
    safe = _UNSAFE.sub("_", name)
    return sum(one.size for one in slabs if owner_of(one.name) == (safe, what))


def _memory(snapshot: messages.Snapshot, history: messages.History) -> dict[str, Any]:
    memory = snapshot.memory
    slabs = [
        {
            "name": one.name, "owner": " ".join(filter(None, owner_of(one.name))),
            "size": one.size, "used": one.used, "free": one.free,
            "high_water": one.high_water, "blocks": one.blocks,
        }
        for one in memory.slabs
    ]  # fmt: skip
    return {
        "total": memory.total, "free": memory.free, "warning": memory.warning, "slabs": slabs,
        "series": _series(history, "", _OWN_SERIES),
    }  # fmt: skip


def _series(history: messages.History, model: str, wanted: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "key": f"{model}/{one.version}/{one.name}", "label": wanted[one.name],
            "unit": one.unit, "points": POINTS, "values": list(one.values),
        }
        for one in history.series
        if one.model == model and not one.instance and one.name in wanted
    ]  # fmt: skip


class Dashboard(Widget):
    """The runtime as it is.

    Attributes:
        state: what is shown.
        running: whether it still follows the runtime.
    """

    _esm = assets.module("page", "dashboard")

    state = traitlets.Dict().tag(sync=True)

    def __init__(self, client: Client, every: float = EVERY) -> None:
        self._client = client
        self._every = every
        self._seen = threading.Event()
        self._closed = threading.Event()
        self.asked = 0
        super().__init__(state=state_of(client))
        self._thread = threading.Thread(target=self._follow, name="devkit-dashboard", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread is there."""
        return self._thread.is_alive()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Whether somebody can see it."""
        if question["kind"] == "sight" and question["visible"]:
            self._seen.set()
        elif question["kind"] == "sight":
            self._seen.clear()
        return {}

    def _follow(self) -> None:
        while not self._closed.is_set():
            if not self._seen.wait(timeout=60.0) or self._closed.is_set():
                continue
            try:
                self.asked += 1
                self.state = state_of(self._client, self.state)
            except DevkitError as problem:
                if not self._closed.is_set():
                    self.state = {**self.state, "gone": f"no more: {problem.message}"}
                return
            self._closed.wait(self._every)

    def close(self) -> None:
        """End it: nothing is asked any more."""
        self._closed.set()
        self._seen.set()  # so that the thread notices
        super().close()

    def html(self) -> str:
        """The instances and the memory as they are now."""
        now = self.state
        parts = []
        for model in now["models"]:
            rows = [
                (one["name"], one["state"], str(one["pid"]), one["cpu"], one["inFlight"],
                 one["failed"], _bytes(one["rss"]), _bytes(one["pss"]), _bytes(one["shm"]))
                for one in model["instances"]
            ]  # fmt: skip
            columns = ("instance", "state", "pid", "CPU", "in flight", "errors", "RSS", "PSS",
                       "shared")  # fmt: skip
            words = " · ".join([model["state"], *model["facts"]])
            parts.append(still.table(model["name"], words, columns, rows))
        memory = now["memory"]
        slabs = [(one["name"], one["owner"], _bytes(one["size"]), _bytes(one["used"]),
                  _bytes(one["high_water"])) for one in memory["slabs"]]  # fmt: skip
        about = f"/dev/shm: {_bytes(memory['free'])} free of {_bytes(memory['total'])}"
        heads = ("slab", "of", "size", "used", "highest")
        parts.append(still.table("Shared memory", about, heads, slabs))
        facts = " · ".join([*now["facts"], now["clock"]])
        return frame(still.table("devkit", facts, (), ()) + "".join(parts), "busy")

    def words(self) -> str:
        """A line for each instance."""
        lines = [f"devkit: {', '.join(self.state['facts'])}"]
        for model in self.state["models"]:
            lines.append(f"{model['name']} {model['state']}: {', '.join(model['facts'])}")
            lines += [
                f"  {one['name']} {one['state']}, pid {one['pid']}, RSS {_bytes(one['rss'])}, "
                f"shared {_bytes(one['shm'])}"
                for one in model["instances"]
            ]
        return "\n".join(lines)


def _bytes(count: int) -> str:
    return size(count) if count >= 0 else ""


def dashboard() -> Dashboard:
    """The models, processes and memory of this workspace's runtime, live while it is in sight.

    It stops when it is closed (`.close()`) and when the runtime ends.
    """
    return Dashboard(workbench.connect())
