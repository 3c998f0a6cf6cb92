"""A server that runs already is asked: streams in their order, made-up edges, what varies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from devkit.contract import config as contract
from devkit.tools import real_server, targets
from devkit.tools.real_server import RealServer
from devkit.tools.samples import edge_requests
from devkit.tools.targets import TargetError
from devkit.tools.verify import verify
from devkit.tools.verify_page import page

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)
def test_streams_order_edges_and_what_varies(tmp_path: Path) -> None:
    for name in ("square", "bls_decoupled", "instance_kind", "auto_complete"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    (tmp_path / "auto_complete" / "config.pbtxt").unlink()  # a model may do without
    with RealServer(tmp_path, real_server.ensure()) as server:
        http, grpc = (f"{server.host}:{port}" for port in (server.http_port, server.grpc_port))
        report = verify(tmp_path, url=http, grpc_url=grpc, captures=[], generated=True)
        missing = verify(tmp_path / "square", url=http, captures=[])
    assert report.verdict == "same", report.text(200)
    models = {one.name: one for one in report.models}
    streamed = models["square"].requests[0].outputs
    assert [one.detail for one in streamed[:2]] == ["response 1", "response 2"]
    told = [one.detail for request in models["instance_kind"].requests for one in request.outputs]
    assert "varies by nature: values not compared" in told
    assert len(models["auto_complete"].requests) > 5
    assert "gRPC address" in missing.models[0].skipped
    assert json.loads(report.to_json())["models"][0]["verdict"] == "same"
    assert page(report).count("<h2>") == 4


def test_edges_keep_to_small_integers() -> None:
    text = """
    max_batch_size: 8
    input [ { name: "N" data_type: TYPE_INT64 dims: [ -1 ] },
            { name: "F" data_type: TYPE_FP32 dims: [ 7 ] },
            { name: "T" data_type: TYPE_STRING dims: [ 2 ] optional: true } ]
    output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
    """
    zeros, odd, largest, needed = edge_requests(contract.complete(contract.parse(text), "m"))
    assert not zeros.arrays("inputs")["N"].any()
    assert odd.arrays("inputs")["N"].max() == 1
    assert np.isnan(odd.arrays("inputs")["F"][0, 0])
    assert largest.arrays("inputs")["F"].shape == (8, 7)
    assert set(needed.arrays("inputs")) == {"N", "F"}


def test_no_server_and_no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = real_server.free_ports(1)
    with (
        pytest.raises(TargetError, match="no Triton server answers"),
        targets.running(f"127.0.0.1:{port}", ""),
    ):
        pass
    with pytest.raises(TargetError, match="no host:port"), targets.running("somewhere", ""):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(TargetError, match="no `docker`"),
        targets.container(tmp_path, "image", ()),
    ):
        pass
