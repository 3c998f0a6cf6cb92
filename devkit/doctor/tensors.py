"""Rules about tensors: names, types, texts, layout, and how long inputs may be kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devkit.doctor.answers import output_tensors
from devkit.doctor.code import Code, Function, argument, literal, names_in
from devkit.doctor.rules import ERROR, HINT, OBSERVED, WARNING, Edit, Hit, Place, rule
from devkit.doctor.subject import Model, execute_of

_NUMPY = {
    "bool": "BOOL", "bool_": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32",
    "uint64": "UINT64", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "half": "FP16", "float32": "FP32", "single": "FP32", "float64": "FP64",
    "double": "FP64", "object_": "STRING", "object": "STRING", "bytes_": "STRING",
}  # fmt: skip
_TEXT_METHODS = frozenset({"split", "startswith", "endswith", "replace", "strip", "find"})
_MAKERS = frozenset({"array", "asarray", "zeros", "ones", "full", "arange", "empty", "astype"})


def input_reads(code: Code) -> Iterator[tuple[ast.Call, str]]:
    """Each read of a request's input by a literal name."""
    for call in code.named("get_input_tensor_by_name"):
        name = literal(argument(call, 1, "name"))
        if isinstance(name, str):
            yield call, name


@rule(
    "unknown-input",
    ERROR,
    "the model reads an input that the config does not declare",
    why="`get_input_tensor_by_name` gives None, and the next call on it fails every request",
    fix="declare it under `input`, or spell it as declared",
    source=OBSERVED,
)
def unknown_input(model: Model) -> Iterator[Hit]:
    if not model.is_closed:
        return
    config = model.full
    known = {one.name for one in config.input}
    known |= {name for one in config.batch_input for name in one.target_name}
    known |= {one.name for one in config.sequence_batching.control_input}
    known |= {one.input_name for one in config.sequence_batching.state}
    for code in model.codes:
        for call, name in input_reads(code):
            if name not in known:
                yield Hit(code.place(call), f"'{name}' is not among {', '.join(sorted(known))}")


@rule(
    "optional-unchecked",
    ERROR,
    "an optional input is used without a look whether it is there",
    why="a request without it gives None, and the whole batch fails",
    fix="compare the tensor with None before calling `as_numpy`",
)
def optional_unchecked(model: Model) -> Iterator[Hit]:
    optional = {one.name for one in model.full.input if one.optional}
    if not optional:
        return
    for code in model.codes:
        for call, name in input_reads(code):
            if name not in optional:
                continue
            parent = code.parents.get(call)
            direct = isinstance(parent, ast.Attribute)
            if direct or (isinstance(parent, ast.Assign) and not _checked(code, parent)):
                yield Hit(code.place(call), f"'{name}' is optional: this may be None")


def _checked(code: Code, assign: ast.Assign) -> bool:
    names = {name for target in assign.targets for name in names_in(target)}
    around = code.around(assign, (ast.FunctionDef, ast.AsyncFunctionDef)) or code.tree
    for node in ast.walk(around):
        if isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp)) and names_in(node) & names:
            return True
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and names_in(node.test) & names:
            return True
        if isinstance(node, ast.Match) and names_in(node.subject) & names:
            return True
    # Handed on whole: whoever gets it may look.
    used = [n for n in ast.walk(around) if isinstance(n, ast.Attribute)
            and isinstance(n.value, ast.Name) and n.value.id in names]  # fmt: skip
    return not used


@rule(
    "input-order",
    ERROR,
    "the model relies on the order of `request.inputs()`",
    why="the real server gives them in hash order, neither the request's nor the config's: it "
    "works here and swaps tensors there",
    fix="take each one with `pb_utils.get_input_tensor_by_name(request, NAME)`",
    source=OBSERVED,
)
def input_order(model: Model) -> Iterator[Hit]:
    if len(model.full.input) == 1 and not model.full.HasField("sequence_batching"):
        return
    for code in model.codes:
        lists = {name for name, value in code.assigned(code.tree) if _is_inputs(code, value)}
        for node in ast.walk(code.tree):
            if isinstance(node, ast.Subscript) and isinstance(literal(node.slice), int):
                held = node.value
                if _is_inputs(code, held) or (isinstance(held, ast.Name) and held.id in lists):
                    yield Hit(code.place(node), "an input by its place")
            elif isinstance(node, ast.Assign) and isinstance(
                node.targets[0], (ast.Tuple, ast.List)
            ):
                value = node.value
                if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
                    value = value.generators[0].iter
                if _is_inputs(code, value):
                    yield Hit(code.place(node), "inputs unpacked by their place")


def _is_inputs(code: Code, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and code.tail(node.func) == "inputs" and not node.args


@rule(
    "input-kept",
    WARNING,
    "an input tensor or request is kept beyond `execute`",
    why="its memory belongs to the request: later it holds another request's data, or the memory "
    "pool grows without end",
    fix="keep a copy (`as_numpy().copy()`), and only of what is needed",
)
def input_kept(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for function in code.reach("execute"):
            kept = _views(code, function)
            for node in ast.walk(function):
                if any(_is_view(code, one, kept) for one in _stored(node)):
                    yield Hit(code.place(node), "this outlives the request")


def _stored(node: ast.AST) -> list[ast.expr]:
    """Values that a statement puts into an attribute of the model."""
    if isinstance(node, ast.Assign) and any(_on_self(one) for one in node.targets):
        return [node.value]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return []
    keeps = node.func.attr in ("append", "add", "put", "extend", "appendleft")
    return node.args if keeps and _on_self(node.func.value) else []


def _on_self(node: ast.AST) -> bool:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return True
        node = node.value
    return False


def _views(code: Code, function: Function) -> set[str]:
    """Names that hold a request, its tensors, or arrays over their memory."""
    found: set[str] = set()
    for name, value in code.assigned(function):
        if _is_view(code, value, found):
            found.add(name)
    return found


def _is_view(code: Code, node: ast.AST, kept: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in kept or node.id in ("request", "requests")
    if isinstance(node, ast.Call):
        tail = code.tail(node.func)
        if tail in ("get_input_tensor_by_name", "inputs"):
            return True
        if tail in ("as_numpy", "reshape", "view", "ravel") and isinstance(
            node.func, ast.Attribute
        ):
            return _is_view(code, node.func.value, kept)
        return False
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return False
    return isinstance(node, (ast.List, ast.Tuple)) and any(
        _is_view(code, one, kept) for one in node.elts
    )


@rule(
    "output-dtype",
    WARNING,
    "an output is made with another type than the config declares",
    why="the tensor is passed on unchecked: the client reads another type than the metadata says, "
    "and an ensemble's next step refuses it",
    fix="convert the array, or declare the type that is answered",
    source=OBSERVED,
)
def output_dtype(model: Model) -> Iterator[Hit]:
    if not model.is_closed:
        return
    for code in model.codes:
        for call, name in output_tensors(code):
            value = argument(call, 1, "data")
            declared = model.tensor_type(name or "", outputs=True).removeprefix("TYPE_")
            made = _made_as(code, value, call) if value is not None else ""
            if declared and made and made != declared:
                yield Hit(code.place(call), f"'{name}' is made as {made}, declared as {declared}")


def _made_as(code: Code, value: ast.expr, near: ast.AST) -> str:
    """Triton's name of the type that an array is surely made with; empty where unknown."""
    if isinstance(value, ast.Name):
        around = code.around(near, (ast.FunctionDef, ast.AsyncFunctionDef)) or code.tree
        values = [one for name, one in code.assigned(around) if name == value.id]
        return (
            _made_as(code, values[0], near) if len(values) == 1 and values[0] is not value else ""
        )
    if not isinstance(value, ast.Call) or code.tail(value.func) not in _MAKERS:
        return ""
    method = code.tail(value.func) == "astype"
    kind = argument(value, 0, "dtype") if method else argument(value, 99, "dtype")
    if kind is None:
        return ""
    name = code.name(kind)
    if name.startswith(("numpy.", "np.")) or name in ("bool", "object"):
        return _NUMPY.get(name.rpartition(".")[2], "")
    text = literal(kind)
    return _NUMPY.get(text, "") if isinstance(text, str) else ""


@rule(
    "string-array",
    ERROR,
    "a TYPE_STRING output is filled from a `<U` or `S` array",
    why="`<U` arrays are refused (`NumPy dtype is not supported.`), and `S` arrays lose trailing "
    "zero bytes",
    fix="make an object array of bytes: `np.array([text.encode()], dtype=object)`",
    source=OBSERVED,
    fixable=True,
)
def string_array(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for call, name in output_tensors(code):
            value = argument(call, 1, "data")
            if value is None:
                continue
            made = _resolve(code, value, call)
            if isinstance(made, ast.Call) and _is_text_array(code, made):
                edits: tuple[Edit, ...] = ()
                if code.tail(made.func) == "array" and argument(made, 1, "dtype") is None:
                    end = code.place(made)
                    spot = Place(code.file, end.end_line, end.end_column - 1)
                    edits = (Edit(spot, ", dtype=object"),)
                shown = f"output '{name}'" if name else "an output"
                yield Hit(code.place(made), f"{shown} gets an array of str", edits)


def _resolve(code: Code, value: ast.expr, near: ast.AST) -> ast.expr:
    if isinstance(value, ast.Name):
        around = code.around(near, (ast.FunctionDef, ast.AsyncFunctionDef)) or code.tree
        values = [one for name, one in code.assigned(around) if name == value.id]
        return values[0] if len(values) == 1 else value
    return value


def _is_text_array(code: Code, made: ast.Call) -> bool:
    tail = code.tail(made.func)
    kind = argument(made, 0, "dtype") if tail == "astype" else argument(made, 1, "dtype")
    if kind is not None:
        text = literal(kind)
        if isinstance(text, str):
            return text.lstrip("<>=|")[:1] in ("U", "S") or text == "str"
        return code.name(kind) in ("str", "bytes", "numpy.str_", "numpy.bytes_", "numpy.unicode_")
    if tail not in ("array", "asarray") or not made.args:
        return False
    return any(_is_text(code, one) for one in _elements(made.args[0]))


def _elements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.List, ast.Tuple)):
        for one in node.elts:
            yield from _elements(one)
    elif isinstance(node, ast.ListComp):
        yield from _elements(node.elt)
    else:
        yield node


def _is_text(code: Code, node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr) or isinstance(literal(node), (str, bytes)):
        return True
    if isinstance(node, ast.Call):
        return code.tail(node.func) in ("str", "upper", "lower", "decode", "encode", "join",
                                        "strip", "format", "dumps")  # fmt: skip
    return False


@rule(
    "string-encoded",
    ERROR,
    "an output is encoded before it is given to Tensor",
    why="Tensor encodes BYTES itself: clients get length prefixes inside their texts",
    fix="give Tensor an object array of bytes, without `serialize_byte_tensor`",
    source=OBSERVED,
)
def string_encoded(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for call, name in output_tensors(code):
            value = argument(call, 1, "data")
            made = _resolve(code, value, call) if value is not None else None
            if made is not None and any(
                code.tail(one.func) in ("serialize_byte_tensor", "serialize_bytes_tensor")
                for one in code.calls(made)
            ):
                yield Hit(code.place(made), f"output '{name or '?'}' is encoded twice")


@rule(
    "string-as-str",
    WARNING,
    "elements of a TYPE_STRING input are used as if they were str",
    why="they are bytes: `str(x)` gives \"b'...'\", comparing with str is always False, and "
    "adding to it raises",
    fix='decode first: `x.decode("utf-8")`',
    source=OBSERVED,
)
def string_as_str(model: Model) -> Iterator[Hit]:
    texts = {one.name for one in model.full.input if model.tensor_type(one.name) == "TYPE_STRING"}
    if not texts:
        return
    for code in model.codes:
        for function in code.reach("execute"):
            raw = _raw_texts(code, function, texts)
            for node in ast.walk(function):
                what = _misused(code, node, raw)
                if what:
                    yield Hit(code.place(node), what)


def _raw_texts(code: Code, function: Function, texts: set[str]) -> set[str]:
    """Names that hold bytes of a text input: the array, a piece of it, an element."""
    raw: set[str] = set()
    for _ in range(3):  # names are found in any order
        for name, value in code.assigned(function):
            if _is_raw(code, value, raw, texts):
                raw.add(name)
        for node in ast.walk(function):
            if not isinstance(node, (ast.For, ast.comprehension)):
                continue
            if isinstance(node.target, ast.Name) and _is_raw(code, node.iter, raw, texts):
                raw.add(node.target.id)
    return raw


def _is_raw(code: Code, node: ast.AST, raw: set[str], texts: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in raw
    if isinstance(node, ast.Subscript):
        return _is_raw(code, node.value, raw, texts)
    if isinstance(node, ast.Call):
        tail = code.tail(node.func)
        if tail == "get_input_tensor_by_name":
            return literal(argument(node, 1, "name")) in texts
        if tail in ("as_numpy", "item", "ravel", "flatten", "reshape", "tolist", "squeeze"):
            return isinstance(node.func, ast.Attribute) and _is_raw(
                code, node.func.value, raw, texts
            )
    return False


def _misused(code: Code, node: ast.AST, raw: set[str]) -> str:
    def is_raw(one: ast.AST) -> bool:
        return _is_raw(code, one, raw, set()) and not _is_whole_tensor(one)

    if isinstance(node, ast.Call) and node.args:
        called, first = node.func, node.args[0]
        if isinstance(called, ast.Name) and called.id == "str" and is_raw(first):
            return "str() of bytes gives \"b'...'\"" if len(node.args) == 1 else ""
        given_text = isinstance(literal(first), str)
        if isinstance(called, ast.Attribute) and called.attr in _TEXT_METHODS and given_text:
            clash = f"bytes.{called.attr} with a str argument raises TypeError"
            return clash if is_raw(called.value) else ""
    if isinstance(node, ast.FormattedValue) and is_raw(node.value) and node.conversion == -1:
        return "bytes in an f-string give \"b'...'\""
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        sides = (node.left, node.comparators[0])
        for one, other in (sides, sides[::-1]):
            if is_raw(one) and isinstance(literal(other), str):
                return "bytes never equal a str"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if is_raw(one) and (
                isinstance(literal(other), str) or isinstance(other, ast.JoinedStr)
            ):
                return "bytes and str cannot be added"
    return ""


def _is_whole_tensor(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
        node.func.attr == "get_input_tensor_by_name"
    )  # fmt: skip


@rule(
    "non-contiguous-output",
    HINT,
    "an output is a transposed or strided view",
    why="Tensor copies it into C order, once for each response",
    fix="write into an array of the right layout, or copy once for the whole batch",
    source=OBSERVED,
)
def non_contiguous_output(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for call, name in output_tensors(code):
            value = argument(call, 1, "data")
            made = _resolve(code, value, call) if value is not None else None
            if made is not None and _is_strided(code, made):
                yield Hit(code.place(made), f"output '{name or '?'}' is copied into C order")


def _is_strided(code: Code, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT")
    if isinstance(node, ast.Call):
        return code.tail(node.func) in ("transpose", "swapaxes", "moveaxis", "rollaxis", "flip",
                                        "fliplr", "flipud", "rot90")  # fmt: skip
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return any(isinstance(one, ast.Slice) and one.step is not None for one in parts)
    return False


@rule(
    "config-is-text",
    ERROR,
    '`args["model_config"]` is used as a dict',
    why="it is JSON text: indexing it by name raises TypeError and the model does not load",
    fix='parse it once: `config = json.loads(args["model_config"])`',
    source=OBSERVED,
    fixable=True,
)
def config_is_text(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for node in ast.walk(code.tree):
            held = None
            if isinstance(node, ast.Subscript) and isinstance(literal(node.slice), str):
                held = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                held = node.func.value if node.func.attr == "get" else None
            if isinstance(held, ast.Subscript) and literal(held.slice) == "model_config":
                edits: tuple[Edit, ...] = ()
                if "json" in code.imports.values():
                    text = ast.get_source_segment(code.text, held) or ""
                    edits = (Edit(code.place(held), f"json.loads({text})"),) if text else ()
                yield Hit(code.place(node), "it is a str until `json.loads` has read it", edits)


@rule(
    "executes-nothing",
    HINT,
    "`execute` never looks at its requests",
    why="every client gets the same answer, whatever it sends",
    fix="read the inputs of each request",
)
def executes_nothing(model: Model) -> Iterator[Hit]:
    found = execute_of(model)
    if found is None or not model.full.input:
        return
    code, execute = found
    arguments = [one.arg for one in execute.args.args]
    if (
        len(arguments) == 2
        and arguments[1] not in {name for one in execute.body for name in names_in(one)}
        and not all(isinstance(one, (ast.Raise, ast.Expr, ast.Pass)) for one in execute.body)
    ):
        yield Hit(code.place(execute), f"'{arguments[1]}' is not used")
