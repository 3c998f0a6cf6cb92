"""The client's calls about the way to production: the doctor's findings, exports planned and made.

Mixed into `Client`, which brings `_call`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from devkit.control import messages
from devkit.control.findings import (
    ConfigHelp,
    ConfigPlace,
    Diagnosis,
    ExportAsked,
    ExportPlan,
    Finding,
    LintText,
)


class LeavingCalls:
    """The calls; each returns a message of `control.findings`."""

    if TYPE_CHECKING:

        def _call(
            self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
        ) -> Any: ...

    def doctor(self, name: str = "", *, release: str = "") -> Diagnosis:
        """Every finding about a model, or all: from its files, and from what the runtime saw."""
        query = {"model": name, "release": release}
        return messages.from_plain(Diagnosis, self._call("GET", "/doctor", query=query))

    def lint_text(
        self, name: str, text: str, file: str = "1/model.py", *, release: str = ""
    ) -> list[Finding]:
        """Findings about a text that is not saved, as `file` of the model."""
        found = self._call("POST", "/doctor", LintText(name, text, file, release))
        return list(messages.from_plain(Diagnosis, found).findings)

    def config_help(self, text: str, line: int, column: int) -> ConfigHelp:
        """What can be written at a place of a `config.pbtxt`, and what stands there."""
        found = self._call("POST", "/config/help", ConfigPlace(text, line, column))
        return messages.from_plain(ConfigHelp, found)

    def plan_export(self, asked: ExportAsked) -> ExportPlan:
        """What an export would write and change; nothing is written."""
        return messages.from_plain(ExportPlan, self._call("POST", "/export/plan", asked))

    def write_export(self, asked: ExportAsked) -> ExportPlan:
        """Write an export, all of it or nothing; what differs is replaced only by `force`."""
        return messages.from_plain(ExportPlan, self._call("POST", "/export", asked))
