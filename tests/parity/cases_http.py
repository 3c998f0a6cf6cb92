"""FACTS 1 and 4 over HTTP: health, metadata, index, inference and what it refuses."""

from __future__ import annotations

import gzip
import json
import struct
import zlib

from tests.parity.asking import (
    Case,
    Http,
    X,
    act,
    act_batch,
    action,
    any_order_of_names,
    binary,
    element,
    get,
    given,
    infer,
    post,
)

JSON_TYPE = "application/json"
GET_PATHS = (
    # path, status, text FACTS gives
    ("/v2", 200, "binary_tensor_data"),
    ("/v2/", 404, "Not Found"),
    ("/v2/health/live", 200, ""),
    ("/v2/health/ready", 200, ""),
    ("/v2/health", 404, ""),
    ("/v2/health/other", 404, ""),
    ("/v2/models/actor", 200, '"platform\\":\\"python\\"'),
    ("/v2/models/actor/", 404, ""),
    ("/v2/models/actor/versions/1", 200, ""),
    ("/v2/models/actor/versions", 404, ""),
    ("/v2/models/actor/ready", 200, ""),
    ("/v2/models/actor/versions/1/ready", 200, ""),
    ("/v2/models/actor/versions/9/ready", 400, "Model version not ready"),
    ("/v2/models/nobody/ready", 400, "Model version not ready"),
    ("/v2/models/nobody", 404, "Request for unknown model: 'nobody' is not found"),
    ("/v2/models/nobody/versions/1", 404, "Request for unknown model"),
    ("/v2/models/actor/versions/9", 404, "'actor' version 9 is not found"),
    ("/v2/models/actor/versions/first", 404, "Not Found"),
    ("/v2/models/actor/versions/-1", 404, ""),
    ("/v2/models/actor/versions/01", None, ""),
    ("/v2/models/actor_batch", 200, '"shape\\":[-1,-1]'),
    ("/v2/models/actor_versions", 200, '"versions\\":[\\"20\\"]'),
    ("/v2/models/actor_versions/versions/3", 404, ""),
    ("/v2/models/actor_versions/versions/20", 200, ""),
    ("/v2/models/actor_chosen", 200, ""),
    ("/v2/models/actor_chosen/versions/1", 200, ""),
    ("/v2/models/actor_all", 200, ""),
    ("/v2/models/reporter", 200, '"shape\\":[-1,4]'),
    ("/v2/models/passer", 200, '"datatype\\":\\"FP16\\"'),
    ("/v2/models/passer_square", 200, '"shape\\":[2,-1]'),
    ("/v2/models/counter", 200, ""),
    ("/v2/models", 404, ""),
    ("/v2/models/", 404, ""),
    ("/v2/models/actor/other", 404, ""),
    ("/v2/models/actor/versions/1/other", 404, ""),
    ("/v2/other", 404, "Not Found"),
    ("/", 404, "Not Found"),
    ("/v1", 404, "Not Found"),
    ("/v1/models/actor", 404, ""),
    ("/metrics", 404, "Not Found"),
    ("/v2?query=1", None, ""),
    ("/v2/health/live?query=1", None, ""),
    ("/v2/models/actor?query=1", None, ""),
    ("/v2/models/act%6fr", None, ""),
)
WRONG_METHODS = (
    ("POST", "/v2"),
    ("HEAD", "/v2"),
    ("POST", "/v2/health/live"),
    ("PUT", "/v2/health/ready"),
    ("HEAD", "/v2/health/ready"),
    ("OPTIONS", "/v2/health/ready"),
    ("DELETE", "/v2/models/actor"),
    ("POST", "/v2/models/actor"),
    ("POST", "/v2/models/actor/ready"),
    ("POST", "/v2/models/actor/config"),
    ("POST", "/v2/models/actor/stats"),
    ("GET", "/v2/models/actor/infer"),
    ("PUT", "/v2/models/actor/infer"),
    ("DELETE", "/v2/models/actor/infer"),
    ("PATCH", "/v2/models/actor/infer"),
    ("GET", "/v2/models/nobody/infer"),
    ("GET", "/v2/repository/index"),
    ("GET", "/v2/repository/models/actor/load"),
    ("GET", "/v2/repository/models/actor/unload"),
)
METADATA = [
    *(
        Case(f"get {path}", (get(path),), "1", status=status, says=says)
        for path, status, says in GET_PATHS
    ),
    *(
        Case(
            f"{method} {path}",
            (Http(method, path, b"{}" if method in ("POST", "PUT") else None),),
            "1",
            status=405,
        )
        for method, path in WRONG_METHODS
    ),
    Case("index", (post("/v2/repository/index"),), "1", status=200, says="READY"),
    Case("index ready", (post("/v2/repository/index", {"ready": True}),), "1", status=200),
    Case("index not ready", (post("/v2/repository/index", {"ready": False}),), "1", status=200),
    Case("index any repository", (post("/v2/repository/any/index"),), "1", status=200),
    Case("index malformed", (post("/v2/repository/index", b"{"),), "1"),
    Case("index ready of wrong type", (post("/v2/repository/index", {"ready": 5}),), "1"),
]

TWO = [action("double"), X]
ANSWERED = [
    Case("infer", (act("double"),), "4", status=200, says="2.0,4.0"),
    Case("infer with id", (act("double", id="abc"),), "4", status=200, says="abc"),
    Case("infer with empty id", (act("double", id=""),), "4", status=200),
    Case("infer batch", (act_batch("double", "actor_batch", 2),), "4", status=200),
    Case("infer version", (infer("actor", TWO, version="1"),), "4", status=200),
    Case("infer missing version", (infer("actor", TWO, version="2"),), "4", status=404),
    Case("infer version text", (infer("actor", TWO, version="one"),), "4"),
    Case("infer latest version", (act("double", "actor_versions"),), "4", status=200, says="20"),
    Case("infer old version", (infer("actor_versions", TWO, version="1"),), "4", status=404),
    Case("infer chosen version", (infer("actor_chosen", TWO, version="1"),), "4", status=200),
    Case(
        "infer nested data",
        (infer("actor", [action("double"), given("X", "FP32", [2], [[1], [2]])]),),
        "4",
        status=200,
    ),
    Case(
        "infer flat data for two dimensions",
        (infer("passer_square", [given("IN_INT32", "INT32", [2, 2], [1, 2, 3, 4])]),),
        "4",
        status=200,
    ),
    Case(
        "infer nested data for two dimensions",
        (infer("passer_square", [given("IN_INT32", "INT32", [2, 2], [[1, 2], [3, 4]])]),),
        "4",
        status=200,
        says="[1,2,3,4]",
    ),
    Case(
        "infer zero-size",
        (infer("actor", [action("double"), given("X", "FP32", [0], [])]),),
        "4",
        status=200,
    ),
    Case(
        "infer inputs in another order",
        (infer("actor", [X, action("double")]),),
        "4",
        status=200,
    ),
    Case(
        "infer two outputs",
        (infer("add_sub", [given(f"INPUT{n}", "FP32", [16], list(range(16))) for n in (0, 1)]),),
        "4",
        status=200,
    ),
    Case(
        "infer one of two outputs",
        (
            infer(
                "add_sub",
                [given(f"INPUT{n}", "FP32", [16], list(range(16))) for n in (0, 1)],
                outputs=[{"name": "OUTPUT1"}],
            ),
        ),
        "4",
        status=200,
    ),
    Case(
        "infer outputs in another order",
        (
            infer(
                "add_sub",
                [given(f"INPUT{n}", "FP32", [16], list(range(16))) for n in (0, 1)],
                outputs=[{"name": "OUTPUT1"}, {"name": "OUTPUT0"}],
            ),
        ),
        "4",
        status=200,
    ),
    Case(
        "infer one output binary",
        (
            infer(
                "add_sub",
                [given(f"INPUT{n}", "FP32", [16], list(range(16))) for n in (0, 1)],
                outputs=[
                    {"name": "OUTPUT1", "parameters": {"binary_data": True}},
                    {"name": "OUTPUT0"},
                ],
            ),
        ),
        "4",
        status=200,
    ),
    Case("empty outputs", (act("double", outputs=[]),), "4", status=200),
    Case("output twice", (act("double", outputs=[{"name": "Y"}, {"name": "Y"}]),), "4"),
    Case("unknown member", (act("double", extra=1),), "4", status=200),
    Case(
        "content type is ignored",
        (
            Http(
                "POST",
                "/v2/models/actor/infer",
                json.dumps({"inputs": TWO}).encode(),
                {"Content-Type": "text/plain"},
            ),
        ),
        "4",
        status=200,
    ),
    Case(
        "binary output",
        (act("double", outputs=[{"name": "Y", "parameters": {"binary_data": True}}]),),
        "4",
        status=200,
        says="binary_data_size",
    ),
    Case(
        "binary output with id",
        (act("double", id="i7", outputs=[{"name": "Y", "parameters": {"binary_data": True}}]),),
        "4",
        status=200,
    ),
    Case(
        "binary_data_output",
        (act("double", parameters={"binary_data_output": True}),),
        "4",
        status=200,
        says="binary_data_size",
    ),
    Case(
        "binary_data false overrides",
        (
            act(
                "double",
                parameters={"binary_data_output": True},
                outputs=[{"name": "Y", "parameters": {"binary_data": False}}],
            ),
        ),
        "4",
        status=200,
    ),
    Case(
        "classification",
        (act("double", outputs=[{"name": "Y", "parameters": {"classification": 2}}]),),
        "4",
        status=200,
        says="BYTES",
        issue=3,
    ),
    Case("no inputs of optional ones", (infer("passer", []),), "4", status=200),
]


def passed(name: str, datatype: str, data: list[object]) -> Http:
    return infer("passer", [given(f"IN_{name}", datatype, [len(data)], data)])


JSON_VALUES = (
    ("BOOL", "BOOL", [True, False], 200),
    ("UINT8", "UINT8", [0, 255], 200),
    ("UINT8", "UINT8", [256], 200),
    ("UINT8", "UINT8", [-1], 500),
    ("UINT16", "UINT16", [65535, 65536], 200),
    ("UINT32", "UINT32", [4294967295], 200),
    ("UINT64", "UINT64", [18446744073709551615], 200),
    ("INT8", "INT8", [-128, 127], 200),
    ("INT8", "INT8", [-200], 200),
    ("INT16", "INT16", [-32768, 40000], 200),
    ("INT32", "INT32", [-2147483648, 2147483647], 200),
    ("INT32", "INT32", [2147483648], 200),
    ("INT64", "INT64", [-9223372036854775808, 9223372036854775807], 200),
    ("INT64", "INT64", [9223372036854775808], None),
    ("INT32", "INT32", [1.5], 500),
    ("INT32", "INT32", [1.0], None),
    ("INT32", "INT32", [True], None),
    ("INT32", "INT32", ["1"], 500),
    ("UINT8", "UINT8", ["1"], 500),
    ("BOOL", "BOOL", [1, 0], 500),
    ("BOOL", "BOOL", ["x"], 500),
    ("FP32", "FP32", [0.1, 1e-30, 16777217, 1e9, -0.0, 3], 200),
    ("FP32", "FP32", [1e40], 200),
    ("FP32", "FP32", [1e-45, 1.17549435e-38, 3.4028235e38, 123456789.0, 1e21, 1e-7], 200),
    ("FP32", "FP32", [True], 500),
    ("FP32", "FP32", [None], 500),
    ("FP32", "FP32", ["a"], 500),
    ("FP64", "FP64", [1e300, 0.1, 1e16, 1e17, 1e21, 1e22, 1e-5, 5e-324, 1 / 3], 200),
    ("FP64", "FP64", [100000.0, 1234567890123456789, 0.00001234], 200),
    ("STRING", "BYTES", ["é", "", 'quote " backslash \\ newline \n tab \t'], 200),
    ("STRING", "BYTES", ["\u0000\u0001\u001f\u007f", "日本語", "😀", "/</script>"], 200),
    ("STRING", "BYTES", [5], 500),
    ("STRING", "BYTES", [None], 500),
    ("STRING", "BYTES", [["a"], ["b"]], 200),
    ("FP16", "FP16", [1.5], 400),
)
VALUES = [
    Case(
        f"json {datatype} {str(data)[:40]!a}",
        (passed(name, datatype, list(data)),),
        "4",
        differs="the shortest digits that read back the same, there sometimes one more"
        if 1.17549435e-38 in data
        else "",
        status=status,
    )
    for name, datatype, data, status in JSON_VALUES
]


def raw_json(text: bytes) -> Http:
    return post("/v2/models/passer/infer", text)


VALUES += [
    Case(
        "json NaN and Infinity",
        (
            raw_json(
                b'{"inputs":[{"name":"IN_FP32","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}'
            ),
        ),
        "4",
        status=200,
        says="NaN,Infinity",
    ),
    Case(
        "json number spelled long",
        (
            raw_json(
                b'{"inputs":[{"name":"IN_FP64","datatype":"FP64","shape":[2],"data":[1E2,1.50000]}]}'
            ),
        ),
        "4",
        status=200,
    ),
    Case(
        "json escapes",
        (
            raw_json(
                b'{"inputs":[{"name":"IN_STRING","datatype":"BYTES","shape":[2],"data":["\\u00e9\\/","\\ud83d\\ude00"]}]}'
            ),
        ),
        "4",
        status=200,
    ),
    Case("json with blanks", (raw_json(b' { "inputs" : [ ] }\r\n\t'),), "4", status=200),
    *(
        Case(
            f"binary {datatype} both ways",
            (
                binary(
                    "passer",
                    [(f"IN_{name}", datatype, [2], data)],
                    parameters={"binary_data_output": True},
                ),
            ),
            "4",
            status=200,
        )
        for name, datatype, data in (
            ("BOOL", "BOOL", b"\x01\x00"),
            ("UINT8", "UINT8", b"\x01\xff"),
            ("UINT16", "UINT16", b"\x01\x00\xff\xff"),
            ("UINT32", "UINT32", struct.pack("<2I", 1, 2**32 - 1)),
            ("UINT64", "UINT64", struct.pack("<2Q", 1, 2**64 - 1)),
            ("INT8", "INT8", b"\x01\xff"),
            ("INT16", "INT16", struct.pack("<2h", 1, -1)),
            ("INT32", "INT32", struct.pack("<2i", 1, -1)),
            ("INT64", "INT64", struct.pack("<2q", 1, -1)),
            ("FP16", "FP16", struct.pack("<2e", 1.5, -2)),
            ("FP32", "FP32", struct.pack("<2f", 1.5, -2)),
            ("FP64", "FP64", struct.pack("<2d", 1.5, -2)),
            ("STRING", "BYTES", element(b"\x00\xff\xfe") + element(b"")),
        )
    ),
    Case(
        "binary FP16 in, json out",
        (binary("passer", [("IN_FP16", "FP16", [1], struct.pack("<e", 1.5))]),),
        "4",
        status=400,
        says="sending FP16 data via JSON is not supported",
    ),
    Case(
        "binary NaN in, json out",
        (
            binary(
                "passer",
                [
                    (
                        "IN_FP32",
                        "FP32",
                        [3],
                        struct.pack("<3f", float("nan"), float("inf"), float("-inf")),
                    )
                ],
            ),
        ),
        "4",
        status=200,
        says="NaN,Infinity",
    ),
    Case(
        "binary not UTF-8, json out",
        (binary("passer", [("IN_STRING", "BYTES", [1], element(b"\xff\xfe"))]),),
        "4",
        status=200,
    ),
    Case(
        "json and binary inputs mixed",
        (binary("actor", [("X", "FP32", [2], struct.pack("<2f", 1, 2))], outputs=[{"name": "Y"}]),),
        "4",
        status=400,
    ),
]

NO_DATA = "But no field is set"
MALFORMED = (
    # body, status, text FACTS gives
    (b"{", 500, "Missing a name for object member. at 1"),
    (b"[]", 500, "attempt to access non-existing object member 'inputs'"),
    (b"{}", 500, "attempt to access non-existing object member 'inputs'"),
    (b"null", 500, "attempt to access non-existing object member 'inputs'"),
    (b"5", 500, ""),
    (b'"text"', 500, ""),
    (b"\xff\xfe", 500, "Invalid value. at 0"),
    (b"nonsense", 500, "Invalid value"),
    (b'{"inputs"', 500, ""),
    (b'{"inputs":', 500, ""),
    (b'{"inputs":}', 500, ""),
    (b'{"inputs":[', 500, ""),
    (b'{"inputs":[}', 500, ""),
    (b'{"inputs":[]', 500, ""),
    (b'{"inputs":[],}', 500, ""),
    (b'{"inputs":[] "id":1}', 500, ""),
    (b'{"inputs":[1,]}', 500, ""),
    (b'{"inputs":[1 2]}', 500, ""),
    (b'{"inputs":[tru]}', 500, ""),
    (b'{"inputs":[01]}', 500, ""),
    (b'{"inputs":[1.]}', 500, ""),
    (b'{"inputs":[1e]}', 500, ""),
    (b'{"inputs":[-]}', 500, ""),
    (b'{"inputs":[1e999]}', 500, ""),
    (b'{"inputs":["abc]}', 500, ""),
    (b'{"inputs":["\\x"]}', 500, ""),
    (b'{"inputs":["\\u12"]}', 500, ""),
    (b'{"inputs":["\\ud800"]}', 500, ""),
    (b'{"inputs":["\x01"]}', None, ""),
    (b"{'inputs':[]}", 500, ""),
    (b"{} trailing", 500, ""),
    (b'{"inputs":[]} {', 500, ""),
    (b'{"inputs":5}', 500, "attempt to access JSON non-array as array"),
    (b'{"inputs":null}', 500, ""),
    (b'{"inputs":{}}', 500, ""),
    (b'{"inputs":[5]}', None, ""),
    (b'{"inputs":[{}]}', 400, NO_DATA),
    (b'{"inputs":[{"name":"X"}]}', 400, NO_DATA),
    (b'{"inputs":[{"name":"X","shape":[1]}]}', 400, NO_DATA),
    (b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32"}]}', 400, NO_DATA),
    (b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","parameters":{}}]}', 400, NO_DATA),
    (b'{"inputs":[{"data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":"X","data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":5,"shape":[1],"datatype":"FP32","data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":"X","shape":[1],"datatype":5,"data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":"X","datatype":"FP32","data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":"X","shape":[1],"data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":"X","shape":"a","datatype":"FP32","data":[1]}]}', 500, "non-array"),
    (b'{"inputs":[{"name":"X","shape":["a"],"datatype":"FP32","data":[1]}]}', 500, ""),
    (b'{"inputs":[{"name":"X","shape":[1.5],"datatype":"FP32","data":[1]}]}', 500, ""),
    (b'{"inputs":[{"name":"X","shape":[-1],"datatype":"FP32","data":[1]}]}', 500, "non-unsigned"),
    (b'{"inputs":[{"name":"X","shape":[],"datatype":"FP32","data":[1]}]}', None, ""),
    (b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":1}]}', None, ""),
    (b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":null}]}', None, ""),
    (b'{"inputs":[{"name":"X","shape":[1],"datatype":"FP32","data":{}}]}', None, ""),
    (b'{"inputs":[],"id":5}', 500, "attempt to access JSON non-string as string"),
    (b'{"inputs":[],"id":null}', 500, ""),
    (b'{"inputs":[],"outputs":5}', 500, ""),
    (b'{"inputs":[],"outputs":[5]}', None, ""),
    (b'{"inputs":[],"outputs":[{}]}', None, ""),
    (b'{"inputs":[],"outputs":[{"name":5}]}', None, ""),
    (b'{"inputs":[],"parameters":5}', None, ""),
    (b'{"inputs":[],"parameters":[]}', None, ""),
    (b'{"inputs":[],"parameters":{"binary_data_output":5}}', None, ""),
)
REFUSED_BODIES = [
    *(
        Case(
            f"body {body[:70].decode('latin-1')!a}",
            (post("/v2/models/actor/infer", body),),
            "4",
            status=status,
            says=says,
            blur=any_order_of_names,
        )
        for body, status, says in MALFORMED
    ),
    Case(
        "body empty",
        (post("/v2/models/actor/infer"),),
        "4",
        status=400,
        says="Raw request must only have 1 input (found 1)",
    ),
    Case("body empty for one input", (post("/v2/models/upper/infer"),), "4", issue=3),
    Case(
        "raw request",
        (
            Http(
                "POST",
                "/v2/models/upper/infer",
                b"whole body",
                {"Inference-Header-Content-Length": "0"},
            ),
        ),
        "4",
        status=200,
        issue=3,
    ),
    Case(
        "raw request, several inputs",
        (
            Http(
                "POST",
                "/v2/models/actor/infer",
                b"whole body",
                {"Inference-Header-Content-Length": "0"},
            ),
        ),
        "4",
        status=400,
    ),
    Case("body of unknown model", (post("/v2/models/nobody/infer", b"{"),), "4"),
    Case("body of unknown version", (post("/v2/models/actor/versions/7/infer", b"{"),), "4"),
    Case("empty body of unknown model", (post("/v2/models/nobody/infer"),), "4"),
]

E = given("E", "FP32", [1], [1])
BAD_INPUTS = (
    # name, model, inputs, status, text FACTS gives
    ("unknown model", "nobody", TWO, 404, "Request for unknown model: 'nobody' is not found"),
    (
        "wrong input name",
        "actor",
        [action("double"), given("W", "FP32", [1], [1])],
        400,
        "unexpected inference input 'W' for model 'actor'",
    ),
    ("missing input", "actor", [action("double")], 400, "missing required input(s) ['X']"),
    ("no inputs", "actor", [], 400, "expected 2 inputs but got 0 inputs"),
    ("extra input", "actor", [*TWO, E], 400, "expected 2 inputs but got 3 inputs"),
    ("input twice", "actor", [*TWO, X], 400, "input 'X' already exists in request"),
    ("only one input, twice", "actor", [X, X], 400, "already exists"),
    ("unknown optional input", "passer", [E], None, ""),
    (
        "wrong dtype",
        "actor",
        [action("double"), given("X", "INT32", [2], [1, 2])],
        400,
        "data-type is 'INT32', but model 'actor' expects 'FP32'",
    ),
    ("number for text", "actor", [given("ACTION", "INT32", [1], [1]), X], 400, "expects 'BYTES'"),
    (
        "no such dtype",
        "actor",
        [action("double"), given("X", "FLOAT", [2], [1, 2])],
        400,
        "invalid datatype for input X",
    ),
    (
        "config dtype",
        "actor",
        [action("double"), given("X", "TYPE_FP32", [2], [1, 2])],
        400,
        "invalid datatype",
    ),
    ("lower-case dtype", "actor", [action("double"), given("X", "fp32", [2], [1, 2])], 400, ""),
    ("empty dtype", "actor", [action("double"), given("X", "", [2], [1, 2])], None, ""),
    (
        "wrong rank",
        "actor",
        [action("double"), given("X", "FP32", [1, 2], [1, 2])],
        400,
        "Expected [-1], got [1,2]. ",
    ),
    (
        "wrong fixed dimension",
        "actor",
        [given("ACTION", "BYTES", [2], ["a", "b"]), X],
        400,
        "Expected [1], got [2]. ",
    ),
    (
        "wrong dimension of two",
        "passer_square",
        [given("IN_INT32", "INT32", [3, 1], [1, 2, 3])],
        400,
        "Expected [2,-1], got [3,1]. ",
    ),
    ("scalar shape", "actor", [action("double"), given("X", "FP32", [], [1])], None, ""),
    (
        "too few values",
        "actor",
        [action("double"), given("X", "FP32", [3], [1, 2])],
        500,
        "Shape does not match true shape of 'data' field",
    ),
    (
        "too many values",
        "actor",
        [action("double"), given("X", "FP32", [1], [1, 2])],
        500,
        "Shape does not match true shape",
    ),
    ("no values", "actor", [action("double"), given("X", "FP32", [1], [])], 500, ""),
    ("values for zero size", "actor", [action("double"), given("X", "FP32", [0], [1])], 200, ""),
    ("no text for one", "actor", [given("ACTION", "BYTES", [1], []), X], 400, "expected 1 string"),
    ("one text for two", "passer", [given("IN_STRING", "BYTES", [2], ["a"])], None, ""),
    ("two texts for one", "passer", [given("IN_STRING", "BYTES", [1], ["a", "b"])], None, ""),
    (
        "batch missing",
        "reporter",
        [given("X", "FP32", [4], [1, 2, 3, 4])],
        400,
        "Expected [-1,4], got [4]. NOTE: Setting a non-zero max_batch_size",
    ),
    (
        "batch, wrong dimension",
        "reporter",
        [given("X", "FP32", [1, 5], [1] * 5)],
        400,
        "Expected [-1,4], got [1,5]. NOTE",
    ),
    ("batch, wrong rank", "reporter", [given("X", "FP32", [1, 1, 4], [1] * 4)], 400, ""),
    (
        "batch too large",
        "reporter",
        [given("X", "FP32", [5, 4], [1] * 20)],
        400,
        "batch-size must be <= 4 for 'reporter'",
    ),
    ("batch zero", "reporter", [given("X", "FP32", [0, 4], [])], 400, "Expected 16, got 0"),
    (
        "different batches",
        "actor_batch",
        [given("ACTION", "BYTES", [2, 1], ["double"] * 2), given("X", "FP32", [1, 2], [1, 2])],
        400,
        "batch size does not match other inputs for 'actor_batch'",
    ),
    (
        "different batches, turned",
        "actor_batch",
        [given("ACTION", "BYTES", [1, 1], ["double"]), given("X", "FP32", [2, 1], [1, 2])],
        400,
        "",
    ),
)
REFUSED_INPUTS = [
    *(
        Case(name, (infer(model, inputs),), "4", status=status, says=says, blur=any_order_of_names)
        for name, model, inputs, status, says in BAD_INPUTS
    ),
    *(
        Case(f"{name}, with id", (infer(model, inputs, id="my id"),), "4", blur=any_order_of_names)
        for name, model, inputs, *_ in BAD_INPUTS
        if name in ("unknown model", "missing input", "wrong dtype", "batch zero", "wrong rank")
    ),
    Case(
        "unknown output",
        (act("double", outputs=[{"name": "NO"}]),),
        "4",
        status=400,
        says="unexpected inference output 'NO' for model 'actor'",
    ),
    Case("output without name", (act("double", outputs=[{}]),), "4"),
    Case(
        "decoupled",
        (infer("counter", [given("N", "INT32", [1], [1])]),),
        "4",
        status=501,
        says="HTTP end point doesn't support models with decoupled",
    ),
    Case("decoupled, whatever the body", (post("/v2/models/counter/infer", {}),), "4", status=501),
    Case(
        "unknown shared memory in",
        (
            infer(
                "actor",
                [
                    action("double"),
                    {
                        "name": "X",
                        "datatype": "FP32",
                        "shape": [2],
                        "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8},
                    },
                ],
            ),
        ),
        "4",
        status=404,
        says="Unable to find shared memory region: 'r'",
    ),
    Case(
        "unknown shared memory out",
        (
            act(
                "double",
                outputs=[
                    {
                        "name": "Y",
                        "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8},
                    }
                ],
            ),
        ),
        "4",
        status=404,
    ),
    Case(
        "data and binary size",
        (infer("actor", [action("double"), {**X, "parameters": {"binary_data_size": 8}}]),),
        "4",
    ),
]

PARAMETERS = [
    Case("parameters", (act("double", parameters={"a": 1, "b": "s", "c": True}),), "4", status=200),
    Case("parameter double", (act("double", parameters={"d": 1.5}),), "4", status=200),
    Case(
        "parameter triton_",
        (act("double", parameters={"triton_x": 1}),),
        "4",
        status=400,
        says="are reserved for Triton usage",
    ),
    Case(
        "parameter list",
        (act("double", parameters={"e": [1]}),),
        "4",
        status=400,
        says="parameter 'e' has invalid type",
    ),
    Case(
        "parameter null",
        (act("double", parameters={"e": None}),),
        "4",
        status=400,
        says="parameter 'e' has invalid type",
    ),
    Case("parameter object", (act("double", parameters={"e": {}}),), "4", status=400),
    Case("parameter negative", (act("double", parameters={"e": -5}),), "4"),
    Case("parameter huge", (act("double", parameters={"e": 2**64 - 1}),), "4"),
    Case("sequence_id text", (act("double", parameters={"sequence_id": "s"}),), "4", status=200),
    Case("sequence_id boolean", (act("double", parameters={"sequence_id": True}),), "4"),
    Case("sequence_start text", (act("double", parameters={"sequence_start": "yes"}),), "4"),
    Case("priority text", (act("double", parameters={"priority": "high"}),), "4"),
    Case("timeout text", (act("double", parameters={"timeout": "long"}),), "4"),
    Case("timeout number", (act("double", parameters={"timeout": 5000000}),), "4", status=200),
]

TEXT = element(b"double")
FLOATS = struct.pack("<2f", 1, 2)
GOOD = [("ACTION", "BYTES", [1], TEXT), ("X", "FP32", [2], FLOATS)]
HEADER_ERROR = "inference header size should be in range"
BINARY = [
    Case("binary", (binary("actor", GOOD),), "4", status=200),
    Case(
        "binary short",
        (binary("actor", GOOD, body=TEXT + FLOATS[:4]),),
        "4",
        status=400,
        says="unexpected size for input 'X', expecting 4 additional bytes for model 'actor'",
    ),
    Case("binary empty", (binary("actor", GOOD, body=b""),), "4", status=400),
    Case(
        "binary long",
        (binary("actor", GOOD, body=TEXT + FLOATS + b"zz"),),
        "4",
        status=400,
        says="unexpected additional input data for model 'actor'",
    ),
    Case(
        "binary size above shape",
        (binary("actor", [GOOD[0], ("X", "FP32", [2], FLOATS + b"0000")]),),
        "4",
        status=400,
        says="Expected 8, got 12",
    ),
    Case(
        "binary size below shape",
        (binary("actor", [GOOD[0], ("X", "FP32", [2], FLOATS[:4])]),),
        "4",
        status=400,
        says="Expected 8, got 4",
    ),
    Case("binary size negative", (binary("actor", GOOD, sizes={"X": -8}),), "4"),
    Case("binary size text", (binary("actor", GOOD, sizes={"X": "8"}),), "4"),
    Case("binary size zero", (binary("actor", GOOD, sizes={"X": 0}),), "4"),
    Case(
        "binary text prefix beyond data",
        (binary("actor", [("ACTION", "BYTES", [1], b"\x09\0\0\0abc"), GOOD[1]]),),
        "4",
        status=400,
        says="expecting string of length 9 but only 3 bytes available",
    ),
    Case(
        "binary text prefix cut",
        (binary("actor", [("ACTION", "BYTES", [1], b"\x09\0"), GOOD[1]]),),
        "4",
        status=400,
    ),
    Case(
        "binary two texts for one",
        (binary("actor", [("ACTION", "BYTES", [1], TEXT * 2), GOOD[1]]),),
        "4",
        status=400,
        says="unexpected number of string elements 2",
    ),
    Case(
        "binary no text for one",
        (binary("actor", [("ACTION", "BYTES", [1], b""), GOOD[1]]),),
        "4",
        status=400,
    ),
    Case(
        "binary wrong dtype",
        (binary("actor", [GOOD[0], ("X", "INT32", [2], FLOATS)]),),
        "4",
        status=400,
    ),
    Case(
        "binary no such dtype",
        (binary("actor", [GOOD[0], ("X", "NONE", [2], FLOATS)]),),
        "4",
        status=400,
    ),
    Case(
        "binary wrong rank",
        (binary("actor", [GOOD[0], ("X", "FP32", [1, 2], FLOATS)]),),
        "4",
        status=400,
    ),
    Case(
        "binary negative shape",
        (binary("actor", [GOOD[0], ("X", "FP32", [-1], FLOATS)]),),
        "4",
        status=500,
    ),
    Case(
        "header length beyond body",
        (binary("actor", GOOD, header_length=5000),),
        "4",
        status=400,
        says=HEADER_ERROR,
    ),
    Case("header length short", (binary("actor", GOOD, header_length=5),), "4"),
    Case("header length text", (binary("actor", GOOD, header_length="abc"),), "4"),
    Case("header length number and text", (binary("actor", GOOD, header_length="12abc"),), "4"),
    Case(
        "header length negative",
        (binary("actor", GOOD, header_length=-3),),
        "4",
        status=400,
        says=HEADER_ERROR,
    ),
    Case("header length empty", (binary("actor", GOOD, header_length=""),), "4"),
    Case(
        "header length missing",
        (
            post(
                "/v2/models/actor/infer",
                {
                    "inputs": [
                        {
                            "name": "X",
                            "datatype": "FP32",
                            "shape": [2],
                            "parameters": {"binary_data_size": 8},
                        }
                    ]
                },
            ),
        ),
        "4",
        status=400,
    ),
    Case(
        "header length of json only",
        (
            Http(
                "POST",
                "/v2/models/actor/infer",
                (b := json.dumps({"inputs": TWO}).encode()),
                {"Inference-Header-Content-Length": str(len(b))},
            ),
        ),
        "4",
        status=200,
    ),
]

BODY = json.dumps({"inputs": [given("text", "BYTES", [1], ["small"])]}).encode()
UPPER = "/v2/models/upper/infer"
COMPRESSION = [
    Case(
        "gzip in",
        (Http("POST", UPPER, gzip.compress(BODY), {"Content-Encoding": "gzip"}),),
        "4",
        status=200,
    ),
    Case(
        "deflate in",
        (Http("POST", UPPER, zlib.compress(BODY), {"Content-Encoding": "deflate"}),),
        "4",
        status=200,
    ),
    Case("gzip out", (Http("POST", UPPER, BODY, {"Accept-Encoding": "gzip"}),), "4", status=200),
    Case(
        "deflate out", (Http("POST", UPPER, BODY, {"Accept-Encoding": "deflate"}),), "4", status=200
    ),
    Case(
        "gzip or deflate out",
        (Http("POST", UPPER, BODY, {"Accept-Encoding": "deflate, gzip;q=0.5"}),),
        "4",
        status=200,
    ),
    Case(
        "identity out",
        (Http("POST", UPPER, BODY, {"Accept-Encoding": "identity"}),),
        "4",
        status=200,
    ),
    Case(
        "br in",
        (Http("POST", UPPER, BODY, {"Content-Encoding": "br"}),),
        "4",
        status=501,
        says="Unsupported compression type",
    ),
    Case("identity in", (Http("POST", UPPER, BODY, {"Content-Encoding": "identity"}),), "4"),
    Case(
        "broken gzip in",
        (Http("POST", UPPER, b"no gzip at all", {"Content-Encoding": "gzip"}),),
        "4",
    ),
]

CASES = [
    *METADATA,
    *ANSWERED,
    *VALUES,
    *REFUSED_BODIES,
    *REFUSED_INPUTS,
    *PARAMETERS,
    *BINARY,
    *COMPRESSION,
]
