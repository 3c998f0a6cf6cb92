"""Every example serves, and its own client finds the answers right."""

import subprocess
import sys

import pytest

from tests.faces.conftest import ROOT
from tests.support.session import Session

MODELS = sorted(path.parent.name for path in (ROOT / "examples").glob("*/config.pbtxt"))


@pytest.fixture(scope="module")
def server():
    with Session("devkit", ROOT / "examples") as session:
        yield session


@pytest.mark.parametrize("model", MODELS)
def test_an_example_answers_its_client(server, model):
    client = ROOT / "examples" / model / "client.py"
    done = subprocess.run(
        [sys.executable, str(client), "--http", server.url, "--grpc", server.grpc_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout
