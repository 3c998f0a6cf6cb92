"""The models both servers serve in the parity tests, by what a test wants of them.

`actor` does what its ACTION input says; `evaluator` evaluates an expression inside `execute`;
`reporter` answers with what it was given. Models whose name starts with `broken_` do not load.
"""

from __future__ import annotations

from tests.support.repository import ModelFiles, python_config, tensor

ACTOR = '''\
"""Answers as the ACTION input of the first request says; each action is one method."""

import os
import signal
import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def value(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def answer(*tensors, **more):
    return pb_utils.InferenceResponse(list(tensors), **more)


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        print("actor up", self.name, flush=True)

    def execute(self, requests):
        action, _, detail = value(requests[0], "ACTION").reshape(-1)[0].decode().partition(":")
        self.detail = detail
        return getattr(self, action)(requests)

    def finalize(self):
        print("actor down", self.name, flush=True)

    def double(self, requests):
        return [answer(pb_utils.Tensor("Y", value(r, "X") * 2)) for r in requests]

    def count(self, requests):
        size = np.float32(len(requests))
        return [answer(pb_utils.Tensor("Y", value(r, "X") * 0 + size)) for r in requests]

    def sleep(self, requests):
        time.sleep(float(self.detail))
        return self.double(requests)

    def raise_value(self, requests):
        raise ValueError("not this value")

    def raise_unicode(self, requests):
        raise ValueError("gr\\u00fc\\u00dfe \\"quoted\\"\\nand a second line")

    def raise_empty(self, requests):
        raise ValueError

    def raise_chained(self, requests):
        try:
            self.raise_value(requests)
        except ValueError as cause:
            raise RuntimeError("because of that") from cause

    def raise_deep(self, requests):
        def inner():
            return {}["missing"]

        return [inner() for _ in requests]

    def raise_own(self, requests):
        class OwnError(Exception):
            pass

        raise OwnError("own kind")

    def raise_triton(self, requests):
        raise pb_utils.TritonModelException("triton says no")

    def raise_interrupt(self, requests):
        raise KeyboardInterrupt

    def exit_python(self, requests):
        sys.exit(3)

    def return_none(self, requests):
        return None

    def return_empty(self, requests):
        return []

    def return_twice(self, requests):
        return self.double(requests) * 2

    def return_number(self, requests):
        return 5

    def return_tuple(self, requests):
        return tuple(self.double(requests))

    def return_text(self, requests):
        return "responses"

    def return_dict(self, requests):
        return {}

    def return_numbers(self, requests):
        return [7 for _ in requests]

    def return_tensors(self, requests):
        return [pb_utils.Tensor("Y", value(r, "X")) for r in requests]

    def other_name(self, requests):
        return [answer(pb_utils.Tensor("OTHER", value(r, "X"))) for r in requests]

    def other_dtype(self, requests):
        return [answer(pb_utils.Tensor("Y", value(r, "X").astype(self.detail))) for r in requests]

    def other_shape(self, requests):
        return [answer(pb_utils.Tensor("Y", np.ones((2, 1, 3), np.float32))) for r in requests]

    def scalar(self, requests):
        return [answer(pb_utils.Tensor("Y", np.float32(3))) for r in requests]

    def zero_rank(self, requests):
        return [answer(pb_utils.Tensor("Y", np.array(3, np.float32))) for r in requests]

    def strided(self, requests):
        return [answer(pb_utils.Tensor("Y", value(r, "X")[..., ::-1])) for r in requests]

    def unchanged(self, requests):
        return [answer(pb_utils.Tensor("Y", value(r, "X"))) for r in requests]

    def no_output(self, requests):
        return [answer() for _ in requests]

    def more_output(self, requests):
        both = [("Y", 1), ("MORE", 2)]
        return [answer(*(pb_utils.Tensor(n, value(r, "X") * k) for n, k in both)) for r in requests]

    def same_output_twice(self, requests):
        both = [("Y", 1), ("Y", 3)]
        return [answer(*(pb_utils.Tensor(n, value(r, "X") * k) for n, k in both)) for r in requests]

    def error(self, requests):
        code = getattr(pb_utils.TritonError, self.detail or "INTERNAL")
        return [answer(error=pb_utils.TritonError("refused here", code)) for _ in requests]

    def error_default(self, requests):
        return [answer(error=pb_utils.TritonError("plain refusal")) for _ in requests]

    def error_and_output(self, requests):
        failure = pb_utils.TritonError("output is void")
        return [answer(pb_utils.Tensor("Y", value(r, "X")), error=failure) for r in requests]

    def error_empty(self, requests):
        return [answer(error=pb_utils.TritonError("")) for _ in requests]

    def error_from_text(self, requests):
        return [answer(error="only text") for _ in requests]

    def log(self, requests):
        logger = pb_utils.Logger
        logger.log_info("an info line")
        logger.log_warn("a warn line")
        logger.log_error("an error line")
        logger.log("a line without level")
        logger.log("a warned line", logger.WARNING)
        logger.log_verbose("a verbose line")
        print("a printed line", flush=True)
        return self.double(requests)

    def die_exit(self, requests):
        os._exit(3)

    def die_segv(self, requests):
        os.kill(os.getpid(), signal.SIGSEGV)

    def die_kill(self, requests):
        os.kill(os.getpid(), signal.SIGKILL)
'''

EVALUATOR = '''\
"""Evaluates the CODE input inside execute; answers repr of the value or the exception."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy()[0].decode()
            scope = {"pb_utils": pb_utils, "np": np, "json": json, "request": request}
            try:
                text = repr(eval(code, scope))
            except Exception as problem:
                text = f"{type(problem).__name__}: {problem}"
            result = np.array([text.encode()], dtype=object)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", result)]))
        return answers
'''

REPORTER = '''\
"""Answers with the arguments of initialize, and completes its own config."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        print("completing", json.dumps(config.as_dict()), flush=True)
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "ARGS", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        answers = []
        for request in requests:
            size = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().shape[0]
            text = json.dumps(self.args, sort_keys=True).encode()
            tensor = pb_utils.Tensor("ARGS", np.array([[text]] * size, dtype=object))
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
'''

PASSER = '''\
"""Gives every input back as the output of the same type, in order of the names."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            tensors = sorted(request.inputs(), key=lambda tensor: tensor.name())
            outputs = [pb_utils.Tensor("OUT" + t.name()[2:], t.as_numpy()) for t in tensors]
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
'''

UPPER = '''\
"""One text in, the same in capitals out."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            upper = np.array([text.upper() for text in texts.reshape(-1)], dtype=object)
            tensor = pb_utils.Tensor("upper", upper.reshape(texts.shape))
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
'''

# What FACTS section 7 and 5 need of decoupled models: N responses, then the end.
COUNTER = '''\
"""Decoupled: sends N responses, an error after them if N is negative, then the end."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            number = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            sender = request.get_response_sender()
            for index in range(abs(number)):
                tensor = pb_utils.Tensor("I", np.array([index], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            if number < 0:
                error = pb_utils.TritonError("too late")
                sender.send(pb_utils.InferenceResponse(error=error))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
'''

SUM = '''\
"""The sum and difference of two tensors."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
'''

MINIMAL = """\
class TritonPythonModel:
    def execute(self, requests):
        return []
"""

TYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING"),
)
ACTOR_IO = (
    tensor("input", "ACTION", "STRING", "1")
    + tensor("input", "X", "FP32", "-1")
    + tensor("output", "Y", "FP32", "-1")
)
SUM_IO = "".join(
    tensor(kind, f"{kind.upper()}{number}", "FP32", "16")
    for kind in ("input", "output")
    for number in (0, 1)
)
PLAIN_IO = tensor("input", "X", "FP32", "1") + tensor("output", "Y", "FP32", "1")


def actor(name: str, *config: str, versions: tuple[str, ...] = ("1",)) -> ModelFiles:
    return ModelFiles(name, ACTOR, python_config(ACTOR_IO, *config), versions)


def add_sub(name: str = "add_sub", *config: str) -> ModelFiles:
    return ModelFiles(name, SUM, python_config(SUM_IO, *config))


SERVED = (
    actor("actor"),
    actor("actor_batch", 'name: "actor_batch"\nmax_batch_size: 4\n'),
    actor("actor_dynamic", "max_batch_size: 4\ndynamic_batching { }\n"),
    actor(
        "actor_tuned",
        "max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 2, 4 ] "
        "max_queue_delay_microseconds: 100 preserve_ordering: true }\n",
    ),
    actor(
        "actor_pair",
        "instance_group [ { count: 2 kind: KIND_CPU } ]\n",
        'parameters { key: "tone" value: { string_value: "low" } }\n',
    ),
    actor("actor_groups", 'instance_group [ { count: 1 }, { name: "named" count: 2 } ]\n'),
    actor("actor_kind_auto", "instance_group [ { kind: KIND_AUTO } ]\n"),
    actor("actor_kind_model", "instance_group [ { kind: KIND_MODEL } ]\n"),
    actor("actor_versions", versions=("1", "3", "20", "draft")),
    actor(
        "actor_chosen",
        "version_policy: { specific: { versions: [ 1, 3 ] } }\n",
        versions=("1", "3"),
    ),
    actor("actor_all", "version_policy: { all: { } }\n", versions=("2", "10")),
    ModelFiles(
        "evaluator",
        EVALUATOR,
        python_config(
            tensor("input", "CODE", "STRING", "1"), tensor("output", "RESULT", "STRING", "1")
        ),
    ),
    ModelFiles("reporter", REPORTER),
    ModelFiles(
        "passer",
        PASSER,
        python_config(
            *(tensor("input", f"IN_{name}", name, "-1", more="optional: true") for name in TYPES),
            *(tensor("output", f"OUT_{name}", name, "-1") for name in TYPES),
        ),
    ),
    ModelFiles(
        "passer_square",
        PASSER,
        python_config(
            tensor("input", "IN_INT32", "INT32", "2, -1"),
            tensor("output", "OUT_INT32", "INT32", "2, -1"),
        ),
    ),
    ModelFiles(
        "upper",
        UPPER,
        python_config(
            tensor("input", "text", "STRING", "1"), tensor("output", "upper", "STRING", "-1")
        ),
    ),
    ModelFiles(
        "counter",
        COUNTER,
        python_config(
            tensor("input", "N", "INT32", "1"),
            tensor("output", "I", "INT32", "1"),
            "model_transaction_policy { decoupled: true }\n",
        ),
    ),
    add_sub(),
)

BROKEN_INITIALIZE = """\
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights")

    def execute(self, requests):
        return []
"""

BROKEN_AUTO = """\
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        raise ValueError("no idea")

    def execute(self, requests):
        return []
"""


def _minimal(name: str, config: str | None, versions: tuple[str, ...] = ("1",)) -> ModelFiles:
    return ModelFiles(name, MINIMAL, config, versions)


def _initialize(statement: str) -> str:
    return (
        f"import os, sys\n\n\nclass TritonPythonModel:\n    def initialize(self, args):\n"
        f"        {statement}\n\n    def execute(self, requests):\n        return []\n"
    )


def _plain(name: str, code: str | None, *config: str) -> ModelFiles:
    return ModelFiles(name, code, python_config(PLAIN_IO, *config))


LOADED_ON_REQUEST = (
    *(actor(f"mortal_{way}") for way in ("exit", "segv", "kill")),
    actor("mortal_pair", "instance_group [ { count: 2 } ]\n"),
    actor("guest"),
    actor("busy"),
    _plain("broken_initialize", BROKEN_INITIALIZE),
    _plain(
        "broken_syntax", "class TritonPythonModel:\n    def execute(self, requests)\n        pass\n"
    ),
    _plain("broken_indent", "class TritonPythonModel:\ndef execute(self, requests):\n    pass\n"),
    _plain("broken_import", "import no_such_module_at_all\n" + MINIMAL),
    _plain("broken_name", "undefined_name\n" + MINIMAL),
    _plain("broken_no_class", "number = 1\n"),
    _plain("broken_no_execute", "class TritonPythonModel:\n    pass\n"),
    _plain("broken_exit", _initialize("os._exit(1)")),
    _plain("broken_sys_exit", _initialize("sys.exit(1)")),
    _plain(
        "broken_constructor", "class TritonPythonModel:\n    def __init__(self):\n        1 / 0\n"
    ),
    _plain("broken_auto", BROKEN_AUTO),
    _plain("broken_gpu", MINIMAL, "instance_group [ { kind: KIND_GPU } ]\n"),
    _minimal("broken_field", python_config(PLAIN_IO, "nonsense: 3\n")),
    _minimal("broken_value", python_config(PLAIN_IO, 'max_batch_size: "many"\n')),
    _minimal("broken_text", 'backend: "python"\ninput [ {\n'),
    _minimal("broken_folder", python_config(PLAIN_IO, 'name: "another"\n')),
    _minimal("broken_no_version", python_config(PLAIN_IO), ()),
    _minimal("broken_backend", 'backend: "nowhere"\n' + PLAIN_IO),
    _minimal(
        "broken_no_dtype",
        python_config('input [ { name: "X" dims: [ 1 ] } ]\n', tensor("output", "Y", "FP32", "1")),
    ),
    _minimal(
        "broken_no_dims",
        python_config(
            'input [ { name: "X" data_type: TYPE_FP32 } ]\n', tensor("output", "Y", "FP32", "1")
        ),
    ),
    _minimal("broken_dim", python_config(tensor("input", "X", "FP32", "-2"))),
    _minimal("broken_batch", python_config(PLAIN_IO, "max_batch_size: -1\n")),
    _minimal("broken_batcher", python_config(PLAIN_IO, "dynamic_batching { }\n")),
    _minimal(
        "broken_preferred",
        python_config(
            PLAIN_IO,
            "max_batch_size: 4\ndynamic_batching { preferred_batch_size: [ 8 ] }\n",
        ),
    ),
    _minimal("broken_twice", python_config(PLAIN_IO, tensor("input", "X", "FP32", "1"))),
    _minimal("loose_no_io", 'backend: "python"\n'),
    _minimal("loose_no_config", None),
    _minimal("loose_empty_config", ""),
    ModelFiles(
        "sibling",
        "import helper\n" + MINIMAL,
        python_config(PLAIN_IO),
        extra={"1/helper.py": "x = 1\n"},
    ),
)

# The real server hangs for good on it, so it never loads it: see the recorded cases.
NO_FILE = ModelFiles("broken_no_file", None, python_config(PLAIN_IO))
