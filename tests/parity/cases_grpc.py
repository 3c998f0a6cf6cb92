"""FACTS 7: the same over gRPC, where texts and codes differ from HTTP."""

from __future__ import annotations

import struct

from tritonclient.grpc import service_pb2 as pb

from tests.parity.asking import (
    Case,
    Grpc,
    Stream,
    act_message,
    any_order_of_names,
    element,
    grpc_infer,
    message,
    numpy_scalars,
)
from tests.parity.cases_model import RETURNED

A = ("ACTION", "BYTES", [1], [b"double"])
X = ("X", "FP32", [2], [1.0, 2.0])
NOT_A_VERSION = "failed to get model version from specified version string 'x' (details: stol)"

CALLS = (
    # method, message, code, text FACTS gives
    ("ServerLive", pb.ServerLiveRequest(), "OK", "live"),
    ("ServerReady", pb.ServerReadyRequest(), "OK", "ready"),
    ("ServerMetadata", pb.ServerMetadataRequest(), "OK", "2.51.0"),
    ("ModelReady", pb.ModelReadyRequest(name="actor"), "OK", "ready"),
    ("ModelReady", pb.ModelReadyRequest(name="actor", version="1"), "OK", "ready"),
    ("ModelReady", pb.ModelReadyRequest(name="actor", version="9"), "OK", ""),
    ("ModelReady", pb.ModelReadyRequest(name="actor", version="x"), None, ""),
    ("ModelReady", pb.ModelReadyRequest(name="nobody"), "OK", "{}"),
    ("ModelReady", pb.ModelReadyRequest(), None, ""),
    ("ModelMetadata", pb.ModelMetadataRequest(name="actor"), "OK", "python"),
    ("ModelMetadata", pb.ModelMetadataRequest(name="reporter"), "OK", "-1"),
    ("ModelMetadata", pb.ModelMetadataRequest(name="actor_all"), "OK", ""),
    ("ModelMetadata", pb.ModelMetadataRequest(name="nobody"), "NOT_FOUND", "is not found"),
    ("ModelMetadata", pb.ModelMetadataRequest(name="actor", version="9"), "NOT_FOUND", "version 9"),
    (
        "ModelMetadata",
        pb.ModelMetadataRequest(name="actor", version="x"),
        "INVALID_ARGUMENT",
        NOT_A_VERSION,
    ),
    ("ModelMetadata", pb.ModelMetadataRequest(name="actor", version="-1"), None, ""),
    ("ModelMetadata", pb.ModelMetadataRequest(name="actor", version="1x"), None, ""),
    *(
        ("ModelConfig", pb.ModelConfigRequest(name=name), "OK", name)
        for name in ("actor", "actor_tuned", "actor_pair", "reporter", "passer", "counter")
    ),
    ("ModelConfig", pb.ModelConfigRequest(name="nobody"), "NOT_FOUND", "is not found"),
    ("ModelConfig", pb.ModelConfigRequest(name="actor", version="9"), "NOT_FOUND", ""),
    (
        "ModelStatistics",
        pb.ModelStatisticsRequest(name="nobody"),
        "INVALID_ARGUMENT",
        "requested model 'nobody' is not available",
    ),
    ("RepositoryIndex", pb.RepositoryIndexRequest(), "OK", "READY"),
    ("RepositoryIndex", pb.RepositoryIndexRequest(ready=True), "OK", "READY"),
    (
        "RepositoryModelLoad",
        pb.RepositoryModelLoadRequest(model_name="actor"),
        "UNAVAILABLE",
        "explicit model load / unload is not allowed if polling is enabled",
    ),
    (
        "RepositoryModelUnload",
        pb.RepositoryModelUnloadRequest(model_name="actor"),
        "UNAVAILABLE",
        "explicit model load",
    ),
    ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(), "OK", ""),
    (
        "SystemSharedMemoryStatus",
        pb.SystemSharedMemoryStatusRequest(name="x"),
        "NOT_FOUND",
        "Unable to find system shared memory region: 'x'",
    ),
    (
        "SystemSharedMemoryRegister",
        pb.SystemSharedMemoryRegisterRequest(name="a", key="/nowhere", byte_size=4),
        "INTERNAL",
        "Unable to open shared memory region: '/nowhere'",
    ),
    ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(), "OK", ""),
    ("TraceSetting", pb.TraceSettingRequest(), "OK", "trace_rate"),
    ("LogSettings", pb.LogSettingsRequest(), "OK", "log_info"),
)


def _call_name(method: str, request: object) -> str:
    return f"{method} {str(request).replace(chr(10), ' ').strip()}".strip()


RAW = [("ACTION", "BYTES", [1], None), ("X", "FP32", [2], None)]
TEXT = element(b"double")
FLOATS = struct.pack("<2f", 1, 2)


def _with_dtype(datatype: str) -> pb.ModelInferRequest:
    request = message("actor", [A, X])
    request.inputs[1].datatype = datatype
    return request


def _raw_and_contents() -> pb.ModelInferRequest:
    return message("actor", [A, X], raw=[TEXT, FLOATS])


INFERS = (
    # name, request, code, text FACTS gives
    ("contents", message("actor", [A, X]), "OK", "raw_output_contents"),
    ("id", message("actor", [A, X], id="abc"), "OK", "abc"),
    ("version", message("actor", [A, X], version="1"), "OK", ""),
    (
        "unknown model",
        message("nobody", [A, X]),
        "NOT_FOUND",
        "Request for unknown model: 'nobody' is not found",
    ),
    ("unknown version", message("actor", [A, X], version="7"), "NOT_FOUND", "version 7"),
    ("version no number", message("actor", [A, X], version="x"), "INVALID_ARGUMENT", NOT_A_VERSION),
    (
        "wrong input name",
        message("actor", [A, ("W", "FP32", [1], [1.0])]),
        "INVALID_ARGUMENT",
        "unexpected inference input 'W'",
    ),
    (
        "missing input",
        message("actor", [A]),
        "INVALID_ARGUMENT",
        "expected 2 inputs but got 1 inputs",
    ),
    ("no inputs", message("actor", []), "INVALID_ARGUMENT", "expected 2 inputs but got 0 inputs"),
    ("extra input", message("actor", [A, X, ("E", "FP32", [1], [1.0])]), "INVALID_ARGUMENT", ""),
    ("input twice", message("actor", [A, X, X]), "INVALID_ARGUMENT", ""),
    (
        "wrong dtype",
        message("actor", [A, ("X", "INT32", [1], [1])]),
        "INVALID_ARGUMENT",
        "data-type is 'INT32'",
    ),
    ("no such dtype", _with_dtype("NOPE"), "INVALID_ARGUMENT", "expected datatype '<invalid>'"),
    ("contents of other dtype", _with_dtype("INT64"), "INVALID_ARGUMENT", ""),
    (
        "wrong rank",
        message("actor", [A, ("X", "FP32", [1, 2], [1.0, 2.0])]),
        "INVALID_ARGUMENT",
        "Expected [-1], got [1,2]. ",
    ),
    (
        "too few values",
        message("actor", [A, ("X", "FP32", [3], [1.0, 2.0])]),
        "INVALID_ARGUMENT",
        "Expected 12, got 8",
    ),
    (
        "too many values",
        message("actor", [A, ("X", "FP32", [1], [1.0, 2.0])]),
        "INVALID_ARGUMENT",
        "Expected 4, got 8",
    ),
    ("too few texts", message("actor", [("ACTION", "BYTES", [1], []), X]), "INVALID_ARGUMENT", ""),
    (
        "too many texts",
        message("actor", [("ACTION", "BYTES", [1], [b"a", b"b"]), X]),
        "INVALID_ARGUMENT",
        "",
    ),
    (
        "negative dimension",
        message("actor", [A, ("X", "FP32", [-1], [1.0, 2.0])]),
        "INVALID_ARGUMENT",
        "All input dimensions should be specified for input 'X' for model 'actor', got [-1]",
    ),
    ("zero size", message("actor", [A, ("X", "FP32", [0], [])]), "OK", ""),
    ("raw", message("actor", RAW, raw=[TEXT, FLOATS]), "OK", ""),
    (
        "raw short",
        message("actor", RAW, raw=[TEXT, b"abcd"]),
        "INVALID_ARGUMENT",
        "Expected 8, got 4",
    ),
    (
        "raw long",
        message("actor", RAW, raw=[TEXT, b"abcd" * 3]),
        "INVALID_ARGUMENT",
        "Expected 8, got 12",
    ),
    (
        "raw one missing",
        message("actor", RAW, raw=[TEXT]),
        "INVALID_ARGUMENT",
        "unable to find data for input tensor 'X' for model 'actor' in request.",
    ),
    ("raw one more", message("actor", RAW, raw=[TEXT, FLOATS, FLOATS]), None, ""),
    (
        "raw text prefix beyond data",
        message("actor", RAW, raw=[b"\x09\0\0\0ok", FLOATS]),
        "INVALID_ARGUMENT",
        "expecting string of length 9 but only 2 bytes available",
    ),
    (
        "raw two texts",
        message("actor", RAW, raw=[TEXT * 2, FLOATS]),
        "INVALID_ARGUMENT",
        "unexpected number of string elements 2",
    ),
    (
        "raw and contents",
        _raw_and_contents(),
        "INVALID_ARGUMENT",
        "contents field must not be specified when using raw_input_contents for 'ACTION' for model 'actor'",
    ),
    ("neither raw nor contents", message("actor", RAW), "INVALID_ARGUMENT", ""),
    (
        "unknown output",
        message("actor", [A, X], outputs=["NO"]),
        "INVALID_ARGUMENT",
        "unexpected inference output 'NO' for model 'actor'",
    ),
    ("one output", message("actor", [A, X], outputs=["Y"]), "OK", ""),
    (
        "batch too large",
        message("reporter", [("X", "FP32", [5, 4], [0.0] * 20)]),
        "INVALID_ARGUMENT",
        "batch-size must be <= 4",
    ),
    (
        "batch missing",
        message("reporter", [("X", "FP32", [4], [0.0] * 4)]),
        "INVALID_ARGUMENT",
        "NOTE: Setting a non-zero max_batch_size",
    ),
    (
        "decoupled",
        message("counter", [("N", "INT32", [1], [1])]),
        "UNIMPLEMENTED",
        "ModelInfer RPC doesn't support models with decoupled",
    ),
    (
        "parameters",
        act_message(
            "double",
            parameters={
                "a": ("int64_param", 4),
                "b": ("string_param", "s"),
                "c": ("bool_param", True),
            },
        ),
        "OK",
        "",
    ),
    ("double parameter", act_message("double", parameters={"d": ("double_param", 1.5)}), "OK", ""),
    (
        "uint64 parameter",
        act_message("double", parameters={"u": ("uint64_param", 7)}),
        "INVALID_ARGUMENT",
        "invalid value type for 'u' parameter, expected int64_param, bool_param, or string_param.",
    ),
    (
        "triton_ parameter",
        act_message("double", parameters={"triton_a": ("int64_param", 4)}),
        "INVALID_ARGUMENT",
        "Only the following keys starting with 'triton_' are allowed",
    ),
    (
        "sequence parameters",
        act_message(
            "double",
            parameters={
                "sequence_id": ("int64_param", 4),
                "sequence_start": ("bool_param", True),
                "priority": ("uint64_param", 3),
                "timeout": ("int64_param", 9000000),
            },
        ),
        "OK",
        "",
    ),
    (
        "sequence id text",
        act_message("double", parameters={"sequence_id": ("string_param", "s")}),
        "OK",
        "",
    ),
    (
        "sequence id boolean",
        act_message("double", parameters={"sequence_id": ("bool_param", True)}),
        None,
        "",
    ),
    (
        "priority text",
        act_message("double", parameters={"priority": ("string_param", "s")}),
        None,
        "",
    ),
    (
        "timeout text",
        act_message("double", parameters={"timeout": ("string_param", "s")}),
        None,
        "",
    ),
    ("unknown shared memory", message("actor", [A, X], outputs=["Y"]), "OK", ""),
    *(
        (f"{kind} contents", message("passer", [(f"IN_{kind}", kind, [2], values)]), "OK", "")
        for kind, values in (
            ("BOOL", [True, False]),
            ("INT32", [-1, 2]),
            ("INT64", [-1, 2]),
            ("UINT32", [1, 2]),
            ("UINT64", [1, 2**64 - 1]),
            ("FP32", [0.5, 1.5]),
            ("FP64", [0.5, 1.5]),
        )
    ),
    ("BYTES contents", message("passer", [("IN_STRING", "BYTES", [2], [b"\xff", b""])]), "OK", ""),
    ("FP16 raw", message("passer", [("IN_FP16", "FP16", [2], None)], raw=[b"\0\0\0\0"]), "OK", ""),
)

COUNT = "N"


def count(number: int, *, final: bool = False, id: str = "") -> pb.ModelInferRequest:
    parameters = {"triton_enable_empty_final_response": ("bool_param", True)} if final else {}
    return message("counter", [(COUNT, "INT32", [1], [number])], parameters=parameters, id=id)


def wrong_rank() -> pb.ModelInferRequest:
    return message("actor", [A, ("X", "FP32", [1, 2], [1.0, 2.0])])


GRPC_ERROR = (("triton_grpc_error", "true"),)
# The real server crashes on a request that follows the error in `triton_grpc_error` mode.
STREAMS = (
    ("plain", (act_message("double", id="n"),), (), 2),
    ("plain, error then good", (act_message("raise_value", id="e"), act_message("double")), (), 2),
    (
        "plain, unknown model then good",
        (act_message("double", "nobody"), act_message("double")),
        (),
        2,
    ),
    ("plain, refused then good", (wrong_rank(), act_message("double")), (), 2),
    ("plain, error response", (act_message("error:NOT_FOUND"),), (), 2),
    ("plain, nothing asked", (), (), 2),
    (
        "plain, final asked for",
        (
            act_message(
                "double", parameters={"triton_enable_empty_final_response": ("bool_param", True)}
            ),
        ),
        (),
        2,
    ),
    ("grpc error", (act_message("raise_value"),), GRPC_ERROR, 2),
    ("grpc error, unknown model", (act_message("double", "nobody"),), GRPC_ERROR, 2),
    ("decoupled 2", (count(2, id="a"),), (), 3),
    ("decoupled 0", (count(0),), (), 3),
    ("decoupled 2, final", (count(2, id="a", final=True),), (), 3),
    ("decoupled 0, final", (count(0, final=True),), (), 3),
    ("decoupled late error", (count(-2),), (), 3),
    ("decoupled late error, final", (count(-2, final=True),), (), 3),
)

ON_PURPOSE = {
    "same_output_twice": "the real server adds the second one's shape to the first one's and "
    "leaves its own and its datatype out",
}

CASES = [
    *(
        Case(
            f"grpc {_call_name(method, request)}",
            (Grpc(method, request),),
            "7",
            status=code,
            says=says,
        )
        for method, request, code, says in CALLS
    ),
    *(
        Case(
            f"grpc infer {name}",
            (grpc_infer(request),),
            "7",
            status=code,
            says=says,
            blur=any_order_of_names,
        )
        for name, request, code, says in INFERS
    ),
    *(
        Case(
            f"grpc execute {name}",
            (grpc_infer(act_message(name)),),
            "7",
            blur=numpy_scalars,
            differs=ON_PURPOSE.get(name, ""),
        )
        for name, *_ in RETURNED
    ),
    *(
        Case(f"grpc stream {name}", (Stream(requests, metadata),), "7", issue=issue)
        for name, requests, metadata, issue in STREAMS
    ),
]
