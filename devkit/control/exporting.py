"""Control calls that export: `/export/plan` says what would be written, `/export` writes it.

Runtime side, for faces that have no tools of their own; the work is `tools.exporting`'s, in a
side thread.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from devkit.control import calls, messages
from devkit.control.findings import ExportAsked
from devkit.errors import ControlError

if TYPE_CHECKING:
    from devkit.contract.recording import Record
    from devkit.control.calls import Row
    from devkit.control.snapshots import Photographer
    from devkit.core.engine import Engine
    from devkit.observe.capture import Capture


def routes(engine: Engine, photographer: Photographer, capture: Capture) -> list[Row]:
    """What can be asked."""

    async def plan(request: Request) -> Response:
        return await _run(request, write=False)

    async def write(request: Request) -> Response:
        return await _run(request, write=True)

    async def _run(request: Request, *, write: bool) -> Response:
        from devkit.tools import exporting  # only who exports needs it

        asked = await calls.asked(request, ExportAsked)
        if not Path(asked.dest).expanduser().is_absolute():
            raise ControlError(
                f"'{asked.dest}' is not an absolute path",
                remedy="the runtime's folder is not the caller's: say where from the root",
            )
        await photographer.look()
        source = _Inside(engine, photographer, capture)
        work = exporting.write if write else exporting.plan
        return calls.reply(await asyncio.to_thread(work, source, asked))

    return [("POST", "/export/plan", plan), ("POST", "/export", write)]


class _Inside:
    """What an export asks of a runtime, asked from inside it; read once, in the runtime's loop."""

    def __init__(self, engine: Engine, photographer: Photographer, capture: Capture) -> None:
        self._capture = capture
        self._models = {one.name: one for one in photographer.models()}
        self._memory = photographer.memory()
        self._configs: dict[str, str] = {
            one.name: engine.model(one.name).config_text
            for one in self._models.values()
            if one.state == "READY"
        }

    def models(self) -> list[messages.Model]:
        return list(self._models.values())

    def model(self, name: str) -> messages.Model:
        if name not in self._models:
            raise ControlError(f"there is no model '{name}'", model=name)
        return self._models[name]

    def config(self, name: str) -> dict[str, Any]:
        if name not in self._configs:
            raise ControlError(
                f"'{name}' is not served", model=name, remedy="load it first: it has no config yet"
            )
        found: dict[str, Any] = json.loads(self._configs[name])
        return found

    def memory(self) -> messages.SharedMemory:
        return self._memory

    def captures(self, name: str = "") -> list[Record]:
        return list(self._capture.records(name))
