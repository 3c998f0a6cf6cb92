"""What a default-mode `execute` may return or raise, and what the runtime is told of it."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from devkit.transport import messages

X = np.array([1, 2], np.float32)
INPUT = {"X": ("FP32", [2])}


def ask(serve, body, **options):
    stub = serve(
        "def execute(self, requests):\n" + textwrap.indent(textwrap.dedent(body), "    "), **options
    )
    stub.plan(0, INPUT)
    return stub, stub.infer(X)


def test_the_usual_answer(serve):
    stub, batch = ask(serve, "return [answer(X(r) * 2) for r in requests]")
    np.testing.assert_array_equal(stub.arrays(batch.responses[0])["Y"], [2, 4])
    assert stub.signatures[0].outputs == (("Y", "FP32", (2,)),)
    assert batch.responses[0].flags == messages.FINAL


def test_a_signature_is_announced_once(serve):
    stub, _ = ask(serve, "return [answer(X(r)) for r in requests]")
    stub.signatures = {0: stub.signatures[0]}
    stub.infer(X)
    assert list(stub.signatures) == [0]


def test_several_batches_in_one_write_are_answered_in_order(serve):
    stub, _ = ask(serve, "return [answer(X(r)) for r in requests]")
    frames = b"".join(
        messages.execute_frame(n, [stub.request(X + n), stub.request(X - n)]) for n in range(20)
    )
    stub.data.send(frames)
    for n in range(20):
        first, second = stub.result().responses
        np.testing.assert_array_equal(stub.arrays(first)["Y"], X + n)
        np.testing.assert_array_equal(stub.arrays(second)["Y"], X - n)


def test_an_output_array_may_be_reused_at_once(serve):
    stub = serve("""
    def initialize(self, args):
        self.out = np.zeros(2, np.float32)
    def execute(self, requests):
        self.out += 1
        return [answer(self.out)]
    """)
    stub.plan(0, INPUT)
    stub.data.send(b"".join(messages.execute_frame(n, [stub.request(X)]) for n in range(3)))
    seen = [stub.arrays(stub.result().responses[0])["Y"][0] for _ in range(3)]
    assert seen == [1, 2, 3]


RAISES = [
    ("raise ValueError('my value error')", "ValueError: my value error"),
    ("raise pb_utils.TritonModelException('mine')", "TritonModelException: mine"),
    ("raise KeyboardInterrupt()", "KeyboardInterrupt: <EMPTY MESSAGE>"),
    ("import sys; sys.exit(3)", "SystemExit: 3"),
    ("raise KeyError('k')", "KeyError: 'k'"),
]


@pytest.mark.parametrize(("body", "text"), RAISES)
def test_an_exception_fails_the_batch_with_its_line(serve, body, text):
    stub, batch = ask(serve, body)
    path = stub.model_dir / "1" / "model.py"
    assert batch.error == f"{text}\n\nAt:\n  {path}(10): execute\n"
    assert batch.failure["line"] == f"{path}:10"
    assert batch.failure["batch"] == 1
    assert "Traceback" in batch.failure["traceback"]
    assert stub.infer(X).error == batch.error  # and the instance goes on


def test_frames_are_told_innermost_first_and_locals_are_kept(serve):
    stub, batch = ask(
        serve,
        """
        def inner(depth):
            return [1 / 0 for _ in range(depth)]
        big = np.zeros(100)
        inner(3)
        """,
    )
    path = stub.model_dir / "1" / "model.py"
    shown = batch.error.split("At:\n")[1].splitlines()
    assert shown[0].startswith(f"  {path}(12): ")
    assert shown[-1] == f"  {path}(14): execute"
    frames = batch.failure["frames"]
    assert [frame["function"] for frame in frames][:2] == ["execute", "inner"]
    assert frames[0]["locals"]["big"] == "ndarray float64 (100,) min 0 max 0 mean 0"
    assert frames[1]["locals"]["depth"] == "3"


def test_a_message_that_cannot_be_made_is_said_so(serve):
    _, batch = ask(
        serve,
        """
        class Bad(Exception):
            def __str__(self): raise RuntimeError
        raise Bad()
        """,
    )
    assert batch.error.startswith("Bad: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>\n\nAt:\n")


COUNT = (
    "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
    "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:{}\n"
)
REFUSED = [
    ("return []", COUNT.format(0)),
    ("return [answer(X(r)) for r in requests] * 2", COUNT.format(2)),
    ("return 5", "Expected a list in the execute return, found type '<class 'int'>'."),
    ("return ()", "Expected a list in the execute return, found type '<class 'tuple'>'."),
    (
        "return [7]",
        "Expected an 'InferenceResponse' object in the execute function return list, "
        "found type '<class 'int'>'.",
    ),
]


@pytest.mark.parametrize(("body", "text"), REFUSED)
def test_what_may_not_be_returned(serve, body, text):
    _, batch = ask(serve, body)
    assert batch.error == text


def test_a_tensor_of_a_scalar_is_pybinds_type_error(serve):
    stub, batch = ask(serve, "return [answer(3.0)]")
    path = stub.model_dir / "1" / "model.py"
    assert batch.error == (
        "TypeError: __init__(): incompatible constructor arguments. The following argument types "
        "are supported:\n    1. c_python_backend_utils.Tensor(arg0: str, arg1: numpy.ndarray)\n\n"
        f"Invoked with: 'Y', 3.0\n\nAt:\n  {path}(6): answer\n  {path}(10): execute\n"
    )


@pytest.mark.parametrize("body", ["return None", "return [None]"])
def test_none_is_no_answer_and_a_warning(serve, body):
    stub, batch = ask(serve, body)
    assert batch.responses == []
    assert batch.failure is None
    warning = stub.report()
    assert (warning["op"], warning["rule"]) == ("warning", "no-response")
    assert warning["line"] == f"{stub.model_dir}/1/model.py:9"


def test_undeclared_outputs_are_dropped_with_a_warning(serve):
    stub, batch = ask(
        serve,
        """
        x = X(requests[0])
        return [pb_utils.InferenceResponse([pb_utils.Tensor(n, x) for n in ("Q", "Y", "Z")])]
        """,
    )
    assert list(stub.arrays(batch.responses[0])) == ["Y"]
    warning = stub.report()
    assert warning["rule"] == "undeclared-output"
    assert "'Q'" in warning["message"]


def test_outputs_nobody_asked_for_stay_here(serve):
    stub = serve(
        """
        def execute(self, requests):
            x = X(requests[0])
            return [pb_utils.InferenceResponse([pb_utils.Tensor(n, x) for n in ("A", "B")])]
        """,
        outputs=["A", "B"],
    )
    for slot, wanted in enumerate((("A",), ("A", "B"), ("B",))):
        stub.plan(slot, INPUT, wanted)
        batch = stub.infer(X, slot=slot)
        assert tuple(stub.arrays(batch.responses[0])) == wanted


def test_dtype_and_shape_pass_unchecked_and_names_may_repeat(serve):
    stub, batch = ask(
        serve,
        """
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor("Y", np.zeros((3, 5), np.int64)), pb_utils.Tensor("Y", X(requests[0]))
        ])]
        """,
    )
    outputs = stub.signatures[batch.responses[0].signature].outputs
    assert outputs == (("Y", "INT64", (3, 5)), ("Y", "FP32", (2,)))


def test_no_outputs_at_all(serve):
    stub, batch = ask(serve, "return [pb_utils.InferenceResponse([])]")
    assert batch.responses[0].kind == messages.OK
    assert stub.arrays(batch.responses[0]) == {}


CODES = "UNKNOWN INTERNAL NOT_FOUND INVALID_ARG UNAVAILABLE UNSUPPORTED ALREADY_EXISTS CANCELLED"


@pytest.mark.parametrize(("number", "name"), list(enumerate(CODES.split())))
def test_error_responses_carry_their_code(serve, number, name):
    body = f"""
    error = pb_utils.TritonError("coded", pb_utils.TritonError.{name})
    return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", X(requests[0]))], error)]
    """
    _, batch = ask(serve, body)
    response = batch.responses[0]
    assert (response.kind, response.error, response.code) == (messages.ERROR, "coded", number)


def test_response_parameters_travel_as_json(serve):
    _, batch = ask(
        serve,
        """return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", X(requests[0]))],
                                              parameters={"a": 1, "b": "s", "c": True})]""",
    )
    assert batch.responses[0].parameters == '{"a": 1, "b": "s", "c": true}'


def test_a_model_without_execute(serve):
    stub = serve("class TritonPythonModel:\n    pass\n")
    stub.plan(0, INPUT)
    assert stub.infer(X).error == (
        f"Python model {stub.model_dir}/1/model.py does not implement `execute` method."
    )


def test_a_rescheduled_request_says_so_and_needs_none(serve):
    stub = serve("""
    def execute(self, requests):
        requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [None] if X(requests[0])[0] else [answer(X(requests[0]))]
    """)
    stub.plan(0, INPUT)
    response = stub.infer(X).responses[0]
    assert (response.kind, response.flags) == (messages.NOTHING, messages.RESCHEDULE)
    assert stub.infer(X * 0).error == (
        "Expected a None object in the execute function return list for reschduled request, "
        "found type '<class 'c_python_backend_utils.InferenceResponse'>'."
    )


def test_a_coroutine_is_awaited(serve):
    stub = serve("""
    async def execute(self, requests):
        await asyncio.sleep(0)
        if X(requests[0])[0] == 0:
            raise ValueError("async boom")
        return [answer(X(r)) for r in requests]
    """)
    stub.plan(0, INPUT)
    np.testing.assert_array_equal(stub.arrays(stub.infer(X).responses[0])["Y"], X)
    error = stub.infer(X * 0).error
    assert error.startswith("ValueError: async boom\n\nAt:\n")
    assert "(12): execute\n" in error  # newer Pythons show the event loop's frames too


def test_every_accessor_of_a_request(serve):
    stub = serve("""
    def execute(self, requests):
        r = requests[0]
        found = [r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters(),
                 sorted(r.requested_output_names()), r.is_cancelled(), r.trace().get_context(),
                 [(t.name(), t.shape(), t.is_cpu(), t.as_numpy().flags.writeable)
                  for t in r.inputs()],
                 pb_utils.get_input_tensor_by_name(r, "none"), pb_utils.get_model_dir()]
        return [answer(np.array([repr(found)], dtype=object))]
    """)
    stub.plan(0, INPUT)
    batch = stub.infer(
        X,
        id="é7",
        extra={"correlation_id": "s", "flags": 3, "timeout": 9, "trace": '{"traceparent": "x"}'},
    )
    assert stub.arrays(batch.responses[0])["Y"][0].decode() == repr(
        ["é7", "s", 3, 9, "{}", ["Y"], False, '{"traceparent": "x"}',
         [("X", [2], True, True)], None, f"{stub.model_dir}/1"]
    )  # fmt: skip
