import traceback

import pytest

from devkit.errors import InferError, LoadError
from devkit.notebook import cells, explain, tracebacks

BODY = """class TritonPythonModel:
    def execute(self, requests):
        return self.fail()

    def fail(self):
        raise ValueError("no")
"""
FILE = "/space/.devkit/models/m/1/model.py"
CELL = cells.from_magic("m", BODY, model="m", number=3)
AT = (
    "Failed to process the request(s) for model 'm_0', message: ValueError: no\n\nAt:\n"
    f"  {FILE}(7): fail\n  {FILE}(4): execute\n"
)


def cell_of(file):
    return CELL if file.endswith("model.py") else None


def test_the_servers_list_of_frames_is_shown_outermost_first():
    lines = tracebacks.of_error(AT, cell_of, colors=False)
    assert lines == [
        "Cell In[3], line 4, in execute",
        "        2 class TritonPythonModel:",
        "        3     def execute(self, requests):",
        "---->   4         return self.fail()",
        "        5",
        "        6     def fail(self):",
        "",
        "Cell In[3], line 7, in fail",
        "        5",
        "        6     def fail(self):",
        '---->   7         raise ValueError("no")',
        "",
        "ValueError: no",
    ]


def test_pythons_own_traceback_keeps_its_chain():
    source = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k')\n"
    try:
        exec(compile("\n" + source, FILE, "exec"), {})
    except KeyError:
        text = traceback.format_exc()
    cell = cells.Cell("m", 5, "# %%model m\n" + source, 5)
    shown = "\n".join(
        tracebacks.of_traceback(text, lambda f: cell if f == FILE else None, colors=False)
    )
    assert "Cell In[5], line 3, in <module>" in shown
    assert "---->   3     1 / 0" in shown
    assert "During handling of the above exception" in shown
    assert "---->   5     raise KeyError('k')" in shown
    assert shown.endswith("KeyError: 'k'")


def test_a_syntax_error_points_at_its_line():
    bad = "# %%model m\nclass TritonPythonModel\n"
    cell = cells.Cell("m", 2, bad, 2)
    try:
        compile(bad, FILE, "exec")
    except SyntaxError:
        text = traceback.format_exc()
    lines = tracebacks.of_traceback(text, lambda f: cell if f == FILE else None, colors=False)
    assert "Cell In[2], line 2" in lines
    assert "---->   2 class TritonPythonModel" in lines
    assert lines[-1].startswith("SyntaxError: expected ':'")

    message = "load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: "
    message += "SyntaxError: expected ':' (model.py, line 2);\n"
    lines = tracebacks.of_error(message, lambda f: cell if f == "model.py" else None, colors=False)
    assert lines[0] == "Cell In[2], line 2"
    assert lines[-1] == "SyntaxError: expected ':' (model.py, line 2)"


def test_the_first_line_is_the_magic_again():
    lines = tracebacks.excerpt(CELL.lines(), 2, 2, tracebacks.Palette(False))
    assert lines[0] == "        1 %%model m"


def test_frames_of_the_machinery_are_left_out():
    text = (
        "Internal: ModuleNotFoundError: No module named 'x'\n\nAt:\n"
        f"  {FILE}(1): <module>\n  <frozen importlib._bootstrap>(241): _call_with_frames_removed\n"
    )
    assert [frame.line for frame in tracebacks.frames_of(text)] == [1]


def test_lines_that_devkit_wrote_are_not_called_the_cells():
    cell = cells.from_magic("f", "def f(X):\n    return X\n", model="f", number=1)
    text = AT.replace("(7)", "(3)").replace("(4)", "(17)")
    lines = tracebacks.of_error(text, lambda _: cell, colors=False)
    assert lines[0] == "what devkit wrote below Cell In[1], line 17, in execute"
    assert "Cell In[1], line 3, in fail" in lines


def render(error, names=None, headline=""):
    explain.attach(
        error,
        cell_of,
        code_name=lambda file: f"File {file}",
        names=names or {},
        headline=headline,
        colors=False,
    )
    return error._render_traceback_()


def test_an_infer_error_shows_the_caller_then_the_model():
    def my_script():
        raise InferError(AT)

    with pytest.raises(InferError) as caught:
        my_script()
    lines = render(caught.value)
    text = "\n".join(lines)
    assert "in my_script" in text
    assert text.index("in my_script") < text.index("Cell In[3], line 4")
    assert lines[-1] == (
        "InferError: Failed to process the request(s) for model 'm_0', message: ValueError: no"
    )


def test_a_name_of_the_kernel_is_explained():
    error = LoadError("x", traceback="NameError: name 'np' is not defined")
    shown = "\n".join(render(error, {"np": 1}, "model 'm' did not load"))
    assert "inside the %%model cell" in shown
    assert shown.endswith("LoadError: model 'm' did not load")
    assert "inside the %%model cell" not in "\n".join(render(error))


def test_a_refusal_without_frames_is_one_line_and_the_remedy():
    lines = render(LoadError("no such folder", remedy="make one"))
    assert lines[1:] == ["  make one", "LoadError: no such folder"]


def test_colours_mark_the_culprit():
    lines = tracebacks.of_error(AT, cell_of)
    culprit = next(line for line in lines if "raise ValueError" in line)
    assert "\x1b[1m" in culprit
    assert culprit.startswith("\x1b[1;32m---->")
