"""`devkit.failures` in the notebook: what raised or died, to be opened, inspected, replayed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import traitlets

from devkit.control import messages
from devkit.errors import ControlError
from devkit.notebook.widgets import assets, still, tensors
from devkit.notebook.widgets.base import Widget
from devkit.tools.inspection import Failed, FailureList, TensorView
from devkit.tools.replay import ReplayReport

STILL = 3
"""Failures that a saved notebook shows with all their frames."""

REPLAY_SECONDS = 60.0


def row(one: Failed) -> dict[str, Any]:
    """A line about a failure."""
    info = one.info
    what = info.ending or info.error.partition("\n")[0]
    return {
        "number": info.number, "instance": f"{info.instance} (pid {info.pid})",
        "clock": time.strftime("%H:%M:%S", time.localtime(info.time)),
        "what": what + (f" (+{info.repeats})" if info.repeats else ""), "where": info.line,
    }  # fmt: skip


def opened(one: Failed) -> dict[str, Any]:
    """All that is shown of a failure."""
    found: dict[str, Any] = messages.to_plain(one.details)
    return {
        "info": found["info"], "error": one.info.error.partition("\n\nAt:")[0],
        "frames": found["frames"], "traceback": one.details.traceback,
        "requests": [request.title() for request in one.requests],
        "log": [line.text for line in one.details.log],
    }  # fmt: skip


def _replayed(report: ReplayReport) -> list[list[str]]:
    """A row for each tensor, or for the error, that was compared."""
    return [
        [str(request.record.number), one.name, one.verdict, f"{request.seconds * 1000:.3g} ms",
         one.detail]
        for request in report for one in request.differences
    ]  # fmt: skip


class FailureViewer(Widget):
    """A list of failures; `again` looks for new ones."""

    _esm = assets.module("page", "tensors", "failures")

    rows = traitlets.List().tag(sync=True)

    def __init__(self, found: FailureList, again: Callable[[], FailureList] | None = None) -> None:
        self.found = found
        self._again = again
        self._views: dict[int, list[TensorView]] = {}
        super().__init__(rows=[row(one) for one in reversed(found)])

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Details, tensors, a replay, a question about one of its tensors."""
        kind = question["kind"]
        if kind == "refresh":
            if self._again is not None:
                self.found = self._again()
                self.rows = [row(one) for one in reversed(self.found)]
            return {"done": True}
        one = self.found.number(int(question["number"]))
        if kind == "open":
            return {"failure": opened(one)}
        if kind == "inspect":
            looked = one.inspect()
            self._views[one.number] = list(looked)
            return {"data": tensors.data_of(looked)}
        if kind == "replay":
            report = one.replay(timeout=REPLAY_SECONDS)
            return {"report": {"verdict": report.verdict, "summary": report.summary(),
                               "rows": _replayed(report)}}  # fmt: skip
        views = self._views.get(one.number)
        if views is None:
            raise ControlError("its tensors are not open any more", remedy="press Inspect again")
        found: dict[str, Any] = tensors.look(views[int(question["tensor"])], views, question)
        return found

    def html(self) -> str:
        """The list, and the last ones opened."""
        latest = list(reversed(self.found))[:STILL]
        return still.failures(self.rows, [opened(one) for one in latest])

    def words(self) -> str:
        """What it says in a terminal."""
        if len(self.found) == 1:
            return self.found[0].text(width=110)
        return self.found.text(width=110)
