"""Rules about an instance as a process: threads, devices, imports, state, what it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devkit.doctor.code import Code, argument, literal, names_in
from devkit.doctor.rules import CONFIGURATION, HINT, WARNING, Hit, rule
from devkit.doctor.subject import Model

_THREADED = {
    "torch": "torch.set_num_threads",
    "onnxruntime": "SessionOptions.intra_op_num_threads",
    "tensorflow": "tf.config.threading.set_intra_op_parallelism_threads",
    "openvino": "INFERENCE_NUM_THREADS",
    "sklearn": "n_jobs and OMP_NUM_THREADS",
    "xgboost": "nthread",
    "lightgbm": "num_threads",
    "faiss": "faiss.omp_set_num_threads",
}
_SETTINGS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "set_num_threads",
    "intra_op_num_threads", "set_intra_op_parallelism_threads", "omp_set_num_threads",
    "threadpool_limits", "INFERENCE_NUM_THREADS", "nthread", "num_threads", "n_jobs",
)  # fmt: skip
_HEAVY = frozenset({
    "torch", "tensorflow", "transformers", "jax", "keras", "sklearn", "pandas", "scipy", "cv2",
    "torchvision", "torchaudio", "onnxruntime", "spacy", "matplotlib", "diffusers", "xgboost",
})  # fmt: skip
_LOADERS = frozenset({
    "from_pretrained", "load_model", "InferenceSession", "load_state_dict", "pipeline",
})  # fmt: skip
_LOADER_NAMES = frozenset({"torch.load", "torch.jit.load", "joblib.load", "pickle.load",
                           "numpy.load", "safetensors.torch.load_file", "spacy.load"})  # fmt: skip
_HELD = {
    "open": "a file", "threading.Thread": "a thread", "threading.Timer": "a timer",
    "concurrent.futures.ThreadPoolExecutor": "a thread pool",
    "concurrent.futures.ProcessPoolExecutor": "a process pool",
    "multiprocessing.Pool": "a process pool", "multiprocessing.Process": "a process",
    "subprocess.Popen": "a process", "socket.socket": "a socket",
    "socket.create_connection": "a connection", "sqlite3.connect": "a database connection",
    "psycopg2.connect": "a database connection", "psycopg.connect": "a database connection",
    "redis.Redis": "a connection", "requests.Session": "a connection pool",
    "httpx.Client": "a connection pool", "tempfile.TemporaryDirectory": "a temporary folder",
    "tempfile.NamedTemporaryFile": "a temporary file", "mmap.mmap": "mapped memory",
    "multiprocessing.shared_memory.SharedMemory": "shared memory",
}  # fmt: skip
_MUTATING = frozenset({"append", "add", "update", "extend", "insert", "pop", "clear", "remove",
                       "setdefault", "appendleft", "popleft", "popitem"})  # fmt: skip


@rule(
    "threads-oversubscribed",
    WARNING,
    "instances times threads are more than the machine's cores",
    why="each instance is a process that takes all cores for itself unless told otherwise: more "
    "instances then make the model slower, not faster",
    fix="set the library's threads to cores / instances, in `initialize` or before the import "
    '(`os.environ["OMP_NUM_THREADS"]`)',
    source="server issues 3796, 6201, 7108",
)
def threads_oversubscribed(model: Model) -> Iterator[Hit]:
    count, cores = _on_cpu(model), model.target.cores
    if count < 2:
        return
    text = "\n".join(code.text for code in model.codes)
    for code in model.codes:
        for node, number in _thread_settings(code):
            if number * count > cores:
                yield Hit(
                    code.place(node),
                    f"{count} instances with {number} threads each, on {cores} cores",
                )
        if any(setting in text for setting in _SETTINGS):
            continue
        for node in ast.walk(code.tree):
            names = _imported(node)
            library = next((one for one in names if one in _THREADED), "")
            if library:
                how = _THREADED[library]
                yield Hit(
                    code.place(node),
                    f"{count} instances, and each uses all {cores} cores: set {how}",
                )
                break


def _on_cpu(model: Model) -> int:
    groups = list(model.config.instance_group)
    kinds = model.config.DESCRIPTOR.fields_by_name["instance_group"].message_type.enum_types_by_name
    gpu = kinds["Kind"].values_by_name["KIND_GPU"].number
    return sum(group.count or 1 for group in groups if group.kind != gpu and not group.gpus)


def _thread_settings(code: Code) -> Iterator[tuple[ast.AST, int]]:
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Call) and code.tail(node.func) in (
            "set_num_threads", "omp_set_num_threads", "set_intra_op_parallelism_threads",
        ):  # fmt: skip
            number = literal(node.args[0]) if node.args else None
            if isinstance(number, int):
                yield node, number
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], literal(node.value)
            named = ""
            if isinstance(target, ast.Subscript):
                named = str(literal(target.slice))
            elif isinstance(target, ast.Attribute):
                named = target.attr
            sets = named.endswith("NUM_THREADS") or named == "intra_op_num_threads"
            if sets and isinstance(value, (int, str)) and str(value).isdigit():
                yield node, int(value)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [one.name.partition(".")[0] for one in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module.partition(".")[0]]
    return []


@rule(
    "cuda-device",
    WARNING,
    "the GPU is used without the instance's own device being chosen",
    why="every instance lands on GPU 0, whatever `instance_group` says, and each opens a context "
    "there",
    fix='`torch.device("cuda", int(args["model_instance_device_id"]))`, before any other CUDA work',
    source="server issues 4581, 6124, 8555",
)
def cuda_device(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        chosen = "model_instance_device_id" in code.text
        for node in ast.walk(code.tree):
            what = _cuda_work(code, node)
            if not what:
                continue
            inside = code.around(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if inside is None:
                yield Hit(code.place(node), f"{what} while the module is imported")
            elif not chosen:
                yield Hit(code.place(node), f"{what}, and model_instance_device_id is never read")


def _cuda_work(code: Code, node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    tail, name = code.tail(node.func), code.name(node.func)
    if tail == "cuda" and isinstance(node.func, ast.Attribute) and not node.args:
        return "`.cuda()` without a device"
    alone = len(node.args) == 1 and not node.keywords
    if tail in ("to", "device") and alone and literal(node.args[0]) in ("cuda", "cuda:0"):
        return f'{tail}("{literal(node.args[0])}")'
    if name.startswith("torch.cuda.") and tail in ("init", "synchronize", "empty_cache", "Stream"):
        return name
    if name.startswith("cupy.") and tail in ("array", "zeros", "ones", "asarray"):
        return f"{name} on the current device" if "Device" not in code.text else ""
    kind = argument(node, 99, "device")
    if kind is not None and literal(kind) in ("cuda", "cuda:0"):
        return f'device="{literal(kind)}"'
    return ""


@rule(
    "load-at-import",
    WARNING,
    "weights are loaded while `model.py` is imported",
    why="it runs in every process that imports the module, the short-lived one of "
    "auto_complete_config too, before the instance knows its device; a failure has no model's name",
    fix="load in `initialize`",
)
def load_at_import(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for node in code.calls():
            if code.around(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) is not None:
                continue
            name = code.name(node.func)
            if code.tail(node.func) in _LOADERS or name in _LOADER_NAMES:
                yield Hit(code.place(node), f"{name or code.tail(node.func)} at import")


@rule(
    "heavy-import",
    HINT,
    "a heavy package is imported at module level and not used there",
    why="every instance pays for it at each start, in seconds and in memory of its own",
    fix="remove the import, or move it to where it is used",
)
def heavy_import(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        used = {node.id for node in ast.walk(code.tree) if isinstance(node, ast.Name)}
        used |= {one for node in ast.walk(code.tree) if isinstance(node, ast.Assign)
                 for target in node.targets if isinstance(target, ast.Name)
                 and target.id == "__all__" for one in _strings(node.value)}  # fmt: skip
        for node in code.tree.body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            if not set(_imported(node)) & _HEAVY:
                continue
            bound = {one.asname or one.name.partition(".")[0] for one in node.names}
            if not bound & used and "*" not in bound:
                yield Hit(
                    code.place(node), f"{', '.join(sorted(bound))} is never used in this file"
                )


def _strings(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        value = literal(one)
        if isinstance(value, str):
            yield value


@rule(
    "shared-state",
    WARNING,
    "several instances are expected to share a variable",
    why="each instance is a process of its own: counters, caches and sessions differ from one to "
    "the other, and a client meets now one and now the other",
    fix="keep it outside (a cache server, a sequence batcher), or use one instance",
    source=CONFIGURATION,
)
def shared_state(model: Model) -> Iterator[Hit]:
    if model.instances < 2:
        return
    for code in model.codes:
        mutable = {
            name for node in code.tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))
            for name, value in code.assigned(node) if _is_mutable(code, value)
        }  # fmt: skip
        shared = {
            name for node in (code.model_class.body if code.model_class else [])
            for name, value in code.assigned(node)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_mutable(code, value)
        }  # fmt: skip
        for function in code.reach("execute"):
            local = {name for name, _ in code.assigned(function)}
            for node in ast.walk(function):
                if isinstance(node, ast.Global):
                    yield Hit(code.place(node), f"global {', '.join(node.names)}")
                    continue
                name = _mutated(node)
                if name in mutable - local:
                    yield Hit(code.place(node), f"'{name}' of this process only")
                elif name.startswith("self.") and name[5:] in shared:
                    yield Hit(code.place(node), f"'{name[5:]}' of this process only")


def _is_mutable(code: Code, node: ast.AST) -> bool:
    if isinstance(node, (ast.List, ast.Dict, ast.Set)):
        return True
    return isinstance(node, ast.Call) and code.tail(node.func) in (
        "dict", "list", "set", "defaultdict", "OrderedDict", "deque", "Counter",
    )  # fmt: skip


def _mutated(node: ast.AST) -> str:
    held: ast.AST | None = None
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        held = next((one.value for one in targets if isinstance(one, ast.Subscript)), None)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        held = node.func.value if node.func.attr in _MUTATING else None
    if isinstance(held, ast.Name):
        return held.id
    if isinstance(held, ast.Attribute) and isinstance(held.value, ast.Name):
        return f"self.{held.attr}" if held.value.id in ("self", "TritonPythonModel") else ""
    return ""


@rule(
    "print-in-execute",
    WARNING,
    "values are printed for every request",
    why="turning a tensor into text and writing it costs more than many models do, lines of "
    "several instances mingle, and the server's log fills up",
    fix="`pb_utils.Logger.log_verbose(...)`, or `devkit.probe(...)` while developing",
    source="server issues 4481, 5323",
)
def print_in_execute(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for function in code.reach("execute"):
            for call in code.calls(function):
                if isinstance(call.func, ast.Name) and call.func.id == "print":
                    values = [one for one in call.args if not isinstance(one, ast.Constant)]
                    if any(names_in(one) for one in values):
                        yield Hit(code.place(call), "print of values in the hot path")


@rule(
    "no-finalize",
    WARNING,
    "`initialize` takes hold of something and nothing gives it back",
    why="after an unload or a reload it stays: threads keep the process from ending, files and "
    "connections leak",
    fix="define `finalize(self)` and close it there",
)
def no_finalize(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        if "initialize" not in code.methods or "finalize" in code.methods:
            continue
        for function in code.reach("initialize"):
            for node in ast.walk(function):
                if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                    continue
                what = _HELD.get(code.name(node.value.func))
                daemon = literal(argument(node.value, 99, "daemon")) is True
                kept = any(
                    isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
                    and one.value.id == "self" for one in node.targets
                )  # fmt: skip
                if what and kept and not daemon:
                    yield Hit(code.place(node), f"{what}, and there is no finalize")
