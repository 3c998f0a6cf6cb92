"""What stands in for devkit in an export, and that production needs nothing else."""

import subprocess
import sys

import numpy as np
import pytest

from devkit.contract import config as contract
from devkit.contract.recording import request_wire
from devkit.tools import real_server, standin
from devkit.tools.export import ExportError, export_folder
from devkit.tools.real_server import RealServer
from devkit.tools.replay import _Http
from tests.support.repository import ModelFiles, python_config, tensor

here = pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)
IO = tensor("input", "X", "FP32", "-1") + tensor("output", "Y", "FP32", "-1")
MODEL = """
import devkit
from devkit import probe
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            with devkit.span("double", size=x.size):
                y = probe("y", x * 2, request)
            where = pb_utils.Tensor("WHERE", np.array([devkit.__file__.encode()], object))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y), where]))
        return answers
"""
WHERE = tensor("output", "WHERE", "STRING", "1")


def run(tmp_path, code, **files):
    folder = ModelFiles("m", "import numpy as np\n" + code, None, extra=files).write(
        tmp_path / "in"
    )
    config = contract.complete(contract.parse(python_config(IO + WHERE)), "m")
    return export_folder("m", folder, config, tmp_path / "out", versions=("1",))


def test_a_model_that_shows_something_is_exported_with_a_few_lines(tmp_path):
    report = run(tmp_path, MODEL)
    assert report.files == ("1/devkit.py", "1/model.py", "config.pbtxt")
    assert (report.folder / "1" / "devkit.py").read_text() == standin.MODULE
    assert len(standin.MODULE.splitlines()) < 20
    assert (report.folder / "1" / "model.py").read_text() == "import numpy as np\n" + MODEL
    assert "stands in for devkit" in report.text()


def test_one_that_does_not_gets_none(tmp_path):
    report = run(tmp_path, "class TritonPythonModel:\n    '''not devkit'''\n")
    assert report.files == ("1/model.py", "config.pbtxt")


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("import devkit\ndevkit.infer('m', {})\n", "1/model.py:3 uses devkit.infer"),
        ("from devkit import span, export\n", "1/model.py:2 uses devkit.export"),
        ("import devkit as d\nd.models()\n", "1/model.py:3 uses devkit.models"),
        ("from devkit.testing import request\n", "1/model.py:2 uses devkit.testing"),
    ],
)
def test_what_production_would_lack_is_refused_with_its_line(tmp_path, code, where):
    with pytest.raises(ExportError, match=where):
        run(tmp_path, code)
    assert not (tmp_path / "out" / "m").exists()


def test_a_helper_of_the_model_counts_and_a_devkit_of_its_own_stays(tmp_path):
    files = {"1/helper.py": "from devkit import probe\n"}
    assert "1/devkit.py" in run(tmp_path, "import helper\n", **files).files
    own = {"1/devkit.py": "probe = print\n"}
    report = run(tmp_path / "b", "import devkit\n", **own)
    assert (report.folder / "1" / "devkit.py").read_text() == "probe = print\n"


def test_it_does_nothing(tmp_path):
    (tmp_path / "devkit.py").write_text(standin.MODULE)
    code = (
        "import devkit\n"
        "assert devkit.probe('a', 5) == 5 == devkit.probe('a', 5, None)\n"
        "with devkit.span('s', n=1): pass\n"
    )
    subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, check=True)


@here
def test_the_real_server_runs_it_where_there_is_no_devkit(tmp_path, monkeypatch):
    report = run(tmp_path, MODEL)
    installation = real_server.ensure()
    bare = tmp_path / "bare"  # as a production machine: none of this environment's packages
    bare.mkdir()
    none = {"purelib": str(bare), "platlib": str(bare)}
    monkeypatch.setattr(real_server.sysconfig, "get_paths", lambda: none)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(bare)
    with RealServer(report.folder.parent, installation) as server:
        wire = request_wire([("X", "FP32", (2,), np.float32([1, 2]).tobytes())])
        (got,) = _Http(f"{server.host}:{server.http_port}", 60).infer("m", "", wire)
    assert not got.error, got.error
    answers = {held.name: held for held in got.tensors}
    assert answers["Y"].array().tolist() == [2, 4]
    (where,) = answers["WHERE"].texts()
    assert where.decode() == str(report.folder / "1" / "devkit.py")
