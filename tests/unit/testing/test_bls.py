"""Requests that a model under test makes to others, and who answers them."""

from __future__ import annotations

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from devkit.errors import InferError
from devkit.stub import link
from devkit.testing import ContractWarning, LiveRuntime, load_model

DECOUPLED = "model_transaction_policy { decoupled: true }"
ASKS = """
def execute(self, requests):
    answers = []
    for request in requests:
        asked = pb_utils.InferenceRequest(
            model_name="other", requested_output_names=["Y"], request_id="r7",
            inputs=[pb_utils.Tensor("X", x_of(request))], parameters={"a": 1}, timeout=5000000,
        )
        response = asked.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        answers.append(answer(response.output_tensors()[0].as_numpy() + 1))
    return answers
"""
STREAMS = """
def execute(self, requests):
    asked = pb_utils.InferenceRequest(
        model_name="other", requested_output_names=["Y"],
        inputs=[pb_utils.Tensor("X", x_of(requests[0]))],
    )
    found = []
    for response in asked.exec(decoupled=True):
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        for tensor in response.output_tensors():
            found += tensor.as_numpy().tolist()
    return [answer(found)]
"""
REPEAT = """
def execute(self, requests):
    for request in requests:
        threading.Thread(target=self.send, args=(request.get_response_sender(), x_of(request))).start()
def send(self, sender, x):
    for value in x:
        sender.send(answer([value]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_a_function_answers(write):
    with load_model(
        write("asks", ASKS), bls={"other": lambda inputs: {"Y": inputs["X"] * 10}}
    ) as m:
        assert m.infer({"X": [1, 2]})["Y"].tolist() == [11, 21]
        (call,) = m.calls
        assert (call.model, call.id, call.outputs) == ("other", "r7", ("Y",))
        assert call.inputs["X"].tolist() == [1, 2]
        assert (call.parameters, call.timeout) == ({"a": 1}, 5_000_000)


def test_a_function_may_take_the_request_too(write):
    def other(inputs, request):
        assert isinstance(request, pb_utils.InferenceRequest)
        return {"Y": inputs["X"], "unasked": inputs["X"]}

    with load_model(write("asks", ASKS), bls={"other": other}) as model:
        assert model.infer({"X": [1]})["Y"] == [2]


def test_what_a_function_raises_is_an_error_response(write):
    def other(inputs):
        raise ValueError("no luck")

    with (
        load_model(write("asks", ASKS), bls={"other": other}) as model,
        pytest.raises(pb_utils.TritonModelException, match=r"^ValueError: no luck$"),
    ):
        model.infer({"X": [1]})


def test_an_assertion_in_a_function_fails_the_test(write):
    def other(inputs):
        assert inputs["X"].size == 2, "two were expected"

    with (
        load_model(write("asks", ASKS), bls={"other": other}) as model,
        pytest.raises(AssertionError, match="two were expected"),
    ):
        model.infer({"X": [1]})


def test_a_model_of_the_repository_answers(write):
    write("other")
    with load_model(write("asks", ASKS)) as model:
        assert model.infer({"X": [1, 2]})["Y"].tolist() == [3, 5]
    assert link.current is None


def test_a_model_loaded_by_the_test_answers_and_stays_loaded(write):
    with load_model(write("another")) as other:
        with load_model(write("asks", ASKS), bls={"other": other}) as model:
            assert model.infer({"X": [1]})["Y"] == [3]
        assert other.infer({"X": [1]})["Y"] == [2]


def test_a_path_answers(write):
    with load_model(write("asks", ASKS), bls={"other": write("another")}) as model:
        assert model.infer({"X": [1]})["Y"] == [3]


def test_calls_go_down_a_chain_of_models(write):
    write("other", ASKS.replace('"other"', '"last"'))
    write("last")
    with load_model(write("asks", ASKS)) as model:
        assert model.infer({"X": [1]})["Y"] == [4]


def test_an_unknown_model_is_answered_in_the_servers_words(write):
    with (
        load_model(write("asks", ASKS)) as model,
        pytest.raises(pb_utils.TritonModelException) as caught,
    ):
        model.infer({"X": [1]})
    assert str(caught.value) == (
        "Model other - Error when running inference: Failed for execute the inference request. "
        "Model 'other' is not ready."
    )


def test_a_refused_request_is_answered_in_the_servers_words(write):
    write("other", config='input [{ name: "Z" data_type: TYPE_FP32 dims: [-1] }]')
    with (
        load_model(write("asks", ASKS)) as model,
        pytest.raises(pb_utils.TritonModelException) as caught,
    ):
        model.infer({"X": [1]})
    assert str(caught.value) == (
        "Model other - Error when running inference: unexpected inference input 'X' for model "
        "'other'"
    )


def test_what_the_other_model_raises_is_answered_in_the_servers_words(write):
    home = write("other", "def execute(self, requests):\n    raise ValueError('inside')\n")
    with (
        load_model(write("asks", ASKS)) as model,
        pytest.raises(pb_utils.TritonModelException) as caught,
    ):
        model.infer({"X": [1]})
    assert str(caught.value).startswith(
        "Failed to process the request(s) for model 'other_0', message: ValueError: inside\n\nAt:\n"
        f"  {home}/1/model.py("
    )


def test_a_model_that_calls_itself_is_warned_of_and_does_not_hang(write):
    body = ASKS.replace('"other"', '"asks"')
    with (
        load_model(write("asks", body)) as model,
        pytest.warns(ContractWarning, match="hangs for good"),
        pytest.raises(pb_utils.TritonModelException, match="hangs for good"),
    ):
        model.infer({"X": [1]})


@pytest.mark.parametrize("who", ["model", "generator", "list"])
def test_every_response_of_a_decoupled_answerer_comes(write, who):
    def generator(inputs):
        for value in inputs["X"]:
            yield {"Y": np.array([value])}

    bls = {"generator": generator, "list": lambda inputs: list(generator(inputs))}.get(who)
    write("other", REPEAT, more=DECOUPLED)
    with load_model(write("asks", STREAMS), bls={"other": bls} if bls else None) as model:
        assert model.infer({"X": [1, 2, 3]})["Y"].tolist() == [1, 2, 3]
        assert model.infer({"X": []})["Y"].tolist() == []


def test_a_decoupled_model_is_refused_to_who_wants_one_response(write):
    write("other", REPEAT, more=DECOUPLED)
    with (
        load_model(write("asks", ASKS)) as model,
        pytest.raises(pb_utils.TritonModelException, match="is using the decoupled"),
    ):
        model.infer({"X": [1]})


def test_asynchronous_calls_run_side_by_side(write):
    """Each function waits for the other to have been called."""
    import threading

    meeting = threading.Barrier(2)

    def meet(inputs):
        meeting.wait(10)
        return {"Y": inputs["X"]}

    body = """
    async def execute(self, requests):
        import asyncio
        calls = [
            pb_utils.InferenceRequest(
                model_name=name, requested_output_names=["Y"],
                inputs=[pb_utils.Tensor("X", x_of(requests[0]))],
            ).async_exec()
            for name in ("one", "two")
        ]
        found = await asyncio.gather(*calls)
        return [answer(sum(one.output_tensors()[0].as_numpy() for one in found))]
    """
    with load_model(write("asks", body), bls={"one": meet, "two": meet}) as model:
        assert model.infer({"X": [2]})["Y"] == [4]


def test_models_are_loaded_and_unloaded_from_the_repository(write):
    write("other")
    body = """
    def execute(self, requests):
        found = [pb_utils.is_model_ready("other"), pb_utils.is_model_ready("nobody")]
        pb_utils.load_model("other")
        pb_utils.unload_model("other")
        try:
            pb_utils.load_model("nobody")
        except pb_utils.TritonModelException as problem:
            self.problem = str(problem)
        return [answer(found)]
    """
    with load_model(write("loads", body)) as model:
        assert model.infer({"X": [1]})["Y"].tolist() == [1, 0]
        assert "failed to load 'nobody', failed to poll from model repository" in (
            model.instance.problem
        )


def test_a_live_runtime_answers(write, tmp_path):
    write("other")
    write("elsewhere", REPEAT, more=DECOUPLED)
    with LiveRuntime([tmp_path / "models"]) as runtime:
        with load_model(write("asks", ASKS), bls=runtime.client) as model:
            assert model.infer({"X": [1]})["Y"] == [3]
        streams = write("streams", STREAMS.replace('"other"', '"elsewhere"'))
        with load_model(streams, bls={"elsewhere": runtime.client}) as model:
            assert model.infer({"X": [1, 2]})["Y"].tolist() == [1, 2]


def test_an_infer_error_of_a_function_keeps_its_text(write):
    def other(inputs):
        raise InferError("not today")

    with (
        load_model(write("asks", ASKS), bls={"other": other}) as model,
        pytest.raises(pb_utils.TritonModelException, match=r"^not today$"),
    ):
        model.infer({"X": [1]})


def test_a_thread_of_the_models_own_may_ask_too(write):
    body = """
    def execute(self, requests):
        found = []
        def ask():
            asked = pb_utils.InferenceRequest(
                model_name="other", requested_output_names=["Y"],
                inputs=[pb_utils.Tensor("X", x_of(requests[0]))],
            )
            found.append(asked.exec().output_tensors()[0].as_numpy())
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return [answer(found[0])]
    """
    write("other")
    with load_model(write("asks", body)) as model:
        assert model.infer({"X": [2]})["Y"] == [4]
        assert [one.model for one in model.calls] == ["other"]
