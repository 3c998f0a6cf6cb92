"""A real stub process at the other end of real socket pairs, driven by the test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devkit
from devkit.transport import dtypes, memory, messages
from devkit.transport.channel import Channel
from devkit.transport.messages import Place, Plan, WireRequest, WireResponse

STUB = Path(devkit.__file__).parent / "stub" / "__main__.py"
PYTHON = os.environ.get("DEVKIT_TEST_STUB_PYTHON", sys.executable)
"""The interpreter the stubs run in: any Python from 3.9 on that has NumPy."""


HEAD = """\
import asyncio, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def X(request): return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
def answer(array, name="Y"): return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])

class TritonPythonModel:
"""
"""What comes before a model that a test gives by its methods alone."""


@dataclass
class Batch:
    """What came back for one EXECUTE: responses, or the failure's JSON."""

    responses: list[WireResponse] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    holds: tuple[int, ...] = ()

    @property
    def error(self) -> str:
        assert self.failure is not None
        return str(self.failure["error"])


class StubProcess:
    """The runtime's side of one stub: says what the runtime would say, and remembers the answers."""

    def __init__(self, model_dir: Path, popen: subprocess.Popen[bytes] | None, ends: list[Any]):
        self.model_dir = model_dir
        self.popen = popen
        self.data, self.control, self.bls = ends
        self.signatures: dict[int, Any] = {}
        self.regions: dict[int, memory.Region] = {}
        self.dropped: list[int] = []
        self.held: list[int] = []
        self.sent: list[WireResponse] = []  # by response senders
        self._sequence = 0

    # -- talking --------------------------------------------------------------------------------

    def initialize(self, action: str = "load", **changes: Any) -> dict[str, Any]:
        """Send INITIALIZE; returns READY's JSON, or FAILED's with `failed` set."""
        name = self.model_dir.name
        version = self.model_dir / "1"
        described: dict[str, Any] = {
            "action": action,
            "args": {
                "model_config": "{}", "model_instance_kind": "CPU",
                "model_instance_name": f"{name}_0", "model_instance_device_id": "0",
                "model_repository": str(self.model_dir), "model_version": "1", "model_name": name,
            },
            "model_path": str(version / "model.py"), "version_dir": str(version),
            "model_dir": str(self.model_dir), "module_name": "1.model", "config": {"name": name},
            "decoupled": False, "outputs": ["Y"], "inline_limit": 1024,
            "response_slab": {"name": memory.slab_name(os.getpid(), name, "responses"),
                              "size": 1 << 16, "step": 1 << 16},
            "env": {},
        }  # fmt: skip
        described.update(changes)
        self.data.send(messages.json_frame(messages.INITIALIZE, described))
        received = self.data.receive()
        if received is None:
            return {"failed": True, "error": None}
        kind, payload = received
        answer: dict[str, Any] = messages.parse_json(payload)
        answer["failed"] = kind == messages.FAILED
        return answer

    def plan(self, slot: int, inputs: dict[str, Any], outputs: tuple[str, ...] = ("Y",)) -> None:
        """Announce a plan; `inputs` maps names to (datatype, shape)."""
        described = tuple((name, kind, tuple(shape)) for name, (kind, shape) in inputs.items())
        self.data.send(messages.plan_frame(slot, Plan(described, outputs)))

    def execute(self, *requests: WireRequest, batch: int = 1) -> None:
        self.data.send(messages.execute_frame(batch, list(requests)))

    def request(self, *tensors: Any, slot: int = 0, **options: Any) -> WireRequest:
        """A request of the next number; arrays are sent inline."""
        self._sequence += 1
        data = [
            tensor if isinstance(tensor, (Place, bytes)) else bytes(dtypes.to_data(tensor))
            for tensor in tensors
        ]
        return WireRequest(self._sequence, slot, data, **options)

    def infer(self, *tensors: Any, **options: Any) -> Batch:
        """One request as one batch, and what came of it."""
        self.execute(self.request(*tensors, **options))
        return self.result()

    def result(self) -> Batch:
        """Read until a batch has ended."""
        batch = Batch()
        while True:
            received = self.data.receive()
            assert received is not None, "the stub ended"
            kind, payload = received
            if kind == messages.RESULT:
                batch.responses = messages.parse_result(payload, self.signatures).responses
                return batch
            if kind == messages.FAILURE:
                batch.failure = messages.parse_json(payload)
                return batch
            if kind == messages.HOLD:
                batch.holds += messages.parse_sequences(payload)
            self._note(kind, payload)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Read frames that belong to no batch until `condition` holds."""
        while not condition():
            received = self.data.receive()
            assert received is not None, "the stub ended"
            self._note(*received)

    def _note(self, kind: int, payload: memoryview) -> None:
        if kind == messages.SIGNATURE:
            slot, signature = messages.parse_signature(payload)
            self.signatures[slot] = signature
        elif kind == messages.REGION:
            slot, (path, offset, size) = messages.parse_slot(payload)
            self.regions[slot] = memory.Region(Path(path), offset=offset, size=size)
        elif kind == messages.RESPONSES:
            self.sent += messages.parse_responses(payload, self.signatures)
        elif kind == messages.DROP:
            self.dropped += messages.parse_sequences(payload)
        elif kind == messages.HOLD:
            self.held += messages.parse_sequences(payload)
        else:
            raise AssertionError(f"unexpected frame {kind}")

    def arrays(self, response: WireResponse) -> dict[str, np.ndarray[Any, Any]]:
        """Outputs of a response by name; places are resolved."""
        assert response.kind == messages.OK, response
        signature = self.signatures[response.signature]
        found = {}
        for (name, datatype, shape), tensor in zip(
            signature.outputs, response.tensors, strict=True
        ):
            data = (
                self.regions[tensor.region].view(tensor.offset, tensor.size)
                if isinstance(tensor, Place)
                else tensor
            )
            found[name] = dtypes.to_array(datatype, shape, bytes(data))
        return found

    def report(self) -> dict[str, Any]:
        """The next message on the control socket."""
        received = self.control.receive()
        assert received is not None
        answer: dict[str, Any] = messages.parse_json(received[1])
        return answer

    def tell(self, **message: Any) -> None:
        """Say something on the control socket."""
        self.control.send(messages.json_frame(messages.CONTROL, message))

    def called(self) -> tuple[dict[str, Any], list[Any]]:
        """The next BLS call."""
        while True:
            received = self.bls.receive()
            assert received is not None
            if received[0] == messages.BLS_REQUEST:
                return messages.parse_bls(received[1])
            if received[0] == messages.REGION:
                slot, (path, offset, size) = messages.parse_slot(received[1])
                self.regions[slot] = memory.Region(Path(path), offset=offset, size=size)

    def answer(self, header: dict[str, Any], *tensors: Any, **answer: Any) -> None:
        """Answer a BLS call."""
        response = {"call": header["call"], "final": True, "error": None, **answer}
        self.bls.send(messages.bls_frame(messages.BLS_RESPONSE, response, list(tensors)))

    def finalize(self) -> dict[str, Any]:
        """FINALIZE, and the stub's answer to it."""
        self.data.send(messages.frame(messages.FINALIZE))
        while True:
            received = self.data.receive()
            assert received is not None
            if received[0] == messages.FINALIZED:
                answer: dict[str, Any] = messages.parse_json(received[1])
                return answer
            self._note(*received)

    def close(self) -> None:
        for end in (self.data, self.control, self.bls):
            end.close()
        if self.popen is not None:
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                raise
            if self.popen.stdout is not None:
                self.popen.stdout.close()
        for region in self.regions.values():
            region.close()
            if region.path.name.startswith(f"devkit-{os.getpid()}-"):
                region.path.unlink(missing_ok=True)


def spawn(python: str = PYTHON, **options: Any) -> tuple[Any, list[Channel]]:
    """Start a stub by exec; its process and this side's channels."""
    pairs = [socket.socketpair() for _ in range(3)]
    command = [python, "-Xfrozen_modules=off", str(STUB)]
    for name, (_, theirs) in zip(("--data", "--control", "--bls"), pairs, strict=True):
        command += [name, str(theirs.fileno())]
    popen = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[theirs.fileno() for _, theirs in pairs],
        **options,
    )
    for _, theirs in pairs:
        theirs.close()
    return popen, [Channel(ours) for ours, _ in pairs]


@pytest.fixture
def stub_process() -> type[StubProcess]:
    """For tests that start the process themselves: `stub_process(folder, popen, channels)`."""
    return StubProcess


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes `model.py` (and other files) of a model and returns the model's folder."""

    def write(code: str, name: str = "m", **files: str) -> Path:
        version = tmp_path / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        code = textwrap.dedent(code).strip("\n") + "\n"
        if "class TritonPythonModel" not in code and code.startswith(("def ", "async ", "@")):
            code = HEAD + textwrap.indent(code, "    ")
        (version / "model.py").write_text(code)
        for path, text in files.items():
            (version / f"{path}.py").write_text(textwrap.dedent(text).lstrip("\n"))
        return tmp_path / name

    return write


@pytest.fixture
def start(write_model: Callable[..., Path]) -> Iterator[Callable[..., StubProcess]]:
    """Starts a stub for a model's code; it is not initialized yet."""
    running: list[StubProcess] = []

    def run(code: str, name: str = "m", **files: str) -> StubProcess:
        folder = write_model(code, name, **files)
        stub = StubProcess(folder, *spawn())
        running.append(stub)
        return stub

    yield run
    for stub in running:
        stub.close()


@pytest.fixture
def serve(start: Callable[..., StubProcess]) -> Callable[..., StubProcess]:
    """Starts and initializes a stub; keyword options go into INITIALIZE."""

    def run(code: str, **options: Any) -> StubProcess:
        stub = start(code)
        ready = stub.initialize(**options)
        assert not ready["failed"], ready
        return stub

    return run
