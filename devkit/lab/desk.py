"""Where the Jupyter server keeps what it knows of the workspace's runtime: found, started, gone.

One desk per Jupyter server. Every face of it (calls, events, the start button) asks here, so they
agree. Blocking work happens in threads of its own. Nothing here speaks HTTP to a browser.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx

from devkit.control import discovery, messages, starter
from devkit.control.client import Client
from devkit.errors import DevkitError

FRESH_SECONDS = 0.5
"""How long a look for a runtime counts for everybody who asks meanwhile."""

_ASKING = 16  # requests at a time, each of which may stand in a debugger
Result = TypeVar("Result")


class Desk:
    """The runtime of one workspace, as the Jupyter server sees it.

    Attributes:
        root: the folder that Jupyter serves; files below it can be opened in JupyterLab.
        workspace: the folder whose runtime is meant.
        runtime: the one that answered last, or None.
        text: what a start is doing, or why the last one failed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        named = os.environ.get("DEVKIT_WORKSPACE")
        self.workspace = discovery.workspace_of(None if named else self.root)
        self.runtime: messages.Runtime | None = None
        self.text = ""
        self._state = "none"
        self._known: tuple[str, ...] = ()
        self._looked = 0.0
        self._looking = asyncio.Lock()
        self._starting: asyncio.Task[None] | None = None
        self._clients: dict[str, Client] = {}
        self._http: tuple[str, httpx.AsyncClient] | None = None
        self._threads = ThreadPoolExecutor(_ASKING, thread_name_prefix="devkit-lab")

    # -- where it is -----------------------------------------------------------------------------

    async def look(self) -> messages.Runtime | None:
        """The runtime that serves the workspace now, or None."""
        async with self._looking:
            if time.monotonic() - self._looked >= FRESH_SECONDS:
                self._note(await asyncio.to_thread(self._find))
                self._looked = time.monotonic()
        return self.runtime

    def missed(self) -> None:
        """Somebody found it not answering: the next look is a new one."""
        self._looked = 0.0

    def _find(self) -> messages.Runtime | None:
        alive: dict[str, messages.Runtime] = {}
        for one in discovery.running():
            if one.endpoints:  # else it is still coming up
                alive.setdefault(one.workspace, one)
        places = (self.workspace, *self.workspace.parents)
        return next((alive[str(place)] for place in places if str(place) in alive), None)

    def _note(self, found: messages.Runtime | None) -> None:
        self.runtime = found
        if found is not None:
            self._state, self.text = "running", ""
            self._known = found.repositories
        elif self._state == "running":
            self._state = "none"

    def status(self) -> dict[str, Any]:
        """What a browser is told: a state, in words and in numbers."""
        return {
            "state": self._state,
            "workspace": str(self.workspace),
            "root": str(self.root),
            "text": self.text,
            "runtime": None if self.runtime is None else messages.to_plain(self.runtime),
        }

    # -- starting --------------------------------------------------------------------------------

    def start(self, repositories: Sequence[str] = ()) -> None:
        """Begin to start one, unless one runs or starts already; `status` says how it goes on.

        Without `repositories` it gets those of the runtime that was here before.
        """
        if self._starting is not None and not self._starting.done():
            return
        self._state, self.text = "starting", ""
        self._starting = asyncio.ensure_future(self._start(tuple(repositories) or self._known))

    async def _start(self, repositories: tuple[str, ...]) -> None:
        def started() -> messages.Runtime:
            return starter.start(
                self.workspace, repositories=repositories, flags=["--watch"], progress=self._say
            )

        try:
            self._note(await asyncio.to_thread(started))
        except (DevkitError, OSError) as problem:
            self._state, self.text = "failed", _sentence(problem)
        self._looked = time.monotonic()

    def _say(self, line: str) -> None:
        self.text = line

    # -- ways to it ------------------------------------------------------------------------------

    def http(self, runtime: messages.Runtime) -> httpx.AsyncClient:
        """The connections to its control socket, kept open between calls."""
        if self._http is None or self._http[0] != runtime.control:
            transport = httpx.AsyncHTTPTransport(uds=runtime.control)
            # A load or a profile takes as long as it takes.
            client = httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None, connect=5))
            self._http = (runtime.control, client)
        return self._http[1]

    async def with_client(
        self, runtime: messages.Runtime, work: Callable[[Client], Result]
    ) -> Result:
        """`work` in a thread, with a client of the runtime."""
        client = self._clients.get(runtime.control)
        if client is None:
            self._close_clients()
            client = self._clients[runtime.control] = Client(runtime, on_note=lambda _: None)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, client)

    def _close_clients(self) -> None:
        while self._clients:
            self._clients.popitem()[1].close()

    def close(self) -> None:
        """The Jupyter server ends; the runtime goes on."""
        self._close_clients()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _sentence(problem: Exception) -> str:
    text = getattr(problem, "message", None) or str(problem)
    remedy = getattr(problem, "remedy", None)
    return f"{text}\n{remedy}" if remedy else text
