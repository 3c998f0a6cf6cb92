"""FACTS 3: what a model may return, and what it is given."""

from __future__ import annotations

from tests.parity.asking import (
    Case,
    X,
    act,
    act_batch,
    action,
    addresses,
    binary,
    element,
    evaluate,
    given,
    infer,
    numpy_scalars,
)

RETURNED = (
    # action, status, text FACTS gives
    ("raise_value", 500, "message: ValueError: not this value"),
    ("raise_unicode", 500, "ValueError"),
    ("raise_empty", 500, "<EMPTY MESSAGE>"),
    ("raise_chained", 500, "because of that"),
    ("raise_deep", 500, "KeyError: 'missing'"),
    ("raise_own", 500, "OwnError: own kind"),
    ("raise_triton", 500, "TritonModelException: triton says no"),
    ("raise_interrupt", 500, "KeyboardInterrupt: <EMPTY MESSAGE>"),
    ("exit_python", 500, "SystemExit: 3"),
    ("no_such_action", 500, "AttributeError"),
    ("return_empty", 500, "InferenceResponse(s) size is:0"),
    ("return_twice", 500, "InferenceResponse(s) size is:2"),
    ("return_number", 500, "Expected a list in the execute return, found type '<class 'int'>'."),
    ("return_tuple", 500, "found type '<class 'tuple'>'."),
    ("return_text", 500, "found type '<class 'str'>'."),
    ("return_dict", 500, "found type '<class 'dict'>'."),
    ("return_numbers", 500, "Expected an 'InferenceResponse' object"),
    ("return_tensors", 500, "Expected an 'InferenceResponse' object"),
    ("other_name", 200, '"outputs\\":[]'),
    ("other_dtype:int64", 200, "INT64"),
    ("other_dtype:float64", 200, "FP64"),
    ("other_dtype:float16", 400, "sending FP16 data via JSON"),
    ("other_dtype:bool", 200, "BOOL"),
    ("other_dtype:uint8", 200, "UINT8"),
    ("other_dtype:complex64", 500, "NumPy dtype is not supported."),
    ("other_shape", 200, "[2,1,3]"),
    ("scalar", 500, "incompatible constructor arguments"),
    ("zero_rank", None, ""),
    ("strided", 200, "[2.0,1.0]"),
    ("unchanged", 200, "[1.0,2.0]"),
    ("no_output", 200, '"outputs\\":[]'),
    ("more_output", 200, "[1.0,2.0]"),
    ("same_output_twice", 200, "[3.0,6.0]"),
    ("error_default", 500, "plain refusal"),
    ("error_and_output", 500, "output is void"),
    ("error_empty", 500, ""),
    ("error_from_text", 500, "TypeError"),
    ("error:UNKNOWN", 400, "refused here"),
    ("error:INTERNAL", 500, "refused here"),
    ("error:NOT_FOUND", 404, "refused here"),
    ("error:INVALID_ARG", 400, "refused here"),
    ("error:UNAVAILABLE", 503, "refused here"),
    ("error:UNSUPPORTED", 501, "refused here"),
    ("error:ALREADY_EXISTS", 400, "refused here"),
    ("error:CANCELLED", 400, "refused here"),
)
RETURNS = [
    *(
        Case(f"execute {name}", (act(name),), "3", status=status, says=says, blur=numpy_scalars)
        for name, status, says in RETURNED
    ),
    Case("execute batched other_shape", (act_batch("other_shape", "actor_batch"),), "3"),
    Case("execute batched other_name", (act_batch("other_name", "actor_batch", 2),), "3"),
    Case("execute batched raise", (act_batch("raise_value", "actor_batch", 2),), "3", status=500),
    Case("execute second instance", (act("raise_value", "actor_kind_model"),), "3", status=500),
    *(
        Case(f"execute {name}, Y requested", (act(name, outputs=[{"name": "Y"}]),), "3", status=200)
        for name in ("other_name", "no_output", "more_output", "other_shape")
    ),
    Case(
        "execute logs",
        (act("log"),),
        "3",
        status=200,
        logs=(
            r"^I\d{4} [\d:.]+ \d+ model\.py:\d+\] \"an info line\"",
            r"^W\d{4} [\d:.]+ \d+ model\.py:\d+\] \"a warn line\"",
            r"^E\d{4} [\d:.]+ \d+ model\.py:\d+\] \"an error line\"",
            r"^I\d{4} [\d:.]+ \d+ model\.py:\d+\] \"a line without level\"",
            r"^W\d{4} [\d:.]+ \d+ model\.py:\d+\] \"a warned line\"",
            r"^a printed line$",
        ),
    ),
    Case(
        "arguments of initialize",
        (infer("reporter", [given("X", "FP32", [2, 4], list(range(8)))]),),
        "3",
        status=200,
        says="model_instance_device_id",
    ),
]

EXPRESSIONS = (
    # what a model asks; FACTS 3 gives the answers
    "request.request_id()",
    "request.correlation_id()",
    "request.flags()",
    "request.timeout()",
    "request.parameters()",
    "type(request.parameters()).__name__",
    "request.requested_output_names()",
    "request.is_cancelled()",
    "[t.name() for t in request.inputs()]",
    "request.inputs()[0].as_numpy().dtype",
    "request.inputs()[0].as_numpy().flags.writeable",
    "request.inputs()[0].shape()",
    "request.inputs()[0].is_cpu()",
    "type(request.inputs()).__name__",
    "__import__('sys').argv",
    "pb_utils.get_model_dir()",
    "pb_utils.get_input_tensor_by_name(request, 'NONE')",
    "pb_utils.is_model_ready('nobody')",
    "pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL",
    "pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "pb_utils.TRITONSERVER_MEMORY_CPU",
    "pb_utils.TRITONSERVER_MEMORY_GPU",
    "pb_utils.TRITON_STRING_TO_NUMPY",
    "pb_utils.TritonError('a')",
    "pb_utils.TritonError('a').code()",
    "pb_utils.TritonError('a').message()",
    "pb_utils.TritonError('a', pb_utils.TritonError.NOT_FOUND).code()",
    "[int(getattr(pb_utils.TritonError, n)) for n in ('UNKNOWN', 'INTERNAL', 'CANCELLED')]",
    "pb_utils.TritonModelException('m')",
    "pb_utils.Tensor('Y', [1, 2])",
    "pb_utils.Tensor('Y', 3)",
    "pb_utils.Tensor('Y', np.zeros(2, np.complex64))",
    "pb_utils.Tensor('Y', np.array(['a', 'b']))",
    "pb_utils.Tensor('', np.zeros(2))",
    "pb_utils.Tensor(5, np.zeros(2))",
    "pb_utils.Tensor('Y')",
    "(lambda a: pb_utils.Tensor('Y', a).as_numpy() is a)(np.zeros(2))",
    "pb_utils.Tensor('Y', np.zeros((4, 6))[::2, ::3]).as_numpy().flags.c_contiguous",
    "pb_utils.Tensor('Y', np.zeros((2, 3), np.float32)).shape()",
    "pb_utils.Tensor('Y', np.zeros(2)).name()",
    "pb_utils.Tensor('Y', np.zeros(2)).is_cpu()",
    "pb_utils.InferenceResponse([]).has_error()",
    "pb_utils.InferenceResponse([]).error()",
    "pb_utils.InferenceResponse([pb_utils.Tensor('Y', np.zeros(2))]).output_tensors()[0].name()",
    "pb_utils.InferenceResponse(error=pb_utils.TritonError('e')).error().message()",
    "pb_utils.InferenceResponse(error='text')",
    "pb_utils.InferenceResponse([5])",
    "pb_utils.InferenceResponse()",
    "pb_utils.Logger.log('x', 5)",
    "pb_utils.Logger.log(5)",
    "pb_utils.triton_string_to_numpy('TYPE_FP32')",
    "pb_utils.triton_string_to_numpy('TYPE_STRING')",
    "pb_utils.triton_string_to_numpy('TYPE_NONE')",
    "pb_utils.numpy_to_triton_type(np.float32)",
    "pb_utils.numpy_to_triton_type(np.object_)",
    "pb_utils.triton_to_numpy_type(11)",
    "pb_utils.triton_to_numpy_type(99)",
    "pb_utils.serialize_byte_tensor(np.array([b'ab', 'c'], dtype=object)).tobytes()",
    "pb_utils.serialize_byte_tensor(np.zeros(2))",
    "pb_utils.deserialize_bytes_tensor(b'\\x02\\0\\0\\0ab\\0\\0\\0\\0')",
    "pb_utils.using_decoupled_model_transaction_policy({'model_transaction_policy': {'decoupled': True}})",
    "pb_utils.using_decoupled_model_transaction_policy({})",
    "pb_utils.get_input_config_by_name({'input': [{'name': 'A'}]}, 'A')",
    "pb_utils.get_output_config_by_name({'output': [{'name': 'A'}]}, 'B')",
    "pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['o']).parameters()",
    "pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['o'], parameters={'a': 1, 'b': True}).parameters()",
    "pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['o'], parameters={'a': 1.5})",
    "pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['o'], correlation_id='c', timeout=5, flags=1).correlation_id()",
    "pb_utils.InferenceRequest(model_name='m', inputs=[5], requested_output_names=['o'])",
    "[hasattr(pb_utils, n) for n in ('MetricFamily', 'ModelConfig', 'PreferredMemory', 'load_model', 'unload_model')]",
    "[a for a in ('async_exec', 'exec', 'set_flags', 'set_release_flags', 'trace', 'get_response_sender') if not hasattr(pb_utils.InferenceRequest, a)]",
    "[a for a in ('from_dlpack', 'to_dlpack', 'is_cpu', 'shape', '__dlpack__') if not hasattr(pb_utils.Tensor, a)]",
)
ASKED_OF_REQUEST = {"sequence_id": 7, "sequence_start": True, "priority": 3, "timeout": 9000000}
GIVEN = [
    *(
        Case(
            f"in execute: {code[:90]}",
            (evaluate(code),),
            "3",
            status=200,
            blur=addresses,
            differs="keyword arguments are named in the signature's order, there in the call's"
            if "inputs=[5]" in code
            else "",
        )
        for code in EXPRESSIONS
    ),
    *(
        Case(
            f"with parameters: {code}",
            (
                infer(
                    "evaluator",
                    [given("CODE", "BYTES", [1], [code])],
                    id="the id",
                    parameters={"a": 1, "b": "s", "c": True, "d": 1.5, **ASKED_OF_REQUEST},
                    outputs=[{"name": "RESULT"}],
                ),
            ),
            "3",
            status=200,
        )
        for code in (
            "request.request_id()",
            "request.correlation_id()",
            "request.flags()",
            "request.timeout()",
            "json.loads(request.parameters())",
            "request.parameters()",
            "request.requested_output_names()",
        )
    ),
    Case(
        "text correlation id",
        (
            infer(
                "evaluator",
                [given("CODE", "BYTES", [1], ["request.correlation_id()"])],
                parameters={"sequence_id": "text"},
            ),
        ),
        "3",
        status=200,
    ),
    Case(
        "sum of a batch",
        (
            infer(
                "actor_batch",
                [given("ACTION", "BYTES", [1, 1], ["count"]), given("X", "FP32", [1, 2], [1, 2])],
            ),
        ),
        "3",
        status=200,
    ),
    Case(
        "empty tensor",
        (infer("actor", [action("strided"), given("X", "FP32", [0], [])]),),
        "3",
        status=200,
    ),
    Case(
        "actions in a row",
        tuple(act(name) for name in ("double", "raise_value", "double")),
        "3",
        status=200,
    ),
    Case("inputs as given", (infer("actor", [X, action("unchanged")]),), "3", status=200),
]

TAKEN = "x = pb_utils.get_input_tensor_by_name(requests[0], 'X')\n"
HANDED_ON = "return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack('Y', WHAT)])]"
BF16 = [
    Case(
        f"BF16: {name}",
        (
            binary(
                "script_bf16",
                [
                    ("CODE", "BYTES", [1], element((TAKEN + code).encode())),
                    ("X", "BF16", [3], b"\x80\x3f\x00\x40\x40\x40"),
                ],
                outputs=[
                    {"name": "Y", "parameters": {"binary_data": asked}},
                    {"name": "RESULT"},
                ],
            ),
        ),
        "3",
        setup="contract",
        issue=3,
    )
    for name, asked, code in (
        ("says", True, "return [text([x.name(), list(x.shape()), x.is_cpu()])]"),
        ("as_numpy", True, "return [text(str(tried(lambda: x.as_numpy())))]"),
        ("device", True, "return [text(str(x.__dlpack_device__()))]"),
        ("handed on", True, HANDED_ON.replace("WHAT", "x")),
        ("handed on as capsule", True, HANDED_ON.replace("WHAT", "x.to_dlpack()")),
        ("as JSON", False, HANDED_ON.replace("WHAT", "x")),
        ("NumPy's name", True, "return [text(str(pb_utils.triton_to_numpy_type(14)))]"),
    )
]
TYPE_OF = "pb_utils.Tensor('T', np.zeros(2, np.float32)).triton_dtype()"
NO_TYPE = [Case("triton_dtype has no Python type", (evaluate(TYPE_OF),), "3", issue=3)]
CASES = [*RETURNS, *GIVEN, *BF16, *NO_TYPE]
