"""The real clients, unchanged, against both servers: tritonclient's four and perf_analyzer."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

from devkit.tools.real_server import ensure
from tests.parity.pairs import Servers
from tests.support.session import Session

ARRAYS = {
    "INPUT0": np.arange(16, dtype=np.float32),
    "INPUT1": np.full(16, 2, dtype=np.float32),
}


@pytest.fixture(params=["real", "devkit"])
def session(request: pytest.FixtureRequest, kinds: tuple[str, ...], servers: Servers) -> Session:
    if request.param not in kinds:
        pytest.skip(f"only {kinds} asked")
    return servers.get("serving", request.param)


def given(client: Any, *, binary: bool = True) -> list[Any]:
    inputs = []
    for name, array in ARRAYS.items():
        tensor = client.InferInput(name, list(array.shape), "FP32")
        if client is tritonclient.http:
            tensor.set_data_from_numpy(array, binary_data=binary)
        else:
            tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs


def check(answer: Any) -> None:
    assert np.array_equal(answer.as_numpy("OUTPUT0"), ARRAYS["INPUT0"] + 2)
    assert np.array_equal(answer.as_numpy("OUTPUT1"), ARRAYS["INPUT0"] - 2)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_http(session: Session, binary: bool, coding: str | None) -> None:
    with tritonclient.http.InferenceServerClient(session.url) as client:
        assert client.is_server_live()
        assert client.is_model_ready("add_sub")
        assert client.get_model_metadata("add_sub")["platform"] == "python"
        answer = client.infer(
            "add_sub",
            given(tritonclient.http, binary=binary),
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
        )
        check(answer)


def test_http_refusal(session: Session) -> None:
    with tritonclient.http.InferenceServerClient(session.url) as client:
        with pytest.raises(InferenceServerException, match="unknown model") as refusal:
            client.infer("nobody", given(tritonclient.http))
        assert refusal.value.status() == "404"


def test_http_texts(session: Session) -> None:
    texts = np.array(["grün".encode()], dtype=np.object_)
    with tritonclient.http.InferenceServerClient(session.url) as client:
        tensor = tritonclient.http.InferInput("text", [1], "BYTES")
        tensor.set_data_from_numpy(texts)
        answer = client.infer("upper", [tensor])
        assert answer.as_numpy("upper").tolist() == [texts[0].upper()]


async def test_http_aio(session: Session) -> None:
    async with tritonclient.http.aio.InferenceServerClient(session.url) as client:
        check(await client.infer("add_sub", given(tritonclient.http)))


def test_grpc(session: Session) -> None:
    with tritonclient.grpc.InferenceServerClient(session.grpc_url) as client:
        assert client.is_server_ready()
        assert client.get_model_config("add_sub", as_json=True)["config"]["name"] == "add_sub"
        check(client.infer("add_sub", given(tritonclient.grpc)))
        with pytest.raises(InferenceServerException, match="unknown model"):
            client.infer("nobody", given(tritonclient.grpc))


async def test_grpc_aio(session: Session) -> None:
    async with tritonclient.grpc.aio.InferenceServerClient(session.grpc_url) as client:
        check(await client.infer("add_sub", given(tritonclient.grpc)))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer(session: Session, protocol: str) -> None:
    command = ensure().perf_analyzer()
    url = session.url if protocol == "http" else session.grpc_url
    arguments = ["-m", "add_sub", "-i", protocol, "-u", url, "--request-count", "200"]
    done = subprocess.run(
        [str(command.program), *arguments],
        env=command.environ(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Throughput" in done.stdout
