"""Which change of a file means what to a model that is served."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from watchfiles import Change

from devkit.core.watcher import Watcher
from tests.support.live import DOUBLE, eventually, live, write_model

X = np.array([1.0], np.float32)


@dataclass
class Loaded:
    """What the watcher asks of an engine to judge a path."""

    files: list[str] = field(default_factory=list)

    def models(self):
        instance = type("Instance", (), {"files": self.files})
        return [type("Model", (), {"name": "m", "instances": [instance]})]


@pytest.fixture
def judge(tmp_path):
    (tmp_path / "repo").mkdir()
    engine = Loaded([str(tmp_path / "repo" / "m" / "1" / "weights.bin")])
    watcher = Watcher(engine, [tmp_path / "repo"])
    return lambda path, change=Change.modified: watcher.concerns(tmp_path / "repo" / path, change)


@pytest.mark.parametrize(
    "path",
    ["m/1/model.py", "m/config.pbtxt", "m/helper.py", "m/1/sub/part.py", "m/1/weights.bin"],
)
def test_sources_and_loaded_files_matter(judge, path):
    assert judge(path)


@pytest.mark.parametrize(
    "path",
    [
        "m/1/__pycache__/model.cpython-311.pyc",
        "m/1/.model.py.swp",
        "m/1/.ipynb_checkpoints/model.py",
        "m/1/model.py~",
        "m/1/4913",
        "m/1/cache.bin",
        "m/1/out.log",
        ".git/x.py",
        "",
    ],
)
def test_caches_temporary_files_and_data_do_not(judge, path):
    assert not judge(path)


def test_folders_matter_when_they_come_and_go(judge):
    assert judge("m", Change.deleted)
    assert judge("m/2", Change.added)
    assert not judge("m", Change.modified)


def test_other_places_do_not(judge, tmp_path):
    assert not judge(Path(tmp_path / "elsewhere" / "m" / "model.py"))


def test_a_saved_model_is_swapped_and_a_bad_save_is_not():
    with live("--watch", "--allow-grpc=false", models={"double": DOUBLE}) as runtime:
        client = runtime.client()
        file = runtime.repository / "double" / "1" / "model.py"
        assert client.infer("double", {"X": X})["Y"] == [2.0]

        file.write_text(DOUBLE.replace("x * 2", "x * 3"))
        eventually(lambda: client.infer("double", {"X": X})["Y"][0] == 3.0)
        assert "reloading 'double': 1/model.py changed" in eventually(
            lambda: runtime.log() if "reloading" in runtime.log() else ""
        )

        file.write_text("def broken(:\n")
        eventually(lambda: "SyntaxError" in client.model("double").error)
        assert client.infer("double", {"X": X})["Y"] == [3.0]

        file.write_text(DOUBLE)
        eventually(lambda: client.infer("double", {"X": X})["Y"][0] == 2.0)
        assert client.model("double").error == ""


def test_a_new_folder_is_loaded_and_a_removed_one_unloaded():
    with live("--watch", "--allow-grpc=false", models={"double": DOUBLE}) as runtime:
        client = runtime.client()
        write_model(runtime.repository, "second")
        client.wait_ready("second")
        for path in sorted((runtime.repository / "second").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (runtime.repository / "second").rmdir()
        eventually(lambda: [one.name for one in client.models()] == ["double"])


def test_a_sibling_module_reloads_the_model():
    code = DOUBLE.replace("import os", "import factor").replace("x * 2", "x * factor.FACTOR")
    with live("--watch", "--allow-grpc=false") as runtime:
        client = runtime.client()
        folder = write_model(runtime.repository, "double", code)
        (folder / "1" / "factor.py").write_text("FACTOR = 5\n")
        client.wait_ready("double")
        eventually(lambda: client.infer("double", {"X": X})["Y"][0] == 5.0)
        (folder / "1" / "factor.py").write_text("FACTOR = 7\n")
        eventually(lambda: client.infer("double", {"X": X})["Y"][0] == 7.0)


def test_packages_of_an_environment_in_the_models_folder_do_not_matter(judge, tmp_path):
    environment = tmp_path / "repo" / "m" / "env"
    (environment / "lib" / "site-packages").mkdir(parents=True)
    package = "m/env/lib/site-packages/package.py"
    assert judge(package)
    (environment / "pyvenv.cfg").touch()
    assert not judge(package)
