"""`make lab` in one process: both servers come up, say where they are, and end together."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import psutil

from tests.faces.conftest import ROOT


def test_the_workbench_opens_and_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("DEVKIT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DEVKIT_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "one.ipynb").write_text("{}")
    command = [sys.executable, "-u", "-m", "devkit.lab", str(ROOT / "examples")]
    command += ["--notebooks", "notebooks", "--lab-port", "0"]
    for name in ("http", "grpc", "metrics"):
        command += [f"--{name}-port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = ""
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        children = psutil.Process(process.pid).children(recursive=True)
        try:
            url = re.search(r"JupyterLab +(http\S+)", said)
            assert url, said
            assert "/lab/tree/notebooks/one.ipynb?token=" in url[1]
            with urllib.request.urlopen(url[1], timeout=30) as page:
                assert b"JupyterLab" in page.read()
            http = re.search(r"inference, http +(\S+)", said)
            assert http, said
            with urllib.request.urlopen(f"http://{http[1]}/v2/models/add_sub/ready") as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


def test_a_port_that_is_taken_is_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("DEVKIT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("DEVKIT_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "devkit.lab", "--http-port", str(port)]
        command += ["--grpc-port", "0", "--metrics-port", "0", str(tmp_path)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"devkit: http cannot listen on 127.0.0.1:{port}: Address already in use",
        "  choose another port: make lab HTTP_PORT=N (0 for any)",
    ]
