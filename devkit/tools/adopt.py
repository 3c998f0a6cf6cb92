"""A first model of what somebody has already: a function, a network, an ONNX file, a handler.

Here is decided what a file is and what its tensors are; the text of the model is `adopted`'s. What
cannot be read off is found out by running it once, in a process of its own.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.contract import config as contract
from devkit.errors import DevkitError
from devkit.tools import adopted
from devkit.transport import dtypes

_WEIGHTS = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ts", ".safetensors")
_SCALARS = {"float": "FP32", "int": "INT64", "bool": "BOOL", "str": "BYTES", "bytes": "BYTES"}
_PROBE_SECONDS = 300.0
_ANY = 3  # what a free dimension is when a model is tried out


class AdoptError(DevkitError):
    """What lies at the path cannot be made a model of as it is; `remedy` says what is missing."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output: `dims` without the batch, -1 where any extent will do."""

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was made.

    Attributes:
        kind: `function`, `module`, `torchscript`, `pickle`, `state`, `onnx` or `handler`.
        files: what the model's folder holds.
        assumed: what was guessed, a sentence each.
    """

    name: str
    folder: Path
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    max_batch_size: int
    files: tuple[str, ...]
    assumed: tuple[str, ...] = ()

    def text(self) -> str:
        """What was made, for people."""
        lines = [f"{self.folder}: a {self.kind}, as a model"]
        for title, tensors in (("in ", self.inputs), ("out", self.outputs)):
            lines += [f"  {title} {one.name} {one.datatype} {list(one.dims)}" for one in tensors]
        return "\n".join([*lines, *(f"  assumed {one}" for one in self.assumed)])


@dataclass
class _Draft:
    """A model in the making."""

    kind: str
    code: str
    inputs: list[Tensor]
    outputs: list[Tensor] = field(default_factory=list)
    batch: int = 0
    files: dict[str, Path] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)


def adopt(
    path: Path | str,
    into: Path | str,
    *,
    name: str = "",
    entry: str = "",
    inputs: Sequence[str] = (),
    weights: Path | str | None = None,
    python: str = "",
) -> Adoption:
    """Write a first model of what lies at `path` to `into/name`; AdoptError says what is missing.

    `entry` names the function, class or handler in a Python file (`file.py:Net` also names the
    class that a state dict belongs to). `inputs` are `NAME=FP32:4,-1`, where they cannot be
    guessed. `weights` belong to a class of a Python file. `python` runs it once.
    """
    source = Path(path).expanduser().resolve()
    if not source.is_file():
        raise AdoptError(f"{source} is no file", remedy="name a .py, .pt, .safetensors or .onnx")
    name = name or re.sub(r"\W+", "_", source.stem).strip("_").lower()
    target = Path(into).expanduser().resolve() / name
    if target.exists():
        raise AdoptError(f"{target} exists", remedy="name another with --name, or remove it")
    given = [parse_input(one) for one in inputs]
    draft = _draft(source, entry, Path(weights).resolve() if weights else None, given, python)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{name}.adopt-", dir=target.parent))
    try:
        (made / "1").mkdir()
        (made / "1" / "model.py").write_text(draft.code, "utf-8")
        for inside, file in draft.files.items():
            shutil.copy2(file, made / "1" / inside)
        if not draft.outputs:
            draft.outputs = _probe(made, name, draft, python)
        (made / "config.pbtxt").write_text(_config(name, draft), "utf-8")
        made.chmod(0o755)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    files = tuple(
        sorted(
            str(one.relative_to(target))
            for one in target.rglob("*")
            if one.is_file() and "__pycache__" not in one.parts
        )
    )
    return Adoption(
        name, target, draft.kind, tuple(draft.inputs), tuple(draft.outputs), draft.batch, files,
        tuple(draft.assumed),
    )  # fmt: skip


def parse_input(text: str) -> Tensor:
    """`X=FP32:4,-1`; AdoptError where it is none."""
    found = re.fullmatch(r"(\w+)=([A-Za-z0-9]+)(?::(-?\d+(?:,-?\d+)*)?)?", text)
    if found is None or found[2].upper() not in dtypes.ALL:
        raise AdoptError(
            f"'{text}' is no input", remedy="write NAME=TYPE:DIMS, such as X=FP32:3,224,224"
        )
    dims = tuple(int(one) for one in (found[3] or "1").split(","))
    return Tensor(found[1], found[2].upper(), dims)


def _draft(
    source: Path, entry: str, weights: Path | None, given: list[Tensor], python: str
) -> _Draft:
    if source.suffix == ".onnx":
        return _onnx(source, python)
    if source.suffix in _WEIGHTS:
        return _weights(source, entry, given, python)
    if source.suffix == ".py":
        return _python(source, entry, weights, given)
    raise AdoptError(
        f"{source.name}: nothing is known of '{source.suffix}' files",
        remedy="a .py with a function, an nn.Module or a FastAPI handler; a PyTorch model (.pt, "
        ".pth, .safetensors); an .onnx file",
    )


# --- Python files -------------------------------------------------------------------------------


def _python(source: Path, entry: str, weights: Path | None, given: list[Tensor]) -> _Draft:
    try:
        tree = ast.parse(source.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError) as problem:
        raise AdoptError(f"{source} does not parse: {problem}") from problem
    handlers = [one for one in _functions(tree) if _is_handler(one)]
    networks = [one for one in tree.body if isinstance(one, ast.ClassDef) and _is_network(one)]
    plain = [one for one in _functions(tree) if not one.name.startswith("_")]
    found = {one.name: one for one in (*plain, *networks)}
    if entry and entry not in found:
        raise AdoptError(
            f"{source.name} has no function or network '{entry}'",
            remedy=f"it has {', '.join(found) or 'none'}",
        )
    candidates = [found[entry]] if entry else handlers or networks or plain
    if len(candidates) != 1:
        names = ", ".join(one.name for one in candidates)
        raise AdoptError(
            f"{source.name} holds {names or 'nothing that could be a model'}",
            remedy="say which one with --entry NAME"
            if names
            else "a function whose arguments "
            "are the inputs, a torch.nn.Module, or a FastAPI handler",
        )
    (chosen,) = candidates
    module = _module_name(source)
    if isinstance(chosen, ast.ClassDef):
        return _network(source, module, chosen, weights, given)
    if _is_handler(chosen):
        return _handler(source, module, chosen, tree, given)
    return _function(source, module, chosen, given)


def _module_name(source: Path) -> str:
    if source.stem == "model":
        return "adopted"  # `model` is the model's own file
    if not source.stem.isidentifier():
        return "adopted"
    return source.stem


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [one for one in tree.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _is_handler(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
        and one.func.attr in ("get", "post", "put", "api_route")
        for one in function.decorator_list
    )  # fmt: skip


def _is_network(node: ast.ClassDef) -> bool:
    bases = [ast.unparse(one).rpartition(".")[2] for one in node.bases]
    return "Module" in bases or "LightningModule" in bases


def _arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    spec = function.args
    return [one for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)
            if one.arg not in ("self", "cls")]  # fmt: skip


def _annotated(argument: str, annotation: ast.expr | None) -> Tensor:
    """What an annotation says of a tensor: a scalar's type, else an array of any length."""
    text = ast.unparse(annotation) if annotation is not None else ""
    inner = re.search(r"(?:list|List|Sequence|tuple|Tuple)\[(\w+)", text)
    if inner:
        return Tensor(argument, _SCALARS.get(inner[1], "FP32"), (-1,))
    if text in _SCALARS:
        return Tensor(argument, _SCALARS[text], (1,))
    return Tensor(argument, "FP32", (-1,))


def _function(
    source: Path, module: str, chosen: ast.FunctionDef | ast.AsyncFunctionDef, given: list[Tensor]
) -> _Draft:
    arguments = _arguments(chosen)
    inputs = given or [_annotated(one.arg, one.annotation) for one in arguments]
    if not inputs:
        raise AdoptError(f"{chosen.name} takes nothing", remedy="its arguments become the inputs")
    kinds = {one.arg: ast.unparse(one.annotation) if one.annotation else "" for one in arguments}
    code = adopted.function(
        module, chosen.name, kinds, awaits=isinstance(chosen, ast.AsyncFunctionDef)
    )
    guessed = [one.arg for one in arguments if not kinds[one.arg]]
    assumed = []
    if guessed and not given:
        assumed.append(f"{', '.join(guessed)}: FP32 of any length, since nothing says otherwise")
    return _Draft("function", code, inputs, files={f"{module}.py": source}, assumed=assumed)


def _handler(
    source: Path,
    module: str,
    chosen: ast.FunctionDef | ast.AsyncFunctionDef,
    tree: ast.Module,
    given: list[Tensor],
) -> _Draft:
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    inputs: list[Tensor] = []
    kinds: dict[str, str] = {}
    bodies: dict[str, str] = {}
    for one in _arguments(chosen):
        text = ast.unparse(one.annotation) if one.annotation else ""
        if text not in classes:
            inputs.append(_annotated(one.arg, one.annotation))
            kinds[one.arg] = text
            continue
        bodies[one.arg] = text
        for item in classes[text].body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                inputs.append(_annotated(item.target.id, item.annotation))
                kinds[f"{one.arg}.{item.target.id}"] = ast.unparse(item.annotation)
    if not inputs:
        raise AdoptError(
            f"the handler {chosen.name} takes no fields that could be inputs",
            remedy="its body's fields (a pydantic model in the same file) become the inputs",
        )
    code = adopted.handler(
        module, chosen.name, kinds, bodies, awaits=isinstance(chosen, ast.AsyncFunctionDef)
    )
    return _Draft("handler", code, given or inputs, files={f"{module}.py": source})


def _network(
    source: Path, module: str, chosen: ast.ClassDef, weights: Path | None, given: list[Tensor]
) -> _Draft:
    forward = next(
        (one for one in chosen.body if isinstance(one, ast.FunctionDef) and one.name == "forward"),
        None,
    )
    if forward is None:
        raise AdoptError(f"{chosen.name} has no forward", remedy="name another class with --entry")
    names = [one.arg for one in _arguments(forward)][: len(given) or None]
    draft = _Draft("module", "", [], batch=8, files={f"{module}.py": source})
    draft.inputs = given or _guessed_inputs(chosen, names, draft)
    if weights is not None:
        draft.files[weights.name] = weights
    else:
        draft.assumed.append("no --weights: they are as the class makes them, at random")
    draft.assumed.append("the first dimension of every tensor is the batch")
    draft.code = adopted.network(
        module, chosen.name, [one.name for one in draft.inputs], weights.name if weights else ""
    )
    return draft


def _guessed_inputs(chosen: ast.ClassDef, names: list[str], draft: _Draft) -> list[Tensor]:
    """One input, read off the first layer; more cannot be guessed."""
    if len(names) != 1:
        raise AdoptError(
            f"the inputs of {chosen.name}.forward ({', '.join(names)}) cannot be guessed",
            remedy="name each: --input NAME=FP32:4 (dims without the batch)",
        )
    for call in (one for one in ast.walk(chosen) if isinstance(one, ast.Call)):
        layer = ast.unparse(call.func).rpartition(".")[2]
        size = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if layer == "Linear" and isinstance(size, int):
            draft.assumed.append(f"{names[0]} has {size} features, as its first layer takes")
            return [Tensor(names[0], "FP32", (size,))]
        if layer == "Conv2d" and isinstance(size, int):
            draft.assumed.append(f"{names[0]} is an image of {size} channels, of any size")
            return [Tensor(names[0], "FP32", (size, -1, -1))]
        if layer == "Embedding":
            draft.assumed.append(f"{names[0]} holds indices, any number of them")
            return [Tensor(names[0], "INT64", (-1,))]
    raise AdoptError(
        f"the shape of {chosen.name}'s input '{names[0]}' cannot be guessed",
        remedy=f"say it: --input {names[0]}=FP32:4 (dims without the batch)",
    )


# --- weights ------------------------------------------------------------------------------------


def _weights(source: Path, entry: str, given: list[Tensor], python: str) -> _Draft:
    told = _run(_LOOK, [str(source), str(source.parent)], python, f"{source.name} cannot be read")
    kind = str(told["kind"])
    module_file, _, class_name = entry.partition(":")
    if kind == "state":
        if not class_name:
            raise AdoptError(
                f"{source.name} holds weights only",
                remedy="name the class they belong to: --entry net.py:Net",
            )
        file = Path(module_file).expanduser()
        file = file if file.is_absolute() else (source.parent / file).resolve()
        if not file.is_file():
            file = Path(module_file).expanduser().resolve()
        if not file.is_file():
            raise AdoptError(f"{module_file} is no file", remedy="--entry net.py:Net")
        draft = _python(file, class_name, source, given)
        return replace_kind(draft, "state")
    names = [str(one) for one in told["inputs"]]
    draft = _Draft(kind, "", [], batch=8, files={source.name: source})
    draft.inputs = given or _from_shape(names, told["first"], source, draft)
    for file in map(Path, told["modules"]):  # what a pickled class is unpickled with
        draft.files[file.name] = file
    draft.assumed.append("the first dimension of every tensor is the batch")
    draft.code = adopted.saved(source.name, [one.name for one in draft.inputs], kind)
    return draft


def replace_kind(draft: _Draft, kind: str) -> _Draft:
    """The same draft under another name of its kind."""
    return replace(draft, kind=kind)


def _from_shape(names: list[str], first: list[int], source: Path, draft: _Draft) -> list[Tensor]:
    if len(names) == 1 and len(first) == 2:
        draft.assumed.append(f"{names[0]} has {first[1]} features, as its first layer takes")
        return [Tensor(names[0], "FP32", (first[1],))]
    if len(names) == 1 and len(first) == 4:
        draft.assumed.append(f"{names[0]} is an image of {first[1]} channels, of any size")
        return [Tensor(names[0], "FP32", (first[1], -1, -1))]
    raise AdoptError(
        f"the inputs of {source.name} ({', '.join(names) or 'unnamed'}) cannot be guessed",
        remedy="name each: --input NAME=FP32:4 (dims without the batch)",
    )


def _onnx(source: Path, python: str) -> _Draft:
    told = _run(_ONNX, [str(source)], python, f"{source.name} cannot be read")
    rows = {side: [Tensor(n, t, tuple(d)) for n, t, d in told[side]] for side in told}
    everything = [*rows["inputs"], *rows["outputs"]]
    batched = all(one.dims and one.dims[0] == -1 for one in everything)
    if batched:
        rows = {
            side: [replace(one, dims=one.dims[1:] or (1,)) for one in each]
            for side, each in rows.items()
        }
    scalar = [one.name for one in everything if batched and len(one.dims) == 1]
    draft = _Draft(
        "onnx", adopted.onnx(source.name, scalar), rows["inputs"], rows["outputs"],
        8 if batched else 0, {source.name: source},
    )  # fmt: skip
    if batched:
        draft.assumed.append("the first dimension of every tensor is the batch")
    return draft


# --- trying it out ------------------------------------------------------------------------------


def _run(script: str, arguments: Sequence[str], python: str, what: str) -> dict[str, Any]:
    command = [python or sys.executable, "-c", script, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise AdoptError(f"{what}: no answer within {_PROBE_SECONDS:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        missing = re.search(r"No module named '([\w.]+)'", last)
        remedy = f"install it: pip install {missing[1]}" if missing else None
        raise AdoptError(f"{what}: {last}", remedy=remedy)
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def _probe(made: Path, name: str, draft: _Draft, python: str) -> list[Tensor]:
    """Run the model once on made-up inputs and see what it answers."""
    asked = [
        [one.name, one.datatype, [_ANY if size < 0 else size for size in one.dims]]
        for one in draft.inputs
    ]
    if any(one.dims[-2:] == (-1, -1) for one in draft.inputs):  # an image: small ones shrink away
        asked = [[n, t, [s if s != _ANY else 64 for s in d]] for n, t, d in asked]
    given = {"inputs": asked, "batch": 2 if draft.batch else 0, "config": _json(name, draft)}
    told = _run(_TRY, [str(made / "1"), json.dumps(given)], python, "it does not run")
    outputs = []
    for output, datatype, shape in told["outputs"]:
        dims = tuple(shape[1:] if draft.batch else shape)
        fixed = all(size >= 0 for one in draft.inputs for size in one.dims)
        free = dims if fixed or not dims else tuple(-1 for _ in dims)
        outputs.append(Tensor(output, datatype, free or (1,)))
    if not outputs:
        raise AdoptError("it answers nothing", remedy="it must return an array, or a dict of them")
    return outputs


def _filled(name: str, draft: _Draft) -> Any:
    made = pb.ModelConfig(name=name, backend="python", max_batch_size=draft.batch)
    for tensors, rows in ((draft.inputs, made.input), (draft.outputs, made.output)):
        for one in tensors:
            rows.add(
                name=one.name,
                data_type=pb.DataType.Value(dtypes.to_config(one.datatype)),
                dims=list(one.dims),
            )
    if draft.batch:
        made.dynamic_batching.SetInParent()
    return made


def _config(name: str, draft: _Draft) -> str:
    lines = [f"# {one[0].upper()}{one[1:]}.\n" for one in draft.assumed]
    return "".join(lines) + contract.to_pbtxt(_filled(name, draft), minimal=True)


def _json(name: str, draft: _Draft) -> str:
    return contract.to_json(_filled(name, draft))


_TRY = """
import importlib.util, json, os, sys
import numpy as np
folder, given = sys.argv[1], json.loads(sys.argv[2])
sys.path.append(folder)
import triton_python_backend_utils as pb_utils
pb_utils.get_model_dir = lambda: folder
spec = importlib.util.spec_from_file_location("adopted_model", os.path.join(folder, "model.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model = module.TritonPythonModel()
model.initialize({"model_config": given["config"], "model_instance_kind": "CPU",
                  "model_instance_device_id": "0", "model_repository": os.path.dirname(folder),
                  "model_version": "1", "model_name": "m", "model_instance_name": "m_0"})
kinds = {"FP32": "f4", "FP64": "f8", "FP16": "f2", "INT8": "i1", "INT16": "i2", "INT32": "i4",
         "INT64": "i8", "UINT8": "u1", "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "BOOL": "?"}
arrays = {}
for name, kind, shape in given["inputs"]:
    full = ([given["batch"]] if given["batch"] else []) + shape
    if kind == "BYTES":
        array = np.full(full, b"a", dtype=object)
    else:
        array = np.ones(full, dtype=kinds[kind])
    arrays[name] = array
names = {"f4": "FP32", "f8": "FP64", "f2": "FP16", "b1": "BOOL"}
found = []
for name, value in model.answer(arrays).items():
    kind = value.dtype.str[1:]
    if value.dtype.kind == "O":
        kind = "BYTES"
    elif value.dtype.kind in "iu":
        kind = ("INT" if value.dtype.kind == "i" else "UINT") + str(value.dtype.itemsize * 8)
    else:
        kind = names[kind]
    found.append([name, kind, list(value.shape)])
print(json.dumps({"outputs": found}))
"""

_LOOK = """
import inspect, json, sys
path, folder = sys.argv[1:3]
sys.path.insert(0, folder)
if path.endswith(".safetensors"):
    print(json.dumps({"kind": "state"}))
    sys.exit()
import torch
try:
    net = torch.jit.load(path, map_location="cpu")
    kind = "torchscript"
    names = [one.name for one in net.forward.schema.arguments if one.name != "self"]
    modules = []
except RuntimeError:
    net = torch.load(path, map_location="cpu", weights_only=False)
    kind = "pickle"
    if not isinstance(net, torch.nn.Module):
        print(json.dumps({"kind": "state"}))
        sys.exit()
    names = list(inspect.signature(net.forward).parameters)
    modules = sorted({one.__file__ for one in
                      (sys.modules.get(type(each).__module__) for each in net.modules())
                      if getattr(one, "__file__", None) and one.__file__.startswith(folder)})
first = next((list(one.shape) for one in net.parameters() if one.dim() > 1), [])
print(json.dumps({"kind": kind, "inputs": names, "first": first, "modules": modules}))
"""

_ONNX = """
import json, sys
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
kinds = {"float": "FP32", "double": "FP64", "float16": "FP16", "int8": "INT8", "int16": "INT16",
         "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16",
         "uint32": "UINT32", "uint64": "UINT64", "bool": "BOOL", "string": "BYTES"}
def rows(values):
    return [[one.name, kinds[one.type[7:-1]],
             [size if isinstance(size, int) and size > 0 else -1 for size in one.shape]]
            for one in values]
print(json.dumps({"inputs": rows(session.get_inputs()), "outputs": rows(session.get_outputs())}))
"""
