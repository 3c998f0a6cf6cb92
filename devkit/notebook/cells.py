"""A cell as the source of a model: the `model.py` it becomes, and what can be read off its text.

The file's first line stands for the magic's, so that line N of the file is line N of the cell and
no error text ever needs its numbers changed. Pure: text in, text out.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from devkit.notebook.options import UsageError

HEADER = "# %%model"
"""How the first line of such a file begins; an export drops that line."""

MARK = "# ---- written by devkit:"
"""Where the cell ends and what devkit adds to a plain function begins."""

_TEMPLATE = (
    f"""

{MARK} `FUNCTION` as a Triton model, called once per request ----
"""
    + """\
import numpy as _np
import triton_python_backend_utils as _pb_utils


class TritonPythonModel:
    # Arguments of `FUNCTION` are the input tensors of those names, its dict holds the outputs.
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        outputs = FUNCTION(**arrays)
        if not isinstance(outputs, dict):
            outputs = {"OUTPUT": outputs}
        tensors = [_pb_utils.Tensor(name, _np.asarray(value)) for name, value in outputs.items()]
        return _pb_utils.InferenceResponse(tensors)
"""
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a `%%model` cell.

    Attributes:
        model: name of the model it defines.
        number: the kernel's execution count, as in `In[number]`; 0 where there is none.
        source: the whole `model.py`.
        length: lines of `source` that are the cell's own; what follows was written by devkit.
        function: name of the plain function the model was made of, if it was.
    """

    model: str
    number: int
    source: str
    length: int
    function: str | None = None

    @property
    def label(self) -> str:
        """How IPython names the cell in its own tracebacks."""
        return f"Cell In[{self.number}]" if self.number else f"cell of {self.model}"

    def lines(self) -> list[str]:
        return self.source.splitlines()


def from_magic(line: str, body: str, *, model: str, number: int) -> Cell:
    """The cell below a `%%model` line. Raises UsageError when nothing in it can be a model."""
    own = f"{HEADER} {line}".rstrip() + "\n" + body.rstrip("\n") + "\n"
    length = own.count("\n")
    function = _function(body, model)
    source = own + _TEMPLATE.replace("FUNCTION", function) if function else own
    return Cell(model, number, source, length, function)


def _function(body: str, model: str) -> str | None:
    """Name of the plain function to make a model of; None if it has a class or does not parse.

    A cell that does not parse is left for the runtime to refuse, as a server would.
    """
    try:
        tree = ast.parse(body)
    except SyntaxError:
        return None
    if _defines(tree, "TritonPythonModel"):
        return None
    functions = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    if model in functions:
        return model
    if len(functions) == 1:
        return functions[0]
    raise UsageError(
        f"the cell of {model!r} has no model in it",
        model=model,
        remedy="define `class TritonPythonModel`, or one function whose arguments are the inputs "
        'and which returns a dict of outputs, `{"Y": array}`',
    )


def _defines(tree: ast.Module, name: str) -> bool:
    """Whether the module binds `name` anywhere at its top level, also inside if and try, or by
    import or assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.ImportFrom) and any(
            (alias.asname or alias.name) in (name, "*") for alias in node.names
        ):
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
    return False


def undefined_name(message: str) -> str | None:
    """The name a NameError is about, from its text."""
    found = re.search(r"NameError: name '(\w+)' is not defined", message)
    return found.group(1) if found else None


def from_file(model: str, path: Path) -> Cell | None:
    """The cell that an earlier kernel wrote to `path`; None if it is gone or no cell wrote it."""
    try:
        source = path.read_text(encoding="utf-8")
    except OSError:
        return None
    if not source.startswith(HEADER):
        return None
    own = source.partition(f"\n\n{MARK}")[0]
    return Cell(model, 0, source, own.count("\n"))
