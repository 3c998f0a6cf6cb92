"""Who answers the requests that a model under test makes to other models.

A function of the test's, another model of this process, one of the repository (loaded when first
asked), or a live runtime. Answers have the real server's texts where it has any.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from devkit.contract import rules
from devkit.control.client import Client
from devkit.errors import DevkitError, InferError
from devkit.stub import bls as stub_bls
from devkit.stub import failures
from devkit.stub.exceptions import TritonError, TritonModelException
from devkit.stub.requests import InferenceRequest
from devkit.stub.responses import InferenceResponse
from devkit.stub.tensor import Tensor
from devkit.testing import findings, host, requests
from devkit.testing.host import Sent

if TYPE_CHECKING:
    from devkit.testing.model import ModelUnderTest

Array = requests.Array
Answerer = Any
"""What `bls=` may map a name to: a function, a ModelUnderTest, a model's path, a Client."""

_PREFIX = "Model {} - Error when running inference: "
_NOT_READY = "Failed for execute the inference request. Model '{}' is not ready."


@dataclass(frozen=True, slots=True)
class BlsCall:
    """A request that the model under test made to another model."""

    model: str
    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    version: int = -1
    id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    correlation_id: int | str = 0
    flags: int = 0
    timeout: int = 0
    decoupled: bool = False


class Callee(Protocol):
    """Something that answers a request: one response after the other."""

    decoupled: bool | None

    def answers(self, request: InferenceRequest, wants_many: bool) -> Iterator[Sent]: ...


class FunctionCallee:
    """A function: inputs by name in, outputs by name out; it may take the request as well.

    It may also return a `TritonError`, an `InferenceResponse`, or several answers, as a generator
    or a list. What it raises is answered as an error.
    """

    decoupled: bool | None = None  # whatever the caller wants

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        positional = [
            one
            for one in inspect.signature(function).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            and one.default is one.empty
        ]
        self._takes_request = len(positional) > 1

    def answers(self, request: InferenceRequest, wants_many: bool) -> Iterator[Sent]:
        """What the function gives for one request."""
        inputs = requests.arrays(request.inputs())
        try:
            given = (inputs, request) if self._takes_request else (inputs,)
            found = self._function(*given)
            many = isinstance(found, (list, Iterator))
            answers: Iterable[Any] = found if many else (found,)
            before: InferenceResponse | None = None
            for one in answers:
                if before is not None:
                    yield Sent(before, False)
                before = _response_of(one, request)
            yield Sent(before, True)
        except (AssertionError, findings.ContractWarning):
            raise  # the test's own verdict: through the model that asked
        except InferError as problem:
            yield _error(problem.message)
        except Exception as problem:  # a test's function may raise anything: the model is told
            yield _error(failures.message(problem))


def _response_of(value: Any, request: InferenceRequest) -> InferenceResponse:
    if isinstance(value, InferenceResponse):
        return value
    if isinstance(value, TritonError):
        return InferenceResponse(error=value)
    if not isinstance(value, Mapping):
        raise TypeError(
            "a function that answers BLS requests returns a dict of arrays by output name, not "
            f"{type(value).__name__}"
        )
    wanted = request.requested_output_names()
    return InferenceResponse(
        [
            Tensor(name, _tensor_array(array))
            for name, array in value.items()
            if not wanted or name in wanted
        ]
    )


def _tensor_array(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(np.object_) if array.dtype.kind == "U" else array


def _error(text: str) -> Sent:
    """An error as a caller gets it; its code is INTERNAL whatever it was, as from the server."""
    return Sent(InferenceResponse(error=TritonError(text)), True)


class ModelCallee:
    """Another model of this process."""

    def __init__(self, model: ModelUnderTest) -> None:
        self._model = model
        self.decoupled: bool | None = model.decoupled

    def answers(self, request: InferenceRequest, wants_many: bool) -> Iterator[Sent]:
        """What the model answers; what it raises is an error with the server's text."""
        model = self._model
        if model.link in host.chain.get() and model.instance_count < 2:
            finding = rules.find("self-call", name=model.name)
            findings.warn("self-call", finding.message, model.execute_line)
            raise InferError(finding.message)
        model.validate(request)
        try:
            (exchange,) = model.run([request])
        except DevkitError as problem:
            yield _error(problem.message)
            return
        except findings.ContractWarning:
            raise
        except Exception as problem:  # the callee is a user's model
            yield _error(
                f"Failed to process the request(s) for model '{model.instance_name}', message: "
                f"{failures.text(problem)}"
            )
            return
        yield from (Sent(model.delivered(request, one), final) for one, final in exchange.sent)


class LiveCallee:
    """A model of a running server."""

    decoupled: bool | None = None

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def answers(self, request: InferenceRequest, wants_many: bool) -> Iterator[Sent]:
        """What the server answers."""
        inputs = requests.arrays(request.inputs())
        options: dict[str, Any] = {
            "outputs": list(request.requested_output_names()),
            "id": request.request_id(),
            "parameters": json.loads(request.parameters()),
        }
        if request.timeout():
            options["timeout"] = request.timeout() / 1e6
        if not wants_many:
            options["sequence_id"] = request.correlation_id()
            options["sequence_start"] = bool(request.flags() & 1)
            options["sequence_end"] = bool(request.flags() & 2)
            yield Sent(self._made(self._client.infer(self._name, inputs, **options)), True)
            return
        for outputs in self._client.stream(self._name, inputs, **options):
            yield Sent(self._made(outputs), False)
        yield Sent(None, True)

    @staticmethod
    def _made(outputs: Mapping[str, Array]) -> InferenceResponse:
        return InferenceResponse([Tensor(name, array) for name, array in outputs.items()])


class Backends:
    """Every model that may be asked, by name."""

    def __init__(
        self,
        given: Mapping[str, Answerer] | Client | None,
        repository: Path | None,
        load: Callable[..., ModelUnderTest],
    ) -> None:
        self._given = dict(given) if isinstance(given, Mapping) else {}
        self._client = given if isinstance(given, Client) else None
        self._repository = repository
        self._load = load
        self._loaded: dict[str, ModelUnderTest] = {}
        self._lock = threading.RLock()

    def find(self, name: str, version: int = -1) -> Callee | None:
        """Who answers for `name`, None where nobody does. LoadError where it does not load."""
        found = self._given.get(name)
        if isinstance(found, Client):
            return LiveCallee(found, name)
        if self._client is not None and found is None:
            return LiveCallee(self._client, name)
        if found is not None and callable(found):
            return FunctionCallee(found)
        model = self._model(name, found)
        if model is None or (version > 0 and str(version) != model.version):
            return None
        return ModelCallee(model)

    def _model(self, name: str, given: Any) -> ModelUnderTest | None:
        if given is not None and not isinstance(given, (str, Path)):
            model: ModelUnderTest = given
            return model
        with self._lock:
            if name not in self._loaded:
                path = Path(given) if given is not None else self._in_repository(name)
                if path is None:
                    return None
                self._loaded[name] = self._load(path, model_name=name, backends=self)
            return self._loaded[name]

    def _in_repository(self, name: str) -> Path | None:
        if self._repository is None or "/" in name or not name:
            return None
        path = self._repository / name
        return path if (path / "config.pbtxt").exists() or _versions(path) else None

    def operate(self, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """load_model, unload_model and is_model_ready; the answer the stub would get."""
        name = arguments["name"]
        with self._lock:
            try:
                if operation == "is_model_ready":
                    return {"value": self._is_ready(name, arguments.get("version") or "")}
                if operation == "unload_model":
                    model = self._loaded.pop(name, None)
                    if model is not None:
                        model.close()
                    return {}
                return self._reload(name, arguments.get("config") or "")
            except DevkitError as problem:
                return {"error": problem.message}

    def _is_ready(self, name: str, version: str) -> bool:
        if self._client is not None and name not in self._given:
            return any(one.name == name and one.state == "READY" for one in self._client.models())
        found = self.find(name)
        return found is not None and (
            not isinstance(found, ModelCallee) or version in ("", found._model.version)
        )

    def _reload(self, name: str, config: str) -> dict[str, Any]:
        if name in self._given:
            return {}
        if self._client is not None:
            self._client.load(name, json.loads(config) if config else None)
            return {}
        path = self._in_repository(name)
        if path is None:
            return {"error": f"failed to load '{name}', failed to poll from model repository"}
        options: dict[str, Any] = {"config": json.loads(config)} if config else {}
        fresh = self._load(path, model_name=name, backends=self, **options)
        old = self._loaded.pop(name, None)
        if old is not None:
            old.close()
        self._loaded[name] = fresh
        return {}

    def close(self) -> None:
        """End the models that were loaded to be asked."""
        loaded, self._loaded = self._loaded, {}
        for model in loaded.values():
            model.close()


def _versions(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [one for one in folder.iterdir() if one.name.isdigit() and one.is_dir()]
    return []


class _Call:
    """One call under way, in the form that the stub's own code waits for."""

    def __init__(self, request: InferenceRequest, described: BlsCall) -> None:
        self.request = request
        self.described = described
        self.answers: deque[tuple[dict[str, Any], list[Any]]] = deque()
        self.source: Iterator[Sent] | None = None


class LocalClient:
    """The model's way to other models; the twin of the stub's client of the bls socket."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends
        self.calls: list[BlsCall] = []

    def infer(
        self, request: InferenceRequest, decoupled: bool, asynchronous: bool = False
    ) -> _Call:
        """Note a request; it runs when somebody waits for it."""
        called = request._called
        if called is None:
            stub_bls.Client._refuse_received()
        tensors = request.inputs()
        described = BlsCall(
            model=called.model,
            inputs=requests.arrays(tensors),
            outputs=called.outputs,
            version=called.version,
            id=request.request_id(),
            parameters=json.loads(called.parameters),
            correlation_id=request.correlation_id(),
            flags=request.flags(),
            timeout=request.timeout(),
            decoupled=decoupled,
        )
        self.calls.append(described)
        return _Call(requests.received(request), described)

    def wait(self, call: _Call) -> tuple[dict[str, Any], list[Any]]:
        """The next answer to `call`."""
        if call.source is None:
            call.source = self._answers(call.described, call.request)
        sent = next(call.source, None)
        if sent is None:
            raise TritonModelException("The server is gone.")
        header: dict[str, Any] = {"final": sent.final}
        response = sent.response
        if response is None:
            return header, []
        error = response.error()
        if error is not None:
            return {**header, "error": error.message()}, []
        pairs = [requests.wire(tensor) for tensor in response.output_tensors()]
        header["outputs"] = [described for described, _ in pairs]
        header["parameters"] = response._parameters
        return header, [data for _, data in pairs]

    async def wait_async(self, call: _Call) -> tuple[dict[str, Any], list[Any]]:
        """The same for a coroutine: what is asked runs on a thread of its own meanwhile."""
        import asyncio

        return await asyncio.to_thread(self.wait, call)

    def cancel(self, call: _Call) -> None:
        """Give a call up; its answer still comes."""
        requests.cancel(call.request)

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """An operation that is no inference, and its answer."""
        return self._backends.operate(operation, arguments)

    def _answers(self, call: BlsCall, request: InferenceRequest) -> Iterator[Sent]:
        prefix = _PREFIX.format(call.model)
        try:
            callee = self._backends.find(call.model, call.version)
        except DevkitError as problem:
            yield _error(f"{prefix}{_NOT_READY.format(call.model)} ({problem.message})")
            return
        if callee is None:
            yield _error(prefix + _NOT_READY.format(call.model))
            return
        if callee.decoupled and not call.decoupled:
            yield _error(
                f"{prefix}Model {call.model} is using the decoupled. The current BLS request call "
                "doesn't support models using the decoupled transaction policy. Please use "
                "'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
                "models.'"
            )
            return
        try:
            yield from callee.answers(request, call.decoupled)
        except InferError as problem:
            yield _error(prefix + problem.message)
