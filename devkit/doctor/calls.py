"""Rules about calls of other models (BLS) and about what blocks an event loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from devkit.doctor.code import Code, argument, literal
from devkit.doctor.rules import ERROR, WARNING, Hit, rule
from devkit.doctor.subject import Model, Repository

_BLOCKING = {
    "time.sleep": "asyncio.sleep",
    "requests.get": "an async client", "requests.post": "an async client",
    "requests.put": "an async client", "requests.request": "an async client",
    "urllib.request.urlopen": "an async client", "httpx.get": "httpx.AsyncClient",
    "httpx.post": "httpx.AsyncClient", "subprocess.run": "asyncio.create_subprocess_exec",
    "subprocess.call": "asyncio.create_subprocess_exec",
    "subprocess.check_output": "asyncio.create_subprocess_exec",
    "subprocess.check_call": "asyncio.create_subprocess_exec",
    "os.system": "asyncio.create_subprocess_shell", "socket.create_connection": "asyncio streams",
    "input": "a request's input",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One BLS call: `exec` or `async_exec`, and the model that it names, if it is a literal."""

    code: Code
    node: ast.Call
    method: str
    callee: str
    decoupled: bool


def bls_calls(code: Code, root: ast.AST | None = None) -> Iterator[Call]:
    """Every call of another model below a node."""
    requests = {
        name: value
        for name, value in code.assigned(code.tree)
        if isinstance(value, ast.Call) and code.tail(value.func) == "InferenceRequest"
    }
    for node in code.calls(root):
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("exec", "async_exec"):
            continue
        held = node.func.value
        made = requests.get(held.id) if isinstance(held, ast.Name) else held
        if not isinstance(made, ast.Call) or code.tail(made.func) != "InferenceRequest":
            if node.func.attr == "exec":
                continue  # some other object's
            made = None
        name = literal(argument(made, 99, "model_name")) if made is not None else None
        wanted = literal(argument(node, 0, "decoupled")) is True
        yield Call(code, node, node.func.attr, name if isinstance(name, str) else "", wanted)


@rule(
    "bls-outside-execute",
    ERROR,
    "another model is called in `initialize` or `finalize`",
    why="BLS is served in `execute` only: the load hangs or fails, since the other model may not "
    "be loaded yet",
    fix="make the call at the first request",
)
def bls_outside_execute(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for method in ("initialize", "finalize"):
            for function in code.reach(method):
                for call in bls_calls(code, function):
                    yield Hit(code.place(call.node), f"{call.method} is reached from {method}")


@rule(
    "bls-needs-stream",
    ERROR,
    "a decoupled model is called without `decoupled=True`",
    why="the response is an error: decoupled models answer an iterator only",
    fix="call `exec(decoupled=True)` and go through the responses",
    scope="repository",
)
def bls_needs_stream(repository: Repository) -> Iterator[Hit]:
    for model in repository.models.values():
        for code in model.codes:
            for call in bls_calls(code):
                other = repository.models.get(call.callee)
                unsaid = argument(call.node, 0, "decoupled") is None
                if other is not None and other.decoupled and unsaid:
                    yield Hit(code.place(call.node), f"'{call.callee}' is decoupled")


@rule(
    "bls-unknown-model",
    WARNING,
    "a model is called that is not in the repository",
    why="each call answers an error: `Model ... is not ready`",
    fix="add the model to the repository that is deployed, or correct the name",
    scope="repository",
)
def bls_unknown_model(repository: Repository) -> Iterator[Hit]:
    for model in repository.models.values():
        for code in model.codes:
            for call in bls_calls(code):
                if call.callee and call.callee not in repository.models:
                    yield Hit(code.place(call.node), f"there is no model '{call.callee}'")


@rule(
    "bls-circle",
    ERROR,
    "models call each other in a circle",
    why="once all instances of one wait, none is left to answer: they hang for good",
    fix="move what is called into a model of its own, outside the circle",
    scope="repository",
)
def bls_circle(repository: Repository) -> Iterator[Hit]:
    graph: dict[str, dict[str, Hit]] = {}
    for name, model in repository.models.items():
        edges = graph.setdefault(name, {})
        for code in model.codes:
            for call in bls_calls(code):
                if call.callee in repository.models:
                    edges.setdefault(call.callee, Hit(code.place(call.node), ""))
        for step in model.config.ensemble_scheduling.step:
            if step.model_name in repository.models:
                place = model.at("ensemble_scheduling", "step", step.model_name, "model_name")
                edges.setdefault(step.model_name, Hit(place, ""))
    told: set[frozenset[str]] = set()
    for start in sorted(graph):
        circle = _circle(graph, start)
        if circle and frozenset(circle) not in told:
            told.add(frozenset(circle))
            following = circle[1] if len(circle) > 1 else start
            place = graph[start][following].place
            yield Hit(place, " → ".join([*circle, start]))


def _circle(graph: dict[str, dict[str, Hit]], start: str) -> list[str]:
    """A shortest way from a model back to itself; empty where there is none."""
    todo: list[list[str]] = [[start]]
    seen: set[str] = set()
    while todo:
        way = todo.pop(0)
        for following in graph.get(way[-1], {}):
            if following == start:
                return way
            if following not in seen:
                seen.add(following)
                todo.append([*way, following])
    return []


@rule(
    "bls-async-decoupled",
    WARNING,
    "a decoupled model awaits other models, which the target release does not allow",
    why="before 24.04 async calls in decoupled models are refused",
    fix="use `exec`, or deploy on 24.04 or newer",
)
def bls_async_decoupled(model: Model) -> Iterator[Hit]:
    if not model.decoupled or model.target.known.has("async-decoupled"):
        return
    for code in model.codes:
        for call in bls_calls(code):
            if call.method == "async_exec":
                yield Hit(code.place(call.node), f"async_exec on Triton {model.target.release}")


@rule(
    "bls-error-unread",
    WARNING,
    "a called model's response is used without a look at its error",
    why="a failed call does not raise: the outputs are missing, and the failure shows up later as "
    "another one",
    fix="`if response.has_error(): ...` before the outputs are taken",
)
def bls_error_unread(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        calls = list(bls_calls(code))
        if calls and not any("has_error" in one.text for one in model.codes):
            yield Hit(code.place(calls[0].node), "has_error() is called nowhere")


@rule(
    "blocking-in-async",
    WARNING,
    "a blocking call in a coroutine of the model",
    why="all requests of the instance share one event loop: none of them goes on meanwhile",
    fix="await an asynchronous form of it, or `await asyncio.to_thread(...)`",
)
def blocking_in_async(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        if not isinstance(code.methods.get("execute"), ast.AsyncFunctionDef):
            continue
        for function in code.reach("execute"):
            if not isinstance(function, ast.AsyncFunctionDef):
                continue
            for node in code.calls(function):
                name = code.name(node.func)
                if name in _BLOCKING:
                    yield Hit(code.place(node), f"{name} blocks; use {_BLOCKING[name]}")
            for call in bls_calls(code, function):
                if call.method == "exec":
                    yield Hit(code.place(call.node), "exec blocks; use `await ...async_exec()`")


@rule(
    "await-forgotten",
    ERROR,
    "`async_exec` is called without await",
    why="it makes a coroutine that nobody runs: the other model is never asked",
    fix="`await` it, or hand it to `asyncio.gather`",
)
def await_forgotten(model: Model) -> Iterator[Hit]:
    for code in model.codes:
        for call in bls_calls(code):
            parent = code.parents.get(call.node)
            lost = isinstance(parent, ast.Expr)
            used = isinstance(parent, ast.Attribute)
            if call.method == "async_exec" and (lost or used):
                yield Hit(code.place(call.node), "the coroutine is not awaited")


@rule(
    "decoupled-over-http",
    ERROR,
    "a decoupled model is called over plain HTTP infer",
    why="501 `HTTP end point doesn't support models with decoupled transaction policy`, and over "
    "gRPC `ModelInfer RPC doesn't support ...`",
    fix="use gRPC's stream (`start_stream`, `async_stream_infer`), or HTTP `generate_stream`",
    scope="repository",
)
def decoupled_over_http(repository: Repository) -> Iterator[Hit]:
    decoupled = {name for name, model in repository.models.items() if _streams(model)}
    if not decoupled:
        return
    for model in repository.models.values():
        for file in sorted(model.folder.glob("*.py")):
            try:
                code = Code(file, file.read_text("utf-8"), False)
            except (OSError, UnicodeDecodeError):
                continue
            if "tritonclient" not in code.text:
                continue
            for call in code.named("infer"):
                name = literal(argument(call, 0, "model_name"))
                if name in decoupled and "assert" not in _around(code, call):
                    yield Hit(code.place(call), f"'{name}' is decoupled")


def _streams(model: Model) -> bool:
    if model.decoupled:
        return True
    steps = [model.siblings.get(one.model_name) for one in model.config.ensemble_scheduling.step]
    return any(one is not None and one.decoupled for one in steps)


def _around(code: Code, call: ast.Call) -> str:
    """Where the refusal is what the client is after: inside `try`, or `pytest.raises`."""
    for one in code.above(call):
        if isinstance(one, (ast.Try, ast.With)):
            text = ast.get_source_segment(code.text, one) or ""
            if "raises" in text or "except" in text:
                return "assert"
    return ""


@rule(
    "newer-feature",
    WARNING,
    "the model uses what the target release does not have yet",
    why="it raises there, or is ignored",
    fix="deploy on a newer release, or do without",
)
def newer_feature(model: Model) -> Iterator[Hit]:
    release = model.target.known
    for code in model.codes:
        if not release.has("response-parameters"):
            for call in code.named("InferenceResponse"):
                if argument(call, 2, "parameters") is not None:
                    text = "InferenceResponse has parameters since 25.02"
                    yield Hit(code.place(call), f"{text}; the target is {release.name}")
        if "is_ready" in code.methods and not release.has("is-ready"):
            text = "is_ready is called since 26.02"
            yield Hit(code.place(code.methods["is_ready"]), f"{text}; the target is {release.name}")
