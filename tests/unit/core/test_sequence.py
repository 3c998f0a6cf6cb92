"""Sequences on real stubs: what a model sees, which requests share a batch, who waits for whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from devkit.core.request import Description, Request, Response, TensorSpec
from devkit.errors import Code, InferError
from devkit.transport import dtypes

START, END = 1, 2

# Tells what execute got, as JSON text, in its output: [instance, [[id, correlation, flags, inputs]]]
TELLER = """
import json, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.left = {}
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(
            json.loads(args["model_config"]))

    def execute(self, requests):
        seen = []
        for request in requests:
            inputs = {t.name(): t.as_numpy() for t in request.inputs()}
            inputs = {n: [str(a.dtype), list(a.shape), a.tolist()] for n, a in inputs.items()}
            seen.append([request.request_id(), request.correlation_id(), request.flags(), inputs,
                         sorted(request.requested_output_names())])
        text = json.dumps([self.name, seen]).encode()
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            first = float(x.flat[0])
            if first == -1: raise ValueError("asked to fail")
            if first == -3: time.sleep(0.15)
            shape = [1] * x.ndim
            response = pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", np.array([text], object).reshape(shape))])
            if first > 100:  # 100 + how often it wants to be run again
                name = request.request_id()
                left = self.left.setdefault(name, int(first) - 100)
                if left > 0:
                    self.left[name] = left - 1
                    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                    if self.decoupled:
                        request.get_response_sender().send(response)
                    answers.append(None)
                    continue
            if self.decoupled:
                request.get_response_sender().send(
                    response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            answers.append(response)
        return None if self.decoupled else answers
"""
IO = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
CONTROLS = """
control_input [
 { name: "S" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
 { name: "E" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
 { name: "R" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 5, 7 ] } ] },
 { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ]
"""
SLOW = -3.0


class Client:
    """Sends to one model, and keeps what each execution saw, in order."""

    def __init__(self, bench: Any, name: str, *, batched: bool) -> None:
        self.engine = bench.engine
        self.name = name
        self.shape = (1, 1) if batched else (1,)
        self.responses: dict[str, list[Response]] = {}
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.batches: list[Any] = []

    def send(
        self, name: str, sequence: int | str = 0, flags: int = 0, x: float = 0.0,
        shape: tuple[int, ...] = (),
    ) -> Request:  # fmt: skip
        shape = shape or self.shape
        array = np.full(shape, x, np.float32)
        request = Request(
            self.name, Description((TensorSpec("X", "FP32", shape),)), [dtypes.to_data(array)],
            self._take, id=name, correlation_id=sequence, flags=flags,
        )  # fmt: skip
        self.responses[name] = []
        self.waiting[name] = asyncio.get_running_loop().create_future()
        self.engine.infer(request)
        return request

    def _take(self, response: Response) -> None:
        self.responses[response.request.id].append(response)
        if response.error is None and response.buffers:
            (text,) = dtypes.to_array("BYTES", (1,), response.buffers[0])
            seen = json.loads(text)
            if seen not in self.batches:
                self.batches.append(seen)
        response.release()
        if response.final:
            self.waiting[response.request.id].set_result(None)

    async def done(self, *names: str) -> None:
        futures = [self.waiting[name] for name in names or self.waiting]
        await asyncio.wait_for(asyncio.gather(*futures), 20)

    def ids(self) -> list[list[str]]:
        """Request ids of each execution; `-` for a slot with nothing to run."""
        return [[seen[0] or "-" for seen in batch[1]] for batch in self.batches]

    def error(self, name: str) -> InferError | None:
        return self.responses[name][-1].error


Make = Callable[..., Any]


@pytest.fixture
def client(bench: Make) -> Callable[..., Any]:
    async def make(settings: str, *, batch: int = 0, more: str = "", **options: Any) -> Client:
        made = bench(**options)
        config = f"{IO} max_batch_size: {batch} {more} sequence_batching {{ {settings} }}"
        made.write("seq", config, TELLER)
        failures = await made.engine.start()
        assert failures == []
        return Client(made, "seq", batched=batch > 0)

    return make


async def test_controls_say_where_in_its_sequence_a_request_is(client: Make) -> None:
    seq = await client(CONTROLS, batch=2)
    for name, flags in (("a", START), ("b", 0), ("c", END)):
        seq.send(name, 9, flags)
        await seq.done(name)
    told = [batch[1][0] for batch in seq.batches]
    assert [(each[1], each[2]) for each in told] == [(9, 1), (9, 0), (9, 2)]
    assert [each[3]["S"] for each in told] == [
        ["float32", [1, 1], [[1.0]]], ["float32", [1, 1], [[0.0]]], ["float32", [1, 1], [[0.0]]],
    ]  # fmt: skip
    assert [each[3]["E"][2] for each in told] == [[[False]], [[False]], [[True]]]
    assert told[0][3]["R"] == ["int32", [1, 1], [[7]]]
    assert told[0][3]["C"] == ["uint64", [1, 1], [[9]]]


async def test_without_batching_controls_have_one_dimension(client: Make) -> None:
    seq = await client(CONTROLS)
    seq.send("a", 9, START)
    await seq.done()
    assert seq.batches[0][1][0][3]["C"] == ["uint64", [1], [9]]


@pytest.mark.parametrize(
    ("kind", "identity", "shown"),
    [
        ("UINT32", 2**33 + 1, ["uint32", [1], [1]]),
        ("INT32", 2**31 + 5, ["int32", [1], [-2147483643]]),
        ("INT64", 2**63 + 5, ["int64", [1], [-9223372036854775803]]),
        # A text's length, then its characters, as far as they go.
        ("INT32", "abc", ["int32", [1], [3]]),
        ("UINT64", "abc", ["uint64", [1], [27974191445704707 & (2**56 - 1)]]),
        ("UINT64", "abcd", ["uint64", [1], [7233733595238498308]]),
    ],
)
async def test_an_id_in_every_type(client: Make, kind: str, identity: Any, shown: Any) -> None:
    seq = await client(CONTROLS.replace("TYPE_UINT64", f"TYPE_{kind}"))
    seq.send("a", identity, START | END)
    await seq.done()
    assert seq.batches[0][1][0][1] == identity
    assert seq.batches[0][1][0][3]["C"] == shown


async def test_a_text_control_fails_as_on_the_real_server(client: Make) -> None:
    seq = await client(CONTROLS.replace("TYPE_UINT64", "TYPE_STRING"), batch=2)
    for name, flags in (("a", START), ("b", END)):
        seq.send(name, "abc", flags)
        await seq.done(name)
        error = seq.error(name)
        assert error is not None
        assert error.code is Code.INVALID_ARG
        assert error.message == (
            "unexpected number of string elements 2 for inference input 'C', expecting 1"
        )


@pytest.mark.parametrize(
    ("sequence", "flags", "shape", "text"),
    [
        (0, START, (), "to model 'seq' must specify a non-zero or non-empty correlation ID"),
        ("", START, (), "to model 'seq' must specify a non-zero or non-empty correlation ID"),
        (1, 0, (), "for sequence 1 to model 'seq' must specify the START flag on the first"),
        ("zz", END, (), "for sequence zz to model 'seq' must specify the START flag on the first"),
        (1, START, (2, 1), "to model 'seq' must specify batch-size 1 due to requirements of"),
        ("x" * 129, START, (), "string correlation ID cannot be longer than 128 characters"),
    ],
)
async def test_what_belongs_to_no_sequence_is_refused(
    client: Make, sequence: Any, flags: int, shape: tuple[int, ...], text: str
) -> None:
    seq = await client(CONTROLS, batch=3)
    with pytest.raises(InferError, match=text):
        seq.send("a", sequence, flags, shape=shape)


async def test_an_ended_sequence_is_over_and_a_number_is_no_text(client: Make) -> None:
    seq = await client(CONTROLS)
    seq.send("a", 5, START | END)
    with pytest.raises(InferError, match="must specify the START flag"):
        seq.send("b", 5)
    seq.send("c", "5", START)
    with pytest.raises(InferError, match="must specify the START flag"):
        seq.send("d", 5)
    await seq.done("a", "c")


async def test_a_direct_batch_keeps_every_sequence_in_its_place(client: Make) -> None:
    seq = await client(f"direct {{ }} {CONTROLS}", batch=3)
    for number, name in enumerate("abc", 1):
        seq.send(name, number, START)
    await seq.done()
    seq.send("c2", 3, END)
    await seq.done()
    seq.send("b2", 2, END, SLOW)
    seq.send("a2", 1, END)
    await seq.done()
    assert seq.ids() == [["a"], ["-", "b", "c"], ["-", "-", "c2"], ["-", "b2"], ["a2"]]
    null = seq.batches[1][1][0]
    assert null[1:3] == [0, 0]
    assert null[4] == []
    assert null[3]["R"] == ["int32", [1, 1], [[5]]]
    assert null[3]["C"][2] == [[0]]
    assert null[3]["X"][1] == [1, 1]


async def test_empty_places_count_only_in_the_size_of_batches(client: Make) -> None:
    seq = await client(f"direct {{ }} {CONTROLS}", batch=3)
    for number, name in enumerate("ab", 1):
        seq.send(name, number, START)
        await seq.done(name)
    model = seq.engine.model("seq")
    assert seq.ids() == [["a"], ["-", "b"]]
    assert model.counters.success.count == model.counters.inference_count == 2
    assert sorted(model.counters.batches) == [1, 2]
    assert model.open_requests == 0
    assert not model.busy()


async def test_the_backlog_waits_for_a_slot_in_order(client: Make) -> None:
    seq = await client(CONTROLS)
    seq.send("a", 1, START)
    for name, number, flags in (
        ("b", 2, START), ("c", 2, 0), ("d", 2, START), ("e", 2, END), ("f", 3, START | END),
        ("g", 2, START | END),
    ):  # fmt: skip
        seq.send(name, number, flags)
    await seq.done("a")
    assert seq.ids() == [["a"]]
    seq.send("h", 1, END)
    await seq.done()
    assert [each[0] for each in seq.ids()] == list("ahbcdefg")


async def test_start_restarts_a_running_sequence_in_its_slot(client: Make) -> None:
    seq = await client(CONTROLS, batch=2)
    for name, flags in (("a", START), ("b", START), ("c", 0), ("d", START | END)):
        seq.send(name, 1, flags)
    await seq.done()
    assert seq.ids() == [["a"], ["b"], ["c"], ["d"]]


async def test_a_silent_sequence_ends_and_the_backlog_gets_its_slot(client: Make) -> None:
    seq = await client(f"max_sequence_idle_microseconds: 200000 {CONTROLS}")
    seq.send("a", 1, START)
    seq.send("b", 2, START)
    seq.send("c", 3, START | END)
    await seq.done()  # b was silent in the backlog for as long: it runs, and c after it
    assert seq.ids() == [["a"], ["b"], ["c"]]
    for number in (1, 2):
        with pytest.raises(InferError, match="must specify the START flag"):
            seq.send("z", number)


async def test_what_a_silent_sequence_still_has_queued_runs(client: Make) -> None:
    seq = await client(f"max_sequence_idle_microseconds: 200000 {CONTROLS}")
    for index in range(4):
        seq.send(f"a{index}", 1, START if not index else 0, SLOW)
    await seq.done()
    assert len(seq.batches) == 4
    with pytest.raises(InferError, match="must specify the START flag"):
        seq.send("z", 1)


async def test_a_direct_batch_waits_for_enough_slots_or_for_its_delay(client: Make) -> None:
    seq = await client(
        "direct { max_queue_delay_microseconds: 60000000 minimum_slot_utilization: 1.0 } "
        + CONTROLS,
        batch=2,
    )
    seq.send("a", 1, START)
    await asyncio.sleep(0.05)
    assert seq.batches == []
    seq.send("b", 2, START)
    await seq.done()
    assert seq.ids() == [["a", "b"]]


async def test_slots_spread_over_the_instances(client: Make) -> None:
    seq = await client(f"direct {{ }} {CONTROLS}", batch=2, more="instance_group [{count: 2}]")
    for number in range(1, 5):
        seq.send(f"a{number}", number, START)
        await seq.done(f"a{number}")
    assert [batch[0] for batch in seq.batches] == ["seq_0_0", "seq_0_1"] * 2
    assert seq.ids() == [["a1"], ["a2"], ["-", "a3"], ["-", "a4"]]


async def test_oldest_has_one_request_of_a_sequence_under_way(client: Make) -> None:
    seq = await client(f"oldest {{ max_candidate_sequences: 2 }} {CONTROLS}", batch=3)
    seq.send("a1", 1, START, SLOW)
    seq.send("b1", 2, START)
    seq.send("c1", 3, START | END)
    for name, number, flags in (("a2", 1, 0), ("a3", 1, END), ("b2", 2, 0), ("b3", 2, END)):
        seq.send(name, number, flags)
    await seq.done()
    assert seq.ids() == [["a1"], ["b1", "a2"], ["b2", "a3"], ["b3", "c1"]]


async def test_oldest_waits_for_a_preferred_size(client: Make) -> None:
    seq = await client(
        "oldest { max_candidate_sequences: 4 preferred_batch_size: [2] "
        f"max_queue_delay_microseconds: 60000000 }} {CONTROLS}",
        batch=4,
    )
    seq.send("a", 1, START)
    await asyncio.sleep(0.05)
    assert seq.batches == []
    seq.send("b", 2, START)
    await seq.done()
    assert seq.ids() == [["a", "b"]]


async def test_an_iterative_request_runs_until_it_is_not_released_again(client: Make) -> None:
    seq = await client(f"iterative_sequence: true {CONTROLS}", batch=3)
    seq.send("a", x=102.0)
    await seq.done()
    # Only the last execution answers; it was the third.
    assert len(seq.responses["a"]) == 1
    (last,) = seq.batches
    assert last[1][0][:3] == ["a", 1, 0]
    counters = seq.engine.model("seq").counters
    assert (counters.execution_count, counters.success.count) == (3, 3)
    assert counters.failures["CANCELED"] == 1
    seq.send("b", x=0.0)
    await seq.done()
    assert seq.batches[-1][1][0][:3] == ["b", 2, START]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
async def test_decoupled_iterations_share_batches(client: Make, strategy: str) -> None:
    seq = await client(
        f"iterative_sequence: true {strategy} {CONTROLS}", batch=3,
        more="model_transaction_policy { decoupled: true }",
    )  # fmt: skip
    seq.send("a", x=102.0)
    seq.send("b", x=101.0)
    seq.send("c", x=101.0)
    await seq.done()
    assert [len(seq.responses[name]) for name in "abc"] == [3, 2, 2]
    assert [len(batch[1]) for batch in seq.batches].count(3) == 2
    assert len(seq.engine.model("seq").scheduler) == 0


async def test_a_failed_iteration_ends_its_sequence(client: Make) -> None:
    seq = await client(f"iterative_sequence: true {CONTROLS}", batch=2)
    seq.send("a", 7, START, -1.0)
    await seq.done()
    error = seq.error("a")
    assert error is not None
    assert "asked to fail" in error.message
    with pytest.raises(InferError, match="must specify the START flag"):
        seq.send("b", 7)


async def test_a_state_is_its_initial_value_in_every_request(client: Make, tmp_path: Any) -> None:
    folder = tmp_path / "models" / "seq" / "initial_state"
    folder.mkdir(parents=True)
    (folder / "first").write_bytes(np.int32(41).tobytes())
    state = (
        'state [ { input_name: "%s" output_name: "%s" data_type: TYPE_INT32 dims: [ 1 ] '
        'initial_state { name: "i" data_type: TYPE_INT32 dims: [ 1 ] %s } } ]'
    )
    seq = await client(
        CONTROLS
        + state % ("FILE", "OUT", 'data_file: "first"')
        + state % ("ZERO", "OUT2", "zero_data: true"),
        batch=2,
    )
    for name, flags in (("a", START), ("b", END)):
        seq.send(name, 1, flags)
        await seq.done(name)
    for batch in seq.batches:
        assert batch[1][0][3]["FILE"] == ["int32", [1, 1], [[41]]]
        assert batch[1][0][3]["ZERO"] == ["int32", [1, 1], [[0]]]


async def test_a_sequence_ends_at_a_queued_request_that_was_cancelled(client: Make) -> None:
    seq = await client(CONTROLS)
    seq.send("a", 1, START, SLOW)
    seq.send("b", 1)
    waiting = seq.send("c", 1)
    seq.send("d", 1)
    seq.engine.cancel(waiting)
    await seq.done()
    for name in "cd":
        error = seq.error(name)
        assert error is not None
        assert (error.code, error.message) == (Code.CANCELLED, "")
    with pytest.raises(InferError, match="must specify the START flag"):
        seq.send("e", 1, END)
    seq.send("f", 1, START | END)
    await seq.done("f")
    assert seq.ids() == [["a"], ["b"], ["f"]]


async def test_a_withdrawn_request_leaves_its_sequence_as_it_is(client: Make) -> None:
    seq = await client(CONTROLS)
    seq.send("a", 1, START, SLOW)
    waiting = seq.send("b", 1)
    seq.send("c", 1, END)
    seq.engine.withdraw(waiting)
    await seq.done()
    assert seq.ids() == [["a"], ["c"]]


async def test_a_sequence_outlives_the_death_of_its_instance(client: Make) -> None:
    seq = await client(CONTROLS)
    seq.send("a", 1, START)
    await seq.done()
    seq.engine.model("seq").instances[0].process.kill()
    while seq.engine.model("seq").instances[0].state == "ready":
        await asyncio.sleep(0.01)
    seq.send("b", 1, END)
    await seq.done()
    assert seq.ids() == [["a"], ["b"]]
