"""Tensors in shared memory: no copy where none is needed, and never somebody else's bytes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from devkit.transport import memory, messages
from devkit.transport.messages import OWN_RESPONSE_SLAB, Place

N = 5000  # float32: 20 kB, above the tests' inline limit of 1 kB
INPUT = {"X": ("FP32", [N])}


@pytest.fixture
def requests_slab():
    slab = memory.Slab(f"devkit-{os.getpid()}-test-requests", size=1 << 20)
    yield slab
    slab.unlink()


@pytest.fixture
def place(requests_slab):
    """Puts an array into the request slab, as the runtime does with a large input."""

    def put(array):
        block = requests_slab.allocate(array.nbytes)
        block.view()[:] = array.tobytes()
        return Place(2, block.offset, array.nbytes)

    return put


@pytest.fixture
def large(serve, requests_slab):
    """A stub that knows the request slab as region 2."""

    def run(body, **options):
        stub = serve(body, **options)
        stub.plan(0, INPUT)
        stub.data.send(messages.region_frame(2, str(requests_slab.path)))
        stub.regions[2] = memory.Region(requests_slab.path)
        return stub

    return run


ARRAY = np.arange(N, dtype=np.float32)


def test_a_large_output_lies_in_the_stubs_slab_until_released(large, place):
    stub = large("def execute(self, requests):\n    return [answer(X(r) * 2) for r in requests]\n")
    used = set()
    for _ in range(20):
        response = stub.infer(place(ARRAY)).responses[0]
        (tensor,) = response.tensors
        assert tensor.region == OWN_RESPONSE_SLAB
        np.testing.assert_array_equal(stub.arrays(response)["Y"], ARRAY * 2)
        used.add(tensor.offset)
        stub.data.send(messages.sequences_frame(messages.RELEASE, [tensor.offset]))
    assert len(used) == 1
    path = stub.regions[OWN_RESPONSE_SLAB].path
    assert path.name == f"devkit-{os.getpid()}-m-responses"


def test_the_slab_grows_when_nothing_is_released(large, place):
    stub = large("def execute(self, requests):\n    return [answer(X(r) + 1) for r in requests]\n")
    kept = [stub.infer(place(ARRAY + n)).responses[0] for n in range(10)]
    for n, response in enumerate(kept):
        np.testing.assert_array_equal(stub.arrays(response)["Y"], ARRAY + n + 1)


@pytest.mark.parametrize(
    "handed_on",
    [
        "pb_utils.Tensor('Y', X(r))",
        "pb_utils.Tensor('Y', X(r)[1000:4000])",
        "pb_utils.Tensor('Y', np.from_dlpack(r.inputs()[0]))",
    ],
)
def test_an_input_handed_on_is_not_copied(large, place, handed_on):
    stub = large(
        "def execute(self, requests):\n"
        f"    return [pb_utils.InferenceResponse([{handed_on}]) for r in requests]\n"
    )
    where = place(ARRAY)
    batch = stub.infer(where)
    (tensor,) = batch.responses[0].tensors
    assert tensor.region == 2
    assert batch.holds == ()
    expected = ARRAY[1000:4000] if "1000" in handed_on else ARRAY
    np.testing.assert_array_equal(stub.arrays(batch.responses[0])["Y"], expected)


def test_a_request_tensor_itself_may_be_the_output(large, place):
    stub = large(
        "def execute(self, requests):\n"
        "    return [pb_utils.InferenceResponse(r.inputs()) for r in requests]\n",
        outputs=["X"],
    )
    stub.plan(0, INPUT, ("X",))
    where = place(ARRAY)
    assert stub.infer(where).responses[0].tensors == [where]


def test_the_model_may_write_to_its_input_and_return_it(large, place):
    stub = large("""
    def execute(self, requests):
        x = X(requests[0])
        x += 1
        return [answer(x)]
    """)
    response = stub.infer(place(ARRAY)).responses[0]
    np.testing.assert_array_equal(stub.arrays(response)["Y"], ARRAY + 1)


def test_a_kept_array_is_held_and_dropped_when_it_goes(large, place):
    stub = large("""
    def execute(self, requests):
        x = X(requests[0])
        self.kept = x[10:] if x[0] == 0 else None
        return [answer(np.zeros(1, np.float32))]
    """)
    batch = stub.infer(place(ARRAY))
    assert batch.holds == (1,)
    assert stub.dropped == []
    batch = stub.infer(place(ARRAY + 1))
    assert batch.holds == ()
    stub.infer(place(ARRAY + 1))
    assert stub.dropped == [1]


KEPT = ["requests[0]", "requests", "requests[0].inputs()", "requests[0].inputs()[0].to_dlpack()"]


@pytest.mark.parametrize("kept", KEPT)
def test_whatever_is_kept_holds_the_memory(large, place, kept):
    stub = large(f"""
    def execute(self, requests):
        self.kept = {kept}
        return [answer(np.zeros(1, np.float32)) for r in requests]
    """)
    assert stub.infer(place(ARRAY)).holds == (1,)


def test_a_kept_input_that_is_also_returned_is_copied(large, place):
    """The model may write to what it keeps while the response is still being sent."""
    stub = large("""
    def execute(self, requests):
        self.kept = X(requests[0])
        return [answer(self.kept)]
    """)
    batch = stub.infer(place(ARRAY))
    assert batch.holds == (1,)
    assert batch.responses[0].tensors[0].region == OWN_RESPONSE_SLAB
    np.testing.assert_array_equal(stub.arrays(batch.responses[0])["Y"], ARRAY)


def test_a_failed_batch_holds_what_the_model_kept(large, place):
    stub = large("""
    def execute(self, requests):
        self.kept = X(requests[0])
        raise ValueError("after keeping")
    """)
    batch = stub.infer(place(ARRAY))
    assert batch.failure
    assert batch.holds == (1,)


def test_a_failed_batch_holds_nothing_else(large, place):
    stub = large("""
    def execute(self, requests):
        x = X(requests[0])
        raise ValueError("nothing kept")
    """)
    assert stub.infer(place(ARRAY)).holds == ()


def test_only_the_requests_that_were_kept_are_held(large, place):
    stub = large("""
    def execute(self, requests):
        self.kept = X(requests[1])
        return [answer(X(r) * 1) for r in requests]
    """)
    stub.execute(*[stub.request(place(ARRAY)) for _ in range(3)])
    assert stub.result().holds == (2,)


def test_large_bytes_tensors(large, place):
    stub = large(
        "def execute(self, requests):\n    return [answer(X(r)[::-1]) for r in requests]\n"
    )
    texts = [f"text {n} ü".encode() * 7 for n in range(300)]
    data = memory_of(texts)
    stub.plan(0, {"X": ("BYTES", [300])})
    batch = stub.infer(place(np.frombuffer(data, np.uint8)))
    assert stub.arrays(batch.responses[0])["Y"].tolist() == texts[::-1]
    assert batch.holds == ()


def memory_of(texts):
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def test_a_clients_region_with_an_offset(large, requests_slab):
    stub = large("def execute(self, requests):\n    return [answer(X(r) * 2) for r in requests]\n")
    requests_slab.view(4096, ARRAY.nbytes)[:] = ARRAY.tobytes()
    stub.data.send(messages.region_frame(9, str(requests_slab.path), 4096, ARRAY.nbytes))
    response = stub.infer(Place(9, 0, ARRAY.nbytes)).responses[0]
    np.testing.assert_array_equal(stub.arrays(response)["Y"], ARRAY * 2)


def test_the_region_may_grow_meanwhile(large, place, requests_slab):
    stub = large("def execute(self, requests):\n    return [answer(X(r) * 2) for r in requests]\n")
    stub.infer(place(ARRAY))
    requests_slab.allocate(2 << 20)  # the slab's file is longer now
    last = requests_slab.allocate(ARRAY.nbytes)
    last.view()[:] = ARRAY.tobytes()
    stub.regions[2] = memory.Region(requests_slab.path)
    response = stub.infer(Place(2, last.offset, ARRAY.nbytes)).responses[0]
    np.testing.assert_array_equal(stub.arrays(response)["Y"], ARRAY * 2)


def test_no_room_for_an_output_is_an_error_response(large, place):
    stub = large(
        "def execute(self, requests):\n    return [answer(X(r) * 2) for r in requests]\n",
        response_slab={"name": f"devkit-{os.getpid()}-huge", "size": 1 << 50, "step": 1 << 20},
    )
    response = stub.infer(place(ARRAY)).responses[0]
    assert response.kind == messages.ERROR
    assert "shared memory pool" in response.error
    assert stub.infer(place(ARRAY)).responses


def test_empty_tensors(large):
    stub = large("def execute(self, requests):\n    return [answer(X(r)) for r in requests]\n")
    stub.plan(0, {"X": ("FP32", [0, 3])})
    response = stub.infer(np.zeros((0, 3), np.float32)).responses[0]
    assert stub.arrays(response)["Y"].shape == (0, 3)


def test_bf16_passes_through_dlpack(serve):
    stub = serve("""
    def execute(self, requests):
        tensor = requests[0].inputs()[0]
        try:
            tensor.as_numpy()
        except pb_utils.TritonModelException as problem:
            assert "BF16" in str(problem)
        made = pb_utils.Tensor.from_dlpack("Y", tensor.to_dlpack())
        return [pb_utils.InferenceResponse([made])]
    """)
    stub.plan(0, {"X": ("BF16", [2])})
    bits = np.array([0x3F80, 0x4000], np.uint16)
    response = stub.infer(bits).responses[0]
    assert stub.signatures[response.signature].outputs == (("Y", "BF16", (2,)),)
    assert bytes(response.tensors[0]) == bits.tobytes()
