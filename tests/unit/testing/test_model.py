"""One model in the test's own process: its life, its answers, and what is said of wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils

from devkit.errors import Code, DevkitError, InferError, LoadError
from devkit.stub import link
from devkit.testing import ContractWarning, cancel, infer, load_model, request

DECOUPLED = "model_transaction_policy { decoupled: true }"
BATCHED = """
max_batch_size: 4
input [{ name: "X" data_type: TYPE_FP32 dims: [2] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [2] }]
"""


def test_a_model_is_asked_in_numpy(write):
    with load_model(write("double")) as model:
        assert infer(model, {"X": [1, 2.5]})["Y"].tolist() == [2, 5]
        assert model.infer({"X": np.array([3], np.float32)})["Y"].dtype == np.float32


def test_initialize_gets_the_servers_seven_arguments(write):
    home = write("double", "def initialize(self, args): self.args = args\n")
    with load_model(home, model_instance_kind="GPU") as model:
        args = model.instance.args
        assert json.loads(args.pop("model_config"))["input"][0]["name"] == "X"
        assert args == {
            "model_instance_kind": "GPU",
            "model_instance_name": "double_0",
            "model_instance_device_id": "0",
            "model_repository": str(home),
            "model_version": "1",
            "model_name": "double",
        }


@pytest.mark.parametrize("inside", ["", "1", "1/model.py"])
def test_folder_version_and_file_name_the_same_model(write, inside):
    with load_model(write("double") / inside) as model:
        assert (model.name, model.version) == ("double", "1")
        assert model.module.__name__ == "1.model"


def test_the_version_policy_says_which_version_is_loaded(write):
    write("double", version=1)
    home = write("double", version=3, more="version_policy { latest { num_versions: 1 } }")
    with load_model(home) as model:
        assert model.version == "3"
    with load_model(home, model_version="1") as model:
        assert model.version == "1"


class Triple:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", 3 * request.inputs()[0].as_numpy())])
            for request in requests
        ]


@pytest.mark.parametrize("config", [BATCHED, {"maxBatchSize": 4}, None], ids=["text", "dict", "no"])
def test_a_class_is_a_model_too(config):
    with load_model(Triple, config, model_name="triple") as model:
        y = model.infer({"X": np.ones((1, 2), np.float32)})["Y"]
        assert y.tolist() == [[3, 3]]
        assert model.instance_name == "triple_0"


def test_auto_complete_config_completes_the_config(write):
    body = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
        config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [2]})
        config.set_max_batch_size(4)
        return config
    def execute(self, requests):
        return [answer(x_of(r)) for r in requests]
    """
    with load_model(write("auto", body, config="")) as model:
        assert list(model.inputs) == ["X"]
        assert model.config.max_batch_size == 4
    with load_model(write("auto", body, config=""), auto_complete=False) as model:
        assert model.inputs == {}


@pytest.mark.parametrize("stage", ["initialize", "auto_complete_config", "execute", "finalize"])
def test_what_a_model_raises_reaches_the_test_as_it_is(write, stage):
    body = f"def {stage}(self, *args):\n    raise KeyError('boom')\n"
    if stage == "auto_complete_config":
        body = "@staticmethod\ndef auto_complete_config(config):\n    raise KeyError('boom')\n"

    def live():
        with load_model(write("bad", body)) as model:
            if stage == "execute":
                model.infer({"X": [1]})

    with pytest.raises(KeyError, match="boom") as caught:
        live()
    assert caught.traceback[-1].path.name == "model.py"
    assert link.current is None


def test_a_module_without_a_model_says_so(write):
    home = write("none")
    (home / "1" / "model.py").write_text("")
    with pytest.raises(AttributeError, match=r"module '1\.model' has no attribute"):
        load_model(home)


def test_finalize_runs_once_and_nothing_executes_after_it(write):
    body = "ended = 0\ndef finalize(self):\n    type(self).ended += 1\n"
    with load_model(write("ends", body)) as model:
        kind = type(model.instance)
        model.finalize()
        with pytest.raises(DevkitError, match="finalized: it cannot execute"):
            model.infer({"X": [1]})
    assert kind.ended == 1


def test_models_have_their_own_modules_and_leave_none_behind(write):
    body = """
    def execute(self, requests):
        import helper  # only now
        return [answer([helper.WHO]) for r in requests]
    """
    before = set(sys.modules), list(sys.path)
    one = load_model(write("one", body, files={"1/helper.py": "WHO = 1"}))
    two = load_model(write("two", body, files={"helper.py": "WHO = 2"}))
    for _ in range(2):
        assert one.infer({"X": [0]})["Y"] == [1]
        assert two.infer({"X": [0]})["Y"] == [2]
    one.close()
    two.close()
    assert list(sys.path) == before[1]
    assert not {"1", "1.model", "helper"} & (set(sys.modules) - before[0])


def test_get_model_dir_is_the_version_folder(write):
    body = "def initialize(self, args): self.where = pb_utils.get_model_dir()\n"
    home = write("where", body)
    with load_model(home) as model:
        assert model.instance.where == str(home / "1")


# -- requests --------------------------------------------------------------------------------------

LOOKS = """
def execute(self, requests):
    self.seen = requests
    return [answer(x_of(r)) for r in requests]
"""


def test_a_request_is_as_the_server_makes_it(write):
    with load_model(write("looks", LOOKS)) as model:
        asked = request(
            {"X": np.array([1, 2], np.float32)},
            id="seven",
            parameters={"a": 4, "b": "s", "c": True},
            correlation_id="chat",
            sequence_start=True,
            timeout=1500,
        )
        model.infer(asked)
        (seen,) = model.instance.seen
        assert seen.request_id() == "seven"
        assert seen.parameters() == '{"a":4,"b":"s","c":true}'
        assert (seen.correlation_id(), seen.flags(), seen.timeout()) == ("chat", 1, 1500)
        assert seen.requested_output_names() == {"Y"}
        array = pb_utils.get_input_tensor_by_name(seen, "X").as_numpy()
        array[0] = 9  # input arrays may be written to


def test_text_arrives_as_objects_of_bytes(write):
    config = 'input [{ name: "X" data_type: TYPE_STRING dims: [-1] }]'
    body = "def execute(self, requests):\n    self.x = x_of(requests[0])\n    return [None]\n"
    with load_model(write("text", body, config=config)) as model:
        with pytest.warns(ContractWarning, match="without a response"):
            model.execute(model.request({"X": ["é", b"\xff"]}))
        assert model.instance.x.tolist() == ["é".encode(), b"\xff"]


def test_a_request_may_be_made_with_the_public_constructor_and_asked_twice(write):
    with load_model(write("looks", LOOKS)) as model:
        asked = pb_utils.InferenceRequest(
            request_id="r", model_name="looks", requested_output_names=["Y"],
            inputs=[pb_utils.Tensor("X", np.ones(1, np.float32))], parameters={"a": 1},
        )  # fmt: skip
        for _ in range(2):
            (response,) = model.execute(asked)
            assert response.output_tensors()[0].as_numpy().tolist() == [1]
        assert model.instance.seen[0].parameters() == '{"a":1}'


def test_a_batch_is_one_execute(write):
    with load_model(write("looks", LOOKS)) as model:
        responses = model.execute([model.request({"X": [n]}) for n in range(3)])
        assert len(model.instance.seen) == 3
        assert [r.output_tensors()[0].as_numpy()[0] for r in responses] == [0, 1, 2]


def test_a_request_can_be_cancelled(write):
    body = (
        "def execute(self, requests):\n    return [answer([r.is_cancelled()]) for r in requests]\n"
    )
    with load_model(write("cancels", body)) as model:
        asked = model.request({"X": [1]})
        assert model.infer(asked)["Y"] == [0]
        cancel(asked)
        assert model.infer(asked)["Y"] == [1]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"X": np.ones(2, np.int32)}, "inference input 'X' data-type is 'INT32', but model "
         "'double' expects 'FP32'"),
        ({"X": np.ones((1, 2), np.float32)}, "unexpected shape for input 'X' for model 'double'. "
         "Expected [-1], got [1,2]. "),
        ({"Z": [1]}, "unexpected inference input 'Z' for model 'double'"),
        ({}, "expected 1 inputs but got 0 inputs for model 'double'."),
    ],
    ids=["dtype", "shape", "name", "missing"],
)  # fmt: skip
def test_a_request_that_the_server_would_refuse_never_reaches_the_model(write, inputs, text):
    body = "def execute(self, requests):\n    raise AssertionError\n"
    with load_model(write("double", body)) as model:
        with pytest.raises(InferError) as caught:
            model.infer(inputs)
        assert text in caught.value.message
        with pytest.raises(InferError, match=r"unexpected inference output 'NO'"):
            model.infer({"X": [1]}, outputs=["NO"])


# -- what execute may not return -------------------------------------------------------------------

REFUSED = {
    "too few": ("[]", "Number of InferenceResponse objects do not match the number of "
                "InferenceRequest objects. InferenceRequest(s) size is:1, and InferenceResponse(s) "
                "size is:0\n"),
    "a tuple": ("()", "Expected a list in the execute return, found type '<class 'tuple'>'."),
    "an int": ("[5]", "Expected an 'InferenceResponse' object in the execute function return list, "
               "found type '<class 'int'>'."),
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_return_is_refused_in_the_servers_words(write, value, text):
    body = f"def execute(self, requests):\n    return {value}\n"
    with load_model(write("wrong", body)) as model:
        with pytest.raises(InferError) as caught:
            model.infer({"X": [1]})
        head = "Failed to process the request(s) for model 'wrong_0', message: "
        assert caught.value.message == head + text


def test_a_model_without_execute_is_refused_in_the_servers_words(write):
    with (
        load_model(write("none", "pass\n")) as model,
        pytest.raises(InferError, match="does not implement `execute` method"),
    ):
        model.infer({"X": [1]})


SILENT = {
    "no-response": "[None]",
    "undeclared-output": "[pb_utils.InferenceResponse([pb_utils.Tensor('Y', x), "
    "pb_utils.Tensor('Z', x)])]",
    "missing-output": "[pb_utils.InferenceResponse([])]",
    "duplicate-output": "[pb_utils.InferenceResponse([pb_utils.Tensor('Y', x)] * 2)]",
    "output-datatype": "[pb_utils.InferenceResponse([pb_utils.Tensor('Y', x.astype('f8'))])]",
    "output-shape": "[pb_utils.InferenceResponse([pb_utils.Tensor('Y', x[None])])]",
}


@pytest.mark.parametrize(("rule", "value"), SILENT.items(), ids=SILENT.keys())
def test_what_a_server_passes_over_in_silence_is_a_warning_at_the_models_line(write, rule, value):
    body = f"def execute(self, requests):\n    x = x_of(requests[0])\n    return {value}\n"
    home = write("silent", body)
    with load_model(home) as model:
        with pytest.warns(ContractWarning) as caught:
            model.execute(model.request({"X": [1]}))
        assert [one.message.rule for one in caught] == [rule]
        assert caught[0].filename == str(home / "1" / "model.py")
        line = (home / "1" / "model.py").read_text().splitlines()[caught[0].lineno - 1]
        assert "def execute" in line


def test_rows_must_belong_to_their_requests(write):
    body = "def execute(self, requests):\n    return [answer(np.ones((3, 2)))]\n"
    with (
        load_model(write("rows", body, config=BATCHED)) as model,
        pytest.warns(ContractWarning, match="batch size 3 for a request of batch size 2"),
    ):
        model.infer({"X": [[1, 2], [3, 4]]})


def test_an_error_response_is_an_error_with_its_code(write):
    body = """
    def execute(self, requests):
        error = pb_utils.TritonError("no such thing", pb_utils.TritonError.NOT_FOUND)
        return [pb_utils.InferenceResponse(error=error)]
    """
    with load_model(write("error", body)) as model:
        with pytest.raises(InferError, match=r"^no such thing$") as caught:
            model.infer({"X": [1]})
        assert caught.value.code is Code.NOT_FOUND
        (response,) = model.execute(model.request({"X": [1]}))
        assert response.has_error()


def test_a_client_gets_no_output_it_did_not_ask_for(write):
    config = "".join(
        f'{kind} [{{ name: "{name}" data_type: TYPE_FP32 dims: [-1] }}]\n'
        for kind, name in (("input", "X"), ("output", "Y"), ("output", "Z"))
    )
    body = """
    def execute(self, requests):
        x = x_of(requests[0])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x), pb_utils.Tensor("Z", x)])]
    """
    with load_model(write("both", body, config=config)) as model:
        assert list(model.infer({"X": [1]})) == ["Y", "Z"]
        assert list(model.infer({"X": [1]}, outputs=["Z"])) == ["Z"]


# -- decoupled, asynchronous, rescheduled ----------------------------------------------------------

REPEAT = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        threading.Thread(target=self.send, args=(sender, x_of(request))).start()
def send(self, sender, x):
    for value in x:
        sender.send(answer([value]))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def test_a_decoupled_models_responses_are_collected_from_its_threads(write):
    with load_model(write("repeat", REPEAT, more=DECOUPLED)) as model:
        answers = model.stream({"X": [1, 2, 3]})
        assert [one["Y"][0] for one in answers] == [1, 2, 3]
        assert list(model.stream({"X": []})) == []
        found = model.execute([model.request({"X": [1] * n}) for n in range(3)])
        assert [len(responses) for responses in found] == [0, 1, 2]
        with pytest.raises(InferError, match="sent 2 responses"):
            model.infer({"X": [1, 2]})


def test_a_final_flag_that_never_comes_is_told_apart(write):
    body = """
    def execute(self, requests):
        requests[0].get_response_sender().send(answer([1]))
    """
    with (
        load_model(write("open", body, more=DECOUPLED)) as model,
        pytest.raises(TimeoutError, match="sent 1 responses to request 0 and no FINAL"),
    ):
        model.execute(model.request({"X": [1]}), timeout=0.01)


def test_a_decoupled_model_must_return_none(write):
    with (
        load_model(write("wrong", more=DECOUPLED)) as model,
        pytest.raises(InferError, match="using the decoupled mode and the execute function"),
    ):
        model.execute(model.request({"X": [1]}))


def test_a_default_model_may_use_the_sender(write):
    body = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(answer([1]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        try:
            sender.send(answer([2]))
        except pb_utils.TritonModelException as problem:
            self.problem = str(problem)
        return [None]
    """
    with load_model(write("sender", body)) as model:
        assert model.infer({"X": [1]})["Y"] == [1]
        assert model.instance.problem.endswith("Response sender has been closed.")


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_coroutine_is_awaited(write, decoupled):
    body = """
    async def execute(self, requests):
        import asyncio
        await asyncio.sleep(0)
        if not DECOUPLED:
            return [answer(x_of(requests[0]))]
        requests[0].get_response_sender().send(answer(x_of(requests[0])), flags=1)
    """.replace("DECOUPLED", str(decoupled))
    with load_model(write("awaits", body, more=DECOUPLED if decoupled else "")) as model:
        assert model.infer({"X": [4]})["Y"] == [4]


def test_what_a_decoupled_coroutine_raises_reaches_the_test(write):
    body = "async def execute(self, requests):\n    raise ValueError('lost in production')\n"
    with (
        load_model(write("lost", body, more=DECOUPLED)) as model,
        pytest.raises(ValueError, match="lost in production"),
    ):
        list(model.stream({"X": [1]}))


def test_a_rescheduled_request_is_executed_again(write):
    body = """
    times = 0
    def execute(self, requests):
        self.times += 1
        if self.times < 3:
            requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [None]
        return [answer([self.times])]
    """
    with load_model(write("again", body)) as model:
        assert model.infer({"X": [1]})["Y"] == [3]


def test_is_ready_is_the_models_own_opinion(write):
    with load_model(write("a", "async def is_ready(self):\n    return False\n")) as model:
        assert model.is_ready() is False
    with load_model(write("b")) as model:
        assert model.is_ready() is True


# -- logs and metrics ------------------------------------------------------------------------------


def test_log_lines_are_kept_and_go_to_pythons_logging(write, caplog):
    body = """
    def execute(self, requests):
        pb_utils.Logger.log_warn("careful")
        pb_utils.Logger.log_verbose("details")
        return [answer([1]) for _ in requests]
    """
    with caplog.at_level("INFO"), load_model(write("logs", body)) as model:
        model.infer({"X": [1]})
        assert [(one.level, one.message) for one in model.logs] == [("WARNING", "careful")]
        assert model.logs[0].file == "model.py"
    assert [(one.name, one.message) for one in caplog.records] == [("devkit.model.logs", "careful")]
    with load_model(write("logs", body), verbose=True) as model:
        model.infer({"X": [1]})
        assert [one.level for one in model.logs] == ["WARNING", "VERBOSE"]


def test_metrics_are_as_a_scrape_finds_them(write):
    body = """
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("served", "How many", pb_utils.MetricFamily.COUNTER)
        self.served = self.family.Metric(labels={"kind": "all"})
        self.times = pb_utils.MetricFamily("took", "Time", pb_utils.MetricFamily.HISTOGRAM)
        self.took = self.times.Metric(buckets=[0.1, 1.0])
    def execute(self, requests):
        self.served.increment(len(requests))
        self.took.observe(0.5)
        return [answer([self.served.value()]) for _ in requests]
    """
    home = write("metrics", body)
    for _ in range(2):  # the second finds nothing of the first
        with load_model(home) as model:
            assert model.infer({"X": [1]})["Y"] == [1]
            assert model.metric("served", kind="all") == 1
            assert model.metric("took_count") == 1
            assert model.metric("took_bucket", le="0.1") == 0
            with pytest.raises(pb_utils.TritonModelException, match="does not support Set"):
                model.instance.served.set(3)


def test_an_ensemble_has_no_code_to_test(write):
    config = 'platform: "ensemble"\nensemble_scheduling { step [] }\n'
    with pytest.raises(LoadError, match="is an ensemble"):
        load_model(write("ens", config=config))


@pytest.mark.parametrize("what", ["nothing", "empty"])
def test_where_no_model_is_says_so(tmp_path, what):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoadError):
        load_model(tmp_path / what)
    assert link.current is None


def test_every_public_name_is_there():
    import devkit.testing

    for name in devkit.testing.__all__:
        assert getattr(devkit.testing, name).__name__ == name


def test_a_class_of_a_notebook_is_a_model_too():
    """It is in a module without a file, as cells are."""
    code = (
        "import triton_python_backend_utils as pb_utils\n"
        "from devkit.testing import infer, load_model\n"
        "class Model:\n"
        "    def execute(self, requests):\n"
        "        tensor = pb_utils.get_input_tensor_by_name(requests[0], 'X')\n"
        "        return [pb_utils.InferenceResponse([pb_utils.Tensor('Y', tensor.as_numpy())])]\n"
        "print(infer(load_model(Model), {'X': [1, 2]})['Y'].tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[1, 2]\n", "")
