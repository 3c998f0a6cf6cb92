"""An ensemble: requests run through a graph of other models, tensor by tensor.

A step runs when every step that writes one of its inputs has answered; steps that do not depend on
each other run at once. A decoupled step sends the rest of the graph on its way once per response.
Steps go through the engine's door like any other request, so their models batch and count them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from devkit.errors import Code, InferError, LoadError

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


@dataclass(slots=True)
class Flow:
    """One pass through the graph: the tensors so far, and who may still write one.

    A decoupled step forks its flow for every response but leaves the tensors of others shared by
    copy, so that flows never see each other's.
    """

    values: dict[str, Value]
    waiting: dict[int, Step]
    running: int = 0
    held: list[Response] = field(default_factory=list)


class Run:
    """One request on its way through the ensemble."""

    def __init__(self, ensemble: Ensemble, request: Request) -> None:
        self.ensemble = ensemble
        self.request = request
        self.flows = 0
        self.failed = False
        self.children: set[int] = set()
        self._live: dict[int, Request] = {}

    def start(self) -> None:
        request = self.request
        values: dict[str, Value] = {
            spec.name: (spec, buffer)
            for spec, buffer in zip(request.description.inputs, request.buffers, strict=True)
        }
        steps = {step.index: step for step in self.ensemble.steps}
        self.flows = 1
        self._advance(Flow(values, steps))

    def cancel(self) -> None:
        """Pass a cancellation on to the steps that run now."""
        for child in list(self._live.values()):
            self.ensemble.cancel_child(child)

    def _advance(self, flow: Flow) -> None:
        """Start every step whose inputs are settled; end the flow when none is left."""
        for step in [step for step in flow.waiting.values() if self._settled(flow, step)]:
            del flow.waiting[step.index]
            flow.running += 1
            self._run(flow, step)
            if self.failed:
                return
        if not flow.running:
            self._end(flow)

    def _settled(self, flow: Flow, step: Step) -> bool:
        unwritten = {tensor for other in flow.waiting.values() for tensor in other.outputs.values()}
        missing = [tensor for tensor in step.inputs.values() if tensor not in flow.values]
        return not missing or not (flow.running or unwritten.intersection(missing))

    def _run(self, flow: Flow, step: Step) -> None:
        specs, buffers = [], []
        for name, tensor in step.inputs.items():
            if tensor in flow.values:
                spec, buffer = flow.values[tensor]
                specs.append(TensorSpec(name, spec.datatype, spec.shape))
                buffers.append(buffer)
        parent = self.request
        description = self.ensemble.describe(step, tuple(specs), parent.description.parameters)
        child = Request(
            step.model, description, buffers, lambda _: None, step.version, parent.id,
            parent.correlation_id, parent.flags, parent.timeout, parent.priority, parent=parent,
        )  # fmt: skip
        child.on_response = lambda response: self._answered(flow, step, child, response)
        self._live[id(child)] = child
        try:
            self.ensemble.infer(child)
        except InferError as problem:
            self._live.pop(id(child), None)
            self._fail(problem)

    def _answered(self, flow: Flow, step: Step, child: Request, response: Response) -> None:
        if response.final:
            self._live.pop(id(child), None)
        if self.failed:
            response.release()
            return
        if response.error is not None:
            self._fail(response.error)
            return
        if response.final:
            flow.running -= 1
        target = flow
        if response.empty:
            if not flow.running and not flow.waiting:
                self._end(flow, silent=True)
            else:
                self._close(flow)
            return
        if not response.final or step.index in self.ensemble.decoupled_steps:
            # More may come: what this response sets off must not see what the next one writes.
            target = Flow(dict(flow.values), dict(flow.waiting))
            self.flows += 1
        for spec, buffer in zip(response.signature.outputs, response.buffers, strict=True):
            tensor = step.outputs.get(spec.name)
            if tensor is not None:
                target.values[tensor] = (TensorSpec(tensor, spec.datatype, spec.shape), buffer)
        target.held.append(response)
        self._advance(target)
        if target is not flow and response.final:
            self._close(flow)

    def _close(self, flow: Flow) -> None:
        """A decoupled step has no more responses: its own flow ends without an answer."""
        self.flows -= 1
        if not self.flows and not self.failed:
            self._empty_final()

    def _end(self, flow: Flow, *, silent: bool = False) -> None:
        self.flows -= 1
        if silent:
            if not self.flows:
                self._empty_final()
            return
        request, ensemble = self.request, self.ensemble
        wanted = request.description.outputs or tuple(ensemble.outputs)
        present = [name for name in wanted if name in flow.values]
        if len(present) != len(wanted):
            self._fail(
                InferError(
                    "unexpected deadlock, at least one output is not set while no more ensemble "
                    "steps can be made",
                    Code.INVALID_ARG,
                )
            )
            return
        specs = tuple(flow.values[name][0] for name in present)
        response = Response(
            request, ensemble.name, ensemble.version_text, OutputSignature(specs),
            [_bytes_of(flow.values[name][1]) for name in present],
            parameters={"sequence_id": request.correlation_id, "sequence_start": False,
                        "sequence_end": False},
            final=not ensemble.decoupled,
        )  # fmt: skip
        held = flow.held

        def release() -> None:
            for each in held:
                each.release()

        response.on_release = release
        ensemble.answer(self, response)
        if ensemble.decoupled and not self.flows:
            self._empty_final()

    def _empty_final(self) -> None:
        ensemble = self.ensemble
        response = Response(self.request, ensemble.name, ensemble.version_text, empty=True)
        ensemble.answer(self, response)

    def _fail(self, error: InferError) -> None:
        self.failed = True
        text = f"in ensemble '{self.ensemble.name}', {error.message}"
        self.cancel()
        self.ensemble.failed(self, InferError(text, error.code))


def _bytes_of(buffer: Buffer) -> Any:
    return buffer.view() if hasattr(buffer, "view") else buffer


class Ensemble(Model):
    """A model whose instances are the steps' own.

    `infer` and `cancel_child` are the engine's; they are given by whoever builds it.
    """

    infer: Callable[[Request], None]
    cancel_child: Callable[[Request], None]
    find: Callable[..., Model]

    async def start(self) -> None:
        """Look the steps' models up. Raises LoadError when one of them is not there."""
        began = time.monotonic()
        self.steps = [
            Step(
                index,
                step.model_name,
                "" if step.model_version in (-1, 0) else str(step.model_version),
                dict(step.input_map.items()),
                dict(step.output_map.items()),
            )
            for index, step in enumerate(self.config.ensemble_scheduling.step)
        ]
        self.decoupled_steps: set[int] = set()
        for step in self.steps:
            try:
                model = self.find(step.model, step.version)
            except InferError as problem:
                raise LoadError(
                    f"Invalid argument: ensemble {self.name} contains models that are not "
                    f"available or ambiguous: {step.model}",
                    model=self.name,
                ) from problem
            if model.decoupled:
                self.decoupled_steps.add(step.index)
        self.decoupled = bool(self.decoupled_steps) or self.decoupled
        self._descriptions: dict[Any, Description] = {}
        self._runs: dict[int, Run] = {}
        self.load_seconds = time.monotonic() - began
        self.state = "ready"

    async def auto_complete(self) -> dict[str, Any] | None:
        """An ensemble has no code to ask."""
        return None

    def run(self, request: Request) -> None:
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
        request.on_response(response)

    def failed(self, run: Run, error: InferError) -> None:
        """Answer with a step's error, once."""
        if not run.request.done:
            self._over(run)
            self.counters.failed(run.request, "OTHER")
            request = run.request
            request.on_response(Response(request, self.name, self.version_text, error=error))

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

    def cancel(self, request: Request) -> None:
        """Pass a cancellation on to the steps under way."""
        run = self._runs.get(request.sequence)
        if run is not None:
            run.cancel()
