"""Files to run an export with: Docker, compose, KServe; and a client that asks it.

Texts only; what goes into them was measured or read elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from devkit.contract import config as contract
from devkit.contract.recording import Wire
from devkit.contract.releases import Release

_STEP = 64 << 20
_LEAST = 256 << 20


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the files say.

    Attributes:
        shared_memory: bytes of `/dev/shm` the container gets.
        requirements: lines of all models' requirements; empty where the image has everything.
        gpus: whether a model asks for one.
    """

    models: tuple[str, ...]
    release: Release
    shared_memory: int
    requirements: tuple[str, ...] = ()
    gpus: bool = False

    @property
    def megabytes(self) -> int:
        """Shared memory in MiB."""
        return self.shared_memory >> 20


def shared_memory(used: int, instances: int) -> int:
    """Bytes for `/dev/shm`: twice what was used at most, and a start for each instance."""
    need = max(_LEAST, 2 * used + instances * (8 << 20))
    return -(-need // _STEP) * _STEP


def files(of: Deployment) -> dict[str, str]:
    """The files by name; they lie beside the models' folders."""
    made = {
        "docker-run.sh": _docker(of),
        "compose.yaml": _compose(of),
        "kserve.yaml": _kserve(of),
    }
    if of.requirements:
        made["Dockerfile"] = _dockerfile(of)
        made["requirements.txt"] = "".join(f"{line}\n" for line in of.requirements)
    return made


def _docker(of: Deployment) -> str:
    image, build = of.release.image, ""
    if of.requirements:
        image = "models-on-triton"
        build = f'docker build -t {image} "$here"\n'
    gpus = "--gpus all " if of.gpus else ""
    return (
        "#!/bin/sh\n"
        f"# Serves the models of this folder on Triton {of.release.name}.\n"
        'here="$(cd "$(dirname "$0")" && pwd)"\n'
        f"{build}"
        f"exec docker run --rm {gpus}--shm-size={of.megabytes}m "
        "-p 8000:8000 -p 8001:8001 -p 8002:8002 \\\n"
        f'    -v "$here:/models:ro" {image} \\\n'
        '    tritonserver --model-repository=/models "$@"\n'
    )


def _dockerfile(of: Deployment) -> str:
    return (
        f"FROM {of.release.image}\n"
        "COPY requirements.txt /tmp/requirements.txt\n"
        "RUN pip install --no-cache-dir -r /tmp/requirements.txt\n"
    )


def _compose(of: Deployment) -> str:
    source = "build: ." if of.requirements else f"image: {of.release.image}"
    lines = [
        "services:",
        "  triton:",
        f"    {source}",
        "    command: tritonserver --model-repository=/models",
        f"    shm_size: {of.megabytes}m  # measured: a container's 64 MiB are soon full",
        "    ports:",
        *(f'      - "{port}:{port}"' for port in (8000, 8001, 8002)),
        "    volumes:",
        "      - .:/models:ro",
        "    healthcheck:",
        '      test: ["CMD", "curl", "-fsS", "http://localhost:8000/v2/health/ready"]',
        "      interval: 5s",
        "      retries: 60",
    ]
    if of.gpus:
        lines += [
            "    deploy:",
            "      resources:",
            "        reservations:",
            "          devices:",
            "            - {driver: nvidia, count: all, capabilities: [gpu]}",
        ]
    return "\n".join(lines) + "\n"


def _kserve(of: Deployment) -> str:
    name = of.models[0].lower().replace("_", "-").replace(".", "-") if of.models else "models"
    extra = ""
    if of.requirements:
        extra = "      # Build and push the Dockerfile's image, and name it here:\n"
        extra += "      image: registry.example/models-on-triton\n"
    limits = '\n          nvidia.com/gpu: "1"' if of.gpus else ""
    return (
        "# The storageUri is where this folder lies: pvc://, s3://, gs:// ...\n"
        "apiVersion: serving.kserve.io/v1beta1\n"
        "kind: InferenceService\n"
        "metadata:\n"
        f"  name: {name}\n"
        "spec:\n"
        "  predictor:\n"
        "    model:\n"
        "      modelFormat:\n"
        "        name: triton\n"
        "      protocolVersion: v2\n"
        "      runtime: kserve-tritonserver\n"
        f"      runtimeVersion: {of.release.name}-py3\n"
        "      storageUri: pvc://models\n"
        f"{extra}"
        "      args: [--strict-readiness=true]\n"
        "      resources:\n"
        "        limits:\n"
        '          cpu: "4"\n'
        f"          memory: {4096 + of.megabytes}Mi{limits}\n"
        "      volumeMounts:\n"
        "        - {name: shared-memory, mountPath: /dev/shm}\n"
        "    volumes:\n"
        "      - name: shared-memory\n"
        f"        emptyDir: {{medium: Memory, sizeLimit: {of.megabytes}Mi}}\n"
    )


# --- a client -----------------------------------------------------------------------------------


def client(config: Any, request: Wire) -> str:
    """A Python program that asks the model what was asked here, over HTTP or gRPC's stream."""
    decoupled = contract.is_decoupled(config)
    outputs = list(contract.outputs(config))
    inputs = {held.name: (held.datatype, held.array()) for held in request.held("inputs")}
    extra = ""
    if config.HasField("sequence_batching"):
        extra = ", sequence_id=1, sequence_start=True, sequence_end=True"
    return (_stream if decoupled else _plain)(config.name, inputs, outputs, extra)


def _plain(name: str, inputs: Mapping[str, Any], outputs: Sequence[str], extra: str) -> str:
    return f'''"""Asks {name} once and prints what it answers: python client.py [host:port]."""

import sys

import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
inputs = []
{_inputs(inputs)}
result = client.infer({name!r}, inputs{extra})
for name in {list(outputs)!r}:
    print(name, result.as_numpy(name))
client.close()
'''


def _stream(name: str, inputs: Mapping[str, Any], outputs: Sequence[str], extra: str) -> str:
    return f'''"""Asks {name} once, prints responses as they come: python client.py [host:port]."""

import queue
import sys

import numpy as np
import tritonclient.grpc as triton

client = triton.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8001")
inputs = []
{_inputs(inputs)}
responses = queue.Queue()
client.start_stream(lambda result, error: responses.put((result, error)))
client.async_stream_infer({name!r}, inputs, enable_empty_final_response=True{extra})
while True:
    result, error = responses.get(timeout=60)
    if error is not None:
        client.close()
        sys.exit(str(error))
    for name in {list(outputs)!r}:
        if result.as_numpy(name) is not None:
            print(name, result.as_numpy(name))
    if result.get_response().parameters["triton_final_response"].bool_param:
        break
client.close()
'''


def _inputs(inputs: Mapping[str, Any]) -> str:
    lines = []
    for name, (datatype, array) in inputs.items():
        shape = list(array.shape)
        lines.append(f"array = {_expression(datatype, array)}")
        lines.append(f"tensor = triton.InferInput({name!r}, {shape}, {datatype!r})")
        lines.append("tensor.set_data_from_numpy(array)")
        lines.append("inputs.append(tensor)")
    return "\n".join(lines)


def _expression(datatype: str, array: Any) -> str:
    shape = tuple(int(one) for one in array.shape)
    if datatype == "BYTES":
        values = [bytes(one) if isinstance(one, (bytes, bytearray)) else str(one).encode()
                  for one in array.ravel().tolist()]  # fmt: skip
        if sum(map(len, values)) < 2000:
            return f"np.array({values!r}, dtype=np.object_).reshape({shape})"
        return f"np.full({shape}, b'devkit', dtype=np.object_)  # the recorded texts are long"
    dtype = "float32" if datatype == "BF16" else str(array.dtype)
    if array.size <= 64 and bool(np.isfinite(np.asarray(array, np.float64)).all()):
        return f"np.array({array.ravel().tolist()}, dtype=np.{_numpy(dtype)}).reshape({shape})"
    return f"np.ones({shape}, dtype=np.{_numpy(dtype)})  # put your own values here"


def _numpy(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype
