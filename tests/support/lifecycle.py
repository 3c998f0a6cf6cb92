"""Models that are about loading: what `auto_complete_config` does, and what lies beside model.py.

Each is loaded by the case that wants it, so that one that does not load spoils nothing.
"""

from __future__ import annotations

import textwrap

from tests.support.repository import ModelFiles, python_config, tensor

MODEL = """\
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
COMPLETE

    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
X = '{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}'
Y = '{"name": "Y", "data_type": "TYPE_FP32", "dims": [4]}'
FORCED = {"yes": "yes", "no": "no", "maybe": "maybe", "capital": "Yes", "empty": ""}
FORCE_CPU = 'parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: {{ string_value: "{}" }} }}\n'
IO = tensor("input", "X", "FP32", "4") + tensor("output", "Y", "FP32", "4")
BOTH = f"config.add_input({X})\nconfig.add_output({Y})\n"

COMPLETIONS: dict[str, tuple[str, str]] = {
    # name: what auto_complete_config does before it returns the config; config.pbtxt
    "input_again": (f"config.add_input({X})\nconfig.add_input({X})\nconfig.add_output({Y})", ""),
    "input_as_given": (BOTH, IO),
    "input_other_type": (BOTH.replace("FP32", "INT8"), IO),
    "input_other_dims": (BOTH.replace("[4]", "[5]"), IO),
    "output_other_type": (f"config.add_output({Y})".replace("FP32", "INT8"), IO),
    "output_other_dims": (f"config.add_output({Y})".replace("[4]", "[5]"), IO),
    "input_without_name": ('config.add_input({"data_type": "TYPE_FP32", "dims": [4]})', ""),
    "input_without_type": ('config.add_input({"name": "X", "dims": [4]})', ""),
    "input_without_dims": ('config.add_input({"name": "X", "data_type": "TYPE_FP32"})', ""),
    "output_without_name": ('config.add_output({"data_type": "TYPE_FP32", "dims": [4]})', ""),
    "output_without_type": ('config.add_output({"name": "Y", "dims": [4]})', ""),
    "output_without_dims": ('config.add_output({"name": "Y", "data_type": "TYPE_FP32"})', ""),
    "input_more": (f"config.add_input(dict({X}, format=3))", ""),
    "output_more": (f"config.add_output(dict({Y}, optional=True))", ""),
    "input_optional": (f"config.add_input(dict({X}, optional=True))\nconfig.add_output({Y})", ""),
    "input_optional_given": (f"config.add_input(dict({X}, optional=True))", IO),
    "input_no_dict": ("config.add_input(5)", ""),
    "batch_larger": ("config.set_max_batch_size(8)", IO + "max_batch_size: 4\n"),
    "batch_smaller": ("config.set_max_batch_size(2)", IO + "max_batch_size: 4\n"),
    "batch_alone": (BOTH + "config.set_max_batch_size(4)", ""),
    "batch_text": (BOTH + 'config.set_max_batch_size("4")', ""),
    "batch_negative": (BOTH + "config.set_max_batch_size(-4)", ""),
    "batching": (BOTH + "config.set_max_batch_size(4)\nconfig.set_dynamic_batching()", ""),
    "batching_without_size": (BOTH + "config.set_dynamic_batching()", ""),
    "batching_given": (
        BOTH + "config.set_dynamic_batching()",
        IO + "max_batch_size: 4\ndynamic_batching { preferred_batch_size: [ 2 ] }\n",
    ),
    "batching_sequences": (
        BOTH + "config.set_dynamic_batching()",
        IO + "max_batch_size: 4\nsequence_batching { }\n",
    ),
    "policy": (BOTH + 'config.set_model_transaction_policy({"decoupled": True})', ""),
    "policy_empty": (BOTH + "config.set_model_transaction_policy({})", ""),
    "policy_more": ('config.set_model_transaction_policy({"coupled": True})', ""),
    "policy_conflict": (
        'config.set_model_transaction_policy({"decoupled": False})',
        IO + "model_transaction_policy { decoupled: true }\n",
    ),
    "policy_no_dict": ("config.set_model_transaction_policy(5)", ""),
    "returns_none": ("return None", ""),
    "returns_dict": ("return config.as_dict()", ""),
    "returns_text": ('return "config"', ""),
    "sees": ("raise ValueError(json.dumps(config.as_dict()))", ""),
    "sees_given": ("raise ValueError(json.dumps(config.as_dict()))", IO + "max_batch_size: 3\n"),
    "type": ("raise ValueError(str(type(config)))", ""),
    "changes_dict": ('config.as_dict()["max_batch_size"] = 5\n' + BOTH, ""),
    "sets_nonsense": ('config.as_dict()["nonsense"] = 5\n' + BOTH, ""),
    "tensor_there": (BOTH + 'pb_utils.Tensor("Y", np.zeros(2))', ""),
    "exits": ("raise SystemExit(3)", ""),
}


def _completing(name: str, body: str, config: str) -> ModelFiles:
    code = textwrap.indent(f"{body}\nreturn config", " " * 8)
    return ModelFiles(f"auto_{name}", MODEL.replace("COMPLETE", code), python_config(config))


SAYS = """\
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError(WHAT)

    def execute(self, requests):
        return []
"""
FINALIZES = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        print("comes", args["model_name"], flush=True)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]

    def finalize(self):
        print("goes", flush=True)
        THEN
"""
AT_TOP = "import triton_python_backend_utils as pb_utils\n\nEARLY\n\n"


def _says(
    name: str, imports: str, what: str, *config: str, file: str = "model.py", **extra: str
) -> ModelFiles:
    """A model that answers a load with the error `what`."""
    code = f"{imports}\n\n\n" + SAYS.replace("WHAT", what)
    files = {path.replace("__", "/"): text for path, text in extra.items()}
    if file != "model.py":
        files[f"1/{file}"] = code
        return ModelFiles(name, None, python_config(IO, *config), extra=files)
    return ModelFiles(name, code, python_config(IO, *config), extra=files)


def _top(name: str, early: str) -> ModelFiles:
    code = AT_TOP.replace("EARLY", early) + SAYS.replace("WHAT", "'was imported'")
    return ModelFiles(name, code, python_config(IO))


LIFECYCLE = [
    *(_completing(name, *given) for name, given in COMPLETIONS.items()),
    ModelFiles(
        "files",
        "import json\n\nimport helper\nfrom package.inner import inside\nimport shared\n"
        "import triton_python_backend_utils as pb_utils\n\n\n"
        + SAYS.replace(
            "WHAT",
            "' '.join([helper.word, inside, shared.word, __name__, helper.__name__, __file__,"
            " pb_utils.get_model_dir()])",
        ),
        python_config(IO),
        extra={
            "1/helper.py": 'word = "beside"\n',
            "1/package/__init__.py": "",
            "1/package/inner.py": 'from . import deep\n\ninside = "inside " + deep.deeper\n',
            "1/package/deep.py": 'deeper = "deeper"\n',
            "shared.py": 'word = "above"\n',
        },
    ),
    _says(
        "other_file",
        "import os",
        "__name__ + ' ' + os.path.basename(__file__)",
        'default_model_filename: "serving.py"\n',
        file="serving.py",
    ),
    _says(
        "shadowing", "import json", "json.__file__.rpartition('/')[2]", **{"1__json.py": "x = 1\n"}
    ),
    _says(
        "search_path",
        "import sys",
        "str([p for p in sys.path if p.rstrip('1').rstrip('/').endswith('search_path')])",
    ),
    ModelFiles("finalizes", FINALIZES.replace("THEN", "pass"), python_config(IO)),
    ModelFiles("finalizes_badly", FINALIZES.replace("THEN", "1 / 0"), python_config(IO)),
    _top("early_tensor", "KIND = pb_utils.Tensor"),
    _top("early_annotation", "def f(x: pb_utils.InferenceRequest):\n    pass"),
    _top("early_later", "def f(x):\n    return pb_utils.InferenceRequest(x)"),
    _top("early_from", "from triton_python_backend_utils import TritonModelException"),
    _top("early_constant", "KIND = pb_utils.TRITON_STRING_TO_NUMPY['TYPE_FP32']"),
    _top("early_unknown", "KIND = pb_utils.Nonsense"),
    *(
        ModelFiles(
            f"environment_{name}",
            SAYS.replace("WHAT", "'was loaded'"),
            python_config(
                IO,
                f'parameters {{ key: "EXECUTION_ENV_PATH" value: {{ string_value: "{path}" }} }}\n',
            ),
        )
        for name, path in (
            ("nowhere", "/nowhere/env.tar.gz"),
            ("nowhere_in_model", "$$TRITON_MODEL_DIRECTORY/env.tar.gz"),
        )
    ),
    *(
        ModelFiles(
            f"force_cpu_{name}",
            FINALIZES.replace("THEN", "pass"),
            python_config(IO, FORCE_CPU.format(value)),
        )
        for name, value in FORCED.items()
    ),
]
