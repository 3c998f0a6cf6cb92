"""A Python file as the rules see it: its tree, and the questions they share."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from devkit.doctor.rules import Place

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Code:
    """One file; `tree` is empty where it does not parse, and `broken` says why."""

    file: Path
    text: str
    is_model: bool = True
    broken: SyntaxError | None = None
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))

    def __post_init__(self) -> None:
        try:
            self.tree = ast.parse(self.text)
        except SyntaxError as problem:
            self.broken = problem
        except ValueError as problem:  # null bytes
            self.broken = SyntaxError(str(problem))

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        return Place.of(self.file, node)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        return {
            child: parent
            for parent in ast.walk(self.tree)
            for child in ast.iter_child_nodes(parent)
        }

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name to what it stands for: `np` to `numpy`, `run` to `subprocess.run`."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    found[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    found[one.asname or one.name] = f"{node.module}.{one.name}"
        return found

    def name(self, node: ast.AST) -> str:
        """Dotted name with imports resolved: `np.array` as `numpy.array`; empty for others."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        first = self.imports.get(node.id, node.id)
        return ".".join([first, *reversed(parts)])

    def tail(self, node: ast.AST) -> str:
        """Last word of what is called or named: `Tensor` of `pb_utils.Tensor`."""
        if isinstance(node, ast.Attribute):
            return node.attr
        return node.id if isinstance(node, ast.Name) else ""

    def calls(self, root: ast.AST | None = None) -> Iterator[ast.Call]:
        """Every call below a node."""
        for node in ast.walk(root or self.tree):
            if isinstance(node, ast.Call):
                yield node

    def named(self, tail: str, root: ast.AST | None = None) -> Iterator[ast.Call]:
        """Calls of what is named so, however it was imported."""
        return (call for call in self.calls(root) if self.tail(call.func) == tail)

    @cached_property
    def model_class(self) -> ast.ClassDef | None:
        """`TritonPythonModel`."""
        return next(
            (
                node
                for node in self.tree.body
                if isinstance(node, ast.ClassDef) and node.name == "TritonPythonModel"
            ),
            None,
        )

    @cached_property
    def methods(self) -> dict[str, Function]:
        """Methods of the model by name."""
        body = self.model_class.body if self.model_class else []
        return {node.name: node for node in body if isinstance(node, Function)}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Functions of the module by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, Function)}

    def reach(self, start: str) -> list[Function]:
        """A method and what it calls in this file, directly or over others."""
        found: list[Function] = []
        todo = [self.methods[start]] if start in self.methods else []
        while todo:
            here = todo.pop()
            if here in found:
                continue
            found.append(here)
            for node in ast.walk(here):
                if isinstance(node, ast.Attribute) and _is_self(node.value):
                    todo += [self.methods[node.attr]] if node.attr in self.methods else []
                elif isinstance(node, ast.Name) and node.id in self.functions:
                    todo.append(self.functions[node.id])
        return found

    def around(self, node: ast.AST, kinds: type | tuple[type, ...]) -> ast.AST | None:
        """The nearest node of a kind around another."""
        return next((one for one in self.above(node) if isinstance(one, kinds)), None)

    def assigned(self, root: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        """(name, value) of each plain assignment to one name below a node."""
        for node in ast.walk(root):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        yield target.id, node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                if isinstance(node.target, ast.Name):
                    yield node.target.id, node.value
            elif isinstance(node, ast.NamedExpr):
                yield node.target.id, node.value


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "TritonPythonModel")


def literal(node: ast.AST | None) -> object:
    """The value of a literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument, given by place or by name."""
    if position < len(call.args) and not isinstance(call.args[position], ast.Starred):
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == name), None)


def names_in(node: ast.AST) -> set[str]:
    """Names that are read below a node."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def own_returns(function: Function) -> Iterator[ast.Return]:
    """Return statements of a function itself, not of those inside it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        ):
            todo += ast.iter_child_nodes(node)
