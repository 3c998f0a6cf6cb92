"""An engine without processes, for the front ends' tests: models are functions in this process.

Checks, regions and configs are the real ones (`devkit.core.checks`, ...); what is left out is
everything behind the queue. The models answer like those the recorded answers were taken from.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from devkit.contract import config as contract
from devkit.core import checks
from devkit.core.regions import Regions
from devkit.core.request import OutputSignature, Request, Response, SharedPlace, TensorSpec
from devkit.core.statistics import Counters, to_message
from devkit.errors import Code, InferError, LoadError
from devkit.transport import dtypes
from devkit.transport.memory import Slab

_numbers = itertools.count()
Answer = list[tuple[str, np.ndarray]] | InferError
"""Outputs of one response, or an error."""


@dataclass
class MemoryModel:
    name: str
    config: Any
    function: Callable[[dict[str, np.ndarray]], list[Answer]]
    version: str = "1"
    versions: list[str] = field(default_factory=lambda: ["1"])
    model_dir: Path = Path("/")
    asks_ready: bool = False
    counters: Counters = field(default_factory=Counters)
    generation: int = field(default_factory=lambda: next(_numbers))

    async def is_ready(self) -> bool:
        return True

    def __post_init__(self) -> None:
        self.version_text = self.version
        self.inputs = contract.inputs(self.config)
        self.outputs = contract.outputs(self.config)
        self.max_batch_size = self.config.max_batch_size
        self.decoupled = self.config.model_transaction_policy.decoupled
        self.signatures: dict[Any, OutputSignature] = {}


@dataclass
class IndexEntry:
    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@dataclass
class TraceSettings:
    trace_level: list[str] = field(default_factory=lambda: ["OFF"])
    trace_rate: str = "1000"
    trace_count: str = "-1"
    log_frequency: str = "0"
    trace_file: str = ""
    trace_mode: str = "triton"


@dataclass
class LogSettings:
    log_file: str = ""
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0
    log_format: str = "default"


@dataclass
class Options:
    model_control_mode: str = "explicit"


class MemoryEngine:
    tracer = None
    server_name = "triton"
    server_version = "2.51.0"
    extensions = (
        "classification", "sequence", "model_repository", "model_repository(unload_dependents)",
        "schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory",
        "binary_tensor_data", "parameters", "statistics", "trace", "logging",
    )  # fmt: skip

    def set_verbosity(self, level: int) -> None:
        """There is no stub to tell."""

    def __init__(self, *models: MemoryModel) -> None:
        self.loaded = {model.name: model for model in models or standard_models()}
        self.available = dict(self.loaded)
        self.regions = Regions()
        self.trace_settings = TraceSettings()
        self.log_settings = LogSettings()
        self.options = Options()
        self.cancelled: list[Request] = []
        self.requests: list[Request] = []
        self.responses: list[Response] = []
        self.released = 0
        self.delay: float = 0.0
        self.is_ready = True
        self.load_calls: list[Any] = []
        self._slabs: dict[str, Slab] = {}

    # -- what front ends ask ---------------------------------------------------------------------

    def live(self) -> bool:
        return True

    def ready(self) -> bool:
        return self.is_ready

    def model(self, name: str, version: str = "") -> MemoryModel:
        model = self.loaded.get(name)
        if model is None:
            raise checks.unknown_model(name, unavailable=name in self.available)
        if version not in ("", model.version):
            raise checks.unknown_model(name, version)
        return model

    def model_ready(self, name: str, version: str = "") -> bool:
        model = self.loaded.get(name)
        return model is not None and version in ("", model.version)

    def models(self) -> list[MemoryModel]:
        return list(self.loaded.values())

    def index(self, ready_only: bool = False) -> list[IndexEntry]:
        entries = []
        for name, model in sorted(self.available.items()):
            if name in self.loaded:
                entries.append(IndexEntry(name, model.version, "READY"))
            elif not ready_only:
                entries.append(IndexEntry(name, model.version, "UNAVAILABLE", "unloaded"))
        return entries

    def require_explicit_control(self) -> None:
        if self.options.model_control_mode != "explicit":
            text = "explicit model load / unload is not allowed if polling is enabled"
            raise InferError(text, Code.UNAVAILABLE)

    async def load(self, name: str, config: Any = None, files: Any = None) -> None:
        self.load_calls.append((name, config, files))
        await asyncio.sleep(0)
        if name not in self.available:
            text = f"failed to load '{name}', failed to poll from model repository"
            raise LoadError(text, Code.INTERNAL)
        self.loaded[name] = self.available[name]

    async def unload(self, name: str, dependents: bool = False) -> None:
        await asyncio.sleep(0)
        self.loaded.pop(name, None)

    def statistics(self, name: str = "", version: str = "") -> list[Any]:
        if name and name not in self.loaded:
            raise InferError(f"requested model '{name}' is not available")
        if name and version not in ("", self.loaded[name].version):
            raise InferError(f"requested model version is not available for model '{name}'")
        return [
            to_message(model.name, model.version, model.counters)
            for _, model in sorted(self.loaded.items())
            if name in ("", model.name)
        ]

    def request_slab(self, name: str) -> Slab:
        self.model(name)
        if name not in self._slabs:
            slab = Slab(f"devkit-{os.getpid()}-test-{name}-{next(_numbers)}", size=1 << 20)
            self._slabs[name] = slab
        return self._slabs[name]

    def close(self) -> None:
        for slab in self._slabs.values():
            slab.unlink()

    @property
    def slab_use(self) -> int:
        return sum(slab.used for slab in self._slabs.values())

    # -- requests --------------------------------------------------------------------------------

    def infer(self, request: Request) -> None:
        model = self.model(request.model_name, request.model_version)
        memo = request.description.memo
        if model.generation not in memo:
            memo[model.generation] = checks.check_description(
                request, model.name, model.inputs, model.outputs, model.max_batch_size
            )
        fit = memo[model.generation]
        checks.check_buffers(request, model.name, fit)
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        if self.delay:
            loop.call_later(self.delay, self._run, model, request)
        else:
            loop.call_soon(self._run, model, request)

    def cancel(self, request: Request) -> None:
        request.cancelled = True
        self.cancelled.append(request)

    def _run(self, model: MemoryModel, request: Request) -> None:
        started = time.monotonic_ns()
        request.times.queue_start = request.times.compute_start = started
        arrays = {}
        for spec, buffer in zip(request.description.inputs, request.buffers, strict=True):
            data = buffer.view() if isinstance(buffer, SharedPlace) else buffer
            arrays[spec.name] = dtypes.to_array(spec.datatype, spec.shape, bytes(data))
        answers = model.function(arrays)
        model.counters.executed([request], 1, started, time.monotonic_ns())
        for block in request.blocks:
            block.release()
        request.blocks = []
        request.done = True
        for index, answer in enumerate(answers):
            final = not model.decoupled and index == len(answers) - 1
            self._respond(model, request, answer, final)
        if model.decoupled:
            request.on_response(Response(request, model.name, model.version, empty=True))

    def _respond(self, model: MemoryModel, request: Request, answer: Answer, final: bool) -> None:
        response = Response(request, model.name, model.version, final=final)
        self.responses.append(response)
        response.on_release = self._released
        if isinstance(answer, InferError):
            response.error = answer
        else:
            wanted = request.description.outputs
            kept = [
                (name, array)
                for name, array in answer
                if name in model.outputs and (not wanted or name in wanted)
            ]
            specs = tuple(
                TensorSpec(name, str(dtypes.datatype_of(array)), array.shape)
                for name, array in kept
            )
            response.signature = model.signatures.setdefault(specs, OutputSignature(specs))
            response.buffers = [memoryview(dtypes.to_data(array)) for _, array in kept]
        request.on_response(response)

    def _released(self) -> None:
        self.released += 1


# -- models ----------------------------------------------------------------------------------------


def model(
    name: str,
    function: Callable[[dict[str, np.ndarray]], list[Answer]],
    inputs: dict[str, tuple[str, list[int]]],
    outputs: dict[str, tuple[str, list[int]]],
    *,
    batch: int = 0,
    decoupled: bool = False,
    optional: bool = False,
) -> MemoryModel:
    config = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=batch)
    for key, (datatype, dims) in inputs.items():
        config.input.add(name=key, data_type=f"TYPE_{datatype}", dims=dims, optional=optional)
    for key, (datatype, dims) in outputs.items():
        config.output.add(name=key, data_type=f"TYPE_{datatype}", dims=dims)
    if decoupled:
        config.model_transaction_policy.decoupled = True
    return MemoryModel(name, contract.complete(config, name), function)


def _modes(arrays: dict[str, np.ndarray]) -> list[Answer]:
    mode, x = arrays["MODE"].reshape(-1)[0].decode(), arrays["X"]
    if mode == "ok":
        return [[("Y", x * 2)]]
    if mode == "raise":
        text = (
            "Failed to process the request(s) for model 'modes_0', message: ValueError: my value "
            "error\n\nAt:\n  /path/modes/1/model.py(17): execute\n"
        )
        return [InferError(text, Code.INTERNAL)]
    if mode == "err":
        return [InferError("my triton error", Code.INTERNAL)]
    if mode.startswith("code:"):
        return [InferError("coded", Code[mode[5:]])]
    if mode == "nooutput":
        return [[]]
    if mode == "f64":
        return [[("Y", x.astype(np.float64))]]
    if mode == "dup":
        return [[("Y", x), ("Y", x + 1)]]
    if mode == "wrongshape":
        return [[("Y", np.zeros((3, 5, 7), np.float32))]]
    raise AssertionError(mode)


def _decoupled(arrays: dict[str, np.ndarray]) -> list[Answer]:
    count = int(arrays["N"].reshape(-1)[0])
    answers: list[Answer] = [
        [("OUT", np.array([i], np.int32)), ("text_output", np.array([b"t%d" % i], object))]
        for i in range(abs(count))
    ]
    if count < 0:
        answers.append(InferError("late error", Code.INTERNAL))
    return answers


def _text(arrays: dict[str, np.ndarray]) -> list[Answer]:
    text = np.array([b"> " + each for each in arrays["text_input"].reshape(-1)], object)
    return [[("text_output", text)]]


def _same(arrays: dict[str, np.ndarray]) -> list[Answer]:
    return [[("O" + name[1:], array) for name, array in arrays.items()]]


TYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
    "FP32", "FP64", "STRING",
)  # fmt: skip


def add_sub() -> MemoryModel:
    def function(arrays: dict[str, np.ndarray]) -> list[Answer]:
        a, b = arrays["INPUT0"], arrays["INPUT1"]
        return [[("OUTPUT0", a + b), ("OUTPUT1", a - b)]]

    return model(
        "add_sub", function,
        {"INPUT0": ("FP32", [4]), "INPUT1": ("FP32", [4])},
        {"OUTPUT0": ("FP32", [4]), "OUTPUT1": ("FP32", [4])},
    )  # fmt: skip


def identity() -> MemoryModel:
    def function(arrays: dict[str, np.ndarray]) -> list[Answer]:
        return [[("OUT", arrays["IN"])]]

    return model("identity", function, {"IN": ("FP32", [-1])}, {"OUT": ("FP32", [-1])})


def standard_models() -> list[MemoryModel]:
    both = ({"MODE": ("STRING", [1]), "X": ("FP32", [-1])}, {"Y": ("FP32", [-1])})
    return [
        model("modes", _modes, *both),
        model("modes_b", _modes, *both, batch=4),
        model(
            "text", _text, {"text_input": ("STRING", [1])}, {"text_output": ("STRING", [-1])}
        ),
        model(
            "dec", _decoupled, {"N": ("INT32", [1])},
            {"OUT": ("INT32", [1]), "text_output": ("STRING", [1])}, decoupled=True,
        ),
        model(
            "types", _same, {f"I_{each}": (each, [-1]) for each in TYPES},
            {f"O_{each}": (each, [-1]) for each in TYPES}, optional=True,
        ),
        model(
            "args", lambda arrays: [[("Y", arrays["X"])]], {"X": ("FP32", [4])},
            {"Y": ("FP32", [4])}, batch=4,
        ),
        add_sub(),
        identity(),
    ]  # fmt: skip


def string_bytes(*values: bytes) -> bytes:
    """BYTES data of `values`."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)
