"""The one door of the runtime's core: infer, load, unload, and what there is to know.

Front ends and the control server call this and nothing behind it. Every method runs on the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

from devkit.core import response_cache
from devkit.core.bls import Bls
from devkit.core.custom_metrics import CustomMetrics, Family
from devkit.core.ensemble import Ensemble
from devkit.core.launcher import Launcher
from devkit.core.model import Model
from devkit.core.options import Options
from devkit.core.rate_limiter import RateLimiter, parse_amounts
from devkit.core.regions import Regions
from devkit.core.repository import IndexEntry, Repository
from devkit.core.request import Request
from devkit.core.response_cache import ResponseCache
from devkit.core.scheduler import DirectScheduler
from devkit.core.spinner import Spinner
from devkit.core.statistics import to_message
from devkit.core.taps import Taps
from devkit.errors import Code, InferError, LoadError, UnknownModelError
from devkit.transport.memory import Slab, sweep

log = logging.getLogger("devkit.engine")

EXTENSIONS = (
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)",
    "schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory",
    "binary_tensor_data", "parameters", "statistics", "trace", "logging",
)  # fmt: skip


@dataclass(slots=True)
class LogSettings:
    """Settings of the logging extension, with the server's defaults."""

    log_file: str = ""
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0
    log_format: str = "default"


@dataclass(slots=True)
class TraceSettings:
    """Settings of the trace extension, with the server's defaults."""

    trace_level: list[str] = field(default_factory=lambda: ["OFF"])
    trace_rate: str = "1000"
    trace_count: str = "-1"
    log_frequency: str = "0"
    trace_file: str = ""
    trace_mode: str = "triton"


class Engine:
    """A runtime without front ends.

    Attributes:
        taps: where observers listen.
        regions: the system shared-memory registry.
        log_settings, trace_settings: what the logging and trace extensions start with.
        traces: the tracer, where the runtime has one; `tracer` is the same while anybody wants
            traces, else None: the one thing that the path of a request asks.
    """

    server_name = "triton"
    server_version = "2.51.0"
    extensions = EXTENSIONS

    def __init__(self, options: Options) -> None:
        self.options = options
        self.taps = Taps()
        self.launcher = Launcher(options.python)
        self.repository = Repository(options, self.launcher, self.taps)
        self.regions = Regions()
        self.log_settings = LogSettings(log_verbose_level=options.log_verbose)
        self.trace_settings = TraceSettings()
        self.traces: Any = None
        self.tracer: Any = None
        self.bls = Bls(self)
        self._custom_metrics = CustomMetrics()
        self._spinner: Spinner | None = None
        self.limiter: RateLimiter | None = None
        if options.rate_limit != "off":
            self.limiter = RateLimiter(parse_amounts(options.rate_limit_resource))
        size = response_cache.parse(options.cache_config)
        self.cache = ResponseCache(size) if size else None
        self.repository.on_new_model.append(self._connect)
        self._numbers = itertools.count(1)
        self._state = "new"

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> list[LoadError]:
        """Sweep up after dead runtimes and load the models; returns the failures of those."""
        removed = sweep()
        if removed:
            log.info("removed %d shared-memory entries of runtimes that died", len(removed))
        self._state = "starting"
        self._spinner = Spinner()
        options, repository = self.options, self.repository
        names = list(repository.folders())
        if options.model_control_mode == "explicit" and "*" not in options.load_model:
            names = list(options.load_model)
        names = [name for name in names if name not in options.skip_model]
        results = await asyncio.gather(
            *(repository.load(name) for name in names), return_exceptions=True
        )
        failures = []
        for result in results:
            if isinstance(result, LoadError):
                failures.append(result)
            elif isinstance(result, BaseException):
                raise result
        self._state = "ready"
        return failures

    async def stop(self, timeout: float | None = None) -> None:
        """Drain and end every model, within `timeout` seconds (the options' own by default)."""
        self._state = "stopping"
        seconds = self.options.exit_timeout_secs if timeout is None else timeout
        await self.repository.stop(seconds)
        await self.launcher.stop()
        self.regions.unregister()

    def live(self) -> bool:
        """Whether the runtime runs."""
        return self._state in ("starting", "ready")

    def ready(self) -> bool:
        """Whether it serves, and (with strict readiness) no model failed to load."""
        if self._state != "ready":
            return False
        return not self.options.strict_readiness or not self.repository.failed

    # -- models ----------------------------------------------------------------------------------

    def model(self, name: str, version: str = "") -> Model:
        """The model version that would serve a request. Raises UnknownModelError."""
        return self.repository.find(name, version)

    def models(self) -> list[Model]:
        """Every version that is served."""
        return self.repository.loaded()

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a version is there to serve. A version that is no number raises InferError."""
        try:
            self.repository.find(name, version)
        except UnknownModelError:
            return False
        return True

    def index(self, ready_only: bool = False) -> list[IndexEntry]:
        """The repository index."""
        return self.repository.index(ready_only=ready_only)

    def require_explicit_control(self) -> None:
        """Refuse a client's load or unload unless the mode is explicit, as the real server does."""
        if self.options.model_control_mode != "explicit":
            raise InferError(
                "explicit model load / unload is not allowed if polling is enabled",
                Code.UNAVAILABLE,
            )

    async def load(
        self, name: str, config_json: str | None = None, files: dict[str, bytes] | None = None,
        *, reason: str = "load request",
    ) -> None:  # fmt: skip
        """Load `name` or swap it for its changed files; LoadError if it does not load."""
        self._check_standing(name)
        await self.repository.load(name, config_json, files, reason=reason)

    async def unload(self, name: str, dependents: bool = False) -> None:
        """Stop serving `name`; with `dependents`, the models an ensemble of that name uses too."""
        entry = self.repository.entries.get(name)
        steps = {
            step.model_name
            for model in (entry.models.values() if entry and dependents else ())
            for step in model.config.ensemble_scheduling.step
        }
        await self.repository.unload(name)
        for step in sorted(steps - {name}):
            await self.unload(step, dependents=True)

    async def reload(self, name: str, reason: str = "reload request") -> None:
        """Swap `name` even if its files are unchanged; LoadError keeps what served."""
        self._check_standing(name)
        await self.repository.load(name, force=True, reason=reason)

    def stands(self, name: str) -> bool:
        """Whether an instance of `name` stands in a debugger."""
        return any(model.stands() for model in self.models() if model.name == name)

    def _check_standing(self, name: str) -> None:
        if self.stands(name):
            raise LoadError(
                f"an instance of '{name}' stands in a debugger", Code.UNAVAILABLE, model=name,
                remedy="continue it, or ask by force: then it is continued",
            )  # fmt: skip

    async def scale(self, name: str, count: int) -> None:
        """Run `count` instances of `name` from now on."""
        await self.repository.scale(name, count)

    def give_up_outdated(self, name: str) -> None:
        """End a load of `name` that hangs, where its files have changed since it began."""
        if self.repository.outdated(name):
            self.repository.give_up_start(name, "its files changed")

    async def forget(self, name: str) -> None:
        """Unload a model whose folder is gone."""
        await self.repository.forget(name)

    # -- requests --------------------------------------------------------------------------------

    def infer(self, request: Request) -> None:
        """Check and queue `request`; its responses come through `request.on_response`.

        Raises InferError where it is refused before the queue (UnknownModelError: no such model).
        """
        model = self.repository.find(request.model_name, request.model_version)
        request.sequence = next(self._numbers)
        if self.tracer is None:
            model.submit(request)
        else:
            self.tracer.submit(request, model)

    def _connect(self, model: Model) -> None:
        """Give a new model the doors it may need: ensembles and BLS send requests of their own."""
        model.bls = self.bls
        model.spinner = self._spinner
        model.custom_metrics = self._custom_metrics
        model.limiter = self.limiter
        if model.config.response_cache.enable:
            model.cache = self.cache
        if isinstance(model, Ensemble):
            model.infer = self.infer
            model.cancel_child = self.cancel

    def set_verbosity(self, level: int) -> None:
        """From now on models' `Logger.log_verbose` writes where `level` is above 0."""
        self.options.log_verbose = level
        for model in self.models():
            for instance in model.instances:
                instance.send_control({"op": "verbose", "level": level})

    def custom_metrics(self) -> list[Family]:
        """Metric families that models have made."""
        return self._custom_metrics.families()

    def cancel(self, request: Request) -> None:
        """Nobody waits for `request` any more: tell the queue or the instance that has it."""
        if request.done:
            return
        request.cancelled = True
        if request.owner is not None:
            request.owner.cancel(request)

    def withdraw(self, request: Request) -> None:
        """The same for one that must not run any more: out of its queue, wherever it waits."""
        scheduler = request.owner
        if not request.done and isinstance(scheduler, DirectScheduler):
            request.cancelled = True
            scheduler.withdraw(request)
        else:
            self.cancel(request)

    def request_slab(self, name: str) -> Slab | None:
        """Where to receive a large body for `name`; None if there is no such model."""
        try:
            return self.repository.find(name).request_slab()
        except UnknownModelError:
            return None

    def statistics(self, name: str = "", version: str = "") -> list[Any]:
        """`ModelStatistics` messages of one model or all; InferError for an unknown one."""
        if not name:
            models = self.models()
        else:
            entry = self.repository.entries.get(name)
            if entry is None or not entry.models:
                raise InferError(f"requested model '{name}' is not available")
            if version:
                models = [each for each in entry.models.values() if each.version_text == version]
                if not models:
                    raise InferError(f"requested model version is not available for model '{name}'")
            else:
                models = [entry.models[number] for number in sorted(entry.models)]
        return [to_message(each.name, each.version_text, each.counters) for each in models]
