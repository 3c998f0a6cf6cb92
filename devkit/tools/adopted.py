"""The text of a first `model.py`, for each kind of thing that can be adopted. Texts only.

All have one shape: `initialize` loads, `answer` maps arrays to arrays, `execute` goes through the
requests. They are meant to be read and changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_HEAD = '''\
"""{title} A first model, to be changed: `answer` maps input arrays to output arrays."""

import json
{imports}
import numpy as np
{third}import triton_python_backend_utils as pb_utils
{local}

'''
_EXECUTE = """
    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = {
                name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                for name in self.inputs
            }
            outputs = self.answer(inputs)
            responses.append(
                pb_utils.InferenceResponse(
                    [pb_utils.Tensor(name, array) for name, array in outputs.items()]
                )
            )
        return responses
"""
_TENSOR = '''
def tensor(value):
    """A result as a tensor: texts as bytes, numbers as arrays."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    array = np.asarray(value)
    if array.dtype.kind in "USO":
        texts = [one if isinstance(one, bytes) else str(one).encode() for one in array.ravel()]
        array = np.array(texts, dtype=object).reshape(array.shape)
    return np.ascontiguousarray(array.reshape(-1) if array.ndim == 0 else array)


def named(found):
    """Results by name: a dict's own, OUTPUT0 and on for a tuple, OUTPUT for one."""
    if hasattr(found, "model_dump"):
        found = found.model_dump()
    if isinstance(found, dict):
        return {name: tensor(value) for name, value in found.items()}
    if isinstance(found, tuple):
        return {f"OUTPUT{number}": tensor(value) for number, value in enumerate(found)}
    return {"OUTPUT": tensor(found)}


'''
_INPUTS = """\
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.inputs = [one["name"] for one in config["input"]]
"""


def _head(title: str, *, imports: str = "", third: str = "", local: str = "") -> str:
    return _HEAD.format(title=title, imports=imports, third=third, local=local).replace(
        "\n\n\n\n", "\n\n\n"
    )


def _converted(name: str, annotation: str, key: str) -> str:
    """An input as what a Python function expects of it."""
    value = f'inputs["{key}"]'
    if annotation in ("float", "int", "bool"):
        return f"{name}={annotation}({value}.reshape(-1)[0])"
    if annotation == "str":
        return f'{name}={value}.reshape(-1)[0].decode("utf-8")'
    if annotation == "bytes":
        return f"{name}={value}.reshape(-1)[0]"
    if annotation.lower().startswith(("list[str", "sequence[str", "tuple[str")):
        return f'{name}=[one.decode("utf-8") for one in {value}.reshape(-1)]'
    if annotation.lower().startswith(("list", "sequence", "tuple")):
        return f"{name}={value}.tolist()"
    return f"{name}={value}"


def function(module: str, name: str, kinds: Mapping[str, str], *, awaits: bool) -> str:
    """A model of a plain function."""
    given = ", ".join(_converted(one, kind, one) for one, kind in kinds.items())
    call = f"{name}({given})"
    called = f"asyncio.run({call})" if awaits else call
    return (
        _head(
            f"Calls {name} of {module}.py once for each request.",
            imports="import asyncio\n" if awaits else "",
            local=f"from {module} import {name}\n",
        )
        + _TENSOR.lstrip("\n")
        + "class TritonPythonModel:\n"
        + _INPUTS
        + f"\n    def answer(self, inputs):\n        return named({called})\n"
        + _EXECUTE
    )


def handler(
    module: str, name: str, kinds: Mapping[str, str], bodies: Mapping[str, str], *, awaits: bool
) -> str:
    """A model of a FastAPI handler: the fields of its body are the inputs."""
    parts = [_converted(one, kind, one) for one, kind in kinds.items() if "." not in one]
    for argument, body in bodies.items():
        fields = [
            _converted(one.partition(".")[2], kind, one.partition(".")[2])
            for one, kind in kinds.items()
            if one.startswith(f"{argument}.")
        ]
        parts.append(f"{argument}=app.{body}({', '.join(fields)})")
    call = f"app.{name}({', '.join(parts)})"
    called = f"asyncio.run({call})" if awaits else call
    return (
        _head(
            f"Calls the handler {name} of {module}.py, without its web server.",
            imports="import asyncio\n" if awaits else "",
            local=f"import {module} as app\n",
        )
        + _TENSOR.lstrip("\n")
        + "class TritonPythonModel:\n"
        + _INPUTS
        + f"\n    def answer(self, inputs):\n        return named({called})\n"
        + _EXECUTE
    )


_DEVICE = """\
        self.device = torch.device("cpu")
        if args["model_instance_kind"] == "GPU":
            self.device = torch.device("cuda", int(args["model_instance_device_id"]))
"""


def _torch_answer(names: Sequence[str]) -> str:
    given = ", ".join(f'self.tensor(inputs["{one}"])' for one in names)
    return f"""
    def tensor(self, array):
        return torch.as_tensor(array, device=self.device)

    @torch.inference_mode()
    def answer(self, inputs):
        found = self.net({given})
        if isinstance(found, dict):
            named = found
        elif isinstance(found, (tuple, list)):
            named = {{f"OUTPUT{{number}}": one for number, one in enumerate(found)}}
        else:
            named = {{"OUTPUT": found}}
        return {{name: one.cpu().contiguous().numpy() for name, one in named.items()}}
"""


def network(module: str, name: str, inputs: Sequence[str], weights: str) -> str:
    """A model of a class of networks, with the weights of a file if there is one."""
    load, imports = "", ""
    if weights:
        imports = "import os\n"
        where = f'os.path.join(os.path.dirname(__file__), "{weights}")'
        if weights.endswith(".safetensors"):
            load = f"        net.load_state_dict(safetensors.torch.load_file({where}))\n"
        else:
            load = f'        weights = torch.load({where}, map_location="cpu", weights_only=True)\n'
            load += "        net.load_state_dict(weights)\n"
    third = "import safetensors.torch\n" if weights.endswith(".safetensors") else ""
    return (
        _head(
            f"Serves the network {name} of {module}.py.",
            imports=imports,
            third=f"{third}import torch\n",
            local=f"from {module} import {name}\n",
        ).replace("import numpy as np\n", "")
        + "class TritonPythonModel:\n"
        + _INPUTS
        + _DEVICE
        + f"        net = {name}()\n"
        + load
        + "        self.net = net.to(self.device).eval()\n"
        + _torch_answer(inputs)
        + _EXECUTE
    )


def saved(file: str, inputs: Sequence[str], kind: str) -> str:
    """A model of a whole network in a file: TorchScript, or pickled."""
    where = f'os.path.join(os.path.dirname(__file__), "{file}")'
    if kind == "torchscript":
        load = f"        self.net = torch.jit.load({where}, map_location=self.device).eval()\n"
    else:
        load = (
            "        # A pickle runs code while it is loaded: only load one that you trust.\n"
            f"        path = {where}\n"
            "        net = torch.load(path, map_location=self.device, weights_only=False)\n"
            "        self.net = net.eval()\n"
        )
    return (
        _head(
            f"Serves the network in {file}.", imports="import os\n", third="import torch\n"
        ).replace("import numpy as np\n", "")
        + "class TritonPythonModel:\n"
        + _INPUTS
        + _DEVICE
        + load
        + _torch_answer(inputs)
        + _EXECUTE
    )


def onnx(file: str, flat: Sequence[str]) -> str:
    """A model of an ONNX file, run by ONNX Runtime; `flat` have no dimension but the batch."""
    squeeze = ""
    if flat:
        squeeze = f"        flat = {list(flat)!r}  # these have no dimension but the batch\n"
        squeeze += (
            "        inputs = {\n"
            "            name: array.reshape(-1) if name in flat else array\n"
            "            for name, array in inputs.items()\n"
            "        }\n"
        )
    spread = (
        "        found = [one.reshape(-1, 1) if one.ndim == 1 else one for one in found]\n"
        if flat
        else ""
    )
    return (
        _head(
            f"Serves {file} with ONNX Runtime.", imports="import os\n", third="import onnxruntime\n"
        ).replace("import numpy as np\n", "import numpy as np\n")
        + "class TritonPythonModel:\n"
        + _INPUTS
        + '        self.outputs = [one["name"] for one in config["output"]]\n'
        + f'        path = os.path.join(os.path.dirname(__file__), "{file}")\n'
        + "        options = onnxruntime.SessionOptions()\n"
        + "        # Each instance is a process: share the cores among them.\n"
        + '        count = sum(group["count"] for group in config["instance_group"]) or 1\n'
        + "        options.intra_op_num_threads = max(1, (os.cpu_count() or 1) // count)\n"
        + "        providers = onnxruntime.get_available_providers()\n"
        + "        self.session = onnxruntime.InferenceSession(\n"
        + "            path, options, providers=providers\n"
        + "        )\n"
        + "\n    def answer(self, inputs):\n"
        + squeeze
        + "        found = self.session.run(self.outputs, inputs)\n"
        + spread
        + "        return {\n"
        + "            name: np.ascontiguousarray(array)\n"
        + "            for name, array in zip(self.outputs, found)\n"
        + "        }\n"
        + _EXECUTE
    )
