"""Models that do what the request says in Python: the CODE input is the body of `execute`.

One model file serves every case of the contract, so a case shows its own model code. What differs
is the config (decoupled, iterative, ...) and whether `execute` is a coroutine function; that is in
a `mode` file beside the code. Everything the bodies may use is at the top of SCRIPT.
"""

from __future__ import annotations

from tests.support.repository import ModelFiles, python_config, tensor

SCRIPT = '''\
"""Runs the CODE input of the first request as the body of execute."""

import asyncio
import json
import textwrap
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
RESCHEDULE = pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE


def text(value):
    """A response that says `value`."""
    said = value if isinstance(value, str) else json.dumps(value)
    array = np.array([said.encode()], dtype=object)
    return pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", array)])


def fails(message, code="INTERNAL"):
    code = getattr(pb_utils.TritonError, code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))


def code_tensor(code):
    return pb_utils.Tensor("CODE", np.array([code.encode()], dtype=object))


def x_tensor(*values):
    return pb_utils.Tensor("X", np.array(values, np.float32))


def ask(model, code="return [text('heard')]", outputs=("RESULT",), inputs=None, **more):
    """A request to another model."""
    inputs = [code_tensor(code)] if inputs is None else inputs
    return pb_utils.InferenceRequest(
        model_name=model, inputs=inputs, requested_output_names=list(outputs), **more
    )


def plain(value):
    return value.decode() if isinstance(value, bytes) else value


def show(response):
    """What is in a response, as JSON can say it."""
    if response.has_error():
        return [response.error().message(), int(response.error().code())]
    return {t.name(): [plain(v) for v in t.as_numpy().reshape(-1).tolist()]
            for t in response.output_tensors()}


def tried(function):
    """What a call returns or raises."""
    try:
        return function()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def body_of(request, kind):
    code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy().reshape(-1)[0].decode()
    scope = dict(globals())
    exec(f"{kind} run(self, requests):\\n" + textwrap.indent(code, "    "), scope)
    return scope["run"]


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        self.kept = {}
        self.now = self.most = 0

    def EXECUTE

    def finalize(self):
        print("script down", self.args["model_name"], flush=True)
'''
_SYNC = """execute(self, requests):
        return body_of(requests[0], "def")(self, requests)"""
_ASYNC = """execute(self, requests):
        return await body_of(requests[0], "async def")(self, requests)"""

SYNC_CODE = SCRIPT.replace("EXECUTE", _SYNC)
ASYNC_CODE = SCRIPT.replace("def EXECUTE", "async def " + _ASYNC)

SCRIPT_IO = (
    tensor("input", "CODE", "STRING", "1")
    + tensor("input", "X", "FP32", "-1", more="optional: true")
    + tensor("output", "RESULT", "STRING", "-1")
    + tensor("output", "Y", "FP32", "-1")
)
DECOUPLED = "model_transaction_policy { decoupled: true }\n"


def script(name: str, *config: str, asynchronous: bool = False) -> ModelFiles:
    code = ASYNC_CODE if asynchronous else SYNC_CODE
    return ModelFiles(name, code, python_config(SCRIPT_IO, *config))


SCRIPTS = (
    script("script"),
    script("script_async", asynchronous=True),
    script("script_decoupled", DECOUPLED),
    script("script_decoupled_async", DECOUPLED, asynchronous=True),
    script("callee"),
    script("callee_pair", "instance_group [ { count: 2 } ]\n"),
    script("callee_decoupled", DECOUPLED),
)


BF16 = ModelFiles(
    "script_bf16",
    SYNC_CODE,
    python_config(
        tensor("input", "CODE", "STRING", "1"),
        tensor("input", "X", "BF16", "-1"),
        tensor("output", "RESULT", "STRING", "-1"),
        tensor("output", "Y", "BF16", "-1"),
    ),
)


def _step(model: str, inputs: str, outputs: str) -> str:
    return f'{{ model_name: "{model}" model_version: -1 {inputs} {outputs} }}'


def _map(kind: str, **names: str) -> str:
    return " ".join(f'{kind}_map {{ key: "{key}" value: "{name}" }}' for key, name in names.items())


def ensemble(name: str, io: str, *steps: str, policy: str = "") -> ModelFiles:
    config = (
        f'platform: "ensemble"\n{io}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}\n{policy}'
    )
    return ModelFiles(name, None, config)


_CODES = tensor("input", "FIRST", "STRING", "1") + tensor("output", "LAST", "STRING", "-1")
_MIDDLE = tensor("output", "MIDDLE", "STRING", "-1")


def _callee(model: str, given: str, answered: str) -> str:
    return _step(model, _map("input", CODE=given), _map("output", RESULT=answered))


# The first step's answer is the code of the second.
FLOWS = (
    ensemble(
        "chain",
        _CODES + _MIDDLE,
        _callee("callee", "FIRST", "MIDDLE"),
        _callee("callee_pair", "MIDDLE", "LAST"),
    ),
    ensemble(
        "fork",
        _CODES + _MIDDLE,
        _callee("callee", "FIRST", "MIDDLE"),
        _callee("callee_pair", "FIRST", "LAST"),
    ),
    ensemble(
        "many",
        _CODES,
        _callee("callee_decoupled", "FIRST", "mid"),
        _callee("callee", "mid", "LAST"),
        policy=DECOUPLED,
    ),
    script("guest"),
    script(
        "stateful",
        "sequence_batching { max_sequence_idle_microseconds: 60000000 }\n",
    ),
    script("again", "sequence_batching { iterative_sequence: true }\n"),
    script("again_decoupled", "sequence_batching { iterative_sequence: true }\n", DECOUPLED),
    script(
        "batcher", "max_batch_size: 4\ndynamic_batching { max_queue_delay_microseconds: 200000 }\n"
    ),
)
_IDLE = "max_sequence_idle_microseconds: 60000000"
QUEUES = (
    script("queue"),
    script("queue_batch", "max_batch_size: 1\ndynamic_batching { }\n"),
    script(
        "queue_bounded",
        "max_batch_size: 1\ndynamic_batching { default_queue_policy { max_queue_size: 10 } }\n",
    ),
    script("queue_direct", f"max_batch_size: 1\nsequence_batching {{ {_IDLE} }}\n"),
    script(
        "queue_oldest",
        "max_batch_size: 1\n"
        f"sequence_batching {{ {_IDLE} oldest {{ max_candidate_sequences: 1 }} }}\n",
    ),
)
"""Models in whose queues requests are cancelled; one instance each."""

CALLS = {
    "none": "shown = 'nothing'",
    "exec": "shown = show(ask(MODEL, ANSWER).exec())",
    "async_exec": "shown = show(await ask(MODEL, ANSWER).async_exec())",
    "exec(decoupled=True)": "shown = [show(r) for r in ask(MODEL, ANSWER).exec(decoupled=True)]",
    "async_exec(decoupled=True)": (
        "shown = [show(r) for r in await ask(MODEL, ANSWER).async_exec(decoupled=True)]"
    ),
}
"""A call to MODEL that answers ANSWER, by its name in `devkit.contract.modes`."""
