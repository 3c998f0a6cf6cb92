"""The gRPC front end with the real tritonclient, on both implementations."""

from __future__ import annotations

import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from devkit.errors import Code, InferError
from devkit.protocols.grpc.codec import Decoder, varint
from tests.unit.protocols.conftest import Running


def identity_input(array: np.ndarray) -> list[client.InferInput]:
    item = client.InferInput("IN", list(array.shape), "FP32")
    item.set_data_from_numpy(array)
    return [item]


@pytest.mark.parametrize("count", [1, 1000, 5_000_000])
def test_tensors_of_any_size_come_back(count: int, either: Running) -> None:
    array = np.arange(count, dtype=np.float32)
    with client.InferenceServerClient(either.grpc) as triton:
        for identity in ("", "x" * 200):
            result = triton.infer("identity", identity_input(array), request_id=identity)
            assert np.array_equal(result.as_numpy("OUT"), array)
            assert result.get_response().id == identity


def test_tritonclient_asks_about_everything(either: Running) -> None:
    with client.InferenceServerClient(either.grpc) as triton:
        assert triton.is_server_live()
        assert triton.is_server_ready()
        assert triton.is_model_ready("modes")
        assert not triton.is_model_ready("nope")
        assert triton.get_server_metadata().name == "triton"
        assert triton.get_model_metadata("modes").platform == "python"
        assert triton.get_model_config("modes").config.backend == "python"
        assert triton.get_inference_statistics("modes").model_stats[0].name == "modes"
        assert "modes" in [each.name for each in triton.get_model_repository_index().models]
        assert triton.update_log_settings({"log_verbose_level": 1}).settings[
            "log_verbose_level"
        ].uint32_param == 1  # fmt: skip
        triton.unload_model("modes")
        assert not triton.is_model_ready("modes")
        triton.load_model("modes", config="{}", files={"file:1/model.py": b"x = 1"})
    assert either.engine.load_calls == [("modes", "{}", {"1/model.py": b"x = 1"})]


def test_requests_that_differ_in_their_id_alone_share_a_description(either: Running) -> None:
    with client.InferenceServerClient(either.grpc) as triton:
        for identity in ("", "1", "22", "", "1"):
            triton.infer("identity", identity_input(np.zeros(3, np.float32)), request_id=identity)
        triton.infer("identity", identity_input(np.zeros(4, np.float32)))
    ids = [each.id for each in either.engine.requests]
    assert ids == ["", "1", "22", "", "1", ""]
    assert len({id(each.description) for each in either.engine.requests}) == 2


def test_sequence_options_reach_the_request(either: Running) -> None:
    with client.InferenceServerClient(either.grpc) as triton:
        for sequence in (7, "seven"):
            triton.infer(
                "identity", identity_input(np.zeros(1, np.float32)), sequence_id=sequence,
                sequence_start=True, priority=2, timeout=99, parameters={"a": 1.5},
            )  # fmt: skip
    first, second = either.engine.requests
    assert (first.correlation_id, first.flags, first.priority, first.timeout) == (7, 1, 2, 99)
    assert second.correlation_id == "seven"
    assert first.description is second.description
    assert first.description.parameters == {"a": 1.5}


def test_a_stream_of_a_decoupled_model(either: Running) -> None:
    answers: queue.Queue[object] = queue.Queue()
    with client.InferenceServerClient(either.grpc) as triton:
        triton.start_stream(lambda result, error: answers.put(error or result))
        for number, count in enumerate((3, 0, 2)):
            item = client.InferInput("N", [1], "INT32")
            item.set_data_from_numpy(np.array([count], np.int32))
            triton.async_stream_infer(
                "dec", [item], request_id=str(number), enable_empty_final_response=True
            )
        finals = 0
        outputs: list[tuple[str, int]] = []
        while finals < 3:
            response = answers.get(timeout=10).get_response()  # type: ignore[attr-defined]
            if response.parameters["triton_final_response"].bool_param:
                finals += 1
            else:
                value = np.frombuffer(response.raw_output_contents[0], np.int32)[0]
                outputs.append((response.id, int(value)))
        triton.stop_stream()
    assert outputs == [("0", 0), ("0", 1), ("0", 2), ("2", 0), ("2", 1)]


def test_a_stream_goes_on_after_an_error(either: Running) -> None:
    answers: queue.Queue[object] = queue.Queue()
    with client.InferenceServerClient(either.grpc) as triton:
        triton.start_stream(lambda result, error: answers.put(error or result))
        triton.async_stream_infer("nope", identity_input(np.zeros(1, np.float32)))
        triton.async_stream_infer("identity", identity_input(np.ones(1, np.float32)))
        assert "unknown model" in str(answers.get(timeout=10))
        assert answers.get(timeout=10).as_numpy("OUT").tolist() == [1.0]  # type: ignore[attr-defined]
        triton.stop_stream()


@pytest.mark.parametrize("text", ["caf\udce9", "a\ud800b"])
def test_an_error_text_that_is_no_unicode_is_answered(text: str, either: Running) -> None:
    either.engine.loaded["identity"].function = lambda arrays: [InferError(text, Code.INTERNAL)]
    item = client.InferInput("IN", [1], "FP32")
    item.set_data_from_numpy(np.zeros(1, np.float32))
    with (
        client.InferenceServerClient(either.grpc) as triton,
        pytest.raises(InferenceServerException) as failed,
    ):
        triton.infer("identity", [item], client_timeout=5)
    assert failed.value.message() == text.encode("utf-8", "replace").decode()


def test_cancelling_a_call_cancels_its_request(either: Running) -> None:
    either.call(setattr, either.engine, "delay", 0.5)
    with client.InferenceServerClient(either.grpc) as triton:
        done: queue.Queue[object] = queue.Queue()
        call = triton.async_infer(
            "identity", identity_input(np.zeros(1, np.float32)),
            lambda result, error: done.put(error),
        )  # fmt: skip
        either.until(lambda: bool(either.engine.requests))
        call.cancel()
        assert "Locally cancelled" in str(done.get(timeout=10))
        either.until(lambda: bool(either.engine.cancelled))
    assert either.engine.cancelled == either.engine.requests
    either.until(lambda: either.engine.released == 1)


def test_closing_a_stream_cancels_what_it_still_runs(either: Running) -> None:
    either.call(setattr, either.engine, "delay", 0.5)
    with client.InferenceServerClient(either.grpc) as triton:
        triton.start_stream(lambda result, error: None)
        triton.async_stream_infer("identity", identity_input(np.zeros(1, np.float32)))
        either.until(lambda: bool(either.engine.requests))
        triton.stop_stream(cancel_requests=True)
        either.until(lambda: bool(either.engine.cancelled))
    either.until(lambda: either.engine.released == 1)


def test_system_shared_memory_both_ways(either: Running) -> None:
    array = np.arange(4, dtype=np.float32)
    region = shm.create_shared_memory_region("both", "/devkit_test_both", 32)
    try:
        shm.set_shared_memory_region(region, [array])
        with client.InferenceServerClient(either.grpc) as triton:
            triton.register_system_shared_memory("both", "/devkit_test_both", 32)
            item = client.InferInput("IN", [4], "FP32")
            item.set_shared_memory("both", 16)
            output = client.InferRequestedOutput("OUT")
            output.set_shared_memory("both", 16, 16)
            triton.infer("identity", [item], outputs=[output])
            found = shm.get_contents_as_numpy(region, np.float32, [4], 16)
            assert found.tolist() == array.tolist()
    finally:
        shm.destroy_shared_memory_region(region)


def test_bytes_that_are_no_message(either: Running) -> None:
    with grpc.insecure_channel(either.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff", timeout=10)
        assert caught.value.code() == grpc.StatusCode.INTERNAL
        unknown = channel.unary_unary("/inference.GRPCInferenceService/Nothing")
        with pytest.raises(grpc.RpcError) as caught:
            unknown(b"", timeout=10)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_many_calls_at_once(either: Running) -> None:
    with grpc.insecure_channel(either.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = []
        for number in range(300):
            message = pb.ModelInferRequest(model_name="identity", id=str(number))
            message.inputs.add(name="IN", datatype="FP32", shape=[1])
            message.raw_input_contents.append(np.float32(number).tobytes())
            calls.append(stub.ModelInfer.future(message, timeout=20))
        for number, call in enumerate(calls):
            answer = call.result()
            assert answer.id == str(number)
            assert np.frombuffer(answer.raw_output_contents[0], np.float32)[0] == number


def test_stop_lets_a_running_call_finish(either: Running) -> None:
    either.call(setattr, either.engine, "delay", 0.2)
    with client.InferenceServerClient(either.grpc) as triton:
        done: queue.Queue[object] = queue.Queue()
        triton.async_infer(
            "identity", identity_input(np.ones(1, np.float32)),
            lambda result, error: done.put(error or result),
        )  # fmt: skip
        either.until(lambda: bool(either.engine.requests))
        either.wait(either.fronts[1].stop(5.0))
        assert done.get(timeout=10).as_numpy("OUT").tolist() == [1.0]  # type: ignore[attr-defined]


def test_a_taken_port_is_an_error(either: Running) -> None:
    from devkit.protocols.grpc import GrpcFront

    port = int(either.grpc.split(":")[1])
    implementation = "native" if "native" in type(either.fronts[1]._server).__module__ else "grpcio"
    other = GrpcFront(either.engine, implementation)
    with pytest.raises(OSError, match=r"(?i)bind|in use"):
        either.wait(other.start("127.0.0.1", port))


def test_loading_needs_explicit_control(either: Running) -> None:
    either.engine.options.model_control_mode = "none"
    with client.InferenceServerClient(either.grpc) as triton:
        with pytest.raises(InferenceServerException, match="if polling is enabled") as caught:
            triton.load_model("modes")
        assert caught.value.status() == "StatusCode.UNAVAILABLE"


# -- the bytes ---------------------------------------------------------------------------------------


def message(identity: str = "") -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name="m" * 200, model_version="1", id=identity)
    made.inputs.add(name="A", datatype="FP32", shape=[1])
    made.inputs.add(name="B", datatype="FP32", shape=[50])
    made.raw_input_contents.extend([b"abcd", bytes(200)])
    return made


def test_a_plan_is_parsed_once() -> None:
    decoder = Decoder()
    plans = []
    for identity in ("", "a", "b" * 300, ""):
        decoded = decoder.decode(message(identity).SerializeToString())
        plans.append(decoded.plan)
        assert decoded.id == identity
        assert [bytes(each) for each in decoded.raw] == [b"abcd", bytes(200)]
    assert all(plan is plans[0] for plan in plans)


def test_fields_in_another_order_mean_the_same() -> None:
    made = message("id")
    parts = [
        pb.ModelInferRequest(raw_input_contents=made.raw_input_contents),
        pb.ModelInferRequest(inputs=made.inputs),
        pb.ModelInferRequest(id="id", model_version="1", model_name=made.model_name),
    ]
    decoded = Decoder().decode(b"".join(part.SerializeToString() for part in parts))
    assert (decoded.id, decoded.plan.name) == ("id", made.model_name)
    assert [bytes(each) for each in decoded.raw] == [b"abcd", bytes(200)]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 32, (1 << 64) - 1])
def test_varint(value: int) -> None:
    from google.protobuf.internal.encoder import _VarintBytes

    assert varint(value) == _VarintBytes(value)
