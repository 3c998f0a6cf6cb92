"""An ensemble: requests run through a graph of other models, tensor by tensor.

A step runs when every step that writes one of its inputs has answered; steps that do not depend on
each other run at once. A decoupled step sends the rest of the graph on its way once per response.
Steps go through the engine's door like any other request, so their models batch and count them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from devkit.core.model import Model
from devkit.core.request import (
    Buffer,
    Description,
    OutputSignature,
    Request,
    Response,
    TensorSpec,
)
from devkit.core.taps import Taps
from devkit.errors import Code, InferError

_DESCRIPTIONS = 512
Value = tuple[TensorSpec, Buffer]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: tensor names by the model's input, and by the model's output."""

    index: int
    model: str
    version: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class Flow:
    """One pass through the graph: the tensors so far, the steps to come, the steps that run.

    A decoupled step forks its flow once per response; a fork sees what its parent's other steps
    write, and runs what depends on the decoupled step.
    """

    def __init__(self, steps: Iterable[Step], parent: Flow | None = None) -> None:
        self.parent = parent
        self.values: dict[str, Value] = {}
        self.waiting = {step.index: step for step in steps}
        self.running: set[int] = set()
        self.forks: list[Flow] = []
        self.carries = False
        self.ended = False

    def get(self, tensor: str) -> Value | None:
        """The tensor as this flow or one it was forked from has it."""
        found = self.values.get(tensor)
        return self.parent.get(tensor) if found is None and self.parent else found

    def going(self) -> bool:
        """Whether this flow, or one forked from it, is still to answer."""
        return not (self.ended or self.carries) or any(fork.going() for fork in self.forks)

    def busy(self, decoupled: set[int]) -> bool:
        """Whether a step may still write a tensor here: its own, or a plain one above it."""
        if self.running:
            return True
        above = self.parent
        while above is not None:
            if above.running - decoupled or above.waiting:
                return True
            above = above.parent
        return False


class Run:
    """One request on its way through the ensemble."""

    def __init__(self, ensemble: Ensemble, request: Request) -> None:
        self.ensemble = ensemble
        self.request = request
        self.failed = False
        self._live: dict[int, Request] = {}
        self._held: list[Response] = []
        self._root = Flow(ensemble.steps_for(request.description.outputs))

    def start(self) -> None:
        """Put the request's inputs in and run the steps that need no more."""
        request = self.request
        for spec, buffer in zip(request.description.inputs, request.buffers, strict=True):
            self._root.values[spec.name] = (spec, buffer)
        self._advance(self._root)

    def running(self) -> list[Request]:
        """The steps under way."""
        return list(self._live.values())

    def cancel(self) -> None:
        """One step has failed: the others that run now need not go on."""
        for child in list(self._live.values()):
            self.ensemble.cancel_child(child)

    def _advance(self, flow: Flow) -> None:
        """Start every step whose inputs are settled; end the flow when none is left."""
        if self.request.cancelled and flow.waiting:
            text = f"{self.request.label()}Request cancelled"
            self._fail(InferError(text, Code.CANCELLED))
            return
        for step in [step for step in flow.waiting.values() if self._settled(flow, step)]:
            if step.index in flow.waiting:
                self._run(flow, step)
            if self.failed:
                return
        for fork in list(flow.forks):
            if not fork.ended:
                self._advance(fork)
        if not flow.ended and not flow.waiting and not flow.running:
            self._end(flow)

    def _settled(self, flow: Flow, step: Step) -> bool:
        missing = {tensor for tensor in step.inputs.values() if flow.get(tensor) is None}
        if not missing:
            return True
        to_come = {t for other in flow.waiting.values() for t in other.outputs.values()}
        return not flow.busy(self.ensemble.decoupled_steps) and not missing & to_come

    def _run(self, flow: Flow, step: Step) -> None:
        del flow.waiting[step.index]
        flow.running.add(step.index)
        later: list[Step] = []
        if step.index in self.ensemble.decoupled_steps:
            flow.carries = True
            later = _downstream(step, flow.waiting.values())
            for each in later:
                del flow.waiting[each.index]
        specs, buffers = [], []
        for name, tensor in step.inputs.items():
            value = flow.get(tensor)
            if value is not None:
                specs.append(TensorSpec(name, value[0].datatype, value[0].shape))
                buffers.append(value[1])
        child = self._child(step, tuple(specs), buffers)
        child.on_response = lambda response: self._answered(flow, step, later, child, response)
        self._live[id(child)] = child
        try:
            self.ensemble.infer(child)
        except InferError as problem:
            del self._live[id(child)]
            self._fail(problem)

    def _child(self, step: Step, specs: tuple[TensorSpec, ...], buffers: list[Buffer]) -> Request:
        parent = self.request
        return Request(
            step.model,
            self.ensemble.describe(step, specs, parent.description.parameters),
            buffers,
            lambda _: None,
            model_version=step.version,
            id=parent.id,
            correlation_id=parent.correlation_id,
            flags=parent.flags,
            timeout=parent.timeout,
            priority=parent.priority,
            parent=parent,
        )

    def _answered(
        self, flow: Flow, step: Step, later: list[Step], child: Request, response: Response
    ) -> None:
        if response.final:
            self._live.pop(id(child), None)
            flow.running.discard(step.index)
        if self.failed:
            response.release()
            return
        if response.error is not None:
            self._fail(response.error)
            return
        target = flow
        if step.index in self.ensemble.decoupled_steps and not response.empty:
            target = Flow(later, flow)
            flow.forks.append(target)
        for spec, buffer in zip(response.signature.outputs, response.buffers, strict=True):
            tensor = step.outputs.get(spec.name)
            if tensor is not None:
                target.values[tensor] = (TensorSpec(tensor, spec.datatype, spec.shape), buffer)
        if response.on_release is not None:
            self._held.append(response)
        self._advance(self._root)
        self._finish()

    def _end(self, flow: Flow) -> None:
        """Answer with the flow's tensors; a flow that only carried forks has none of its own."""
        if flow.carries:
            flow.ended = True
            return
        request, ensemble = self.request, self.ensemble
        wanted = request.description.outputs or tuple(ensemble.outputs)
        values = [flow.get(name) for name in wanted]
        if None in values:
            if flow.busy(ensemble.decoupled_steps):
                return
            self._fail(
                InferError(
                    f"{request.label()}unexpected deadlock, at least one output is not set while "
                    "no more ensemble steps can be made"
                )
            )
            return
        flow.ended = True
        specs = tuple(value[0] for value in values if value)
        response = Response(request, ensemble.name, ensemble.version_text, OutputSignature(specs))
        response.buffers = [_bytes_of(value[1]) for value in values if value]
        response.parameters = {
            "sequence_id": request.correlation_id,
            "sequence_start": bool(request.flags & 1),
            "sequence_end": bool(request.flags & 2),
        }
        response.final = not ensemble.decoupled or not (self._live or self._root.going())
        if response.final:
            response.on_release = self._release
        ensemble.answer(self, response)

    def _finish(self) -> None:
        """A decoupled ensemble's last response is an empty one, once nothing runs any more."""
        if self.ensemble.decoupled and not self._live and not self.failed and not self.request.done:
            response = Response(self.request, self.ensemble.name, self.ensemble.version_text)
            response.empty = True
            response.on_release = self._release
            self.ensemble.answer(self, response)

    def _release(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each.release()

    def _fail(self, error: InferError) -> None:
        self.failed = True
        self.cancel()
        self._release()
        text = f"in ensemble '{self.ensemble.name}', {error.message}"
        self.ensemble.failed(self, InferError(text, error.code))


def _downstream(step: Step, steps: Iterable[Step]) -> list[Step]:
    """The steps of `steps` that need, at any distance, what `step` writes."""
    written = set(step.outputs.values())
    found: list[Step] = []
    pool = list(steps)
    while True:
        more = [each for each in pool if written.intersection(each.inputs.values())]
        if not more:
            return found
        found += more
        pool = [each for each in pool if each not in more]
        written.update(tensor for each in more for tensor in each.outputs.values())


def _pruned(steps: list[Step], ignored: set[str]) -> list[Step]:
    """`steps` without those that only write tensors nobody is given, and what waits for them."""
    left = list(steps)
    wanted = {step.index: set(step.outputs.values()) for step in steps}
    while ignored:
        for step in list(left):
            wanted[step.index] -= ignored
            if not wanted[step.index]:
                left.remove(step)
        needed = {tensor for step in left for tensor in step.inputs.values()}
        gone = {t for step in steps if step not in left for t in step.inputs.values()} - needed
        if gone <= ignored:
            break
        ignored = ignored | gone
    never = {t for step in steps if step not in left for t in step.outputs.values()}
    for step in left * len(left):
        if step in left and not never.isdisjoint(step.inputs.values()):
            left.remove(step)
            never.update(step.outputs.values())
    return left


def _bytes_of(buffer: Buffer) -> Any:
    return buffer.view() if hasattr(buffer, "view") else buffer


class Ensemble(Model):
    """A model whose instances are the steps' own.

    `infer` and `cancel_child` are the engine's; they are given by whoever builds it.
    """

    infer: Callable[[Request], None]
    cancel_child: Callable[[Request], None]
    decoupled_steps: set[int]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._steps: list[Step] | None = None
        self._descriptions: dict[Any, Description] = {}
        self._runs: dict[int, Run] = {}
        self._pruned: dict[tuple[str, ...], list[Step]] = {}
        self.decoupled_steps = set()

    async def start(self) -> None:
        """Nothing to start: the repository has loaded the steps' models before."""
        self.state = "ready"

    @property
    def steps(self) -> list[Step]:
        """The graph, in the config's order."""
        if self._steps is None:
            self._steps = [
                Step(
                    index,
                    step.model_name,
                    "" if step.model_version == -1 else str(step.model_version),
                    dict(step.input_map.items()),
                    dict(step.output_map.items()),
                )
                for index, step in enumerate(self.config.ensemble_scheduling.step)
            ]
        return self._steps

    def steps_for(self, wanted: tuple[str, ...]) -> list[Step]:
        """The steps that a request for these outputs runs; all of them where it names none.

        As in the real server, a step all of whose outputs are outputs of the ensemble that nobody
        asked for is left out, and then what only it needed, even if another step needs its own.
        """
        if not wanted:
            return self.steps
        found = self._pruned.get(wanted)
        if found is None:
            if len(self._pruned) >= _DESCRIPTIONS:
                self._pruned.clear()
            found = self._pruned[wanted] = _pruned(self.steps, set(self.outputs) - set(wanted))
        return found

    async def auto_complete(self) -> dict[str, Any] | None:
        """An ensemble has no code to ask."""
        return None

    def enqueue(self, request: Request) -> None:
        """Send a checked request on its way."""
        run = Run(self, request)
        self._runs[request.sequence] = run
        request.owner = self
        run.start()

    def describe(
        self, step: Step, specs: tuple[TensorSpec, ...], parameters: dict[str, Any]
    ) -> Description:
        """The description of a step's request, the same object for requests alike."""
        key = (step.index, specs, tuple(sorted(parameters.items())) if parameters else ())
        found = self._descriptions.get(key)
        if found is None:
            if len(self._descriptions) >= _DESCRIPTIONS:
                self._descriptions.clear()
            found = self._descriptions[key] = Description(
                specs, tuple(step.outputs), dict(parameters)
            )
        return found

    def answer(self, run: Run, response: Response) -> None:
        """Hand a response on, and count the request when it was the last."""
        request = run.request
        if response.final:
            self._over(run)
            now = time.monotonic_ns()
            if not request.times.compute_start:
                request.times.compute_start = request.times.queue_start
            self.counters.executed([request], request.batch_size, now, now)
        self._hand_on(response)

    def failed(self, run: Run, error: InferError) -> None:
        """Answer with a step's error, once."""
        if not run.request.done:
            self._over(run)
            self.counters.failed(run.request, "OTHER")
            self._hand_on(Response(run.request, self.name, self.version_text, error=error))

    def _hand_on(self, response: Response) -> None:
        if self._taps.responses:
            Taps.emit(self._taps.responses, response.request, response)
        response.request.on_response(response)

    def _over(self, run: Run) -> None:
        request = run.request
        self._runs.pop(request.sequence, None)
        request.done = True
        request.owner = None
        for block in request.blocks:
            block.release()
        request.blocks = []
        self.finished(request)
        self.idle_check()

    def busy(self) -> bool:
        return bool(self._runs)

    def steps_of(self, request: Request) -> list[Request]:
        """The steps that run for `request` now."""
        run = self._runs.get(request.sequence)
        return run.running() if run is not None else []

    def cancel(self, request: Request) -> None:
        """Nothing at once: as in the real server, no further step begins, and what runs goes on."""
