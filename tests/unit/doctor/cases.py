"""For each rule a repository in which it finds something, and one in which it must not.

A case is files by path; `m/` is the model that is meant. `good` is as near to `bad` as it can be.
"""

from __future__ import annotations

from dataclasses import dataclass

from devkit.doctor import Observed, Target

IO = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
GOOD = """
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""
TEXT_IO = """
input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_STRING dims: [ -1 ] } ]
"""


def config(text: str = IO, name: str = "m") -> str:
    return f'name: "{name}"\nbackend: "python"\n{text}'


def code(execute: str = GOOD, *, top: str = "", more: str = "", head: str = "def execute") -> str:
    return (
        f"import json\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n{top}\n\n"
        f"class TritonPythonModel:\n{more}\n    {head}(self, requests):\n{execute}"
    )


def loop(body: str) -> str:
    """`execute` that answers each request with what `body` calls `y`."""
    lines = "\n".join(f"            {line}" for line in body.strip().splitlines())
    return (
        "        responses = []\n        for request in requests:\n"
        '            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()\n'
        f"{lines}\n"
        '            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))\n'
        "        return responses\n"
    )


def model(text: str = IO, source: str | None = None, **files: str) -> dict[str, str]:
    """A model `m`; `files` are further ones, `__` standing for `/`."""
    found = {"m/config.pbtxt": config(text), "m/1/model.py": source or code()}
    found.update({name.replace("__", "/").replace("_dot_", "."): t for name, t in files.items()})
    return found


def other(name: str, text: str = IO, source: str | None = None) -> dict[str, str]:
    return {f"{name}/config.pbtxt": config(text, name), f"{name}/1/model.py": source or code()}


HERE_TARGET = Target(cores=4)


@dataclass(frozen=True)
class Case:
    rule: str
    bad: dict[str, str]
    good: dict[str, str]
    target: Target = HERE_TARGET
    seen: Observed | None = None
    fine: Observed | None = None
    good_target: Target | None = None


def call(name: str, how: str = "exec()", more: str = "") -> str:
    """`execute` with a call of another model."""
    return loop(
        f'call = pb_utils.InferenceRequest(model_name="{name}", requested_output_names=["Y"],\n'
        '    inputs=[pb_utils.Tensor("X", x)])\n'
        f"answer = {how.replace('exec', 'call.exec', 1) if how[0] == 'e' else how}\n{more}"
        "if answer.has_error():\n    raise pb_utils.TritonModelException(answer.error().message())\n"
        'y = pb_utils.get_output_tensor_by_name(answer, "Y").as_numpy()'
    )


ENSEMBLE = """name: "m"
platform: "ensemble"
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }} ]
ensemble_scheduling {{ step [ {{
  model_name: "{step}" model_version: -1
  input_map {{ key: "{key}" value: "X" }}
  output_map {{ key: "Y" value: "Y" }} }} ] }}
"""


def ensemble(step: str = "a", key: str = "X") -> dict[str, str]:
    return {"m/config.pbtxt": ENSEMBLE.format(step=step, key=key), "m/1/.keep": "", **other("a")}


def environment(path: str) -> str:
    value = f'value: {{ string_value: "{path}" }}'
    return f'{IO}parameters {{ key: "EXECUTION_ENV_PATH" {value} }}\n'


HERE = environment("$$TRITON_MODEL_DIRECTORY/env")
PACKED = {"m/env/bin/python": "", "m/env/lib/python3.10/site-packages/numpy-1.26.4.dist-info/M": ""}
INITIALIZE = "    def initialize(self, args):\n"
THREE = "instance_group [ { kind: KIND_CPU count: 3 } ]\n"
SENDS = """
        for request in requests:
            sender = request.get_response_sender()
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]){flags})
"""
FINAL = ", flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
OPTIONAL = IO.replace("dims: [ -1 ] } ]\noutput", "dims: [ -1 ] optional: true } ]\noutput")
TWO = IO.replace("input [", 'input [ { name: "W" data_type: TYPE_FP32 dims: [ -1 ] },', 1)
ASYNC = "async def execute"
BATCHED = "max_batch_size: 8\ndynamic_batching { }\n"


def async_call(how: str, more: str = "") -> str:
    return code(call("a", how, more), head=ASYNC)


CLIENT = """import tritonclient.http as http

client = http.InferenceServerClient("localhost:8000")
client.infer("{name}", [])
"""

CASES = [
    Case("config-unreadable", model('input [ { name: "X" datatype: TYPE_FP32 } ]\n'), model()),
    Case(
        "config-refused",
        model('input [ { name: "X" dims: [ 1 ] } ]\noutput [ { name: "Y" dims: [ 1 ] } ]\n'),
        model(),
    ),
    Case("name-not-folder", {**model(), "m/config.pbtxt": config(name="n")}, model()),
    Case("no-version", {"m/config.pbtxt": config()}, model()),
    Case("no-model-file", {"m/config.pbtxt": config(), "m/1/helper.py": "x = 1\n"}, model()),
    Case(
        "batch-dimension",
        model(BATCHED + IO.replace("[ -1 ]", "[ -1, 16 ]")),
        model(BATCHED + IO.replace("[ -1 ]", "[ 16 ]")),
    ),
    Case(
        "batch-dimension",
        model(BATCHED + IO.replace("[ -1 ]", "[ 8, 3 ]")),
        model(BATCHED + IO.replace("[ -1 ]", "[ 3, 8 ]")),
    ),
    Case("no-batcher", model("max_batch_size: 8\n" + IO), model(BATCHED + IO)),
    Case("half-over-json", model(IO.replace("FP32", "FP16")), model()),
    Case("ensemble-map", ensemble(key="WRONG"), ensemble()),
    Case("ensemble-model-missing", ensemble(step="nobody"), ensemble()),
    Case("syntax-error", model(m__1__helper_dot_py="def f(:\n"), model()),
    Case("no-model-class", model(source="class Model:\n    pass\n"), model()),
    Case("no-model-class", model(source="class TritonPythonModel:\n    pass\n"), model()),
    Case("none-response", model(source=code("        for request in requests:\n            pass\n")),
         model(source=code("        raise NotImplementedError\n"))),
    Case("none-response", model(source=code("        return [None for r in requests] and None\n"
                                            "        return None\n")), model()),
    Case("none-response", model(source=code(GOOD.replace(
        "            responses.append(pb",
        "            if not x.size:\n                responses.append(None)\n                continue\n"
        "            responses.append(pb"))), model()),
    Case("short-responses", model(source=code(GOOD.replace(
        "            responses.append",
        "            if not x.size:\n                continue\n            responses.append"))),
        model(source=code(GOOD.replace(
            "            responses.append(pb",
            "            if not x.size:\n                responses.append(pb_utils.InferenceResponse(["
            "pb_utils.Tensor(\"Y\", x)]))\n                continue\n            responses.append(pb")))),
    Case("short-responses", model(source=code(loop("if x.size:\n    y = x").replace(
        "            responses.append", "                responses.append"))), model()),
    Case(
        "short-responses",
        model(source=code(
            '        x = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()\n'
            '        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])]\n')),
        model(),
    ),
    Case("decoupled-return", model(IO + DECOUPLED, code(GOOD)),
         model(IO + DECOUPLED, code(SENDS.format(flags=FINAL)))),
    Case("no-final-flag", model(IO + DECOUPLED, code(SENDS.format(flags=""))),
         model(IO + DECOUPLED, code(SENDS.format(flags=FINAL)))),
    Case("response-reused", model(source=code(
        '        y = pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones(1, np.float32))])\n'
        "        return [y] * len(requests)\n")), model()),
    Case("response-reused", model(source=code(
        '        y = pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.ones(1, np.float32))])\n'
        "        return [y for request in requests]\n")), model()),
    Case("undeclared-output", model(source=code(GOOD.replace('"Y"', '"Z"'))), model()),
    Case("undeclared-output", model(source=code(GOOD.replace('"Y"', '"Z"'))),
         {**model(source=code(call("a"))), **other("a")}),
    Case("missing-output", model(IO.replace(
        "output [", 'output [ { name: "Z" data_type: TYPE_FP32 dims: [ 1 ] },')), model()),
    Case("unknown-input", model(source=code(GOOD.replace('"X"', '"A"'))), model()),
    Case("optional-unchecked", model(OPTIONAL), model(OPTIONAL, code(GOOD.replace(
        '            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()',
        '            t = pb_utils.get_input_tensor_by_name(request, "X")\n'
        "            x = np.ones(1, np.float32) if t is None else t.as_numpy()")))),
    Case("input-order", model(TWO, code(loop("y = request.inputs()[0].as_numpy()"))),
         model(source=code(loop("y = request.inputs()[0].as_numpy()")))),
    Case("input-order", model(TWO, code(loop("a, y = [i.as_numpy() for i in request.inputs()]"))),
         model(TWO, code(loop("a = {i.name(): i for i in request.inputs()}\ny = x")))),
    Case("input-kept", model(source=code(loop("self.last = x\ny = x"))),
         model(source=code(loop("self.last = x.copy()\ny = x")))),
    Case("input-kept", model(source=code(loop("self.seen.append(request)\ny = x"))),
         model(source=code(loop("self.seen.append(x.mean())\ny = x")))),
    Case("output-dtype", model(source=code(loop("y = x.astype(np.int64)"))),
         model(source=code(loop("y = x.astype(np.float32)")))),
    Case("string-array", model(TEXT_IO, code(loop('y = np.array([f"{len(x)}"])'))),
         model(TEXT_IO, code(loop('y = np.array([f"{len(x)}".encode()], dtype=np.object_)')))),
    Case("string-array", model(TEXT_IO, code(loop("y = x.astype(str)"))), model(TEXT_IO)),
    Case("string-encoded", model(TEXT_IO, code(loop("y = pb_utils.serialize_byte_tensor(x)"))),
         model(TEXT_IO)),
    Case("string-as-str", model(TEXT_IO, code(loop("z = [str(t) for t in x]\ny = x"))),
         model(TEXT_IO, code(loop("z = [t.decode() for t in x]\nk = str(len(x))\ny = x")))),
    Case("string-as-str", model(TEXT_IO, code(loop('z = x[0] == "yes"\ny = x'))),
         model(TEXT_IO, code(loop('z = x[0] == b"yes"\ny = x')))),
    Case("string-as-str", model(TEXT_IO, code(loop('z = f"<{x[0]}>"\ny = x'))),
         model(TEXT_IO, code(loop('z = f"<{x[0]!r}>"\ny = x')))),
    Case("non-contiguous-output", model(source=code(loop("y = x.T"))),
         model(source=code(loop("y = np.ascontiguousarray(x.T)")))),
    Case("non-contiguous-output", model(source=code(loop("y = x[::-1]"))),
         model(source=code(loop("y = x[1:]")))),
    Case("config-is-text",
         model(source=code(more=INITIALIZE + '        self.c = args["model_config"]["input"]\n')),
         model(source=code(more=INITIALIZE + '        self.c = json.loads(args["model_config"])["input"]\n'))),
    Case("executes-nothing", model(source=code("        return list(self.answers)\n")), model()),
    Case("bls-outside-execute",
         {**model(source=code(more=INITIALIZE + '        r = pb_utils.InferenceRequest(model_name="a")\n'
                                                "        r.exec().has_error()\n")), **other("a")},
         {**model(source=code(call("a"))), **other("a")}),
    Case("bls-needs-stream",
         {**model(source=code(call("a"))),
          **other("a", IO + DECOUPLED, code(SENDS.format(flags=FINAL)))},
         {**model(source=code(call("a", "exec(decoupled=True)", "answer = next(iter(answer))\n"))),
          **other("a", IO + DECOUPLED, code(SENDS.format(flags=FINAL)))}),
    Case("bls-unknown-model", model(source=code(call("nobody"))),
         {**model(source=code(call("a"))), **other("a")}),
    Case("bls-circle", {**model(source=code(call("a"))), **other("a", source=code(call("m")))},
         {**model(source=code(call("a"))), **other("a")}),
    Case("bls-circle", model(source=code(call("m"))), model()),
    Case("bls-async-decoupled",
         {**model(IO + DECOUPLED, code(
             SENDS.format(flags=FINAL).replace(
                 "            sender.send",
                 '            a = await pb_utils.InferenceRequest(model_name="a").async_exec()\n'
                 "            a.has_error()\n            sender.send"), head=ASYNC)), **other("a")},
         model(IO + DECOUPLED, code(SENDS.format(flags=FINAL))), Target("24.03", 4)),
    Case("bls-error-unread", {**model(source=code(call("a").replace("has_error", "is_fine"))),
                              **other("a")},
         {**model(source=code(call("a"))), **other("a")}),
    Case("blocking-in-async", model(source=code(loop("time.sleep(1)\ny = x"), top="import time",
                                                head=ASYNC)),
         model(source=code(loop("await asyncio.sleep(1)\ny = x"), top="import asyncio",
                           head=ASYNC))),
    Case("blocking-in-async", {**model(source=async_call("exec()")), **other("a")},
         {**model(source=async_call("await call.async_exec()")), **other("a")}),
    Case("await-forgotten", {**model(source=async_call("await call.async_exec()",
                                                       "call.async_exec()\n")), **other("a")},
         {**model(source=async_call("await call.async_exec()")), **other("a")}),
    Case("decoupled-over-http",
         {**model(IO + DECOUPLED, code(SENDS.format(flags=FINAL))),
          "m/client.py": CLIENT.format(name="m")},
         {**model(), "m/client.py": CLIENT.format(name="m")}),
    Case("newer-feature", model(source=code(loop(
        "y = x\nz = pb_utils.InferenceResponse([], parameters={'a': 1})"))), model()),
    Case("newer-feature", model(source=code(more="    def is_ready(self):\n        return True\n")),
         model(source=code(more="    def is_ready(self):\n        return True\n")),
         good_target=Target("26.04", 4)),
    Case("threads-oversubscribed", model(IO + THREE, code(top="import torch")),
         model(IO + THREE, code(top="import torch\ntorch.set_num_threads(1)"))),
    Case("threads-oversubscribed", model(IO + THREE, code(top="import torch\ntorch.set_num_threads(2)")),
         model(source=code(top="import torch"))),
    Case("cuda-device", model(source=code(
        more=INITIALIZE + '        self.net = Net().to("cuda")\n', top="from nets import Net")),
        model(source=code(
            more=INITIALIZE + '        d = int(args["model_instance_device_id"])\n'
            '        self.net = Net().to(f"cuda:{d}")\n', top="from nets import Net"))),
    Case("cuda-device", model(source=code(top="import torch\nZERO = torch.zeros(1, device='cuda')")),
         model(source=code(top="import torch\nZERO = torch.zeros(1)"))),
    Case("load-at-import", model(source=code(top='import torch\nNET = torch.load("net.pt")')),
         model(source=code(top="import torch",
                           more=INITIALIZE + '        self.net = torch.load("net.pt")\n'))),
    Case("heavy-import", model(source=code(top="import tensorflow as tf")),
         model(source=code(loop("y = tf.abs(x)"), top="import tensorflow as tf"))),
    Case("shared-state", model(IO + THREE, code(loop("CACHE[x.size] = x.sum()\ny = x"),
                                                top="CACHE = {}")),
         model(IO, code(loop("CACHE[x.size] = x.sum()\ny = x"), top="CACHE = {}"))),
    Case("shared-state", model(IO + THREE, code(loop("self.seen.append(1)\ny = x"),
                                                more="    seen = []\n")),
         model(IO + THREE, code(loop("y = x * TABLE[0]"), top="TABLE = [1]"))),
    Case("print-in-execute", model(source=code(loop("print(x)\ny = x"))),
         model(source=code(loop('print("here")\ny = x')))),
    Case("no-finalize", model(source=code(more=INITIALIZE + '        self.f = open("/dev/null")\n')),
         model(source=code(more=INITIALIZE + '        self.f = open("/dev/null")\n'
                                "    def finalize(self):\n        self.f.close()\n"))),
    Case("env-relative", {**model(environment("env")), **PACKED}, {**model(HERE), **PACKED}),
    Case("env-missing", model(HERE), {**model(HERE), **PACKED}),
    Case("env-python",
         {**model(HERE), "m/env/lib/python3.12/site-packages/x.py": ""}, {**model(HERE), **PACKED}),
    Case("env-platform", {**model(HERE), **PACKED, "m/env/lib/libz.dylib": ""},
         {**model(HERE), **PACKED}),
    Case("numpy-2",
         {**model(HERE), "m/env/lib/python3.10/site-packages/numpy-2.1.0.dist-info/M": ""},
         {**model(HERE), **PACKED}),
    Case("numpy-2", {**model(), "m/requirements.txt": "numpy==2.1.0\n"},
         {**model(), "m/requirements.txt": "numpy==1.26.4\n"}),
    Case("shm-too-small", model(IO.replace("[ -1 ]", "[ 4000, 3000 ]")), model()),
    Case("observed-answer", model(), model(),
         seen=Observed("m", warnings=(("undeclared-output", "output 'Z' is dropped", "", 2),)),
         fine=Observed("m")),
    Case("instance-died", model(), model(), seen=Observed("m", deaths=("m_0: SIGSEGV",)),
         fine=Observed("m")),
    Case("slow-load", model(), model(), seen=Observed("m", load_seconds=90.0, instances=2),
         fine=Observed("m", load_seconds=2.0)),
    Case("observed-shm", model(), model(), seen=Observed("m", shared_memory=1 << 30),
         fine=Observed("m", shared_memory=1 << 20)),
]  # fmt: skip
