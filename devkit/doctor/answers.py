"""Rules about what `execute` answers: responses, their number, their outputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devkit.doctor.code import Code, Function, argument, literal, names_in, own_returns
from devkit.doctor.rules import ERROR, OBSERVED, WARNING, Hit, rule
from devkit.doctor.subject import Model, execute_of


@rule(
    "syntax-error",
    ERROR,
    "a Python file of the model does not parse",
    why="the model does not load",
    fix="correct the line",
    source=OBSERVED,
)
def syntax_error(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        if code.broken is not None:
            where = type(model.place)(code.file, code.broken.lineno or 1, code.broken.offset or 1)
            yield Hit(where, str(code.broken.msg))


@rule(
    "no-model-class",
    ERROR,
    "`model.py` lacks TritonPythonModel, or its `execute`",
    why="without the class the load fails; without `execute` it loads and every request fails",
    fix="define `class TritonPythonModel` with `execute(self, requests)`",
    source=OBSERVED,
)
def no_model_class(model: Model) -> Iterator[Hit]:
    code = model.model_code
    if code is None or code.broken is not None:
        return
    bound = {one.asname or one.name for node in code.tree.body if isinstance(node, ast.ImportFrom)
             for one in node.names}  # fmt: skip
    bound |= {name for name, _ in code.assigned(code.tree)}
    if code.model_class is None:
        if "TritonPythonModel" not in bound and "*" not in bound:
            yield Hit(type(model.place)(code.file), "there is no class TritonPythonModel")
    elif "execute" not in code.methods and not code.model_class.bases:
        yield Hit(code.place(code.model_class), "TritonPythonModel has no method `execute`")


@rule(
    "none-response",
    ERROR,
    "`execute` gives None instead of a response",
    why="None is taken as a promise to use the response sender: the client never gets an answer",
    fix="return a list with one InferenceResponse for each request",
    source=OBSERVED,
)
def none_response(model: Model) -> Iterator[Hit]:
    found = execute_of(model)
    if found is None or model.decoupled:
        return
    code, execute = found
    if _is_abstract(execute) or "get_response_sender" in code.text:
        return  # a default model may use the sender and return None
    returns = list(own_returns(execute))
    for one in returns:
        if one.value is None or (literal(one.value) is None and _is_none(one.value)):
            yield Hit(code.place(one), "this returns None for the whole batch")
        elif isinstance(one.value, ast.List):
            for item in one.value.elts:
                if _is_none(item):
                    yield Hit(code.place(item), "the list of responses holds None")
    ends = isinstance(execute.body[-1], (ast.Raise, ast.While))
    if not returns and not ends and not _yields(execute):
        yield Hit(code.place(execute), "execute returns nothing")
    for call in code.named("append", execute):
        if call.args and _is_none(call.args[0]) and _returned(execute, call):
            yield Hit(code.place(call), "None is put into the list of responses")


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_abstract(function: Function) -> bool:
    return all(isinstance(one, (ast.Raise, ast.Expr, ast.Pass)) for one in function.body) and any(
        isinstance(one, ast.Raise) for one in function.body
    )


def _yields(function: Function) -> bool:
    return any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(function))


def _returned(function: Function, append: ast.Call) -> bool:
    """Whether the list that is appended to is what the function returns."""
    assert isinstance(append.func, ast.Attribute)
    target = append.func.value
    return isinstance(target, ast.Name) and any(
        one.value is not None and target.id in names_in(one.value) for one in own_returns(function)
    )


@rule(
    "short-responses",
    ERROR,
    "a request may be left without a response",
    why="the whole batch fails: `Number of InferenceResponse objects do not match the number of "
    "InferenceRequest objects`",
    fix="append a response on every way through the loop; for a bad request one with "
    "`error=TritonError(...)`",
    source=OBSERVED,
)
def short_responses(model: Model) -> Iterator[Hit]:
    found = execute_of(model)
    if found is None or model.decoupled:
        return
    code, execute = found
    if len(execute.args.args) < 2:
        return
    requests = execute.args.args[1].arg
    for loop in ast.walk(execute):
        if not isinstance(loop, ast.For) or not _over(loop.iter, requests):
            continue
        appends = [
            call for call in code.named("append", loop)
            if isinstance(call.func, ast.Attribute) and _returned(execute, call)
        ]  # fmt: skip
        if not appends:
            continue
        for way_out in _without_append(loop.body, set(appends)):
            yield Hit(code.place(way_out), "this way through the loop appends no response")
    for one in own_returns(execute):
        if (
            isinstance(one.value, ast.List)
            and len(one.value.elts) == 1
            and _takes_first(execute, requests)
        ):
            yield Hit(code.place(one), f"one response, whatever the number of {requests}")


def _over(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Call) and node.args:
        return any(_over(one, name) for one in node.args)
    return isinstance(node, ast.Name) and node.id == name


def _without_append(body: list[ast.stmt], appends: set[ast.Call]) -> Iterator[ast.AST]:
    """Statements that leave the loop's body with nothing appended."""
    for statement in body:
        inside = any(node in appends for node in ast.walk(statement))
        if isinstance(statement, ast.Continue):
            yield statement
            return
        if isinstance(statement, ast.If):
            branches = [statement.body, statement.orelse]
            for branch in branches:
                yield from _continues(branch, appends)
            if inside and not statement.orelse and _always(statement.body, appends):
                if not _later(body, statement, appends):
                    yield statement
                return
        if inside:
            return


def _continues(branch: list[ast.stmt], appends: set[ast.Call]) -> Iterator[ast.AST]:
    for statement in branch:
        if any(node in appends for node in ast.walk(statement)):
            return
        if isinstance(statement, ast.Continue):
            yield statement


def _always(body: list[ast.stmt], appends: set[ast.Call]) -> bool:
    """Whether an `if`'s body appends as its last word and does not leave otherwise."""
    return not any(isinstance(one, (ast.Continue, ast.Raise, ast.Return)) for one in body)


def _later(body: list[ast.stmt], statement: ast.stmt, appends: set[ast.Call]) -> bool:
    after = body[body.index(statement) + 1 :]
    return any(node in appends for one in after for node in ast.walk(one))


def _takes_first(execute: Function, requests: str) -> bool:
    first = loops = False
    for node in ast.walk(execute):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            first |= node.value.id == requests and literal(node.slice) == 0
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            loops |= requests in names_in(node.iter)
    return first and not loops


@rule(
    "decoupled-return",
    ERROR,
    "a decoupled model returns responses from `execute`",
    why="the batch fails: a decoupled model answers through the response sender only",
    fix="send each response with `request.get_response_sender().send(...)` and return None",
)
def decoupled_return(model: Model) -> Iterator[Hit]:
    found = execute_of(model)
    if found is None or not model.decoupled:
        return
    code, execute = found
    for one in own_returns(execute):
        if isinstance(one.value, (ast.List, ast.ListComp)) or (
            isinstance(one.value, ast.Name) and "responses" in one.value.id
        ):
            yield Hit(code.place(one), "execute of a decoupled model must return None")


@rule(
    "no-final-flag",
    ERROR,
    "a decoupled model never sends the final flag",
    why="the request never ends: clients wait, and the server keeps its memory",
    fix="end each request with `sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)`",
)
def no_final_flag(model: Model) -> Iterator[Hit]:
    found = execute_of(model)
    if found is None or not model.decoupled:
        return
    if not any("COMPLETE_FINAL" in code.text or "flags=" in code.text for code in model.codes):
        yield Hit(found[0].place(found[1]), "nothing sends TRITONSERVER_RESPONSE_COMPLETE_FINAL")


@rule(
    "response-reused",
    ERROR,
    "one InferenceResponse object stands for several requests",
    why="the server takes it apart with the first request; the second crashes the stub or answers "
    "with nothing (python_backend issue 268)",
    fix="make a new InferenceResponse for each request; tensors may be shared",
    source="python_backend issue 268",
)
def response_reused(model: Model) -> Iterator[Hit]:
    found = execute_of(model)
    if found is None:
        return
    code, execute = found
    made = {name: value for name, value in code.assigned(execute) if _is_response(code, value)}
    for node in ast.walk(execute):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                if isinstance(side, ast.List) and any(
                    _is_response(code, one) or (isinstance(one, ast.Name) and one.id in made)
                    for one in side.elts
                ):
                    yield Hit(code.place(node), "the same response, several times in the list")
        elif isinstance(node, (ast.For, ast.ListComp)):
            inside = {name for name, _ in code.assigned(node)}
            reused = made.keys() - inside
            held = [node.elt] if isinstance(node, ast.ListComp) else [
                call.args[0] for call in code.named("append", node)
                if call.args and _returned(execute, call)
            ]  # fmt: skip
            for one in held:
                if (
                    isinstance(one, ast.Name)
                    and one.id in reused
                    and _made_outside(code, made[one.id], node)
                ):
                    yield Hit(code.place(one), f"'{one.id}' was made once, outside this loop")


def _is_response(code: Code, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and code.tail(node.func) == "InferenceResponse"


def _made_outside(code: Code, value: ast.AST, loop: ast.AST) -> bool:
    return loop not in set(code.above(value))


def output_tensors(code: Code) -> Iterator[tuple[ast.Call, str | None]]:
    """Each Tensor made for a response and its name; those made for BLS calls are left out."""
    bls: set[str] = set()
    for request in code.named("InferenceRequest"):
        for value in [*request.args, *(one.value for one in request.keywords)]:
            bls |= names_in(value)
    for call in code.calls():
        tail = code.tail(call.func)
        owner = code.tail(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if tail != "Tensor" and not (tail == "from_dlpack" and owner == "Tensor"):
            continue
        if _for_bls(code, call, bls):
            continue
        name = literal(argument(call, 0, "name"))
        yield call, name if isinstance(name, str) else None


def _for_bls(code: Code, call: ast.Call, bls: set[str]) -> bool:
    for one in code.above(call):
        if isinstance(one, ast.Call):
            tail = code.tail(one.func)
            if tail == "InferenceRequest":
                return True
            if tail == "InferenceResponse":
                return False
            if tail == "append" and isinstance(one.func, ast.Attribute):
                return bool(names_in(one.func.value) & bls)
        if isinstance(one, ast.Assign):
            return bool({n for t in one.targets for n in names_in(t)} & bls)
        if isinstance(one, ast.Return):
            around = code.around(one, (ast.FunctionDef, ast.AsyncFunctionDef))
            return getattr(around, "name", "") in bls
    return False


@rule(
    "undeclared-output",
    ERROR,
    "the model answers an output that the config does not declare",
    why="it is dropped without a word, even where the client asks for it",
    fix="declare it under `output`, or spell it as declared",
    source=OBSERVED,
)
def undeclared_output(model: Model) -> Iterator[Hit]:
    if not model.is_closed:
        return
    declared = {one.name for one in model.full.output}
    for code in model.codes:
        for call, name in output_tensors(code):
            if name is not None and name not in declared:
                known = ", ".join(sorted(declared))
                yield Hit(code.place(call), f"'{name}' is not among the outputs {known}")


@rule(
    "missing-output",
    WARNING,
    "the config declares an output that the model never makes",
    why="clients get 200 without it, and an ensemble's next step an error",
    fix="answer it, or take it out of the config",
    source=OBSERVED,
)
def missing_output(model: Model) -> Iterator[Hit]:
    if not model.is_closed or execute_of(model) is None:
        return
    texts = [code.text for code in model.codes]
    names = [found[1] for code in model.codes for found in output_tensors(code)]
    if not names or None in names or any("output_tensors()" in text for text in texts):
        return  # names that are computed cannot be told
    for tensor in model.full.output:
        quoted = (f'"{tensor.name}"', f"'{tensor.name}'")
        if tensor.name not in names and not any(q in text for q in quoted for text in texts):
            yield Hit(model.at("output", tensor.name), f"'{tensor.name}' is made nowhere")
