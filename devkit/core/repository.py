"""Model repositories on disk, and which versions of which models are loaded from them.

Reads folders and configs, starts and swaps `Model`s, and remembers why one did not load. A swap
has no gap: the new instances are ready before the old ones stop getting requests, and those finish
what they have. A version that fails to load leaves the old one serving.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devkit.contract import config as contract
from devkit.contract.config import CompletionError
from devkit.core import backends, checks, environments
from devkit.core.ensemble import Ensemble
from devkit.core.launcher import Launcher
from devkit.core.model import Model
from devkit.core.options import Options
from devkit.core.snapshot import own_files
from devkit.core.taps import ModelEvent, StageEvent, Taps
from devkit.errors import Code, ConfigError, InferError, LoadError

log = logging.getLogger("devkit.repository")

IGNORED = {"__pycache__", ".ipynb_checkpoints", ".git"}
DRAINED = "the old version has ended"
"""Stage of a model whose last requests are answered and whose processes are gone."""

_STOPPING_SECONDS = 3600.0
"""An unloaded model may run its last requests to their end; only the runtime's end cuts that."""


_PATIENCE = 1.0
"""Seconds a start is left alone before newer files may end it: saves come in bursts."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A row of the repository index; `version`, `state` and `reason` are empty where unknown."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@dataclass(slots=True)
class Entry:
    """What is known of one model name."""

    name: str
    models: dict[int, Model] = field(default_factory=dict)
    states: dict[int, tuple[str, str]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    fingerprint: tuple[Any, ...] = ()
    count: int | None = None
    count_for: str = ""
    scratch: Path | None = None
    starting: asyncio.Task[list[Model]] | None = None
    starting_since: float = 0.0
    starting_print: tuple[Any, ...] = ()
    given_up: str = ""


def _is_model(folder: Path) -> bool:
    """Whether a model may be there; one whose name is no text could not be asked for."""
    name = folder.name
    if name in IGNORED or name[0] == "." or not folder.is_dir():
        return False
    return name.isascii() or "\ufffd" not in os.fsencode(name).decode("utf-8", "replace")


class Repository:
    """All models of a runtime, loaded or not.

    Attributes:
        draining: what is not served any more and still runs its last requests.
    """

    def __init__(self, options: Options, launcher: Launcher, taps: Taps) -> None:
        self.options = options
        self.launcher = launcher
        self.taps = taps
        self.entries: dict[str, Entry] = {}
        self.failed: set[str] = set()
        self._versionless: set[str] = set()
        self.on_new_model: list[Any] = []
        self._ending: set[asyncio.Task[None]] = set()
        self.draining: list[Model] = []

    # -- looking things up -----------------------------------------------------------------------

    def find(self, name: str, version: str = "") -> Model:
        """The model that serves `name` (its highest version unless one is named).

        Raises UnknownModelError, InferError for a version that is no number.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise checks.unknown_model(name)
        models = entry.models
        if not version or version == "-1":
            if not models:
                raise checks.unknown_model(name, unavailable=bool(entry.states))
            return models[max(models)]
        try:
            model = models.get(int(version))
        except ValueError:
            raise InferError(
                f"failed to get model version from specified version string '{version}' (details: "
                "stol), version should be an integral value > 0"
            ) from None
        if model is None:
            raise checks.unknown_model(name, version)
        return model

    def loaded(self) -> list[Model]:
        """Every version that is served, by name and version."""
        return [
            self.entries[name].models[version]
            for name in sorted(self.entries)
            for version in sorted(self.entries[name].models)
        ]

    def folders(self) -> dict[str, Path]:
        """Model folders of all repositories; the first repository that has a name wins."""
        found: dict[str, Path] = {}
        for repository in self.options.model_repository:
            if not repository.is_dir():
                continue
            for folder in sorted(repository.iterdir()):
                if _is_model(folder):
                    found.setdefault(folder.name, folder.absolute())
        return found

    def index(self, *, ready_only: bool = False) -> list[IndexEntry]:
        """The repository index, sorted by name."""
        rows = []
        # A model that was found to have no version to serve is on the real server's index no more.
        for name in sorted({*self.folders(), *self.entries} - self._versionless):
            states = self.entries[name].states if name in self.entries else {}
            for version, (state, reason) in sorted(states.items()):
                if state == "READY" or not ready_only:
                    rows.append(IndexEntry(name, str(version), state, reason))
            if not states and not ready_only:
                rows.append(IndexEntry(name))
        return rows

    # -- loading ---------------------------------------------------------------------------------

    async def load(
        self,
        name: str,
        config_text: str | None = None,
        files: dict[str, bytes] | None = None,
        *,
        force: bool = False,
        reason: str = "",
    ) -> None:
        """Load `name`, or swap it for what its files say now.

        `config_text` (JSON) and `files` (path in the model's folder -> content) override what is
        on disk, as the load request's parameters do. Unchanged files are no work unless `force`.
        Raises LoadError with the real server's text; whatever served before goes on serving.
        """
        entry = self.entries.setdefault(name, Entry(name))
        if force or config_text or files or self.outdated(name):
            self.give_up_start(name, "a newer load took its place")
        async with entry.lock:
            try:
                await self._load(entry, config_text, files, force, reason)
            except LoadError as problem:
                problem.model = name
                self._forget_if_empty(entry)
                self._tell(name, "", "failed", problem.message, problem)
                raise

    def outdated(self, name: str) -> bool:
        """Whether a start of `name` that hangs is one of files that have changed since."""
        entry = self.entries.get(name)
        folder = self.folders().get(name)
        if entry is None or entry.starting is None or folder is None:
            return False
        return entry.starting_print != fingerprint(folder)

    def give_up_start(self, name: str, cause: str, *, after: float = _PATIENCE) -> None:
        """End a start of `name` that has gone on for `after` seconds: it may never end."""
        entry = self.entries.get(name)
        if entry is None or entry.starting is None:
            return
        if time.monotonic() - entry.starting_since >= after:
            entry.given_up = cause
            entry.starting.cancel()

    async def _start(
        self, entry: Entry, folder: Path, config: Any, versions: list[int], seen: tuple[Any, ...]
    ) -> list[Model]:
        """Start the versions, so that a newer load or an unload can end it."""
        entry.given_up, entry.starting_print = "", seen
        entry.starting_since = time.monotonic()
        starting = entry.starting = asyncio.get_running_loop().create_task(
            self._start_versions(entry, folder, config, versions)
        )
        try:
            return await starting
        except asyncio.CancelledError:
            if not entry.given_up:
                starting.cancel()
                raise
            log.warning("gave up loading '%s': %s", entry.name, entry.given_up)
            raise LoadError(
                f"load failed for model '{entry.name}': {entry.given_up}\n",
                remedy="its initialize may hang: `devkit stack` shows where a live one stands",
            ) from None
        finally:
            entry.starting = None

    def _forget_if_empty(self, entry: Entry) -> None:
        if not entry.models and not entry.states:
            self.entries.pop(entry.name, None)

    async def _load(
        self, entry: Entry, config_text: str | None, files: dict[str, bytes] | None,
        force: bool, reason: str,
    ) -> None:  # fmt: skip
        began = time.monotonic()
        name = entry.name
        scratch = self._write_override(name, files) if files else None
        folder = scratch or self.folders().get(name)
        if folder is None:
            raise self._poll_failed(name, f"no folder '{name}' in the model repositories")
        print_now = fingerprint(folder)
        overridden = bool(config_text or files)
        if entry.models and entry.fingerprint == print_now and not (force or overridden):
            log.info("model '%s' is loaded and its files are unchanged: nothing to do", name)
            return
        self._stage(name, "", "read the config")
        config = self._read_config(name, folder, config_text)
        policy = self._normalize(config, name).version_policy
        versions = contract.versions_served(policy, self._versions(name, folder))
        if not versions:
            self._versionless.add(name)
            raise LoadError(
                f"load failed for model '{name}': at least one version must be available under "
                f"the version policy of model '{name}'\n"
            )
        self._tell(name, "", "loading", reason)
        if config.HasField("ensemble_scheduling"):
            self._stage(name, "", "load the models of its steps")
            config = await self._join(name, config)
        started = await self._start(entry, folder, config, versions, print_now)
        swapped = bool(entry.models)
        self._swap(entry, started)
        entry.fingerprint = print_now
        self.failed.discard(name)
        self._versionless.discard(name)
        if scratch or entry.scratch:
            self._drop_scratch(entry)
            entry.scratch = scratch
        for model in started:
            self.launcher.remember(
                name,
                tuple(dict.fromkeys(m for i in model.instances for m in i.modules)),
                warm=self.options.start_method != "spawn",
                python=model.environment.python,
                env=model.environment.variables,
            )
            state = "swapped" if swapped else "ready"
            self._tell(name, model.version_text, state, reason, seconds=time.monotonic() - began)

    def _poll_failed(self, name: str, cause: str, problem: ConfigError | None = None) -> LoadError:
        """The real server's bare text; the cause goes to the log, and to devkit's own faces."""
        log.error("failed to poll model '%s': %s", name, cause)
        return LoadError(
            f"failed to load '{name}', failed to poll from model repository",
            Code.INTERNAL,
            model=name,
            line=problem.line if problem else None,
            remedy=cause if not problem or not problem.remedy else f"{cause}\n{problem.remedy}",
        )

    def _read_config(self, name: str, folder: Path, override: str | None) -> Any:
        path = folder / "config.pbtxt"
        try:
            if override:
                config = contract.from_json(override)
            elif path.is_file():
                config = contract.parse(path.read_text(encoding="utf-8"), str(path))
            elif self.options.disable_auto_complete_config:
                raise ConfigError(f"failed to open text file for read {path}: no such file")
            else:
                config = contract.ModelConfig()
        except (ConfigError, UnicodeDecodeError) as problem:
            known = problem if isinstance(problem, ConfigError) else None
            log.error("failed to read text proto from %s", path)
            raise self._poll_failed(name, str(problem), known) from problem
        if config.name and config.name != name:
            raise self._poll_failed(
                name,
                f"unexpected directory name '{name}' for model '{config.name}', directory name "
                "must equal model name",
            )
        try:
            self._complete(config, name)
        except CompletionError as problem:
            if problem.stage == "poll":
                raise self._poll_failed(name, problem.reason) from problem
        return self._scaled(name, config)

    async def _join(self, name: str, config: Any) -> Any:
        """Load the models an ensemble is made of, and check it against them."""
        for step in config.ensemble_scheduling.step:
            entry = self.entries.get(step.model_name)
            if step.model_name == name or (entry is not None and entry.models):
                continue
            if step.model_name not in self.folders():
                continue  # `check_ensemble` has the words for it
            try:
                await self.load(step.model_name, reason=f"a step of ensemble '{name}'")
            except LoadError as problem:
                cause = problem.message.split("': ", 1)[-1].rstrip("\n")
                raise LoadError(
                    f"load failed for model '{name}': ensemble '{name}' depends on "
                    f"'{step.model_name}' which has no loaded version. Model "
                    f"'{step.model_name}' loading failed with error: {cause}\n",
                    line=problem.line,
                    traceback=problem.traceback,
                ) from problem
        return contract.check_ensemble(self._complete(config, name), self._config_of)

    def _config_of(self, name: str, version: int) -> Any:
        entry = self.entries.get(name)
        if entry is None or not entry.models:
            return None
        model = entry.models.get(max(entry.models) if version == -1 else version)
        return model.config if model is not None else False

    def _complete(self, config: Any, name: str) -> Any:
        return contract.complete(config, name, python_backends=self._backends())

    def _normalize(self, config: Any, name: str) -> Any:
        return contract.normalize(config, name, python_backends=self._backends())

    def _backends(self) -> frozenset[str]:
        return backends.names(self.options.backend_directory)

    def _scaled(self, name: str, config: Any) -> Any:
        """Apply a live `scale` until the user writes another instance_group."""
        entry = self.entries[name]
        if entry.count is None:
            return config
        if entry.count_for != str(config.instance_group):
            entry.count = None
            return config
        return contract.scale(self._normalize(config, name), entry.count)

    def _versions(self, name: str, folder: Path) -> list[int]:
        found = []
        for each in folder.iterdir():
            if not each.is_dir() or each.name in IGNORED or each.name.startswith("."):
                continue
            try:
                found.append(int(each.name))
            except ValueError:
                log.warning(
                    "ignore version directory '%s' which fails to convert to integral number",
                    each.name,
                )
        return sorted(found)

    async def _start_versions(
        self, entry: Entry, folder: Path, config: Any, versions: list[int]
    ) -> list[Model]:
        results = await asyncio.gather(
            *(self._start_version(entry.name, folder, config, version) for version in versions),
            return_exceptions=True,
        )
        problems = {
            version: result
            for version, result in zip(versions, results, strict=True)
            if isinstance(result, BaseException)
        }
        started = [result for result in results if isinstance(result, Model)]
        if not problems:
            return started
        for model in started:
            await model.stop(5.0)
        for problem in problems.values():
            if not isinstance(problem, LoadError):
                raise problem
        if not entry.models:
            self.failed.add(entry.name)
            for version, problem in problems.items():
                entry.states[version] = ("UNAVAILABLE", str(problem))
        text = contract.load_failure(
            entry.name, {version: str(problem) for version, problem in problems.items()}
        )
        first = next(iter(problems.values()))
        assert isinstance(first, LoadError)
        log.error("%s", text.rstrip())
        if first.traceback:
            log.error("%s", first.traceback.rstrip())
        raise LoadError(
            text,
            line=first.line,
            traceback=first.traceback,
            remedy=first.remedy,
        )

    async def _start_version(self, name: str, folder: Path, config: Any, version: int) -> Model:
        options = self.options
        if config.HasField("ensemble_scheduling"):
            return await self._start_ensemble(name, folder, config, version)
        if "EXECUTION_ENV_PATH" in config.parameters:
            self._stage(name, str(version), "unpack and look at its environment")
        normal = self._normalize(config, name)
        if normal.backend == "python":
            backends.check_parameters(normal)
        environment = await environments.of_model(name, config, folder, options.python)
        model = Model(name, version, normal, folder, options, self.launcher, self.taps, environment)
        # Code of another backend is nothing that could be asked to complete the config.
        runs = normal.backend == "python" or model.is_python_based
        if runs and not options.disable_auto_complete_config:
            self._stage(name, str(version), "auto_complete_config")
            answer = await model.auto_complete()
            if answer is not None:
                config = contract.from_dict(answer)
        try:
            completed = self._complete(config, name)
        except CompletionError as problem:
            raise LoadError(
                problem.reason, problem.code, model=name, remedy=problem.remedy
            ) from problem
        model = Model(
            name, version, completed, folder, options, self.launcher, self.taps, environment
        )
        for prepare in self.on_new_model:
            prepare(model)
        self._stage(name, str(version), "start the instances")
        await model.start()
        return model

    async def _start_ensemble(self, name: str, folder: Path, config: Any, version: int) -> Model:
        model = Ensemble(name, version, config, folder, self.options, self.launcher, self.taps)
        for step in model.steps:
            if self.find(step.model, step.version).decoupled:
                model.decoupled_steps.add(step.index)
        for prepare in self.on_new_model:
            prepare(model)
        await model.start()
        return model

    def _swap(self, entry: Entry, started: Iterable[Model]) -> None:
        old, entry.models = entry.models, {model.version: model for model in started}
        entry.states = dict.fromkeys(entry.models, ("READY", ""))
        served = [str(version) for version in sorted(entry.models)]
        for model in entry.models.values():
            model.versions = served
        for model in old.values():
            self._end(model)

    def _end(self, model: Model) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(model.stop(_STOPPING_SECONDS))
        self._ending.add(task)
        self.draining.append(model)

        def ended(task: asyncio.Task[None]) -> None:
            self._ending.discard(task)
            self.draining.remove(model)
            self._stage(model.name, model.version_text, DRAINED)

        task.add_done_callback(ended)
        return task

    async def unload(self, name: str) -> None:
        """Stop serving `name` at once; what runs finishes. Unknown names are no error."""
        entry = self.entries.get(name)
        if entry is None:
            return
        self.give_up_start(name, "it was unloaded", after=0.0)
        async with entry.lock:
            models, entry.models = entry.models, {}
            for version, model in models.items():
                entry.states[version] = ("UNAVAILABLE", "unloaded")
                self._end(model)
                self._tell(name, str(version), "unloaded")
            entry.fingerprint = ()
            self._drop_scratch(entry)

    async def forget(self, name: str) -> None:
        """Unload a model whose folder is gone and take it off the index."""
        await self.unload(name)
        self.entries.pop(name, None)
        self.failed.discard(name)

    async def scale(self, name: str, count: int) -> None:
        """Change how many instances of `name` run, now; the config on disk stays as it is."""
        model = self.find(name)
        entry = self.entries[name]
        async with entry.lock:
            written = self._read_config_quietly(name)
            entry.count, entry.count_for = count, str(written.instance_group)
            await model.scale(count)

    def _read_config_quietly(self, name: str) -> Any:
        folder = self.folders().get(name)
        path = folder / "config.pbtxt" if folder else None
        if path is None or not path.is_file():
            return contract.ModelConfig()
        return contract.parse(path.read_text(encoding="utf-8"), str(path))

    def _write_override(self, name: str, files: dict[str, bytes]) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="devkit-override-")) / name
        for relative, content in files.items():
            path = (folder / relative).resolve()
            if not path.is_relative_to(folder.resolve()):
                shutil.rmtree(folder.parent)
                raise LoadError(f"file override '{relative}' lies outside the model's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    def _drop_scratch(self, entry: Entry) -> None:
        if entry.scratch is not None:
            shutil.rmtree(entry.scratch.parent, ignore_errors=True)
            entry.scratch = None

    async def stop(self, seconds: float) -> None:
        """Unload everything and wait until it has ended, at most about `seconds`."""
        models = self.loaded()
        for entry in self.entries.values():
            entry.models = {}
            self._drop_scratch(entry)
        await asyncio.gather(*(model.stop(seconds) for model in models))
        pending = list(self._ending)
        if pending:
            await asyncio.wait(pending, timeout=1.0)
        for task in self._ending:
            task.cancel()

    def _stage(self, name: str, version: str, stage: str) -> None:
        if self.taps.stages:
            Taps.emit(self.taps.stages, StageEvent(name, version, stage))

    def _tell(
        self, name: str, version: str, state: str, reason: str = "",
        problem: LoadError | None = None, seconds: float = 0.0,
    ) -> None:  # fmt: skip
        event = ModelEvent(
            name, version, state, reason,
            (problem.traceback or "") if problem else "",
            (problem.line or "") if problem else "", seconds,
        )  # fmt: skip
        Taps.emit(self.taps.models, event)


def fingerprint(folder: Path) -> tuple[Any, ...]:
    """What tells whether a model's files have changed: paths, sizes and times of all but caches."""
    seen = []
    for path in sorted(own_files(folder)):
        parts = path.relative_to(folder).parts
        if path.exists() and not IGNORED.intersection(parts) and not path.name.startswith("."):
            status = path.stat()
            seen.append((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return (str(folder), *seen)
