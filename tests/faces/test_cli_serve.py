"""`devkit serve` as a process: flags, ports, tables, signals, exit status."""

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests.support.live import DOUBLE, eventually, live, write_model


def serve(runtime, *words, timeout=30):
    """`devkit serve WORDS` that is expected to end by itself."""
    runtime.workspace.mkdir(exist_ok=True)
    return runtime.command("serve", *words, timeout=timeout)


@pytest.fixture
def idle(tmp_path):
    """Folders for commands that start nothing."""
    from tests.support.live import Live

    return Live(tmp_path)


def test_help_lists_tritonservers_flags(idle):
    done = serve(idle, "--help")
    assert done.returncode == 0
    assert "--model-repository=TEXT" in done.stdout
    assert "--http-port=N" in done.stdout


def test_an_unknown_flag_ends_with_1_and_a_suggestion(idle):
    done = serve(idle, "--htp-port=1")
    assert done.returncode == 1
    assert done.stderr == ("error: unrecognized option '--htp-port'\n  did you mean --http-port?\n")


def test_a_repository_that_is_missing_ends_with_1(idle):
    done = serve(idle, "nowhere", "--port=0")
    assert done.returncode == 1
    assert "nowhere is not a folder" in done.stderr


def test_a_busy_port_ends_with_1_before_anything_loads(idle):
    write_model(idle.folder / "models", "double", "print('loaded')\n" + DOUBLE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve(idle, str(idle.folder / "models"), f"--http-port={port}", "--grpc-port=0",
                     "--metrics-port=0")  # fmt: skip
    assert done.returncode == 1
    assert f"error: http cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--http-port=N" in done.stderr
    assert "loaded" not in done.stdout


def test_a_model_that_fails_ends_the_server_only_when_asked(idle):
    repository = idle.folder / "models"
    write_model(repository, "good")
    write_model(repository, "bad", "raise ValueError('boom')")
    done = serve(idle, str(repository), "--port=0", "--allow-grpc=false", "--exit-on-error=true")
    assert done.returncode == 1
    assert done.stderr.endswith("error: creating server: Internal - failed to load all models\n")


def test_the_table_and_the_endpoints_are_in_tritons_form():
    with live("--allow-grpc=false", models={"double": DOUBLE, "bad": "1/0"}) as runtime:
        log = runtime.log()
        assert "| Model  | Version | Status" in log
        assert "| double | 1       | READY" in log
        assert "| bad    | 1       | UNAVAILABLE: Internal: ZeroDivisionError" in log
        (line,) = [one for one in log.splitlines() if "HTTPService" in one]
        port = next(
            one.port for one in runtime.client().runtime.endpoints if one.protocol == "http"
        )
        assert line.endswith(f'"Started HTTPService at 127.0.0.1:{port}"')


def test_flags_without_effect_are_noted():
    with live("--allow-grpc=false", "--pinned-memory-pool-byte-size=1") as runtime:
        assert "--pinned-memory-pool-byte-size has no effect" in runtime.log()


def test_http_answers_on_the_port_that_was_told():
    with live("--allow-grpc=false", models={"double": DOUBLE}) as runtime:
        url = runtime.client().runtime.url("http")
        with urllib.request.urlopen(f"http://{url}/v2/health/ready", timeout=5) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_finalizes_and_ends_with_0(number):
    code = DOUBLE + "\n    def finalize(self):\n        print('finalized', flush=True)\n"
    with live("--allow-grpc=false", models={"double": code}) as runtime:
        runtime.process.send_signal(number)
        assert runtime.process.wait(15) == 0
        assert "finalized" in runtime.log()
        assert f"Signal ({int(number)}) received." in runtime.log()
        assert list((runtime.folder / "run").glob("*.json")) == []
        assert list((runtime.folder / "run").glob("*.sock")) == []


def test_a_stop_while_a_model_loads_ends_it_too():
    slow = "import time\ntime.sleep(60)\n" + DOUBLE
    with live("--allow-grpc=false") as runtime:
        write_model(runtime.repository, "slow", slow)
        command = [sys.executable, "-m", "devkit.cli", "serve", "--port=0", "--allow-grpc=false",
                   f"--workspace={runtime.folder / 'other'}", str(runtime.repository)]  # fmt: skip
        (runtime.folder / "other").mkdir()
        process = subprocess.Popen(
            command, env=runtime.environment(), cwd=runtime.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        import psutil

        eventually(lambda: psutil.Process(process.pid).children())
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_two_runtimes_of_one_workspace_do_not_disturb_each_other():
    with live("--allow-grpc=false", models={"double": DOUBLE}) as first:
        second = type(first)(first.folder, ("--allow-grpc=false",))
        second.start()
        try:
            assert second.client().runtime.pid == second.process.pid
        finally:
            second.stop()
        assert first.client().runtime.pid == first.process.pid


def test_a_log_file_takes_the_log(tmp_path):
    with live("--allow-grpc=false", f"--log-file={tmp_path / 'log'}", "--log-format=ISO8601"):
        pass
    assert " I " in (tmp_path / "log").read_text().splitlines()[0]
