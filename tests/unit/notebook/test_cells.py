import numpy as np
import pytest

from devkit.notebook import cells
from devkit.notebook.options import UsageError

CLASS = "import numpy\n\nclass TritonPythonModel:\n    pass\n"


def test_a_line_of_the_cell_is_the_same_line_of_the_file():
    cell = cells.from_magic("m --instances 2", CLASS, model="m", number=4)
    assert cell.lines()[0] == "# %%model m --instances 2"
    assert cell.lines()[1:] == CLASS.splitlines()
    assert cell.label == "Cell In[4]"
    assert cell.length == 5
    assert cell.function is None


@pytest.mark.parametrize(
    "body",
    [
        "from mine import TritonPythonModel\n",
        "from mine import *\n",
        "import mine\nTritonPythonModel = mine.Model\n",
        "try:\n    pass\nfinally:\n    class TritonPythonModel: pass\n",
        "def helper(): pass\ndef other(): pass\nclass TritonPythonModel: pass\n",
    ],
)
def test_a_class_that_is_bound_in_any_way_is_the_model(body):
    assert cells.from_magic("m", body, model="m", number=1).function is None


def test_a_cell_that_does_not_parse_is_left_to_the_runtime():
    cell = cells.from_magic("m", "class TritonPythonModel\n", model="m", number=1)
    assert cell.source == "# %%model m\nclass TritonPythonModel\n"


def test_a_plain_function_becomes_a_model():
    body = "def _help(x):\n    return x\n\ndef double(X):\n    return {'Y': _help(X) * 2}\n"
    cell = cells.from_magic("double", body, model="double", number=1)
    assert cell.function == "double"
    assert cell.length == 6
    namespace = {}
    exec(compile(cell.source, "model.py", "exec"), namespace)
    answer = namespace["TritonPythonModel"]()._answer(_Request({"X": np.arange(3)}))
    (tensor,) = answer.output_tensors()
    assert tensor.name() == "Y"
    assert tensor.as_numpy().tolist() == [0, 2, 4]


class _Request:
    """The only thing of a request that the wrapper uses."""

    def __init__(self, arrays):
        import triton_python_backend_utils as pb_utils

        self._tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items()]

    def inputs(self):
        return self._tensors


def test_of_several_functions_the_models_namesake_is_taken():
    body = "def first(X):\n    return X\n\ndef second(X):\n    return X\n"
    assert cells.from_magic("second", body, model="second", number=1).function == "second"
    with pytest.raises(UsageError) as caught:
        cells.from_magic("third", body, model="third", number=1)
    assert "TritonPythonModel" in caught.value.remedy


def test_a_cell_with_no_model_says_what_one_looks_like():
    with pytest.raises(UsageError):
        cells.from_magic("m", "x = 1\n", model="m", number=1)


def test_a_file_of_an_earlier_kernel_is_known_again(tmp_path):
    cell = cells.from_magic("f", "def f(X):\n    return X\n", model="f", number=9)
    path = tmp_path / "model.py"
    path.write_text(cell.source)
    found = cells.from_file("f", path)
    assert found is not None
    assert (found.length, found.label) == (cell.length, "cell of f")
    path.write_text(CLASS)
    assert cells.from_file("f", path) is None
    assert cells.from_file("f", tmp_path / "gone.py") is None


def test_the_name_a_name_error_is_about():
    assert cells.undefined_name("NameError: name 'np' is not defined\n\nAt:\n  x") == "np"
    assert cells.undefined_name("ValueError: x") is None
