"""FACTS 6 and the end of 3: loading, unloading, and stubs that die."""

from __future__ import annotations

import json

from tests.parity.asking import (
    Answer,
    Case,
    Grpc,
    Pause,
    Quiet,
    Until,
    act,
    act_message,
    get,
    given,
    infer,
    load,
    pb,
    post,
    unload,
)

POLL = "failed to poll from model repository"
INDEX = post("/v2/repository/index")
LOADS = (
    # model, status, text FACTS gives, log pattern FACTS gives
    ("broken_initialize", 400, "UNAVAILABLE state: Internal: ValueError: no weights", ()),
    ("broken_syntax", 400, "SyntaxError: expected ':' (model.py, line 2)", ()),
    ("broken_indent", 400, "IndentationError", ()),
    ("broken_import", 400, "ModuleNotFoundError: No module named 'no_such_module_at_all'", ()),
    ("broken_name", 400, "NameError", ()),
    ("broken_no_class", 400, "module '1.model' has no attribute 'TritonPythonModel'", ()),
    ("broken_no_execute", 200, "", ()),
    ("broken_exit", 400, "Stub process 'broken_exit_0' is not healthy.", ()),
    ("broken_sys_exit", 400, "SystemExit: 1", ()),
    ("broken_constructor", 400, "ZeroDivisionError", ()),
    ("broken_auto", 400, "auto_complete_config", ()),
    ("broken_gpu", 400, "has kind KIND_GPU but no GPUs are available", ()),
    ("broken_field", 500, POLL, ("failed to read text proto from",)),
    ("broken_value", 500, POLL, ("failed to read text proto from",)),
    ("broken_text", 500, POLL, ("failed to read text proto from",)),
    (
        "broken_folder",
        500,
        POLL,
        (
            "unexpected directory name 'broken_folder' for model 'another', directory name must equal model name",
        ),
    ),
    (
        "broken_no_version",
        400,
        "at least one version must be available under the version policy",
        (),
    ),
    ("broken_backend", 400, "unable to find backend library for backend 'nowhere'", ()),
    ("broken_no_dtype", 400, "model input 'X' must specify 'data_type' for broken_no_dtype", ()),
    ("broken_no_dims", None, "", ()),
    ("broken_dim", None, "", ()),
    ("broken_batch", None, "", ()),
    ("broken_batcher", None, "", ()),
    ("broken_preferred", None, "", ()),
    ("broken_twice", None, "", ()),
    ("loose_no_io", 200, "", ()),
    ("loose_no_config", 200, "", ()),
    ("loose_empty_config", None, "", ()),
    ("sibling", 200, "", ()),
    ("nobody", 500, "failed to load 'nobody', failed to poll from model repository", ()),
)

OVERRIDE = {
    "backend": "python",
    "max_batch_size": 2,
    "input": [
        {"name": "ACTION", "data_type": "TYPE_STRING", "dims": [1]},
        {"name": "X", "data_type": "TYPE_FP32", "dims": [-1]},
    ],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


def with_config(config: object) -> dict[str, object]:
    text = config if isinstance(config, str) else json.dumps(config)
    return {"parameters": {"config": text}}


def loading(name: str, *asked: object, **more: object) -> Case:
    return Case(name, asked, "6", setup="loading", **more)  # type: ignore[arg-type]


GUEST_STATE = Until(INDEX, '"guest\\\\\\",\\\\\\"version')

CONTROL = [
    loading("index of what was never loaded", INDEX, status=200, says="broken_auto"),
    loading("ready with nothing loaded", get("/v2/health/ready"), status=200),
    loading(
        "load", load("guest"), act("double", "guest"), get("/v2/models/guest/ready"), status=200
    ),
    loading("load again", load("guest"), act("double", "guest"), status=200),
    loading("load with body {}", load("guest", {}), status=200),
    loading(
        "load malformed",
        load("guest", b"{"),
        status=500,
        says="Missing a name for object member. at 1",
    ),
    loading("load, parameters of wrong type", load("guest", {"parameters": 5})),
    loading("load, config of wrong type", load("guest", {"parameters": {"config": 5}})),
    loading("load, config no JSON", load("guest", with_config("{"))),
    loading("load, config unknown field", load("guest", with_config({"nonsense": 1}))),
    loading("load, unknown parameter", load("guest", {"parameters": {"other": "x"}})),
    loading(
        "load with config",
        load("guest", with_config(OVERRIDE)),
        get("/v2/models/guest/config"),
        load("guest"),
        get("/v2/models/guest/config"),
    ),
    loading(
        "unload",
        load("guest"),
        unload("guest"),
        get("/v2/models/guest/ready"),
        act("double", "guest"),
        Until(post("/v2/repository/index", {}), "unloaded"),
        get("/v2/models/guest"),
        get("/v2/models/guest/config"),
        get("/v2/models/guest/stats"),
    ),
    loading(
        "unload twice", load("guest"), unload("guest"), Pause(1.5), unload("guest"), status=200
    ),
    loading("unload unknown", unload("nobody"), status=200),
    loading("unload malformed", unload("guest", b"{")),
    loading(
        "unload, dependents",
        unload("guest", {"parameters": {"unload_dependents": True}}),
        status=200,
    ),
    loading(
        "unload, dependents of wrong type",
        unload("guest", {"parameters": {"unload_dependents": 1}}),
    ),
    loading("load, repository named", post("/v2/repository/any/models/guest/load")),
    loading(
        "load and unload over gRPC",
        Grpc("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="guest")),
        Grpc("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="guest")),
        Grpc("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="nobody")),
        status="OK",
    ),
    loading(
        "load over gRPC, fails",
        Grpc("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="broken_initialize")),
        status="INVALID_ARGUMENT",
    ),
    loading(
        "load over gRPC, unknown",
        Grpc("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="nobody")),
        status="INTERNAL",
    ),
]

BROKEN = [
    *(
        loading(f"load {model}", load(model), status=status, says=says, logs=logs)
        for model, status, says, logs in LOADS
    ),
    loading("index after failures", INDEX, status=200, says="no weights"),
    loading(
        "index of ready ones after failures",
        post("/v2/repository/index", {"ready": True}),
        status=200,
    ),
    loading("ready after a failed load", get("/v2/health/ready"), status=400),
    loading("live after a failed load", get("/v2/health/live"), status=200),
    loading(
        "model ready after a failed load", get("/v2/models/broken_initialize/ready"), status=400
    ),
    loading("infer of a failed model", infer("broken_initialize", [given("X", "FP32", [1], [1])])),
    loading("metadata of a failed model", get("/v2/models/broken_initialize")),
    loading(
        "infer without execute",
        load("broken_no_execute"),
        infer("broken_no_execute", [given("X", "FP32", [1], [1])]),
        status=500,
        says="does not implement `execute` method.",
    ),
    loading(
        "config without inputs",
        load("loose_no_io"),
        get("/v2/models/loose_no_io/config"),
        get("/v2/models/loose_no_io"),
        status=200,
    ),
    loading("infer without inputs", load("loose_no_io"), infer("loose_no_io", [])),
    loading(
        "config without config.pbtxt",
        load("loose_no_config"),
        get("/v2/models/loose_no_config/config"),
        status=200,
    ),
    loading(
        "unload of a failed model",
        unload("broken_initialize"),
        Pause(1.0),
        get("/v2/health/ready"),
        status=400,
    ),
]

DEATHS = [
    loading(
        f"stub dies: {way}",
        Quiet(load(f"mortal_{way}")),
        act("double", f"mortal_{way}"),
        act(f"die_{way}", f"mortal_{way}"),
        get(f"/v2/models/mortal_{way}/ready"),
        get("/v2/health/live"),
    )
    for way in ("exit", "segv", "kill")
]
DEATHS.append(
    loading(
        "stub dies, then unload and load",
        Quiet(load("mortal_exit")),
        Quiet(act("die_exit", "mortal_exit")),
        unload("mortal_exit"),
        Pause(2.0),
        load("mortal_exit"),
        act("double", "mortal_exit"),
        status=200,
    )
)

# The real server never answers a load of a folder without model.py, and cannot be ended then.
HANGS: Answer = {"status": 0, "body": "no answer"}
ON_PURPOSE = [
    loading(
        "stub dies, then is asked again",
        Quiet(load("mortal_pair")),
        Quiet(act("die_exit", "mortal_pair")),
        # Both instances: one alone would hide it every second time.
        Quiet(act("die_exit", "mortal_pair")),
        Pause(2.0),
        act("double", "mortal_pair"),
        differs="the real server never starts a dead stub again; devkit does",
    ),
    Case(
        "load without model.py",
        (load("broken_no_file"),),
        "6",
        setup="no_file",
        recorded=HANGS,
        differs="the real server hangs for good",
    ),
    Case(
        "execute return_none",
        (Grpc("ModelInfer", act_message("return_none"), timeout=3.0),),
        "3",
        status="DEADLINE_EXCEEDED",
    ),
    Case("execute after return_none", (act("double"),), "3", status=200),
]

REFUSED = [
    Case(
        "load refused unless explicit",
        (load("actor"),),
        "6",
        status=503,
        says="explicit model load / unload is not allowed if polling is enabled",
    ),
    Case(
        "unload refused unless explicit",
        (unload("actor"),),
        "6",
        status=503,
        says="explicit model load",
    ),
    Case("load of unknown model refused unless explicit", (load("nobody"),), "6", status=503),
    Case("malformed load unless explicit", (load("actor", b"{"),), "6"),
]

CASES = [*CONTROL, *BROKEN, *DEATHS, *ON_PURPOSE, *REFUSED]
