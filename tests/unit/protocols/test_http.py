"""The HTTP front end as a server: connections, bodies, memory, and the real tritonclient."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import tritonclient.http as client
import tritonclient.http.aio as aio_client
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from devkit.core.repository import IndexEntry
from devkit.core.request import SharedPlace
from devkit.errors import Code, InferError
from devkit.transport.memory import ALIGNMENT
from tests.unit.protocols.conftest import Running
from tests.unit.protocols.memory_engine import string_bytes

MODES = json.dumps(
    {
        "inputs": [
            {"name": "MODE", "datatype": "BYTES", "shape": [1], "data": ["ok"]},
            {"name": "X", "datatype": "FP32", "shape": [1], "data": [1]},
        ]
    }
).encode()
ANSWER = (
    b'{"model_name":"modes","model_version":"1","outputs":[{"name":"Y","datatype":"FP32",'
    b'"shape":[1],"data":[2.0]}]}'
)
START = b"POST /v2/models/modes/infer HTTP/1.1\r\nHost: x\r\n"


@contextmanager
def connected(address: str, window: int = 0) -> Iterator[socket.socket]:
    host, port = address.split(":")
    with socket.socket() as sock:
        sock.settimeout(10)
        if window:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        sock.connect((host, int(port)))
        yield sock


def read_reply(sock: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of one reply with a Content-Length."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += received(sock, 1)  # not a byte of what may follow
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    body = bytearray()
    while len(body) < length:
        body += received(sock, length - len(body))
    return head, bytes(body)


def received(sock: socket.socket, most: int) -> bytes:
    data = sock.recv(most)
    assert data, "the server hung up"
    return data


def whole(body: bytes, more: bytes = b"") -> bytes:
    return START + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def identity_request(array: np.ndarray, binary_output: bool = True) -> tuple[bytes, int]:
    """Bytes of a binary request to `identity`, and the length of its JSON."""
    header = json.dumps(
        {
            "inputs": [
                {
                    "name": "IN", "datatype": "FP32", "shape": list(array.shape),
                    "parameters": {"binary_data_size": array.nbytes},
                }
            ],
            "parameters": {"binary_data_output": binary_output},
        }
    ).encode()  # fmt: skip
    size = len(header) + array.nbytes
    head = (
        b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\n"
        b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (len(header), size)
    )
    return head + header + array.tobytes(), len(header)


# -- connections -------------------------------------------------------------------------------------


def test_a_connection_serves_many_requests(running: Running) -> None:
    with connected(running.http) as sock:
        for _ in range(3):
            sock.sendall(whole(MODES))
            assert read_reply(sock)[1] == ANSWER


def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    count = 2000  # more than a recursion per request would survive
    requests = b"GET /v2/health/live HTTP/1.1\r\n\r\n" * count + whole(
        MODES, b"Connection: close\r\n"
    )
    with connected(running.http) as sock:
        sock.sendall(requests)
        data = b""
        while piece := sock.recv(1 << 20):
            data += piece
    assert data.count(b"HTTP/1.1 200 OK") == count + 1
    assert data.endswith(ANSWER)


def test_requests_behind_a_slow_one_wait_for_it(running: Running) -> None:
    running.call(setattr, running.engine, "delay", 0.05)
    with connected(running.http) as sock:
        sock.sendall(whole(MODES) + b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        assert read_reply(sock)[1] == ANSWER
        assert read_reply(sock)[1] == b""


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_request_may_arrive_in_pieces(size: int, running: Running) -> None:
    data = whole(MODES)
    with connected(running.http) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size):
            sock.sendall(data[start : start + size])
        assert read_reply(sock)[1] == ANSWER


def test_connection_close_and_http_1_0(running: Running) -> None:
    for request, kept in (
        (b"GET /v2/health/live HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET /v2/health/live HTTP/1.0\r\n\r\n", False),
        (b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ):
        with connected(running.http) as sock:
            sock.sendall(request)
            head, _ = read_reply(sock)
            assert b" 200 OK" in head
            if not kept:
                assert sock.recv(10) == b""
            else:
                sock.sendall(request)
                read_reply(sock)


@pytest.mark.parametrize("pieces", [1, 3, 200])
def test_a_chunked_body(pieces: int, running: Running) -> None:
    size = -(-len(MODES) // pieces)
    chunks = [MODES[start : start + size] for start in range(0, len(MODES), size)]
    body = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    data = START + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\nTrailer: x\r\n\r\n"
    with connected(running.http) as sock:
        sock.sendall(data + b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        assert read_reply(sock)[1] == ANSWER
        assert read_reply(sock)[1] == b""


def test_expect_100_continue(running: Running) -> None:
    with connected(running.http) as sock:
        sock.sendall(START + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(MODES))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(MODES)
        assert read_reply(sock)[1] == ANSWER


@pytest.mark.parametrize(
    "garbage",
    [
        b"GARBAGE\r\n\r\n", b"GET\r\n\r\n", START + b"Content-Length: abc\r\n\r\n",
        START + b"Content-Length: -5\r\n\r\n", START + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        START + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        START + b"Content-Length: 9223372036854775807\r\n\r\nabcdef",
        START + b"Inference-Header-Content-Length: " + b"1" * 5000 + b"\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http_is_hung_up_on(
    garbage: bytes, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(running.http) as sock:
        sock.sendall(garbage)
        with suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == []
    with connected(running.http) as sock:
        sock.sendall(whole(MODES))
        assert read_reply(sock)[1] == ANSWER


def test_large_request_headers(running: Running) -> None:
    with connected(running.http) as sock:
        sock.sendall(whole(MODES, b"X-Large: " + b"a" * 60_000 + b"\r\n"))
        assert read_reply(sock)[1] == ANSWER


def test_the_request_of_a_client_that_leaves_goes_on(running: Running) -> None:
    running.call(setattr, running.engine, "delay", 0.3)
    with connected(running.http) as sock:
        sock.sendall(whole(MODES))
        running.until(lambda: bool(running.engine.requests))
    running.until(lambda: running.engine.released == 1)  # the late answer's memory
    assert running.engine.cancelled == []


def test_stop_lets_a_running_request_finish(running: Running) -> None:
    running.call(setattr, running.engine, "delay", 0.2)
    with connected(running.http) as sock, connected(running.http) as idle:
        sock.sendall(whole(MODES))
        running.until(lambda: bool(running.engine.requests))
        running.wait(running.fronts[0].stop(5.0))
        assert read_reply(sock)[1] == ANSWER
        assert idle.recv(10) == b""


def test_a_taken_port_is_an_error(running: Running) -> None:
    from devkit.protocols.http import HttpFront

    port = int(running.http.split(":")[1])
    with pytest.raises(OSError, match="in use"):
        running.wait(HttpFront(running.engine).start("127.0.0.1", port))


# -- bodies and memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [100, 20_000, 1_000_000])
def test_a_body_of_any_size_comes_back(count: int, running: Running) -> None:
    array = np.arange(count, dtype=np.float32)
    data, _ = identity_request(array)
    with connected(running.http) as sock:
        for _ in range(2):
            sock.sendall(data)
            head, body = read_reply(sock)
            length = int(head.split(b"Inference-Header-Content-Length: ")[1].split(b"\r\n")[0])
            assert body[length:] == array.tobytes()
    assert running.engine.slab_use == 0
    running.until(lambda: running.engine.released == 2)


def test_a_long_body_is_received_into_shared_memory_aligned(running: Running) -> None:
    array = np.arange(100_000, dtype=np.float32)
    data, _ = identity_request(array)
    with connected(running.http) as sock:
        sock.sendall(data)
        read_reply(sock)
    (place,) = running.engine.requests[0].buffers
    assert isinstance(place, SharedPlace)
    assert place.offset % ALIGNMENT == 0
    assert place.block is not None
    assert running.engine.slab_use == 0


def test_memory_of_a_refused_long_body_is_given_back(running: Running) -> None:
    array = np.zeros((2, 50_000), np.float32)  # `identity` wants one dimension
    data, _ = identity_request(array)
    with connected(running.http) as sock:
        sock.sendall(data)
        assert b"unexpected shape" in read_reply(sock)[1]
    assert running.engine.slab_use == 0


def test_memory_of_a_body_that_never_ends_is_given_back(running: Running) -> None:
    data, _ = identity_request(np.zeros(100_000, np.float32))
    with connected(running.http) as sock:
        sock.sendall(data[:200_000])
        running.until(lambda: running.engine.slab_use > 0)
    running.until(lambda: running.engine.slab_use == 0)


def test_a_long_body_for_an_unknown_model(running: Running) -> None:
    data, _ = identity_request(np.zeros(100_000, np.float32))
    with connected(running.http) as sock:
        sock.sendall(data.replace(b"/models/identity/", b"/models/nobody__/"))
        head, body = read_reply(sock)
        assert b" 404 " in head
        assert body == b'{"error":"Request for unknown model: \'nobody__\' is not found"}'


def test_a_reply_keeps_its_memory_until_it_has_left(running: Running) -> None:
    data, _ = identity_request(np.arange(4_000_000, dtype=np.float32))
    with connected(running.http, 65536) as sock:
        sock.sendall(data)
        running.until(lambda: bool(running.engine.responses))
        assert running.engine.released == 0
        assert read_reply(sock)[1].endswith(struct.pack("<f", 3_999_999.0))
    running.until(lambda: running.engine.released == 1)


def test_a_reply_nobody_reads_is_released_when_the_client_goes(running: Running) -> None:
    data, _ = identity_request(np.zeros(4_000_000, np.float32))
    with connected(running.http, 65536) as sock:
        sock.sendall(data)
        running.until(lambda: bool(running.engine.responses))
    running.until(lambda: running.engine.released == 1)


def test_equal_headers_share_a_description_whatever_their_ids(running: Running) -> None:
    with client.InferenceServerClient(running.http) as triton:
        for identity in ("", "a", "b", ""):
            item = client.InferInput("IN", [2], "FP32")
            item.set_data_from_numpy(np.zeros(2, np.float32))
            result = triton.infer("identity", [item], request_id=identity)
            assert result.get_response().get("id", "") == identity
    assert len({id(each.description) for each in running.engine.requests}) == 1


def test_parameters_that_are_equal_but_of_other_types_are_told_apart(running: Running) -> None:
    with client.InferenceServerClient(running.http) as triton:
        for value in (1, True, 1):
            item = client.InferInput("IN", [1], "FP32")
            item.set_data_from_numpy(np.zeros(1, np.float32))
            triton.infer("identity", [item], parameters={"a": value})
    found = [each.description.parameters["a"] for each in running.engine.requests]
    assert [type(each) for each in found] == [int, bool, int]


# -- the real client ---------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritonclient_infers(binary: bool, compression: str | None, running: Running) -> None:
    with client.InferenceServerClient(running.http) as triton:
        arrays = [np.array([1, 2, 3, 4], np.float32), np.array([4, 3, 2, 1], np.float32)]
        inputs = []
        for index, array in enumerate(arrays):
            inputs.append(client.InferInput(f"INPUT{index}", [4], "FP32"))
            inputs[-1].set_data_from_numpy(array, binary_data=binary)
        outputs = [client.InferRequestedOutput(f"OUTPUT{i}", binary_data=binary) for i in (1, 0)]
        result = triton.infer(
            "add_sub", inputs, outputs=outputs, request_id="é1",
            request_compression_algorithm=compression, response_compression_algorithm=compression,
        )  # fmt: skip
        assert result.as_numpy("OUTPUT0").tolist() == [5, 5, 5, 5]
        assert result.as_numpy("OUTPUT1").tolist() == [-3, -1, 1, 3]
        assert result.get_response()["id"] == "é1"


def test_tritonclient_asks_about_everything(running: Running) -> None:
    with client.InferenceServerClient(running.http) as triton:
        assert triton.is_server_live()
        assert triton.is_server_ready()
        assert triton.is_model_ready("modes")
        assert not triton.is_model_ready("nope")
        assert triton.get_server_metadata()["name"] == "triton"
        assert triton.get_model_metadata("modes")["platform"] == "python"
        assert triton.get_model_config("modes")["backend"] == "python"
        assert triton.get_inference_statistics("modes")["model_stats"][0]["name"] == "modes"
        assert {"name": "modes", "version": "1", "state": "READY"} in (
            triton.get_model_repository_index()
        )
        assert triton.get_trace_settings()["trace_rate"] == "1000"
        assert triton.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
        triton.unload_model("modes")
        assert not triton.is_model_ready("modes")
        triton.load_model("modes", config="{}", files={"file:1/model.py": b"x = 1"})
        assert triton.is_model_ready("modes")
    assert running.engine.load_calls == [("modes", "{}", {"1/model.py": b"x = 1"})]


def test_loading_needs_explicit_control(running: Running) -> None:
    running.engine.options.model_control_mode = "none"
    with client.InferenceServerClient(running.http) as triton:
        with pytest.raises(InferenceServerException, match="if polling is enabled") as caught:
            triton.load_model("modes")
        assert caught.value.status() == "503"


def test_sequence_options_reach_the_request(running: Running) -> None:
    with client.InferenceServerClient(running.http) as triton:
        item = client.InferInput("IN", [1], "FP32")
        item.set_data_from_numpy(np.zeros(1, np.float32))
        triton.infer(
            "identity", [item], sequence_id=7, sequence_start=True, sequence_end=True, priority=3,
            timeout=5000, parameters={"a": "b"},
        )  # fmt: skip
    (request,) = running.engine.requests
    assert (request.correlation_id, request.flags, request.priority) == (7, 3, 3)
    assert request.timeout == 5000
    assert request.description.parameters == {"a": "b"}


def test_system_shared_memory_both_ways(running: Running) -> None:
    array = np.arange(4, dtype=np.float32)
    inward = shm.create_shared_memory_region("in", "/devkit_test_in", 16)
    outward = shm.create_shared_memory_region("out", "/devkit_test_out", 16)
    try:
        shm.set_shared_memory_region(inward, [array])
        with client.InferenceServerClient(running.http) as triton:
            triton.register_system_shared_memory("in", "/devkit_test_in", 16)
            triton.register_system_shared_memory("out", "/devkit_test_out", 16)
            item = client.InferInput("IN", [4], "FP32")
            item.set_shared_memory("in", 16)
            output = client.InferRequestedOutput("OUT")
            output.set_shared_memory("out", 16)
            result = triton.infer("identity", [item], outputs=[output])
            assert "data" not in result.get_output("OUT")
            found = shm.get_contents_as_numpy(outward, np.float32, [4])
            assert found.tolist() == array.tolist()
            assert isinstance(running.engine.requests[0].buffers[0], SharedPlace)
            triton.unregister_system_shared_memory("in")
            with pytest.raises(InferenceServerException, match="Unable to find shared memory"):
                triton.infer("identity", [item], outputs=[output])
    finally:
        shm.destroy_shared_memory_region(inward)
        shm.destroy_shared_memory_region(outward)


def test_a_region_that_its_client_cuts_is_an_error(running: Running) -> None:
    region = shm.create_shared_memory_region("cut", "/devkit_test_cut", 8192)
    try:
        with client.InferenceServerClient(running.http) as triton:
            triton.register_system_shared_memory("cut", "/devkit_test_cut", 8192)
            item = client.InferInput("IN", [4], "FP32")
            item.set_data_from_numpy(np.arange(4, dtype=np.float32))
            output = client.InferRequestedOutput("OUT")
            output.set_shared_memory("cut", 16, offset=4096)
            triton.infer("identity", [item], outputs=[output])
            os.truncate("/dev/shm/devkit_test_cut", 4096)
            with pytest.raises(InferenceServerException, match="Invalid shared memory region"):
                triton.infer("identity", [item], outputs=[output])
    finally:
        shm.destroy_shared_memory_region(region)


def test_many_clients_at_once(running: Running) -> None:
    async def one(triton: aio_client.InferenceServerClient, number: int) -> float:
        item = aio_client.InferInput("IN", [1], "FP32")
        item.set_data_from_numpy(np.array([number], np.float32))
        result = await triton.infer("identity", [item], request_id=str(number))
        assert result.get_response()["id"] == str(number)
        return float(result.as_numpy("OUT")[0])

    async def many() -> list[float]:
        async with aio_client.InferenceServerClient(running.http, conn_limit=32) as triton:
            return await asyncio.gather(*(one(triton, number) for number in range(200)))

    assert asyncio.run(many()) == [float(number) for number in range(200)]


def test_an_engine_that_answers_nothing_is_an_error_and_no_hang(running: Running) -> None:
    running.engine.loaded["text"].function = lambda arrays: []
    running.engine.loaded["text"].decoupled = False

    def only_final(model: object, request: object) -> None:
        from devkit.core.request import Response

        request.on_response(Response(request, "text", "1", empty=True))  # type: ignore[attr-defined]

    running.engine._run = only_final  # type: ignore[method-assign]
    with connected(running.http) as sock:
        sock.sendall(b"POST /v2/models/text/infer HTTP/1.1\r\nContent-Length: 1\r\n"
                     b"Inference-Header-Content-Length: 0\r\n\r\nx")  # fmt: skip
        assert read_reply(sock)[1] == b'{"error":"expected a single response, got 0"}'


def test_an_error_text_of_any_bytes_is_sent(running: Running) -> None:
    text = 'caf\udce9 "quoted"\n'
    running.engine.loaded["text"].function = lambda arrays: [InferError(text, Code.INTERNAL)]
    body = string_bytes(b"x")
    with connected(running.http) as sock:
        sock.sendall(b"POST /v2/models/text/infer HTTP/1.1\r\nContent-Length: %d\r\n"
                     b"Inference-Header-Content-Length: 0\r\n\r\n%b" % (len(body), body))  # fmt: skip
        assert read_reply(sock)[1] == b'{"error":"caf\xe9 \\"quoted\\"\\n"}'


def test_a_reason_that_is_no_unicode_hides_no_model(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [IndexEntry("a", "1", "UNAVAILABLE", "caf\udce9"), IndexEntry("b", "1", "READY")]
    monkeypatch.setattr(running.engine, "index", lambda ready_only=False: rows)
    with client.InferenceServerClient(running.http) as triton:
        assert [row["name"] for row in triton.get_model_repository_index()] == ["a", "b"]


def test_half_a_surrogate_pair_in_an_error_text_is_answered_too(running: Running) -> None:
    running.engine.loaded["text"].function = lambda arrays: [InferError("a\ud800b", Code.INTERNAL)]
    body = string_bytes(b"x")
    with connected(running.http) as sock:
        sock.sendall(b"POST /v2/models/text/infer HTTP/1.1\r\nContent-Length: %d\r\n"
                     b"Inference-Header-Content-Length: 0\r\n\r\n%b" % (len(body), body))  # fmt: skip
        assert read_reply(sock)[1] == b'{"error":"a?b"}'


def test_a_compressed_binary_request(running: Running) -> None:
    array = np.arange(50_000, dtype=np.float32)
    data, length = identity_request(array)
    packed = gzip.compress(data.partition(b"\r\n\r\n")[2])
    with connected(running.http) as sock:
        sock.sendall(
            b"POST /v2/models/identity/infer HTTP/1.1\r\nContent-Encoding: gzip\r\n"
            b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%b"
            % (length, len(packed), packed)
        )
        assert read_reply(sock)[1].endswith(array.tobytes())


def test_a_stream_of_events_comes_piece_by_piece_and_the_connection_goes_on(
    running: Running,
) -> None:
    body = b'{"N":3}'
    with connected(running.http) as sock:
        sock.sendall(
            b"POST /v2/models/dec/generate_stream HTTP/1.1\r\nContent-Length: 7\r\n\r\n" + body
            + b"GET /v2/health/live HTTP/1.1\r\nConnection: close\r\n\r\n"
        )  # fmt: skip
        data = b""
        while piece := sock.recv(65536):
            data += piece
    assert data.count(b"data: {") == 3
    assert b"0\r\n\r\nHTTP/1.1 200 OK" in data
