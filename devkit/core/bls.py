"""Requests that models make to other models (BLS), and the models they load and unload.

A call comes over the caller's own socket, becomes a `Request` like any other with the caller's
request as its parent, and goes through the engine's door. What the model may do with the answer is
the stub's business.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from typing import TYPE_CHECKING, Any

from devkit.contract import modes, rules
from devkit.core import circles
from devkit.core.request import (
    Buffer,
    Description,
    Request,
    Response,
    SharedPlace,
    TensorSpec,
)
from devkit.core.taps import Taps, WarningEvent
from devkit.errors import Code, InferError, LoadError, SharedMemoryError, UnknownModelError
from devkit.transport import messages
from devkit.transport.memory import Block

if TYPE_CHECKING:
    from devkit.core.engine import Engine
    from devkit.core.instance import Instance

log = logging.getLogger("devkit.bls")

_DESCRIPTIONS = 1024


class Caller:
    """What the runtime keeps for one instance that makes calls."""

    def __init__(self) -> None:
        self.calls: dict[int, Request] = {}
        self.placed: dict[int, list[Block]] = {}
        self.regions: dict[Any, int] = {}
        self.releases = 0
        self.warned: set[str] = set()

    def forget(self) -> None:
        """The instance is gone: give back what its answers lie in."""
        for blocks in self.placed.values():
            for block in blocks:
                block.release()
        self.placed.clear()


class Bls:
    """Serves the calls of every instance of a runtime."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._callers: dict[Instance, Caller] = {}
        self._descriptions: dict[Any, Description] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, instance: Instance, kind: int, payload: memoryview) -> None:
        """A frame of `instance`'s bls socket."""
        caller = self._callers.get(instance)
        if caller is None:
            caller = self._callers[instance] = Caller()
        if kind == messages.BLS_REQUEST:
            header, tensors = messages.parse_bls(payload)
            if header["op"] == "infer":
                self._infer(instance, caller, header, tensors)
            else:
                self._start(self._manage(instance, header))
        elif kind == messages.REGION:
            instance.announced(payload)
        elif kind == messages.BLS_CANCEL:
            self._let_go(caller, messages.parse_json(payload))

    def ended(self, instance: Instance) -> None:
        """The caller's process is gone: give its calls up and its memory back."""
        caller = self._callers.pop(instance, None)
        if caller is None:
            return
        for request in list(caller.calls.values()):
            self._engine.withdraw(request)
        caller.forget()

    def _let_go(self, caller: Caller, message: dict[str, Any]) -> None:
        for block in caller.placed.pop(message.get("release", -1), ()):
            block.release()
        request = caller.calls.get(message.get("cancel", -1))
        if request is not None:
            self._engine.cancel(request)

    # -- inference -------------------------------------------------------------------------------

    def _infer(
        self, instance: Instance, caller: Caller, header: dict[str, Any],
        tensors: list[messages.Tensor],
    ) -> None:  # fmt: skip
        number = header["call"]
        parent = instance.pending.get(header.get("parent") or 0)
        buffers: list[Buffer] = []
        for tensor in tensors:
            if type(tensor) is messages.Place:
                buffers.append(
                    SharedPlace(instance.region(tensor.region), tensor.offset, tensor.size)
                )
            else:
                buffers.append(tensor)  # type: ignore[arg-type]  # not a Place, so bytes
        request = Request(
            header["model"],
            self._describe(header),
            buffers,
            lambda response: self._answer(instance, caller, number, response),
            model_version=_version(header.get("version")),
            id=header.get("id") or "",
            correlation_id=header.get("correlation_id") or 0,
            flags=header.get("flags") or 0,
            timeout=header.get("timeout") or 0,
            parent=parent,
        )
        if header.get("traced"):  # the model handed the trace of that request on
            traced = instance.pending.get(header["traced"])
            request.trace = traced.trace if traced is not None else None
        caller.calls[number] = request
        try:
            self._check_mode(instance, header)
            _check_names(request)
            self._engine.infer(request)
            self._look_for_circle(instance, caller, number, request)
        except UnknownModelError:
            # The words of 2.51, which asks whether the model is ready before anything else.
            text = (
                "Failed for execute the inference request. "
                f"Model '{request.model_name}' is not ready."
            )
            self._refuse(instance, caller, number, request, text)
        except InferError as problem:
            self._refuse(instance, caller, number, request, problem.message)

    def _look_for_circle(
        self, instance: Instance, caller: Caller, number: int, request: Request
    ) -> None:
        """Tell of a call that waits for its own caller; fail it after the grace, if one is set."""
        if request.done or request.owner in request.model.instances:
            return
        circle = circles.find(
            instance, {each: tuple(known.calls.values()) for each, known in self._callers.items()}
        )
        if not circle:
            return
        text = circles.describe(circle)
        log.warning("%s", text)
        event = WarningEvent(instance.model.name, instance.name, "bls-circle", text)
        Taps.emit(self._engine.taps.warnings, event)
        grace = self._engine.options.bls_circle_grace_secs
        if grace > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(grace, self._break_circle, instance, caller, number, request, text)

    def _break_circle(
        self, instance: Instance, caller: Caller, number: int, request: Request, text: str
    ) -> None:
        if number in caller.calls and not request.done:
            self._refuse(instance, caller, number, request, text)
            self._engine.withdraw(request)

    def _check_mode(self, instance: Instance, header: dict[str, Any]) -> None:
        """Refuse, or warn of, a call that the table of modes has something against."""
        name, decoupled = header["model"], bool(header.get("decoupled"))
        callee = self._engine.model(name, _version(header.get("version")))
        awaited = bool(header.get("asynchronous"))
        if (decoupled or not callee.decoupled) and (awaited or not instance.asynchronous):
            return
        caller = instance.model
        call = modes.call_name(awaited, decoupled)
        row = modes.find(
            mode := modes.mode_name(caller.decoupled),
            execute := "async" if instance.asynchronous else "sync",
            call,
            modes.mode_name(callee.decoupled),
        )
        if row.outcome == "refused":
            self._warn(instance, "bls-mode", call=call, name=name, execute=execute, mode=mode)
            raise InferError(
                f"Model {name} is using the decoupled. The current BLS request call doesn't "
                "support models using the decoupled transaction policy. Please use "
                "'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
                "models.'"
            )
        if caller.decoupled:
            self._warn(instance, "bls-blocks", call=call, name=name)

    def _warn(self, instance: Instance, rule: str, **case: str) -> None:
        """Warn once of each thing an instance does."""
        text = rules.find(rule, **case).message
        caller = self._callers[instance]
        if text in caller.warned:
            return
        caller.warned.add(text)
        log.warning("%s: %s", instance.name, text)
        event = WarningEvent(instance.model.name, instance.name, rule, text)
        Taps.emit(self._engine.taps.warnings, event)

    def _describe(self, header: dict[str, Any]) -> Description:
        inputs = tuple(
            TensorSpec(name, datatype, tuple(shape)) for name, datatype, shape in header["inputs"]
        )
        outputs = tuple(header.get("outputs") or ())
        parameters = header.get("parameters") or ""
        key = (inputs, outputs, parameters)
        found = self._descriptions.get(key)
        if found is None:
            if len(self._descriptions) >= _DESCRIPTIONS:
                self._descriptions.clear()
            given = json.loads(parameters) if parameters else {}
            found = self._descriptions[key] = Description(inputs, outputs, given)
        return found

    def _answer(self, instance: Instance, caller: Caller, number: int, response: Response) -> None:
        if number not in caller.calls:
            response.release()  # given up, and answered already
            return
        if response.error is not None:
            # What the callee itself answered comes without the prefix of a refusal.
            self._say(instance, caller, number, response.error.message, response.final)
            return
        if response.final:
            caller.calls.pop(number, None)
        header: dict[str, Any] = {"call": number, "final": response.final}
        if response.parameters:
            header["parameters"] = json.dumps(response.parameters)
        header["outputs"] = [
            (spec.name, spec.datatype, spec.shape) for spec in response.signature.outputs
        ]
        try:
            tensors = self._tensors(instance, caller, header, response)
        except SharedMemoryError as problem:
            response.release()
            self._say(instance, caller, number, problem.message, response.final)
            return
        instance.bls.write(messages.bls_frame(messages.BLS_RESPONSE, header, tensors))
        response.release()

    def _tensors(
        self, instance: Instance, caller: Caller, header: dict[str, Any], response: Response
    ) -> list[messages.Tensor]:
        """The answer's tensors: small ones inline, large ones in the caller's request slab."""
        tensors: list[messages.Tensor] = []
        blocks: list[Block] = []
        for buffer in response.buffers:
            if len(buffer) <= messages.INLINE_LIMIT:
                tensors.append(buffer)
                continue
            slab = instance.model.request_slab()
            try:
                block = slab.allocate(len(buffer), f"answer to a call of {instance.name}")
            except SharedMemoryError:
                for each in blocks:
                    each.release()
                raise
            block.view()[:] = buffer
            blocks.append(block)
            slot = caller.regions.get(slab)
            if slot is None:
                slot = caller.regions[slab] = len(caller.regions) + messages.OWN_RESPONSE_SLAB + 1
                instance.bls.write(messages.region_frame(slot, str(slab.path)))
            tensors.append(messages.Place(slot, block.offset, len(buffer)))
        if blocks:
            caller.releases += 1
            header["release"] = caller.releases
            caller.placed[caller.releases] = blocks
        return tensors

    def _refuse(
        self, instance: Instance, caller: Caller, number: int, request: Request, text: str
    ) -> None:
        whole = f"Model {request.model_name} - Error when running inference: {text}"
        self._say(instance, caller, number, whole, True)

    def _say(self, instance: Instance, caller: Caller, number: int, text: str, final: bool) -> None:
        """Answer with an error; its code is INTERNAL whatever the callee's was, as in 2.51."""
        if final:
            caller.calls.pop(number, None)
        header = {
            "call": number, "final": final, "error": text, "code": int(Code.INTERNAL),
            "outputs": [],
        }  # fmt: skip
        instance.bls.write(messages.bls_frame(messages.BLS_RESPONSE, header))

    # -- models ----------------------------------------------------------------------------------

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _manage(self, instance: Instance, header: dict[str, Any]) -> None:
        """load_model, unload_model and is_model_ready."""
        engine = self._engine
        answer: dict[str, Any] = {"call": header["call"], "final": True, "outputs": []}
        name = header["name"]
        try:
            if header["op"] == "is_model_ready":
                version = _version(header.get("version"))
                answer["value"] = engine.model_ready(name, version) and (
                    await engine.model(name, version).is_ready()
                )
            elif header["op"] == "load_model":
                engine.require_explicit_control()
                files = {
                    path.removeprefix("file:"): base64.b64decode(content)
                    for path, content in (header.get("files") or {}).items()
                }
                await engine.load(name, header.get("config") or None, files or None)
            else:
                engine.require_explicit_control()
                await engine.unload(name)
        except (InferError, LoadError) as problem:
            answer["error"], answer["code"] = problem.message, int(problem.code)
        instance.bls.write(messages.bls_frame(messages.BLS_RESPONSE, answer))


def _check_names(request: Request) -> None:
    names = [spec.name for spec in request.description.inputs]
    for name in names if len(set(names)) < len(names) else ():
        if names.count(name) > 1:
            raise InferError(f"{request.label()}input '{name}' already exists in request")


def _version(given: Any) -> str:
    return "" if given in (None, "", -1, "-1") else str(given)
