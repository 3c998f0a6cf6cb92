"""A model loaded into the test's own process: `initialize`, `execute`, `finalize`, and questions.

The stub's own code loads the model and judges what `execute` returns; the runtime's own checks say
whether a request fits. An exception of the model's reaches the test as it is, with its traceback,
so `pytest.raises(ValueError)` and a debugger work as with any function.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devkit.contract import config as contract
from devkit.contract import rules
from devkit.control.client import Client
from devkit.core import checks
from devkit.errors import Code, DevkitError, InferError, LoadError
from devkit.stub import event_loop, pb_utils
from devkit.stub.model import Refused, StageError, UserModel
from devkit.stub.process import Stub
from devkit.stub.requests import (
    REQUEST_RELEASE_ALL,
    REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    PlanState,
)
from devkit.stub.responses import InferenceResponse
from devkit.testing import findings, host, requests
from devkit.testing.bls import Answerer, Backends, BlsCall, LocalClient
from devkit.testing.host import Control, Exchange, Host, LogLine
from devkit.testing.modules import Surroundings
from devkit.transport.messages import Plan

Array = requests.Array
Config = str | os.PathLike[str] | Mapping[str, Any] | Any | None
_SECONDS = 30.0


def load_model(
    source: str | os.PathLike[str] | type,
    config: Config = None,
    *,
    bls: Mapping[str, Answerer] | Client | None = None,
    repository: str | os.PathLike[str] | None = None,
    initialize: bool = True,
    auto_complete: bool = True,
    verbose: bool = False,
    backends: Backends | None = None,
    **args: str,
) -> ModelUnderTest:
    """Load a model into this process and initialize it.

    `source` is a model's folder, a version's, a `model.py`, or a `TritonPythonModel` class.
    `config` is the text of a `config.pbtxt`, its path, a dict or a ModelConfig; without one the
    folder's own is read, and `auto_complete_config` completes it. `args` replace what `initialize`
    is given (`model_name="other"`, `model_instance_kind="GPU"`, ...).

    Requests that the model makes to others are answered by `bls`: for each name a function of the
    inputs, a model loaded with this function, or a path; or a live runtime's client for all. Names
    that are not there are looked for in `repository`, the folder's own by default.

    Use it in a `with` block, or call `close()`: that finalizes the model. Raises what the model
    raises, and LoadError where there is none.
    """
    found = _Source.of(source, args)
    text = _read_config(config if config is not None else found.config)
    if text.HasField("ensemble_scheduling"):
        raise LoadError(
            f"model '{found.name}' is an ensemble: it has no code to test in this process",
            remedy="ask it in a live runtime (the fixture `live_model`)",
        )
    within = Path(repository) if repository is not None else found.repository
    others = backends or Backends(bls, within, load_model)
    model = ModelUnderTest(found, others, args, owns=backends is None, verbose=verbose)
    try:
        model.load(text, auto_complete=auto_complete)
        if initialize:
            model.initialize()
    except BaseException:
        model.discard()
        raise
    return model


def infer(
    model: ModelUnderTest, inputs: Mapping[str, Any] | InferenceRequest, **options: Any
) -> dict[str, Array]:
    """One inference, NumPy in and out; `options` are those of `request`."""
    return model.infer(inputs, **options)


class _Source:
    """Where a model is: its file, its folders, its name, or the class it already is."""

    def __init__(self, file: Path, name: str, version: str, kind: type | None = None) -> None:
        self.kind = kind
        self.file = file
        self.version_dir = file.parent
        in_repository = kind is None and file.parent.name == version
        self.model_dir = file.parent.parent if in_repository else file.parent
        self.repository = self.model_dir.parent if in_repository else None
        self.name = name or self.model_dir.name
        self.version = version
        self.module = f"{version}.{file.stem}" if in_repository else file.stem
        config = self.model_dir / "config.pbtxt"
        self.config = config if kind is None and config.is_file() else None

    @classmethod
    def of(cls, source: str | os.PathLike[str] | type, args: Mapping[str, str]) -> _Source:
        name, version = args.get("model_name", ""), args.get("model_version", "")
        if isinstance(source, type):
            file = getattr(sys.modules.get(source.__module__), "__file__", None)
            home = Path(file) if file else Path.cwd() / "model.py"
            return cls(home.absolute(), name or "model", version or "1", source)
        path = Path(source).absolute()
        if path.is_file():
            folder = path.parent.name
            return cls(path, name, version or (folder if folder.isdigit() else "1"))
        return cls._in_folder(path, name, version)

    @classmethod
    def _in_folder(cls, path: Path, name: str, version: str) -> _Source:
        if not path.is_dir():
            raise LoadError(
                f"no model at {path}", remedy="name a model's folder, a model.py or a class"
            )
        if not path.name.isdigit() or not (path / "model.py").exists():
            config_file = path / "config.pbtxt"
            config = _read_config(config_file if config_file.is_file() else None)
            policy = contract.normalize(config, path.name).version_policy
            found = [int(one.name) for one in path.iterdir() if one.is_dir() and _number(one.name)]
            served = [int(version)] if version else contract.versions_served(policy, found)
            if not served and not (path / "model.py").exists():
                raise LoadError(f"{path} has no version folder with a model")
            file_name = config.default_model_filename or "model.py"
            path = path / str(served[-1]) if served else path
            file = path / file_name
        else:
            file = path / "model.py"
        if not file.is_file():
            raise LoadError(f"there is no {file}", remedy="a version folder holds a model.py")
        return cls(file, name, version or (path.name if path.name.isdigit() else "1"))


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _read_config(given: Config) -> Any:
    if given is None:
        return contract.ModelConfig()
    if isinstance(given, os.PathLike):
        return contract.parse(Path(given).read_text(encoding="utf-8"), str(given))
    if isinstance(given, str):
        return contract.parse(given)
    if isinstance(given, Mapping):
        return contract.from_dict(given)
    return given


class _Judge(Stub):
    """The stub's own judgement of an answer, without its sockets."""

    def __init__(self, model: UserModel, link: Host) -> None:
        self._model = model
        self._link = link
        self._decoupled = link.decoupled

    def answer(self, asked: list[InferenceRequest]) -> list[Any]:
        """What `execute` answers, checked; raises what it raises, or Refused."""
        answer = self._model.execute(asked)
        if type(answer) is not list or self._decoupled:
            answer = self._unusual(answer, asked)
        return self._checked(answer, asked)

    def _background_failed(self, problem: BaseException) -> None:
        self._link.failed(problem)  # type: ignore[attr-defined]


class ModelUnderTest:
    """One model in this process.

    Attributes:
        name, version: what it is served as.
        config: the completed ModelConfig; `config_text` is the JSON that `initialize` gets.
        inputs, outputs: what it declares, by name.
        args: what `initialize` gets.
        instance: the `TritonPythonModel` itself.
        module: the module it comes from.
    """

    __test__ = False  # pytest: no class of tests

    def __init__(
        self, source: _Source, backends: Backends, args: Mapping[str, str], *, owns: bool,
        verbose: bool,
    ) -> None:  # fmt: skip
        self.name = source.name
        self.version = source.version
        self.args: dict[str, str] = dict(args)
        self._source = source
        self._own_backends = backends if owns else None
        self._client = LocalClient(backends)
        self._control = Control(self.name, verbose)
        self._user = UserModel(
            str(source.file), str(source.version_dir), str(source.model_dir), source.module
        )
        folders = (str(source.version_dir), str(source.model_dir))
        self._surroundings = Surroundings(() if source.kind else folders)
        self._lock = threading.RLock()
        self._state = "new"
        self.link = Host(
            self._control, self._client, self.args, str(source.version_dir), decoupled=False
        )
        self._judge = _Judge(self._user, self.link)

    def __enter__(self) -> ModelUnderTest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ModelUnderTest {self.name} version {self.version}, {self._state}>"

    # -- life ------------------------------------------------------------------------------------

    def load(self, config: Any, *, auto_complete: bool) -> None:
        """Import the model and complete its configuration; `load_model` calls it."""
        pb_utils.install()
        normalized = contract.normalize(config, self.name)
        host.attach(self.link)
        with self._running(), self._as_it_is():
            if self._source.kind is None:
                self._user.load()
            else:
                self._user._class = self._source.kind
            if auto_complete:
                answer = self._user.auto_complete(contract.auto_complete_input(normalized))
                config = contract.from_dict(answer)
        self._describe(contract.complete(config, self.name))

    def _describe(self, config: Any) -> None:
        self.config = config
        self.config_text = contract.to_json(config)
        self.inputs = contract.inputs(config)
        self.outputs = contract.outputs(config)
        self.max_batch_size: int = config.max_batch_size
        spec = contract.instances(config)[0]
        self.args = {
            "model_config": self.config_text,
            "model_instance_kind": spec.kind,
            "model_instance_name": spec.name,
            "model_instance_device_id": str(spec.device_id),
            "model_repository": str(self._source.model_dir),
            "model_version": self.version,
            "model_name": self.name,
            **self.args,
        }
        self.decoupled = contract.is_decoupled(config)
        self.instance_count = len(contract.instances(config))
        self.link.args, self.link.decoupled = self.args, self.decoupled
        self._judge = _Judge(self._user, self.link)

    def initialize(self) -> None:
        """Make the instance and call `initialize`; `load_model` does it unless told not to."""
        if self._state != "new":
            raise DevkitError(f"model '{self.name}' is {self._state} already")
        with self._running(), self._as_it_is():
            self._user.initialize(self.args)
        self._state = "initialized"

    def finalize(self) -> None:
        """Call `finalize`; raises what it raises."""
        if self._state != "initialized":
            return
        self._state = "finalized"
        with self._running():
            problem = self._user.finalize()
        if problem is not None:
            raise problem

    def close(self) -> None:
        """Finalize the model and those that were loaded for it, and take their modules out."""
        try:
            self.finalize()
        finally:
            self.discard()

    def discard(self) -> None:
        """Let go of everything without finalizing."""
        self._state = "finalized"
        host.detach(self.link)
        self._surroundings.leave()
        if self._own_backends is not None:
            self._own_backends.close()

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self._surroundings.entered(), host.running(self.link):
            yield

    @contextmanager
    def _as_it_is(self) -> Iterator[None]:
        """A failure of the model's own code reaches the test as the model raised it."""
        try:
            yield
        except StageError as stage:
            problem = stage.__context__
            if problem is None:
                raise LoadError(stage.message, model=self.name, line=stage.line) from None
            raise problem from problem.__cause__

    # -- what there is to look at ------------------------------------------------------------------

    @property
    def instance(self) -> Any:
        """The model object itself, None before `initialize`."""
        return self._user.instance

    @property
    def module(self) -> Any:
        """The module that the model was imported from."""
        return sys.modules[self._user._class.__module__]

    @property
    def instance_name(self) -> str:
        """The instance's name as the server forms it, `double_0`."""
        return self.args["model_instance_name"]

    @property
    def execute_line(self) -> str:
        """`path:line` where `execute` begins."""
        return self._user.execute_line()

    @property
    def logs(self) -> list[LogLine]:
        """What the model wrote with `pb_utils.Logger`, so far."""
        return list(self._control.lines)

    @property
    def calls(self) -> list[BlsCall]:
        """The requests that the model made to other models, so far."""
        return list(self._client.calls)

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Values of the model's metrics, as a scrape would find them, by name and labels."""
        return {
            (family.name + suffix, labels): value
            for family in host.METRICS.families()
            if any(holder is self._control for holder, _ in family.holders)
            for suffix, labels, value in family.samples()
        }

    def metric(self, name: str, **labels: str) -> float:
        """The value of one metric; a histogram's have `_count`, `_sum`, `_bucket` in the name."""
        return self.metrics()[name, tuple(sorted(labels.items()))]

    # -- asking ------------------------------------------------------------------------------------

    def request(self, inputs: Mapping[str, Any], **options: Any) -> InferenceRequest:
        """A request of this model's own input types; `options` are those of `request`."""
        return requests.request(inputs, declared=self.inputs, **options)

    def validate(self, asked: InferenceRequest) -> None:
        """Raise InferError, with the server's text, where the server would refuse the request."""
        if not self.inputs:
            return  # nothing is declared: the config is still to be learned
        wanted = sorted(asked._plan.outputs) if self.outputs else []
        request = requests.as_core(asked, self.name, wanted)
        fit = checks.check_description(
            request, self.name, self.inputs, self.outputs, self.max_batch_size
        )
        checks.check_buffers(request, self.name, fit)

    def execute(
        self,
        asked: InferenceRequest | Sequence[InferenceRequest],
        *,
        timeout: float = _SECONDS,
    ) -> list[Any]:
        """Run `execute` on one batch: the response to each request, as the model made it.

        None stands for no response. A decoupled model gives a list of responses for each request,
        when all have their last. Raises what the model raises, InferError where it returned what
        may not be returned, TimeoutError when a promised response does not come.
        """
        batch = [asked] if isinstance(asked, InferenceRequest) else list(asked)
        batch = [requests.received(one) for one in batch]
        for one in batch:
            self.validate(one)
        answered = self.run(batch, timeout)
        if self.decoupled:
            return [exchange.responses for exchange in answered]
        return [next(iter(exchange.responses), None) for exchange in answered]

    def infer(
        self, inputs: Mapping[str, Any] | InferenceRequest, *, timeout: float = _SECONDS,
        **options: Any,
    ) -> dict[str, Array]:  # fmt: skip
        """One inference as a client sees it: arrays in, arrays out.

        `inputs` may be a request. Raises InferError where the model answers with an error.
        """
        answers = list(self.stream(inputs, timeout=timeout, **options))
        if len(answers) != 1:
            raise InferError(
                f"model '{self.name}' sent {len(answers)} responses: use stream()"
                if self.decoupled
                else f"model '{self.name}' gave no response: the client would wait for good"
            )
        return answers[0]

    def stream(
        self, inputs: Mapping[str, Any] | InferenceRequest, *, timeout: float = _SECONDS,
        **options: Any,
    ) -> Iterator[dict[str, Array]]:  # fmt: skip
        """Every response to one request as a client sees it, in the order they were sent."""
        if isinstance(inputs, InferenceRequest):
            asked = requests.received(inputs)
        else:
            asked = self.request(inputs, **options)
        self.validate(asked)
        (exchange,) = self.run([asked], timeout)
        for response in exchange.responses:
            error = response.error()
            if error is not None:
                raise InferError(error.message(), Code(int(error.code())), model=self.name)
            delivered = self.delivered(asked, response)
            assert delivered is not None
            yield requests.arrays(delivered.output_tensors())

    def run(self, batch: list[InferenceRequest], timeout: float = _SECONDS) -> list[Exchange]:
        """Execute requests that fit, again those that the model reschedules, and wait for all."""
        if self._state != "initialized":
            raise DevkitError(f"model '{self.name}' is {self._state}: it cannot execute")
        for one in batch:
            requests.renew(one)
            if not one._plan.outputs:  # as the runtime does: the model is told all of them
                plan = one._plan
                named = Plan(plan.inputs, tuple(self.outputs), plan.parameters)
                one._plan = PlanState(named)
        lock = self._lock if self.instance_count < 2 else threading.RLock()
        with lock, host.exchanges(self.link, batch) as opened:
            self.link.failures.clear()
            with self._running():
                self._execute(opened)
            self._wait(opened, timeout)
            for exchange in opened:
                self._review(exchange)
            return opened

    def _execute(self, opened: list[Exchange]) -> None:
        while opened:
            batch = [exchange.request for exchange in opened]
            self.link.executing = batch[0]._sequence
            try:
                answers = self._judge.answer(batch)
            except Refused as refused:
                raise checks.execute_failed(self.instance_name, str(refused)) from None
            for exchange, response in zip(opened, answers, strict=True):
                if response is not None:
                    exchange.sent.append(host.Sent(response, True))
            opened = [one for one in opened if one.request._release == REQUEST_RELEASE_RESCHEDULE]
            for exchange in opened:
                exchange.request._release = REQUEST_RELEASE_ALL
                exchange.request._sender = None

    def _wait(self, opened: list[Exchange], timeout: float) -> None:
        """Until the promised responses are there: a sender's, or a decoupled model's."""
        awaited = [
            exchange
            for exchange in opened
            if self.decoupled or exchange.request._sender is not None
        ]
        came = host.wait(self.link, awaited, timeout)
        if self.link.failures:
            raise self.link.failures[0]
        if not came:
            late = next(one for one in awaited if not one.final)
            raise TimeoutError(
                f"model '{self.name}' sent {len(late.responses)} responses to request "
                f"{late.request.request_id() or opened.index(late)} and no FINAL flag in "
                f"{timeout:g} s: a client would wait for good"
            )

    def _review(self, exchange: Exchange) -> None:
        """Warn of what the real server would pass on in silence."""
        asked = exchange.request
        shapes = [shape for _, _, shape in asked._plan.inputs]
        batch = shapes[0][0] if self.max_batch_size and shapes and shapes[0] else 0
        if not self.outputs:
            return
        for response in exchange.responses:
            if response.has_error():
                continue
            answered = [requests.wire(tensor)[0] for tensor in response.output_tensors()]
            found = rules.check_response(
                self.outputs, answered, asked.requested_output_names(), batch
            )
            for finding in found:
                if finding.rule.id == "missing-output" and self.decoupled:
                    continue  # a stream's responses may each bring a part
                findings.warn(finding.rule.id, finding.message, self.execute_line)

    def delivered(
        self, asked: InferenceRequest, response: InferenceResponse | None
    ) -> InferenceResponse | None:
        """A response without the outputs that the server drops: undeclared or not asked for."""
        if response is None or response.has_error():
            return response
        wanted = asked.requested_output_names()
        kept = [
            tensor
            for tensor in response.output_tensors()
            if (not self.outputs or tensor.name() in self.outputs)
            and (not wanted or tensor.name() in wanted)
        ]
        made = InferenceResponse(kept)
        made._parameters = response._parameters
        return made

    def is_ready(self) -> bool:
        """What the model's own `is_ready` says, True where it has none."""
        with self._running():
            answer = self._user.is_ready()
            return bool(event_loop.run(answer) if event_loop.is_coroutine(answer) else answer)
