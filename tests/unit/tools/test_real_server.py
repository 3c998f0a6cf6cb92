"""The real server: fetched once, started and ended without a trace, and what is said when not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from devkit.tools import real_server
from devkit.tools.real_server import ConsentRefused, Installation, RealServer, RealServerError
from tests.support.models import LOADED_ON_REQUEST, add_sub
from tests.support.repository import write_repository
from tests.support.session import shared_memory_entries

BROKEN = {model.name: model for model in LOADED_ON_REQUEST}
here = pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)


@pytest.fixture(scope="module")
def installation() -> Installation:
    return real_server.ensure()


@pytest.mark.parametrize(
    ("system", "machine", "version", "text", "remedy"),
    [
        ("darwin", "arm64", (3, 11), "this is macOS", "container"),
        ("win32", "AMD64", (3, 11), "this is Windows", "container"),
        ("linux", "aarch64", (3, 11), "this machine is aarch64", "container"),
        ("linux", "x86_64", (3, 13), "this is 3.13", "Python 3.12"),
    ],
)
def test_where_it_does_not_run_it_says_what_helps(
    system: str, machine: str, version: tuple[int, int], text: str, remedy: str
) -> None:
    problem = real_server.unsupported(system, machine, version)
    assert problem is not None
    assert text in problem.message
    assert remedy in (problem.remedy or "")


@here
def test_nothing_is_fetched_without_consent(tmp_path: Path) -> None:
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(ConsentRefused):
        real_server.ensure(tmp_path / "cache", consent=refuse)
    assert "Download the real Triton server" in asked[0]
    assert list(tmp_path.iterdir()) == []


@here
def test_what_is_there_is_not_asked_for_again(installation: Installation) -> None:
    def never(question: str) -> bool:
        raise AssertionError(question)

    assert real_server.ensure(consent=never) == installation
    assert installation.complete


@here
def test_models_run_with_numpy_1_and_the_users_packages(installation: Installation) -> None:
    code = "import numpy, tritonclient; print(numpy.__version__)"
    python = installation.environment / "bin" / "python3"
    done = subprocess.run(
        [python, "-c", code],
        env=installation.server().environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("1.")


@here
def test_perf_analyzer_starts(installation: Installation) -> None:
    command = installation.perf_analyzer()
    done = subprocess.run(
        [command.program, "--version"], env=command.environ(), capture_output=True, check=False
    )
    assert b"Perf Analyzer" in done.stdout + done.stderr


@here
def test_a_server_starts_serves_and_leaves_nothing(
    installation: Installation, tmp_path: Path
) -> None:
    repository = write_repository(tmp_path, [add_sub()])
    before = set(shared_memory_entries())  # other servers of this test run go on
    with RealServer(repository, installation) as server:
        assert server.log().count("Started HTTPService") == 1
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children()]
        folder = server.log_path.parent
    assert server.returncode == 0
    assert not psutil.wait_procs(processes, timeout=5)[1]
    own = f"devkit-real-{os.getpid()}-"
    assert not {name for name in shared_memory_entries() - before if name.startswith(own)}
    assert not folder.exists()


@here
def test_a_model_that_does_not_load_says_why(installation: Installation, tmp_path: Path) -> None:
    repository = write_repository(tmp_path, [BROKEN["broken_initialize"]])
    with pytest.raises(RealServerError, match="no weights") as failure:
        RealServer(repository, installation).start()
    assert "broken_initialize" in failure.value.message
    assert "boom" not in failure.value.message


@here
def test_it_ends_with_whoever_started_it(installation: Installation, tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "repository", [add_sub()])
    program = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from devkit.tools.real_server import RealServer, ensure
        server = RealServer(Path({str(repository)!r}), ensure(), log=Path({str(tmp_path / "log")!r}))
        server.start()
        print(server.pid, flush=True)
        time.sleep(600)
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    starter = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    with starter:
        assert starter.stdout is not None
        server = psutil.Process(int(starter.stdout.readline()))
        below = [server, *server.children(recursive=True)]
        starter.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(below, timeout=30)[1]
    real_server.sweep_shared_memory()
    left = f"devkit-real-{starter.pid}-"
    assert not [name for name in shared_memory_entries() if name.startswith(left)]


def test_sweeping_spares_the_living(tmp_path: Path) -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no /dev/shm here")
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    stamp = time.time_ns()
    names = [f"devkit-real-{int(dead.stdout)}-{stamp}", f"devkit-real-{os.getpid()}-{stamp}"]
    for name in names:
        (folder / name).touch()
    try:
        removed = real_server.sweep_shared_memory()
        assert names[0] in removed
        assert names[1] not in removed
        assert (folder / names[1]).exists()
    finally:
        for name in names:
            (folder / name).unlink(missing_ok=True)


def test_ports_are_free_and_differ() -> None:
    assert len(set(real_server.free_ports(5))) == 5


def test_the_reason_is_found_in_a_log() -> None:
    log = (
        'W1201 10:00:00.1 7 cuda.cc:1] "no driver"\n'
        'E1201 10:00:00.2 7 pb_stub.cc:2] "a detail"\n'
        "E1201 10:00:01.2 7 model_lifecycle.cc:642] \"failed to load 'm' version 1: Internal: "
        'ValueError: x\\n\\nAt:\\n  /m/1/model.py(4): initialize\\n"\n'
        "error: creating server: Internal - failed to load all models\n"
    )
    assert real_server.explain(log).startswith("failed to load 'm' version 1: Internal: ValueError")
    assert "\n  /m/1/model.py(4)" in real_server.explain(log)
    assert real_server.explain("error: no such flag\n") == "no such flag"
    assert real_server.explain("") == "its log gives no reason"
