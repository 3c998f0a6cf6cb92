"""Calls to other models, answered here as the runtime would answer them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from devkit.transport import memory, messages
from devkit.transport.messages import Place

X = np.array([1, 2], np.float32)
CALL = """
def ask(x, **options):
    return pb_utils.InferenceRequest(model_name="other", inputs=[pb_utils.Tensor("A", x)],
                                     requested_output_names=["B"], **options)
def got(response):
    if response.has_error():
        return answer(np.array([response.error().message()], dtype=object))
    return answer(pb_utils.get_output_tensor_by_name(response, "B").as_numpy())
"""
HEAD = """\
import asyncio, threading
import numpy as np
import triton_python_backend_utils as pb_utils
def X(request): return pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
def answer(array, name="Y"): return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])
"""


def calling(serve, body, **options):
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    stub = serve(f"{HEAD}{CALL}\nclass TritonPythonModel:\n{lines}", **options)
    stub.plan(0, {"X": ("FP32", [2])})
    return stub


SYNC = "def execute(self, requests):\n    return [got(ask(X(r)).exec()) for r in requests]\n"
B = [["B", "FP32", [2]]]


def test_a_call_and_its_response(serve):
    stub = calling(serve, SYNC)
    stub.execute(stub.request(X))
    header, tensors = stub.called()
    assert header == {
        "op": "infer", "call": 1, "model": "other", "version": -1, "id": "",
        "inputs": [["A", "FP32", [2]]], "outputs": ["B"], "parameters": "{}", "trace": "",
        "decoupled": False, "asynchronous": False, "parent": 1, "correlation_id": 0, "flags": 0, "timeout": 0,
    }  # fmt: skip
    assert bytes(tensors[0]) == X.tobytes()
    stub.answer(header, (X * 3).tobytes(), outputs=B)
    np.testing.assert_array_equal(stub.arrays(stub.result().responses[0])["Y"], X * 3)


def test_every_argument_travels(serve):
    stub = calling(
        serve,
        """
def execute(self, requests):
    memory = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU)
    request = ask(X(requests[0]), request_id="i", correlation_id="c", model_version=3, flags=1,
                  timeout=5, parameters={"a": True}, preferred_memory=memory,
                  trace=requests[0].trace())
    request.set_flags(2)
    return [got(request.exec())]
        """,
    )
    stub.execute(stub.request(X, extra={"trace": '{"traceparent":"t"}'}))
    header, _ = stub.called()
    stub.answer(header, X.tobytes(), outputs=B)
    stub.result()
    expected = {
        "id": "i", "correlation_id": "c", "version": 3, "flags": 2, "timeout": 5,
        "parameters": '{"a": true}', "trace": '{"traceparent":"t"}',
    }  # fmt: skip
    assert {name: header[name] for name in expected} == expected


def test_an_error_is_a_response(serve):
    stub = calling(serve, SYNC)
    stub.execute(stub.request(X))
    header, _ = stub.called()
    text = "Model other - Error when running inference: Failed for execute the inference request."
    stub.answer(header, error=text, code=1)
    assert stub.arrays(stub.result().responses[0])["Y"][0] == text.encode()


def test_threads_that_call_at_once_each_get_their_own(serve):
    stub = calling(
        serve,
        """
def execute(self, requests):
    found = [None] * 8
    def work(n):
        response = ask(np.full(2, n, np.float32)).exec()
        found[n] = response.output_tensors()[0].as_numpy()[0]
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    return [answer(np.array(found, np.float32))]
        """,
    )
    stub.execute(stub.request(X))
    calls = [stub.called() for _ in range(8)]
    for header, (tensor,) in reversed(calls):
        value = np.frombuffer(tensor, np.float32)
        stub.answer(header, (value * 10).tobytes(), outputs=B)
    result = stub.arrays(stub.result().responses[0])["Y"]
    np.testing.assert_array_equal(result, np.arange(8) * 10)


def test_coroutines_call_at_once(serve):
    stub = calling(
        serve,
        """
async def execute(self, requests):
    calls = [ask(np.full(2, n, np.float32)).async_exec() for n in range(4)]
    found = [r.output_tensors()[0].as_numpy()[0] for r in await asyncio.gather(*calls)]
    return [answer(np.array(found, np.float32))]
        """,
    )
    stub.execute(stub.request(X))
    calls = [stub.called() for _ in range(4)]  # all are on their way before one is answered
    assert {header["parent"] for header, _ in calls} == {1}
    for header, (tensor,) in reversed(calls):
        stub.answer(header, bytes(tensor), outputs=B)
    result = stub.arrays(stub.result().responses[0])["Y"]
    np.testing.assert_array_equal(result, np.arange(4))


ITERATE = {
    "sync": """
def execute(self, requests):
    responses = [len(r.output_tensors()) for r in ask(X(requests[0])).exec(decoupled=True)]
    return [answer(np.array(responses, np.int32))]
    """,
    "async": """
async def execute(self, requests):
    responses = await ask(X(requests[0])).async_exec(decoupled=True)
    return [answer(np.array([len(r.output_tensors()) for r in responses], np.int32))]
    """,
}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_responses_of_a_decoupled_model_are_iterated(serve, kind):
    stub = calling(serve, ITERATE[kind])
    stub.execute(stub.request(X))
    header, _ = stub.called()
    assert header["decoupled"] is True
    for _ in range(3):
        stub.answer(header, X.tobytes(), outputs=B, final=False)
    stub.answer(header, outputs=[])
    np.testing.assert_array_equal(stub.arrays(stub.result().responses[0])["Y"], [1, 1, 1, 0])


def test_an_iterator_may_be_cancelled(serve):
    stub = calling(
        serve,
        """
def execute(self, requests):
    responses = ask(X(requests[0])).exec(decoupled=True)
    next(responses)
    responses.cancel()
    return [answer(np.array([len(list(responses))], np.int32))]
        """,
    )
    stub.execute(stub.request(X))
    header, _ = stub.called()
    stub.answer(header, X.tobytes(), outputs=B, final=False)
    kind, payload = stub.bls.receive()
    assert (kind, messages.parse_json(payload)) == (messages.BLS_CANCEL, {"cancel": 1})
    stub.answer(header, error="cancelled", code=7)
    assert stub.arrays(stub.result().responses[0])["Y"].tolist() == [1]


def test_large_tensors_travel_in_the_stubs_slab_and_are_freed(serve):
    stub = calling(
        serve,
        """
def execute(self, requests):
    return [got(ask(np.arange(4000, dtype=np.float32)).exec()) for r in requests]
        """,
    )
    big = np.arange(4000, dtype=np.float32)
    seen = set()
    for _ in range(5):
        stub.execute(stub.request(X))
        header, (place,) = stub.called()
        assert type(place) is Place
        data = stub.regions[1].view(place.offset, place.size)
        np.testing.assert_array_equal(np.frombuffer(data, np.float32), big)
        seen.add(place.offset)
        stub.answer(header, X.tobytes(), outputs=B)
        stub.result()
    assert len(seen) == 1


def test_a_large_response_is_a_view_that_is_released(serve):
    slab = memory.Slab(f"devkit-{os.getpid()}-test-bls", size=1 << 20)
    try:
        stub = calling(serve, SYNC)
        big = np.arange(4000, dtype=np.float32)
        slab.view(64, big.nbytes)[:] = big.tobytes()
        stub.bls.send(messages.region_frame(7, str(slab.path)))
        stub.execute(stub.request(X))
        header, _ = stub.called()
        outputs = [["B", "FP32", [4000]]]
        stub.answer(header, Place(7, 64, big.nbytes), outputs=outputs, release=99)
        result = stub.arrays(stub.result().responses[0])["Y"]
        np.testing.assert_array_equal(result, big)
        kind, payload = stub.bls.receive()
        assert (kind, messages.parse_json(payload)) == (messages.BLS_CANCEL, {"release": 99})
    finally:
        slab.unlink()


OPERATIONS = """
def execute(self, requests):
    try:
        found = {}
    except pb_utils.TritonModelException as problem:
        found = str(problem)
    return [answer(np.array([repr(found)], dtype=object))]
"""


def operate(serve, expression):
    stub = calling(serve, OPERATIONS.replace("found = {}", f"found = {expression}"))
    stub.execute(stub.request(X))
    header, _ = stub.called()
    return stub, header


def test_load_model(serve):
    stub, header = operate(
        serve, "pb_utils.load_model('n', config='{}', files={'file:1/model.py': b'x'})"
    )
    assert header == {"op": "load_model", "call": 1, "name": "n", "config": "{}",
                      "files": {"file:1/model.py": "eA=="}}  # fmt: skip
    stub.answer(header)
    assert stub.arrays(stub.result().responses[0])["Y"][0] == b"None"


def test_a_load_that_fails(serve):
    stub, header = operate(serve, "pb_utils.load_model('n')")
    stub.answer(header, error="failed to load 'n', failed to poll from model repository")
    assert stub.arrays(stub.result().responses[0])["Y"][0].decode() == repr(
        "Failed to load model: Failed to process the request for model 'm_0', message: "
        "failed to load 'n', failed to poll from model repository"
    )


def test_unload_and_readiness(serve):
    stub, header = operate(serve, "pb_utils.unload_model('n', True)")
    assert header == {"op": "unload_model", "call": 1, "name": "n", "dependents": True}
    stub.answer(header)
    stub.result()
    stub, header = operate(serve, "pb_utils.is_model_ready('n', '2')")
    assert header == {"op": "is_model_ready", "call": 1, "name": "n", "version": "2"}
    stub.answer(header, value=True)
    assert stub.arrays(stub.result().responses[0])["Y"][0] == b"True"


def test_async_exec_needs_a_loop_and_a_received_request_cannot_be_executed(serve):
    stub = calling(
        serve,
        """
def execute(self, requests):
    said = []
    for attempt in (lambda: ask(X(requests[0])).async_exec(), lambda: requests[0].exec()):
        try:
            attempt()
        except Exception as problem:
            said.append(type(problem).__name__ + ": " + str(problem))
    return [answer(np.array(said, dtype=object))]
        """,
    )
    said = stub.arrays(stub.infer(X).responses[0])["Y"]
    assert said[0] == b"RuntimeError: no running event loop"
    assert said[1].startswith(b"TritonModelException: A request that execute received")


def test_a_call_ends_when_the_runtime_closes_the_socket(serve):
    stub = calling(serve, SYNC)
    stub.execute(stub.request(X))
    stub.called()
    stub.bls.close()
    assert "The server is gone." in stub.result().error
