"""`pb_utils` in a plain process: every class, and the texts of what it refuses.

The texts were recorded from the real server 2.51; models and their tests match on them.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from devkit.stub import pb_utils

ZEROS = np.zeros(2)
TENSOR = pb_utils.Tensor("a", ZEROS)
SUPPORTED = " The following argument types are supported:\n    1. c_python_backend_utils."
CONSTRUCTOR = "__init__(): incompatible constructor arguments." + SUPPORTED
FUNCTION = (
    "{}(): incompatible function arguments. The following argument types are supported:\n    1. "
)


def refuses(kind, text, call):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


TENSORS = [
    (lambda: pb_utils.Tensor(), ""),
    (lambda: pb_utils.Tensor("a"), "'a'"),
    (lambda: pb_utils.Tensor(1, 2), "1, 2"),
    (lambda: pb_utils.Tensor("a", ZEROS, 3), "'a', array([0., 0.]), 3"),
    (lambda: pb_utils.Tensor(name="a", array=ZEROS), "kwargs: name='a', array=array([0., 0.])"),
    (lambda: pb_utils.Tensor("", [1]), "'', [1]"),
]


@pytest.mark.parametrize(("call", "invoked"), TENSORS)
def test_tensor_arguments(call, invoked):
    text = CONSTRUCTOR + "Tensor(arg0: str, arg1: numpy.ndarray)\n\nInvoked with: " + invoked
    refuses(TypeError, text, call)


@pytest.mark.parametrize(
    "array", [np.array(["x"]), np.zeros(2, np.complex64), np.zeros(2, ">f4"), np.zeros(2, "M8[s]")]
)
def test_tensor_dtypes_that_triton_has_not(array):
    refuses(
        pb_utils.TritonModelException,
        "NumPy dtype is not supported.",
        lambda: pb_utils.Tensor("a", array),
    )


def test_an_empty_tensor_name():
    refuses(
        pb_utils.TritonModelException,
        "Tensor name cannot be an empty string.",
        lambda: pb_utils.Tensor("", ZEROS),
    )


def test_a_tensor_keeps_its_array_and_copies_only_what_is_not_contiguous():
    assert TENSOR.as_numpy() is ZEROS
    columns = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2]
    tensor = pb_utils.Tensor("a", columns)
    np.testing.assert_array_equal(tensor.as_numpy(), columns)
    assert tensor.as_numpy().flags.c_contiguous
    assert tensor.shape() == [2, 2]
    assert pb_utils.Tensor("a", np.array(1.5, np.float32)).shape() == []
    assert pb_utils.Tensor("a", np.zeros((0, 3), np.int8)).shape() == [0, 3]
    fixed = np.array([b"x"])
    assert pb_utils.Tensor("a", fixed).as_numpy() is fixed


def test_a_tensor_looks_like_the_real_one():
    assert repr(TENSOR).startswith("<c_python_backend_utils.Tensor object at 0x")
    assert (TENSOR.name(), TENSOR.is_cpu()) == ("a", True)
    with pytest.raises(TypeError, match=r"\) -> TRITONSERVER_datatype_enum$"):
        TENSOR.triton_dtype()
    refuses(
        AttributeError,
        "'c_python_backend_utils.Tensor' object has no attribute 'foo'",
        lambda: TENSOR.foo,
    )


RESPONSES = [
    (lambda: pb_utils.InferenceResponse([5]), "[5]"),
    (lambda: pb_utils.InferenceResponse(5), "5"),
    (lambda: pb_utils.InferenceResponse(None), "None"),
    (lambda: pb_utils.InferenceResponse([], error="x"), "[]; kwargs: error='x'"),
    (lambda: pb_utils.InferenceResponse(error="x"), "kwargs: error='x'"),
]


@pytest.mark.parametrize(("call", "invoked"), RESPONSES)
def test_response_arguments(call, invoked):
    text = (
        CONSTRUCTOR + "InferenceResponse(output_tensors: List[c_python_backend_utils.Tensor] = "
        "[], error: c_python_backend_utils.TritonError = None)\n\nInvoked with: " + invoked
    )
    refuses(TypeError, text, call)


def test_a_response():
    response = pb_utils.InferenceResponse((TENSOR,))
    assert response.output_tensors() == [TENSOR]
    assert (response.has_error(), response.error(), response.parameters()) == (False, None, "{}")
    assert pb_utils.get_output_tensor_by_name(response, "a") is TENSOR
    assert pb_utils.get_output_tensor_by_name(response, "b") is None
    failed = pb_utils.InferenceResponse(error=pb_utils.TritonError("x"))
    assert failed.has_error()
    assert failed.error().message() == "x"
    assert failed.output_tensors() == []
    refuses(
        pb_utils.TritonModelException,
        "Output tensor for inference response should not be empty.",
        lambda: pb_utils.InferenceResponse([None]),
    )


ERRORS = [
    (lambda: pb_utils.TritonError(), ""),
    (lambda: pb_utils.TritonError(5), "5"),
    (lambda: pb_utils.TritonError("a", 5), "'a', 5"),
    (
        lambda: pb_utils.TritonError("a", pb_utils.TritonError.NOT_FOUND, 3),
        "'a', <__ErrorCode.NOT_FOUND: 2>, 3",
    ),
]


@pytest.mark.parametrize(("call", "invoked"), ERRORS)
def test_error_arguments(call, invoked):
    text = (
        CONSTRUCTOR + "TritonError(message: str, code: c_python_backend_utils.TritonError."
        "__ErrorCode = <__ErrorCode.INTERNAL: 1>)\n\nInvoked with: " + invoked
    )
    refuses(TypeError, text, call)


def test_error_codes():
    code = pb_utils.TritonError("a").code()
    assert repr(code) == "<__ErrorCode.INTERNAL: 1>"
    assert str(code) == "__ErrorCode.INTERNAL"
    assert (code == 1, int(code), code.name, code.value) == (True, 1, "INTERNAL", 1)
    assert pb_utils.TritonError("a", code=pb_utils.TritonError.NOT_FOUND).code().value == 2


def request(**options):
    given = {"model_name": "m", "inputs": [TENSOR], "requested_output_names": ["Y"], **options}
    return pb_utils.InferenceRequest(**given)


def test_a_request_made_here():
    made = request(request_id="i", correlation_id="s", flags=1, timeout=3, parameters={"a": "é"})
    assert made.inputs() == [TENSOR]
    assert (made.request_id(), made.correlation_id(), made.flags()) == ("i", "s", 1)
    assert (made.timeout(), made.requested_output_names()) == (3, {"Y"})
    assert made.parameters() == '{"a": "\\u00e9"}'
    assert pb_utils.get_input_tensor_by_name(made, "a") is TENSOR
    assert pb_utils.get_input_tensor_by_name(made, "b") is None
    assert request().parameters() == "{}"
    assert made.is_cancelled() is False
    positional = pb_utils.InferenceRequest("id", 3, (), ("Y",), "m")
    assert (positional.request_id(), positional.correlation_id()) == ("id", 3)


@pytest.mark.parametrize(
    "given",
    [
        {"inputs": [5]}, {"inputs": None}, {"requested_output_names": "Y"}, {"model_name": 5},
        {"request_id": 5}, {"correlation_id": None}, {"flags": -1}, {"timeout": -1}, {"bogus": 1},
    ],
)  # fmt: skip
def test_request_arguments(given):
    with pytest.raises(TypeError) as caught:
        request(**given)
    text = str(caught.value)
    assert text.startswith(CONSTRUCTOR + "InferenceRequest(request_id: str = '', correlation_id: ")
    ((name, value),) = given.items()
    assert f"{name}={value!r}" in text.split("Invoked with: kwargs: ")[1]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"correlation_id": 1.5}, "Correlation ID must be integer or string"),
        (
            {"parameters": {"a": 1.5}},
            "Expect parameters values to have type bool/int/str, found type <class 'float'>",
        ),
        (
            {"parameters": {1: "a"}},
            "Expect parameters keys to have type str, found type <class 'int'>",
        ),
    ],
)
def test_request_values(given, text):
    refuses(pb_utils.TritonModelException, text, lambda: request(**given))


def test_what_needs_a_server_says_so():
    for call in (request().exec, lambda: pb_utils.load_model("m")):
        with pytest.raises(pb_utils.TritonModelException, match="there is none"):
            call()


CALLS = [
    (
        lambda: pb_utils.Logger.log("x", 5),
        FUNCTION.format("log") + "(message: str, level: c_python_backend_utils.Logger.LogLevel = "
        "<LogLevel.INFO: 0>) -> None\n\nInvoked with: 'x', 5",
    ),
    (
        lambda: pb_utils.Logger.log_info(5),
        FUNCTION.format("log_info") + "(message: str) -> None\n\nInvoked with: 5",
    ),
    (
        lambda: pb_utils.is_model_ready("m", 1),
        FUNCTION.format("is_model_ready")
        + "(model_name: str, model_version: str = '') -> bool\n\nInvoked with: 'm', 1",
    ),
    (
        lambda: pb_utils.load_model(5),
        FUNCTION.format("load_model") + "(model_name: str, config: str = '', files: object = "
        "None) -> None\n\nInvoked with: 5",
    ),
    (
        lambda: pb_utils.Tensor.from_dlpack("a"),
        FUNCTION.format("from_dlpack")
        + "(self: str, arg0: object) -> c_python_backend_utils.Tensor\n\nInvoked with: 'a'",
    ),
    (
        lambda: pb_utils.PreferredMemory(1),
        CONSTRUCTOR + "PreferredMemory(preferred_memory_type: triton::backend::python::"
        "PreferredMemory::MemoryType, preferred_device_id: int = 0)\n\nInvoked with: 1",
    ),
    (
        lambda: pb_utils.MetricFamily("a", "b", 5),
        CONSTRUCTOR + "MetricFamily(name: str, description: str, kind: "
        "c_python_backend_utils.MetricKind)\n\nInvoked with: 'a', 'b', 5",
    ),
    (lambda: pb_utils.Logger(), "c_python_backend_utils.Logger: No constructor defined!"),
]


@pytest.mark.parametrize(("call", "text"), CALLS)
def test_pybinds_type_errors(call, text):
    refuses(TypeError, text, call)


def test_logger_outside_a_server_writes_to_stderr(capsys):
    pb_utils.Logger.log_warn("careful")
    pb_utils.Logger.log_verbose("not shown")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("W test_pb_utils.py:")
    assert captured.err.endswith('] "careful"\n')


def test_metrics_outside_a_server_keep_their_own_value():
    family = pb_utils.MetricFamily(name="f", description="d", kind=pb_utils.MetricFamily.GAUGE)
    metric = family.Metric(labels={"a": "b"})
    metric.set(2.5)
    metric.increment(-1)
    assert metric.value() == 1.5


def metric_of(kind, **options):
    family = pb_utils.MetricFamily("f", "d", getattr(pb_utils.MetricFamily, kind))
    return family, family.Metric(**options)


PROCESS = "Failed to process the request for model '', message: "


@pytest.mark.parametrize(
    ("kind", "options", "change", "text"),
    [
        (
            "COUNTER", {}, lambda m: m.increment(-1),
            f"Failed to increment metric value: {PROCESS}TRITONSERVER_METRIC_KIND_COUNTER can only "
            "be incremented monotonically by non-negative values.",
        ),
        (
            "COUNTER", {}, lambda m: m.set(1),
            f"Failed to set metric value: {PROCESS}TRITONSERVER_METRIC_KIND_COUNTER does not "
            "support Set",
        ),
        (
            "GAUGE", {}, lambda m: m.observe(1),
            f"Failed to observe metric value: {PROCESS}TRITONSERVER_METRIC_KIND_GAUGE does not "
            "support Observe",
        ),
        (
            "HISTOGRAM", {"buckets": [1, 2]}, lambda m: m.value(),
            f"Failed to get metric value: {PROCESS}TRITONSERVER_METRIC_KIND_HISTOGRAM does not "
            "support Value",
        ),
        ("HISTOGRAM", {}, None, "Failed to create metric. Missing required buckets."),
        ("COUNTER", {"buckets": [1]}, None, "Failed to create metric. Unexpected buckets found."),
        ("COUNTER", {"labels": 5}, None, "Failed to create metric. Labels must be a dictionary."),
        ("HISTOGRAM", {"buckets": "x"}, None, "Failed to create metric. Buckets must be a list."),
        (
            "HISTOGRAM", {"buckets": [3, 1]}, None,
            f"Error when creating Metric: {PROCESS}Bucket Boundaries must be strictly sorted",
        ),
    ],
)  # fmt: skip
def test_metric_errors(kind, options, change, text):
    def run():
        family, metric = metric_of(kind, **options)
        change(metric)
        del family

    refuses(pb_utils.TritonModelException, text, run)


def test_a_metric_without_its_family():
    metric = metric_of("COUNTER")[1]
    refuses(
        pb_utils.TritonModelException,
        "Failed to increment metric value: Invalid metric operation as the corresponding "
        "'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted AFTER its "
        "corresponding 'Metric' objects have been deleted.",
        lambda: metric.increment(1),
    )


def test_helpers():
    config = {"input": [{"name": "a", "dims": [1]}], "output": [{"name": "b"}]}
    assert pb_utils.get_input_config_by_name(config, "a") == {"name": "a", "dims": [1]}
    assert pb_utils.get_output_config_by_name(config, "a") is None
    assert pb_utils.get_input_config_by_name({}, "x") is None
    assert pb_utils.using_decoupled_model_transaction_policy({}) is False
    decoupled = {"model_transaction_policy": {"decoupled": True}}
    assert pb_utils.using_decoupled_model_transaction_policy(decoupled) is True
    assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
    assert [pb_utils.triton_to_numpy_type(n) for n in (1, 11, 13)] == [
        np.bool_, np.float32, np.object_,
    ]  # fmt: skip
    assert [pb_utils.numpy_to_triton_type(t) for t in (np.bool_, bool, np.bytes_)] == [1, None, 13]
    assert pb_utils.numpy_to_triton_type(np.dtype(np.float32)) == 11
    words = np.array([b"a", "bc", 5], dtype=object)
    data = pb_utils.serialize_byte_tensor(words)
    assert data == b"\x01\0\0\0a\x02\0\0\0bc\x01\0\0\x005"
    assert pb_utils.deserialize_bytes_tensor(data).tolist() == [b"a", b"bc", b"5"]
    assert pb_utils.serialize_byte_tensor(ZEROS) is None
    assert pb_utils.serialize_byte_tensor(np.array([], dtype=object)) == ()


CONFIGS = [
    ({"max_batch_size": 8}, lambda c: c.set_max_batch_size(4),
     "configuration specified max_batch_size 8, but in auto-complete-config function for model 'm' "
     "specified max_batch_size 4"),
    ({"sequence_batching": {}}, lambda c: c.set_dynamic_batching(),
     "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config "
     "function for model 'm' tries to set scheduling_choice as 'dynamic_batching'"),
    ({"model_transaction_policy": {"decoupled": False}},
     lambda c: c.set_model_transaction_policy({"decoupled": True}),
     "trying to change decoupled property in auto-complete-config for model 'm', which is already "
     "set to 'False'."),
    ({}, lambda c: c.set_model_transaction_policy({"x": 1}),
     "model transaction property in auto-complete-config function for model 'm' contains property "
     "other than 'decoupled'."),
    ({}, lambda c: c.add_input({"name": "X"}),
     "input 'X' in auto-complete-config function for model 'm' is missing 'data_type' property."),
    ({}, lambda c: c.add_input({"dims": [1]}),
     "input in auto-complete-config function for model 'm' is missing 'name' property."),
    ({}, lambda c: c.add_input({"name": "X", "foo": 1}),
     "input 'X' in auto-complete-config function for model 'm' contains property other than "
     "'name', 'data_type', 'dims' and 'optional'."),
    ({}, lambda c: c.add_output({"name": "X", "optional": True}),
     "output 'X' in auto-complete-config function for model 'm' contains property other than "
     "'name', 'data_type' and 'dims'."),
    ({"input": [{"name": "X", "data_type": "TYPE_INT8", "dims": [2]}]},
     lambda c: c.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]}),
     "unable to load model 'm', configuration expects datatype TYPE_INT8 for input 'X', model "
     "provides TYPE_FP32"),
    ({"output": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}]},
     lambda c: c.add_output({"name": "X", "data_type": "TYPE_FP32", "dims": [1]}),
     "model 'm', tensor 'X': the model expects dims [1] but the model configuration specifies "
     "dims [2]"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "change", "text"), CONFIGS)
def test_model_config_conflicts(given, change, text):
    config = pb_utils.ModelConfig(json.dumps({"name": "m", **given}))
    refuses(ValueError, text, lambda: change(config))


def test_model_config_agreement():
    given = {"name": "m", "input": [{"name": "X", "data_type": "TYPE_INVALID", "dims": []}]}
    config = pb_utils.ModelConfig(json.dumps(given))
    config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [1]})
    config.set_max_batch_size(4)
    config.set_model_transaction_policy({"decoupled": True})
    assert config.as_dict() == {
        "name": "m",
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
        "max_batch_size": 4,
        "model_transaction_policy": {"decoupled": True},
    }
