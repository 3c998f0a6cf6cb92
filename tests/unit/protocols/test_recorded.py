"""The front ends give the literal answers of the real server 2.51 (`answers_*.jsonl`).

Each line there is a request and what the real server answered; the order within a group matters,
because some requests change settings that later ones read.
"""

from __future__ import annotations

import base64
import http.client
import json
import zlib
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from devkit.transport.memory import DIRECTORY
from tests.unit.protocols.conftest import Running

HERE = Path(__file__).parent
HTTP = [json.loads(line) for line in (HERE / "answers_http.jsonl").read_text().splitlines()]
GRPC = [json.loads(line) for line in (HERE / "answers_grpc.jsonl").read_text().splitlines()]
GROUPS = list(dict.fromkeys(case["group"] for case in HTTP))


@pytest.fixture
def client_region() -> Any:
    path = DIRECTORY / "devkit_test_region"
    path.write_bytes(bytes(8192))
    yield path
    path.unlink()


def ask(address: str, case: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        body = case.get("body", "").encode("latin-1")
        connection.request(case["method"], case["path"], body or None, case.get("headers", {}))
        response = connection.getresponse()
        answer = response.read()
        headers = dict(response.getheaders())
        encoding = headers.get("Content-Encoding")
        if encoding:
            answer = zlib.decompress(answer, 31 if encoding == "gzip" else 15)
        more = {
            name: value
            for name, value in headers.items()
            if name not in ("Content-Type", "Content-Length")
        }
        return {
            "status": response.status, "type": headers["Content-Type"], "more": more,
            "answer": answer.decode("latin-1"),
        }  # fmt: skip
    finally:
        connection.close()


@pytest.mark.usefixtures("client_region")
@pytest.mark.parametrize("group", GROUPS)
def test_http_answers_as_the_real_server(group: str, running: Running) -> None:
    different = []
    for case in HTTP:
        if case["group"] != group:
            continue
        got = ask(running.http, case)
        want = {
            "status": case["status"], "type": case["type"], "more": case.get("more", {}),
            "answer": case["answer"],
        }  # fmt: skip
        if got != want:
            different.append((case["method"], case["path"], case.get("body"), want, got))
    assert different == []


def unary(channel: grpc.Channel, case: dict[str, Any]) -> tuple[str, Any]:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    kind = getattr(pb, case["method"] + "Request")
    answer_kind = getattr(pb, case["method"] + "Response")
    request = kind.FromString(base64.b64decode(case["request"]))
    try:
        answer = getattr(stub, case["method"])(request, timeout=10)
    except grpc.RpcError as problem:
        return problem.code().name, problem.details()
    assert isinstance(answer, answer_kind)
    return "OK", answer


def streamed(channel: grpc.Channel, case: dict[str, Any]) -> tuple[str, Any]:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    requests = [
        pb.ModelInferRequest.FromString(base64.b64decode(each)) for each in case["requests"]
    ]
    metadata = tuple(tuple(pair) for pair in case.get("metadata", ()))
    answers = []
    try:
        for each in stub.ModelStreamInfer(iter(requests), timeout=10, metadata=metadata):
            answers.append(each)
    except grpc.RpcError as problem:
        return problem.code().name, (answers, problem.details())
    return "OK", (answers, None)


def expected(case: dict[str, Any]) -> tuple[str, Any]:
    if case["method"] == "ModelStreamInfer":
        answers = [
            pb.ModelStreamInferResponse.FromString(base64.b64decode(each))
            for each in case["responses"]
        ]
        return case["code"], (answers, case.get("details"))
    if case["code"] != "OK":
        return case["code"], case["details"]
    kind = getattr(pb, case["method"] + "Response")
    return "OK", kind.FromString(base64.b64decode(case["response"]))


@pytest.mark.usefixtures("client_region")
def test_grpc_answers_as_the_real_server(either: Running) -> None:
    different = []
    with grpc.insecure_channel(either.grpc) as channel:
        for case in GRPC:
            run = streamed if case["method"] == "ModelStreamInfer" else unary
            got, want = run(channel, case), expected(case)
            if got != want:
                different.append((case["label"], want, got))
    assert different == []
