"""One served version of a model: its config, its instances, its queue, from start to drained.

A `Model` never changes its config: a reload makes a new one and lets this one drain. Reading the
repository is the repository's business, what a request must look like is `checks`'.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.contract import config as contract
from devkit.contract import modes
from devkit.core import backends, checks, response_cache, warmup
from devkit.core.controls import Controls
from devkit.core.environments import Environment
from devkit.core.instance import Instance
from devkit.core.lanes import Sequence
from devkit.core.launcher import Launcher, Process
from devkit.core.options import Options
from devkit.core.request import Request, Response
from devkit.core.scheduler import DirectScheduler, DynamicBatcher, QueuePolicy
from devkit.core.sequence import SequenceBatcher
from devkit.core.snapshot import Snapshot
from devkit.core.spinner import Spinner
from devkit.core.statistics import Counters
from devkit.core.steering import Steering, Target
from devkit.core.taps import FailureEvent, InstanceEvent, Listener, SequenceEvent, Taps
from devkit.errors import InferError, LoadError
from devkit.transport import messages
from devkit.transport.memory import Slab, slab_name

if TYPE_CHECKING:
    from devkit.core.bls import Bls
    from devkit.core.custom_metrics import CustomMetrics
    from devkit.core.rate_limiter import RateLimiter
    from devkit.core.response_cache import ResponseCache

log = logging.getLogger("devkit.model")

_generations = itertools.count(1)
_HEALTHY_AFTER = 30.0
"""Seconds an instance must live for its next death to be restarted without back-off."""

_EARLY_USE = "module 'triton_python_backend_utils' has no attribute"
_TOO_EARLY = (
    "while the file is imported, pb_utils has only its constants and helpers: use Tensor, "
    "InferenceRequest and the like inside functions, in annotations as text"
)


class Ordered:
    """Hands responses on in the order of their requests (`preserve_ordering`)."""

    def __init__(self) -> None:
        self._line: deque[tuple[Request, list[Response]]] = deque()
        self._hand_on: dict[int, Callable[[Response], None]] = {}

    def admit(self, request: Request) -> None:
        """Take a place in the line for `request`."""
        kept: list[Response] = []
        self._line.append((request, kept))
        hand_on = request.on_response

        def keep(response: Response) -> None:
            kept.append(response)
            self._advance()

        request.on_response = keep
        self._hand_on[id(request)] = hand_on

    def _advance(self) -> None:
        while self._line:
            request, kept = self._line[0]
            for response in kept:
                self._hand_on[id(request)](response)
            final = bool(kept) and kept[-1].final
            kept.clear()
            if not final:
                return
            self._line.popleft()
            del self._hand_on[id(request)]


class Model:
    """A version of a model that is served, or on its way there.

    Attributes:
        config: the completed ModelConfig.
        inputs, outputs: by name, as `contract.config` describes them.
        file: its `model.py`; `version_dir` and `model_dir` are the folders it lies in.
        versions: every version of this name that is served now (the repository keeps it).
        environment: interpreter and variables of its processes.
        watchers: as `Taps.batches`, of this model alone; who has enough takes itself off.
        generation: a number no other Model of this process has; validation results are kept by it.
    """

    def __init__(
        self, name: str, version: int, config: Any, directory: Path, options: Options,
        launcher: Launcher, taps: Taps, environment: Environment | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.version = version
        self.version_text = str(version)
        self.versions = [self.version_text]
        self.config = config
        self.config_text = contract.to_json(config)
        self.inputs = contract.inputs(config)
        self.outputs = contract.outputs(config)
        self.max_batch_size: int = config.max_batch_size
        self.decoupled = bool(config.model_transaction_policy.decoupled)
        self.model_dir = directory
        self.version_dir = directory / self.version_text
        self._options = options
        self.file = self._find_file()
        self.environment = environment or Environment()
        self.generation = next(_generations)
        self.counters = Counters()
        self.instances: list[Instance] = []
        self.load_seconds = 0.0
        self.bls: Bls | None = None
        self.custom_metrics: CustomMetrics | None = None
        self.spinner: Spinner | None = None
        self.limiter: RateLimiter | None = None
        self.cache: ResponseCache | None = None
        self.state = "loading"
        self.strict = options.strict
        self.watchers: list[Listener] = []
        self._launcher = launcher
        self._taps = taps
        self._slab: Slab | None = None
        self._snapshot: Snapshot | None = None
        self._order: Ordered | None = None
        self._deaths: dict[str, tuple[int, float]] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self.steering: Steering | None = None
        self._drained = asyncio.Event()
        self._starting: list[Instance] = []
        self.open_requests = 0
        self.sequences: SequenceBatcher | None = None
        self.scheduler = self._make_scheduler()
        self.may_prefetch = (
            type(self.scheduler) is DirectScheduler
            and not self.decoupled
            and options.rate_limit == "off"
        )

    @property
    def taps(self) -> Taps:
        """Where observers listen."""
        return self._taps

    @property
    def is_python_based(self) -> bool:
        """Whether its code is a backend's `model.py`, shared by every model of that backend."""
        return self.config.backend not in ("", "python") and bool(self.config.runtime)

    def _find_file(self) -> Path:
        if self.is_python_based:
            options, config = self._options, self.config
            return backends.file_of(options.backend_directory, config.backend, config.runtime)
        return self.version_dir / (self.config.default_model_filename or "model.py")

    def _make_scheduler(self) -> DirectScheduler:
        config = self.config
        choice = config.WhichOneof("scheduling_choice")
        if choice == "sequence_batching":
            controls = Controls(config, self.model_dir)
            self.sequences = SequenceBatcher(self, config.sequence_batching, controls)
            self.sequences.on_change = self._tell_sequence
            return self.sequences
        if choice != "dynamic_batching":
            return DirectScheduler(self.refuse)
        batching = config.dynamic_batching
        if batching.preserve_ordering:
            self._order = Ordered()
        return DynamicBatcher(
            self.refuse,
            max_batch_size=self.max_batch_size,
            preferred=tuple(batching.preferred_batch_size),
            delay_us=batching.max_queue_delay_microseconds,
            policy=_policy(batching.default_queue_policy),
            levels=batching.priority_levels,
            default_level=batching.default_priority_level,
            policies={
                level: _policy(each) for level, each in batching.priority_queue_policy.items()
            },
        )

    # -- requests ------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Check `request` and run or queue it. Raises InferError where it does not fit."""
        try:
            self.fit(request)
        except checks.LateRefusal as refusal:
            self.open_requests += 1
            asyncio.get_running_loop().call_soon(self.refuse, request, refusal, "OTHER")
            return
        cache = self.cache
        if cache is None or request.steer or not response_cache.answer(cache, self, request):
            self.enqueue(request)

    def fit(self, request: Request) -> None:
        """Check `request` and note what it means here. Raises InferError where it does not fit."""
        if request.correlation_id:
            checks.check_sequence_id(request.correlation_id)
        memo = request.description.memo
        fit = memo.get(self.generation)
        if fit is None:
            fit = checks.check_description(
                request, self.name, self.inputs, self.outputs, self.max_batch_size
            )
            if len(memo) > 8:
                memo.clear()  # of models that were swapped long ago
            memo[self.generation] = fit
        request.model = self
        checks.check_buffers(request, self.name, fit)
        request.batch_size = fit.batch_size
        request.fit_key = fit.batch_key
        request.times.queue_start = time.monotonic_ns()

    def enqueue(self, request: Request) -> None:
        """Run or queue a request that fits."""
        if self.steering is not None:
            self.steering.aim(request)
        elif request.steer:
            self._unaimed(request)
        if not self.scheduler.workers and not self._restarts_at_once():
            error = checks.not_healthy(self._instance_name())
            asyncio.get_running_loop().call_soon(self.refuse, request, error, "BACKEND")
            return
        self.scheduler.submit(request)
        self.open_requests += 1
        if self._order is not None and not request.steer:  # which may stand for minutes
            self._order.admit(request)

    def _unaimed(self, request: Request) -> None:
        """A request that asks for a debugger or an instance, where no debugger is attached."""
        if all(worker.name != request.steer for worker in self.scheduler.workers):
            request.steer = ""

    def _restarts_at_once(self) -> bool:
        return any(death[0] <= 1 for death in self._deaths.values()) and bool(self._restarts)

    def _instance_name(self) -> str:
        return self.instances[0].name if self.instances else f"{self.name}_0"

    def refuse(self, request: Request, error: InferError, reason: str) -> None:
        """Answer `request` with an error of the runtime's; counted under the metric's `reason`."""
        already = request.done
        request.done = True
        request.owner = None
        blocks, request.blocks = request.blocks, []
        for block in blocks:
            block.release()
        if not already:
            self.finished(request)
        self.counters.failed(request, reason)
        if reason == "CANCELED" and self._taps.cancels:
            Taps.emit(self._taps.cancels, request, "queue")
        response = Response(request, self.name, self.version_text, error=error)
        if self._taps.responses:  # first: a front end gives the memory back once it has written
            Taps.emit(self._taps.responses, request, response)
        request.on_response(response)

    def finished(self, request: Request) -> None:
        """A request is over, however it ended."""
        self.open_requests -= 1

    def request_slab(self) -> Slab:
        """Shared memory for large inputs; one for all instances, since a body is received before
        it is known which of them will run it."""
        if self._slab is None:
            name = slab_name(os.getpid(), f"{self.name}-{self.generation}", "requests")
            options = self._options
            self._slab = Slab(
                name, size=options.shm_default_byte_size, step=options.shm_growth_byte_size
            )
        return self._slab

    def slabs(self) -> list[Slab]:
        """The slabs of its own, for the gauges; those of its stubs are the stubs'."""
        return [self._slab] if self._slab is not None else []

    def response_slab_name(self, instance: str) -> str:
        return slab_name(os.getpid(), f"{instance}-{self.generation}", "responses")

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every instance. Raises LoadError with what follows `Internal: ` if one fails."""
        began = time.monotonic()
        limit = asyncio.Semaphore(max(2, os.cpu_count() or 2))

        async def one(spec: contract.InstanceSpec) -> Instance:
            async with limit:
                return await self._start_instance(spec)

        specs = [spec for spec in contract.instances(self.config) if not spec.passive]
        try:
            results = await asyncio.gather(*(one(spec) for spec in specs), return_exceptions=True)
        except asyncio.CancelledError:
            await self._kill_started()
            raise
        self.instances = [result for result in results if isinstance(result, Instance)]
        for result in results:
            if isinstance(result, BaseException):
                await self.stop(5.0, drain=False)
                raise result
        self._starting = []
        self.scheduler.workers = list(self.instances)
        self.load_seconds = time.monotonic() - began
        named = [file for instance in self.instances for file in instance.files]
        self._snapshot = Snapshot(self.model_dir, named)
        self.state = "ready"
        note = modes.note(self.decoupled, any(each.asynchronous for each in self.instances))
        if note:
            log.info("model '%s': %s", self.name, note)
        for instance in list(self.instances):
            if instance.state == "dead":  # between its READY and now
                self._ended(instance)

    async def _kill_started(self) -> None:
        """Given up while it loads: what has started must not live on."""
        for instance in self._starting:
            instance.process.kill()
        await asyncio.gather(*(instance.ended.wait() for instance in self._starting))

    async def _start_instance(self, spec: contract.InstanceSpec, *, warm: bool = True) -> Instance:
        began = time.monotonic()
        process = await self._launch()
        instance = Instance(
            self, spec.name, spec.kind, spec.device_id, process, self._taps, self._ended
        )
        self._tell(instance, "starting")
        if self.state == "loading":
            self._starting.append(instance)
        await instance.connect()
        if self.limiter is not None:
            await self._limit(instance, spec)
        instance.data.write(
            messages.json_frame(messages.INITIALIZE, self._initialize("load", instance, spec))
        )
        answer = await self._loaded(instance)
        if not answer["ok"]:
            self._tell(instance, "dead", answer.get("error", ""))
            await instance.stop(0.5)
            raise self._load_error(instance, answer)
        instance.files = list(answer.get("files", ()))
        instance.asks_ready = bool(answer.get("is_ready"))
        instance.execute_line = str(answer.get("execute_line", ""))
        instance.asynchronous = bool(answer.get("asynchronous"))
        instance.modules = list(answer.get("modules", ()))
        if warm and self.config.model_warmup:
            await self._warm_up(instance)
        instance.state = "ready"
        instance.load_seconds = time.monotonic() - began
        self._tell(instance, "ready")
        return instance

    async def _warm_up(self, instance: Instance) -> None:
        try:
            await warmup.run(instance, warmup.samples(self))
        except LoadError as problem:
            self._tell(instance, "dead", problem.message)
            await instance.stop(5.0)
            raise

    async def _limit(self, instance: Instance, spec: contract.InstanceSpec) -> None:
        assert self.limiter is not None
        try:
            instance.permit = self.limiter.admit(
                spec, lambda: bool(self.scheduler.queue), lambda: self.scheduler.dispatch()
            )
        except LoadError:
            await instance.stop(0.0)
            raise

    @property
    def start_method(self) -> str:
        """How its instances start: as its `DEVKIT_START_METHOD` parameter says, or the runtime."""
        own: str = (
            self.config.parameters["DEVKIT_START_METHOD"].string_value
            if ("DEVKIT_START_METHOD" in self.config.parameters)
            else ""
        )
        if own in ("warm", "spawn"):
            return own
        if own:
            log.warning(
                "model '%s': DEVKIT_START_METHOD is '%s', not warm or spawn", self.name, own
            )
        return self._options.start_method

    async def _launch(self) -> Process:
        python, variables = self.environment.python, self.environment.variables
        try:
            return await self._launcher.start(
                self.start_method,
                self._launcher.modules_of(self.name, python),
                python,
                variables,
            )
        except OSError as problem:
            raise LoadError(
                f"Internal: the model's process could not be started: {problem}",
                model=self.name,
                remedy=f"the interpreter is {python or self._launcher.python}",
            ) from problem

    async def _loaded(self, instance: Instance) -> dict[str, Any]:
        timeout = self._options.stub_timeout_seconds or None
        try:
            return await asyncio.wait_for(asyncio.shield(instance.loaded), timeout)
        except TimeoutError:
            return {"ok": False, "error": f"not ready after {timeout} s (stub-timeout-seconds)"}

    def _load_error(self, instance: Instance, answer: dict[str, Any]) -> LoadError:
        if answer.get("died"):
            tail = "\n".join(instance.last_words)
            return LoadError(
                f"Internal: Stub process '{instance.name}' is not healthy.",
                model=self.name,
                traceback=tail or None,
                remedy="the process ended while it loaded; its last words are in the log",
            )
        return LoadError(
            f"Internal: {answer['error']}",
            model=self.name,
            line=answer.get("line") or None,
            traceback=answer.get("traceback") or None,
            remedy=_TOO_EARLY if _EARLY_USE in answer["error"] else None,
        )

    def _initialize(
        self, action: str, instance: Instance, spec: contract.InstanceSpec | None
    ) -> dict[str, Any]:
        options = self._options
        folder = self._snapshot.place() if self._snapshot else self.model_dir
        version_dir = folder / self.version_text
        shared = self.is_python_based
        return {
            "action": action,
            "args": {
                "model_config": self.config_text,
                "model_instance_kind": spec.kind if spec else "CPU",
                "model_instance_name": instance.name,
                "model_instance_device_id": str(spec.device_id if spec else 0),
                "model_repository": str(folder),
                "model_version": self.version_text,
                "model_name": self.name,
            },
            "model_path": str(self.file if shared else version_dir / self.file.name),
            "version_dir": str(version_dir),
            "model_dir": str(folder),
            "module_name": self.file.stem if shared else f"{self.version_text}.{self.file.stem}",
            "paths": [str(self.file.parent)] if shared else [str(version_dir), str(folder)],
            "config": contract.auto_complete_input(self.config)
            if action == "auto_complete"
            else contract.to_dict(self.config),
            "decoupled": self.decoupled,
            "outputs": list(self.outputs),
            "response_slab": {
                "name": self.response_slab_name(instance.name),
                "size": options.shm_default_byte_size,
                "step": options.shm_growth_byte_size,
            },
            "inline_limit": messages.INLINE_LIMIT,
            "die_with_parent": os.getpid(),
            "verbose": options.log_verbose,
            "strict": self.strict,
            "probes": options.probes,
        }

    async def auto_complete(self) -> dict[str, Any] | None:
        """Config that the model's `auto_complete_config` returns, in a short-lived stub of its own.

        None where the model has no such method. Raises LoadError when it fails.
        """
        process = await self._launch()
        instance = Instance(self, f"{self.name}_0", "CPU", 0, process, self._taps, lambda _: None)
        await instance.connect()
        instance.data.write(
            messages.json_frame(
                messages.INITIALIZE, self._initialize("auto_complete", instance, None)
            )
        )
        try:
            answer = await self._loaded(instance)
            if not answer["ok"]:
                raise self._load_error(instance, answer)
            completed: dict[str, Any] | None = answer.get("config")
            return completed
        finally:
            instance.state = "stopping"
            try:
                await asyncio.wait_for(instance.ended.wait(), 0.5)
            except TimeoutError:
                await instance.stop(0.0)

    def _ended(self, instance: Instance) -> None:
        """An instance's process is gone: answer what it had, and start it again."""
        if self.state != "ready" or instance not in self.instances:
            return
        if instance.debugger is not None:
            self.release(instance)
        begun, waiting = instance.begun_and_waiting()
        if self._taps.failures:
            self._tell_death(instance, begun)
        self._tell(instance, "dead")
        if instance in self.scheduler.workers:
            self.scheduler.workers.remove(instance)
        if instance.permit is not None:
            instance.permit.close()
        if self.sequences is not None:
            self.sequences.died(begun)
        self.scheduler.give_back(waiting)
        task = asyncio.get_running_loop().create_task(self._restart(instance))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)
        for request in begun:
            instance.fail(request, checks.not_healthy(instance.name), "BACKEND")
        self.scheduler.dispatch()

    def _tell_death(self, instance: Instance, begun: list[Request]) -> None:
        event = FailureEvent(
            self.name, self.version_text, instance.name, tuple(one.id for one in begun),
            checks.not_healthy(instance.name).message, "", instance.execute_line, (),
            tuple(begun), instance, died=True,
        )  # fmt: skip
        Taps.emit(self._taps.failures, event)

    async def _restart(self, dead: Instance) -> None:
        """Replace a dead instance, waiting longer each time it dies or fails to load in a row."""
        specs = contract.instances(self.config)
        spec = next((spec for spec in specs if spec.name == dead.name), None)
        if spec is None:  # a spare
            self.instances.remove(dead)
            return
        while self.state == "ready":
            count, last = self._deaths.get(dead.name, (0, 0.0))
            now = time.monotonic()
            count = 1 if now - last > _HEALTHY_AFTER else count + 1
            self._deaths[dead.name] = (count, now)
            delays = self._options.restart_backoff
            delay = delays[min(count - 1, len(delays) - 1)]
            log.warning(
                "instance %s (pid %d) died%s; restarting%s", dead.name, dead.pid,
                _how(dead), f" in {delay:g} s" if delay else "",
            )  # fmt: skip
            self._tell(dead, "restarting")
            if delay and not self.scheduler.workers:
                self.scheduler.fail_all(checks.not_healthy(dead.name))
            await dead.ended.wait()
            await asyncio.sleep(delay)
            try:
                fresh = await self._start_instance(spec, warm=False)
            except LoadError as problem:
                log.error("instance %s did not start again: %s", dead.name, problem.message)
                continue
            if self.state != "ready":
                await fresh.stop(5.0)
                return
            self.instances[self.instances.index(dead)] = fresh
            self.scheduler.workers.append(fresh)
            self.scheduler.dispatch()
            return

    # -- debugging -----------------------------------------------------------------------------

    def hold(self, instance: Instance, take: str, on_answer: Callable[[], None]) -> Target:
        """Keep `instance` for a debugger; `take` says which requests it gets."""
        if self.steering is None:
            self.steering = Steering(self)
        target = instance.debugger = Target(instance, take, on_answer)
        self.steering.targets[instance.name] = target
        return target

    def release(self, instance: Instance) -> None:
        """`instance` serves like any other again."""
        target, instance.debugger = instance.debugger, None
        if target is None or self.steering is None:
            return
        target.resumed()
        del self.steering.targets[instance.name]
        if not self.steering.targets:
            self.steering = None
        self.scheduler.unsteer(instance.name)
        self.scheduler.dispatch()

    def stands(self) -> bool:
        """Whether an instance stands in a debugger."""
        return self.steering is not None and any(
            target.stands_since for target in self.steering.targets.values()
        )

    async def start_spare(self) -> Instance:
        """One instance more than configured, for as long as another is a debugger's."""
        present = {instance.name for instance in self.instances}
        counts = [spec for spec in contract.instances(self.config) if not spec.passive]
        count = sum(spec.group == counts[0].group for spec in counts)
        while True:
            count += 1
            specs = contract.instances(contract.scale(self.config, count))
            spec = next((one for one in specs if one.name not in present), None)
            if spec is not None:
                break
        spare = await self._start_instance(spec, warm=False)
        spare.spare = True
        self.instances = [*self.instances, spare]
        self.scheduler.workers.append(spare)
        self.scheduler.dispatch()
        return spare

    async def end_spare(self, spare: Instance) -> None:
        """The others serve alone again."""
        if spare not in self.instances or self.state != "ready":
            return
        self.instances = [each for each in self.instances if each is not spare]
        if spare in self.scheduler.workers:
            self.scheduler.workers.remove(spare)
        if self.sequences is not None:
            self.sequences.forget({spare.name})
        await self._retire(spare)

    async def scale(self, count: int) -> None:
        """Run `count` instances of the first group from now on; others finish what they have."""
        config = contract.scale(self.config, count)
        wanted = {spec.name: spec for spec in contract.instances(config) if not spec.passive}
        present = {instance.name for instance in self.instances}
        missing = [spec for name, spec in wanted.items() if name not in present]
        started = await asyncio.gather(
            *(self._start_instance(spec) for spec in missing), return_exceptions=True
        )
        fresh = [result for result in started if isinstance(result, Instance)]
        for result in started:
            if isinstance(result, BaseException):
                await asyncio.gather(*(instance.stop(5.0) for instance in fresh))
                raise result
        extra = [instance for instance in self.instances if instance.name not in wanted]
        self.config, self.config_text = config, contract.to_json(config)
        self.instances = [i for i in self.instances if i.name in wanted] + fresh
        self.scheduler.workers = [i for i in self.instances if i.state == "ready"]
        if self.sequences is not None:
            self.sequences.forget({instance.name for instance in extra})
        self.scheduler.dispatch()
        await asyncio.gather(*(self._retire(instance) for instance in extra))

    async def _retire(self, instance: Instance) -> None:
        while instance.batches:
            await asyncio.sleep(0.01)
        if instance.permit is not None:
            instance.permit.close()
        await instance.stop(5.0)
        self._tell(instance, "stopped")

    def _tell(self, instance: Instance, state: str, reason: str = "") -> None:
        if self._taps.instances:
            event = InstanceEvent(
                self.name, self.version_text, instance.name, instance.pid, state, reason
            )
            Taps.emit(self._taps.instances, event)

    def _tell_sequence(self, sequence: Sequence, state: str) -> None:
        if self._taps.sequences:
            lane = sequence.lane
            event = SequenceEvent(
                self.name, self.version_text, sequence.identity, state,
                lane.worker.name if lane is not None else "", sequence.slot,
            )  # fmt: skip
            Taps.emit(self._taps.sequences, event)

    @property
    def asks_ready(self) -> bool:
        """Whether the model has an `is_ready` of its own to be asked."""
        return any(instance.asks_ready for instance in self.instances)

    async def is_ready(self) -> bool:
        """Whether every instance says it is ready (servers since 26.02 ask the model)."""
        answers = await asyncio.gather(*(instance.is_ready() for instance in self.instances))
        return all(answers)

    def deaths(self, instance: str) -> int:
        """How often the instance of that name has died in a row."""
        return self._deaths.get(instance, (0, 0.0))[0]

    def busy(self) -> bool:
        """Whether a request waits or runs here."""
        if len(self.scheduler) or any(instance.batches for instance in self.instances):
            return True
        return self.decoupled and any(
            not request.done for instance in self.instances for request in instance.pending.values()
        )

    def idle_check(self) -> None:
        """Called when a batch has ended; wakes a drain that waits for it."""
        if self.state == "draining" and not self.busy():
            self._drained.set()

    async def stop(self, seconds: float, *, drain: bool = True) -> None:
        """Let what runs and waits finish (at most `seconds`), then finalize every instance."""
        if self.state == "ready" and drain:
            self.state = "draining"
            if self.busy():
                try:
                    await asyncio.wait_for(self._wait_drained(), seconds)
                except TimeoutError:
                    log.warning("model '%s' still runs requests after %.0f s", self.name, seconds)
        self.state = "stopping"
        for task in list(self._restarts):
            task.cancel()
        self.scheduler.close()
        self.scheduler.fail_all(checks.not_healthy(self._instance_name()))
        self.scheduler.workers = []
        await asyncio.gather(*(instance.stop(max(seconds, 1.0)) for instance in self.instances))
        for instance in self.instances:
            for request in instance.begun_and_waiting()[0]:
                instance.fail(request, checks.not_healthy(instance.name), "BACKEND")
            if instance.permit is not None:
                instance.permit.close()
            self._tell(instance, "stopped")
        if self._slab is not None:
            self._slab.unlink()
            self._slab = None
        if self._snapshot is not None:
            self._snapshot.drop()
        self.state = "stopped"

    async def _wait_drained(self) -> None:
        while self.busy():
            self._drained.clear()
            try:
                await asyncio.wait_for(self._drained.wait(), 0.05)
            except TimeoutError:
                continue  # a decoupled request ends without a batch's end

    # -- what a stub asks beside its answers -----------------------------------------------------

    def on_control(self, instance: Instance, message: dict[str, Any]) -> None:
        """A control message that is not about the instance alone."""
        if message.get("op") == "metric" and self.custom_metrics is not None:
            reply = self.custom_metrics.handle(instance, message)
            if reply is not None:
                instance.send_control(reply)
            return
        log.debug("%s: unhandled control message %s", instance.name, message.get("op"))

    def on_bls(self, instance: Instance, kind: int, payload: memoryview) -> None:
        """A request the model makes to another model."""
        if self.bls is not None:
            self.bls.handle(instance, kind, payload)


def _policy(policy: Any) -> QueuePolicy:
    return QueuePolicy(
        timeout_us=policy.default_timeout_microseconds,
        override=policy.allow_timeout_override,
        reject=policy.timeout_action == 0,
        max_size=policy.max_queue_size,
    )


def _how(dead: Instance) -> str:
    status = dead.process.status()
    if status is None:
        return ""
    if status < 0:
        import signal

        return f" of {signal.Signals(-status).name}"
    return f" with exit status {status}"
