"""Reloads a model when its files change: which change means what, and nothing else.

A burst of changes (an editor's rename, a checkout) is one reload; changes that come while a model
reloads are one more after it. What cannot change a model (caches, an editor's temporary files,
data) never reloads it. How a swap is done is the repository's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from watchfiles import Change, awatch

from devkit.core.repository import IGNORED
from devkit.core.snapshot import is_environment
from devkit.errors import DevkitError

if TYPE_CHECKING:
    from devkit.core.engine import Engine

log = logging.getLogger("devkit.watcher")

SETTLE_MS = 30
"""A burst is over when nothing has changed for this long."""

PATIENCE_SECONDS = 1.5
"""A load of files that have changed since may go on for this long."""

BURST_MS = 400
"""... or when it has gone on for this long."""

PAUSE_SECONDS = 0.5
"""Before a watch that has failed begins anew."""

_SOURCES = (".py", ".pbtxt", ".so", ".pyd")
_TEMPORARY = ("~", ".swp", ".swo", ".swx", ".tmp", ".part", ".pyc", ".bak")


class Watcher:
    """Watches the model repositories of an engine until it is stopped.

    `explicit` leaves alone what nobody has asked for: new folders are not loaded.
    """

    def __init__(
        self, engine: Engine, repositories: Iterable[Path], *, explicit: bool = False
    ) -> None:
        self.engine = engine
        self.repositories = [one.resolve() for one in repositories if one.is_dir()]
        self._explicit = explicit
        self._changed: dict[str, set[str]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on."""
        if self.repositories:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop watching; a reload that runs is left to the engine's own stop."""
        self._stop.set()
        if self._task is not None:
            await self._task
        for task in list(self._running.values()):
            task.cancel()

    async def _watch(self) -> None:
        """Watch, and try anew where that fails, as it does while a name there is no UTF-8."""
        said = ""
        while not self._stop.is_set():
            try:
                await self._observe()
            except Exception as problem:
                cause = str(getattr(problem, "exceptions", [problem])[0])
                if cause != said:
                    log.error(
                        "saved files are not noticed: the repositories' watch fails: %s", cause
                    )
                said = cause
                await asyncio.sleep(PAUSE_SECONDS)

    async def _observe(self) -> None:
        async for changes in awatch(
            *self.repositories,
            watch_filter=lambda change, path: self.concerns(Path(path), change),
            debounce=BURST_MS,
            step=SETTLE_MS,
            stop_event=self._stop,
            recursive=True,
        ):
            for _, path in changes:
                self._note(Path(path))

    def concerns(self, path: Path, change: Change = Change.modified) -> bool:
        """Whether a change of `path` can change a model."""
        place = self._place(path)
        if place is None:
            return False
        name, inside = place
        if any(part in IGNORED or part.startswith(".") for part in (name, *inside.parts)):
            return False
        if not inside.parts or (len(inside.parts) == 1 and inside.name.isdigit()):
            return change is not Change.modified  # the folder of a model, or of a version
        if path.name.endswith(_TEMPORARY) or path.name.isdigit():  # vim tries to write "4913"
            return False
        if any(is_environment(each) for each in path.parents[: len(inside.parts) - 1]):
            return False  # a package that is installed there is no change of the model
        return path.suffix in _SOURCES or str(path) in self._own_files(name)

    def _place(self, path: Path) -> tuple[str, Path] | None:
        """Name of the model that `path` belongs to, and where in its folder it is."""
        for repository in self.repositories:
            if path.is_relative_to(repository):
                parts = path.relative_to(repository).parts
                return (parts[0], Path(*parts[1:])) if parts else None
        return None

    def _own_files(self, name: str) -> set[str]:
        return {
            file
            for model in self.engine.models()
            if model.name == name
            for instance in model.instances
            for file in instance.files
        }

    def _note(self, path: Path) -> None:
        place = self._place(path)
        if place is None:
            return
        name, inside = place
        self._changed.setdefault(name, set()).add(str(inside) if inside.parts else name)
        if name in self._running:
            # At once where it hangs already, or later should it turn out to hang.
            self.engine.give_up_outdated(name)
            later = asyncio.get_running_loop().call_later
            later(PATIENCE_SECONDS, self.engine.give_up_outdated, name)
        else:
            task = asyncio.get_running_loop().create_task(self._follow(name))
            self._running[name] = task
            task.add_done_callback(lambda _: self._running.pop(name, None))

    async def _follow(self, name: str) -> None:
        """Do for one model what its changes ask for, until there are no more."""
        while name in self._changed:
            changed = sorted(self._changed.pop(name))
            try:
                await self._apply(name, ", ".join(changed[:3]) + (", ..." * (len(changed) > 3)))
            except DevkitError as problem:
                # The repository has logged the cause and the traceback.
                kept = any(model.name == name for model in self.engine.models())
                log.warning(
                    "'%s' does not load%s: %s", name,
                    "; the version before goes on serving" if kept else "",
                    problem.line or problem.message.strip().splitlines()[0],
                )  # fmt: skip

    async def _until_free(self, name: str) -> None:
        """Somebody looks at the version that is there, in a debugger: let them finish."""
        if self.engine.stands(name):
            log.info("'%s' has changed; it is reloaded when it stands in no debugger", name)
        while self.engine.stands(name):
            await asyncio.sleep(PAUSE_SECONDS)

    async def _apply(self, name: str, changed: str) -> None:
        exists = any((repository / name).is_dir() for repository in self.repositories)
        known = {row.name: row for row in self.engine.index()}
        asked_for = name in known and bool(known[name].state)
        if not exists:
            if asked_for:
                log.info("unloading '%s': its folder is gone", name)
                await self.engine.forget(name)
        elif not any(_has_version(repository / name) for repository in self.repositories):
            return  # a folder that is only just being made
        elif asked_for:
            if known[name].reason == "unloaded":
                log.info("'%s' has changed (%s) but was unloaded: nothing to do", name, changed)
                return
            await self._until_free(name)
            log.info("reloading '%s': %s changed", name, changed)
            await self.engine.reload(name, f"{changed} changed")
        elif not self._explicit:
            log.info("loading '%s': its folder is new", name)
            await self.engine.load(name, reason="its folder is new")


def _has_version(folder: Path) -> bool:
    return folder.is_dir() and any(one.name.isdigit() for one in folder.iterdir() if one.is_dir())
