"""Every example serves, and its own client finds the answers right."""

import os
import shutil

import pytest

from tests.support.examples import EXAMPLES, REPOSITORIES, ROOT
from tests.support.live import Live
from tests.support.session import Session


@pytest.fixture(scope="module")
def server():
    with Session("devkit", REPOSITORIES) as session:
        yield session


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_answers_its_client(server, example):
    done = example.run_client(server)
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout


class WithoutTorch(Live):
    """A runtime whose models find no PyTorch, installed or not."""

    def environment(self):
        hiding = self.folder / "hiding"
        hiding.mkdir(exist_ok=True)
        (hiding / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
        inherited = super().environment()
        return {**inherited, "PYTHONPATH": f"{hiding}{os.pathsep}{inherited['PYTHONPATH']}"}


def test_a_missing_package_is_named_and_stops_no_other_model(tmp_path):
    live = WithoutTorch(tmp_path)
    shutil.copytree(ROOT / "examples" / "add_sub", live.repository / "add_sub")
    shutil.copytree(ROOT / "examples" / "pytorch", live.repository / "pytorch")
    live.start()
    try:
        found = {model.name: model for model in live.client().models()}
        assert found["add_sub"].state == "READY"
        assert found["pytorch"].state == "UNAVAILABLE"
        assert "No module named 'torch'" in found["pytorch"].reason
    finally:
        live.stop()
