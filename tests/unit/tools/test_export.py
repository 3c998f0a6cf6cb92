"""What an export writes, what it leaves alone, and that it is all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devkit.contract import config as contract
from devkit.control import messages
from devkit.tools import export as exporting
from devkit.tools.export import ExportError, ExportReport, export, export_folder
from tests.support.repository import ModelFiles, python_config, tensor

CODE = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
IO = tensor("input", "X", "FP32", "-1") + tensor("output", "Y", "FP32", "-1")


def completed(text: str, name: str = "m") -> contract.ModelConfig:
    return contract.complete(contract.parse(text), name)


def write(folder: Path, **files: str) -> Path:
    """The folder of a model `m` with further files in it, `__` standing for `/` in their names."""
    extra = {name.replace("__", "/"): text for name, text in files.items()}
    code = extra.pop("1/model.py", CODE)
    return ModelFiles("m", code, extra.pop("config.pbtxt", None), extra=extra).write(folder)


def run(folder: Path, dest: Path, text: str = python_config(IO), **more: object) -> ExportReport:
    return export_folder("m", folder, completed(text), dest, versions=("1",), **more)  # type: ignore[arg-type]


def test_config_and_model_without_the_cell_header(tmp_path: Path) -> None:
    folder = write(tmp_path / "live", **{"1__model.py": "# %%model m --instances 2\n\n" + CODE})
    report = run(folder, tmp_path / "out")
    assert report.state == "written"
    assert report.folder == tmp_path / "out" / "m"
    assert report.files == ("1/model.py", "config.pbtxt")
    assert (report.folder / "1" / "model.py").read_text() == CODE
    text = (report.folder / "config.pbtxt").read_text()
    assert text == report.config
    assert contract.to_json(completed(text)) == contract.to_json(completed(python_config(IO)))
    assert "gather_kernel_buffer_threshold" not in text


def test_files_beside_the_model_come_along_and_litter_stays(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "live",
        **{
            "1__helper.py": "x = 1\n",
            "1__weights__w.bin": "0101",
            "1____pycache____helper.pyc": "no",
            "1__.model.py.part": "no",
            "labels.txt": "cat\n",
            ".hidden": "no",
            "2__model.py": "not served",
        },
    )
    report = run(folder, tmp_path / "out")
    assert report.files == (
        *("1/helper.py", "1/model.py", "1/weights/w.bin", "config.pbtxt", "labels.txt"),
    )


def test_modules_from_elsewhere_are_brought(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    package = tmp_path / "lib" / "tools"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("y = 2\n")
    installed = Path(os.__file__)
    report = run(
        folder, tmp_path / "out", used=[package / "deep.py", installed, folder / "1" / "model.py"]
    )
    assert (report.folder / "1" / "tools" / "deep.py").read_text() == "y = 2\n"
    assert len(report.brought) == 1


def test_own_config_text_is_kept_where_it_still_holds(tmp_path: Path) -> None:
    own = "# tuned by hand\n" + python_config(IO, "max_batch_size: 4\n")
    folder = write(tmp_path / "live", **{"config.pbtxt": own})
    assert run(folder, tmp_path / "a", own).config == own
    scaled = contract.scale(completed(own), 3)
    report = export_folder("m", folder, scaled, tmp_path / "b", versions=("1",))
    assert "tuned" not in report.config
    assert completed(report.config).instance_group[0].count == 3


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    run(folder, tmp_path / "out")
    (tmp_path / "out" / "m" / "1" / "__pycache__").mkdir()
    (tmp_path / "out" / "m" / "1" / "__pycache__" / "model.pyc").write_text("")
    assert run(folder, tmp_path / "out").state == "unchanged"


def test_what_differs_is_told_and_not_overwritten(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    target = run(folder, tmp_path / "out").folder
    (target / "1" / "model.py").write_text(CODE + "# edited here\n")
    (target / "note.txt").write_text("mine")
    (folder / "1" / "more.py").write_text("")
    with pytest.raises(ExportError, match="exists and differs") as refused:
        run(folder, tmp_path / "out")
    told = "\n".join(refused.value.differences)
    assert "note.txt would be removed" in told
    assert "1/more.py would be added" in told
    assert "-# edited here" in told
    assert refused.value.remedy is not None
    assert "--force" in refused.value.remedy
    assert (target / "note.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path / "out")) == ["m"]

    assert run(folder, tmp_path / "out", force=True).state == "replaced"
    assert not (target / "note.txt").exists()
    assert sorted(os.listdir(tmp_path / "out")) == ["m"]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "m").write_text("a file")
    with pytest.raises(ExportError, match="m is a file"):
        run(folder, tmp_path / "out")
    assert run(folder, tmp_path / "out", force=True).state == "replaced"


def test_never_into_itself(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    for dest in (tmp_path / "live", folder / "1"):
        with pytest.raises(ExportError, match="is served from"):
            run(folder, dest, force=True)


def test_nothing_is_left_of_an_export_that_fails(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    (folder / "1" / "loose").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ExportError, match="loose"):
        run(folder, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


class Runtime:
    """A source with one model in a given state."""

    def __init__(self, model: messages.Model, config: contract.ModelConfig) -> None:
        self._model, self._config = model, config

    def model(self, name: str) -> messages.Model:
        return self._model

    def config(self, name: str) -> dict[str, object]:
        return contract.to_dict(self._config)


def test_export_of_a_live_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "live")
    output = (messages.Tensor("Y", "FP32", (-1,)),)
    model = messages.Model(
        "m", "1", ("1",), "READY", outputs=output, folder=str(folder), assumed=("dims",)
    )
    config = completed(python_config(IO))
    report = export(Runtime(model, config), "m", tmp_path / "out")
    assert report.assumed == ("dims",)
    assert completed(report.config).output[0].name == "Y"


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (messages.Model("m", state="UNAVAILABLE", reason="boom"), "is not served: boom"),
        (messages.Model("m", state="READY", unlearned=True), "does not name its inputs"),
        (messages.Model("m", state="READY"), "does not name its inputs"),
    ],
)
def test_what_cannot_be_exported(model: messages.Model, text: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=text):
        export(Runtime(model, completed(python_config(IO))), "m", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_a_header_line_is_taken_away() -> None:
    strip = exporting.without_cell_header
    assert strip("# %%model m\nx = 1\n") == "x = 1\n"
    assert strip("%%model m\n\nx = 1\n") == "x = 1\n"
    assert strip("# a comment\nx = 1\n") == "# a comment\nx = 1\n"
    assert strip("x = 1\n# %%model m\n") == "x = 1\n# %%model m\n"
    assert strip("") == ""
