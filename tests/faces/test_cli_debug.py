"""`devkit debug` as a person and a script use it, against a live runtime."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pexpect
import pytest

from tests.faces.conftest import strip_colours
from tests.support.live import eventually, live
from tests.unit.debug.conftest import CALLER, FACTOR, PRODUCT, RAISE, SCALE, Waiting, line_of


@pytest.fixture(scope="module")
def runtime():
    with live(models={"scale": SCALE, "caller": CALLER}) as one:
        one.client().capture_settings(rate=0.0)
        yield one


@pytest.fixture
def client(runtime):
    one = runtime.client()
    yield one
    for session in one.debug_sessions():
        session.detach()
    one.clear_breakpoints()


def debug(runtime, *words, script="", status=0):
    """`devkit debug WORDS` with a script of commands; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "devkit.cli", "debug", *words],
        cwd=runtime.workspace, env=runtime.environment(), input=script, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return SimpleNamespace(text=done.stdout, errors=done.stderr)


def ask(client, value=5.0, model="scale"):
    return float(client.infer(model, {"X": np.array([value], np.float32)})["Y"][0])


def test_a_script_changes_the_answer(runtime, client):
    script = "p x\nt x 1:\nset factor 10\nn\ny.sum()\nv\nw\nup\nc\nb\n"
    done = debug(runtime, "scale", "-i", "X=5,6", "--break", str(PRODUCT), script=script, status=1)
    for part in (
        "stopped at a breakpoint", f"● → {PRODUCT:>4}", "float32[2] 5 … 6, mean 5.5  [5, 6]",
        "[6.]", "factor = 10", "stopped after a step", "110.0", "→  0  execute",
        "← Y FP32[2]  [50. 60.]", f"model.py:{PRODUCT}",
    ):  # fmt: skip
        assert part in done.text
    assert "scale_0 (pid" in done.errors
    assert "there is no caller that can be seen" in done.errors  # why the status is 1
    assert not client.debug_sessions()
    assert ask(client) == 10


def test_it_stops_at_execute_where_nothing_else_is_asked_for(runtime, client):
    done = debug(runtime, "scale", "--sample", script="c\n")
    assert f"model.py:{line_of(SCALE, 'answers = []')} in execute" in done.text
    assert "← Y FP32[3]" in done.text or "← error" in done.text
    assert not client.breakpoints().breakpoints  # that one was for this debugger only


def test_breakpoints_of_every_kind(runtime, client):
    script = f"""# a remark
b model.py:{PRODUCT} if x[0] > 6
hits 1 >= 1
log {FACTOR} x is {{x}}
off 1
on 1
exceptions uncaught
b nowhere.py:3
b 4000
bogus syntax
q
"""
    done = debug(runtime, "scale", script=script, status=1)
    assert f"◆ {runtime.repository}/scale/1/model.py:{PRODUCT} if x[0] > 6 hits >= 1" in done.text
    assert "◇" in done.text
    assert "exceptions: uncaught" in done.text
    for part in ("no file 'nowhere.py'", "has no line 4000", "nothing is stopped"):
        assert part in done.errors
    kept = client.breakpoints()
    assert [(each.line, each.condition, each.hits, each.log) for each in kept.breakpoints] == [
        (FACTOR, "", "", "x is {x}"), (PRODUCT, "x[0] > 6", ">= 1", ""),
    ]  # fmt: skip
    status = debug(runtime, "--status").text
    assert "no debugger is attached" in status
    assert "exceptions: uncaught" in status


def test_into_a_called_model_and_back(runtime, client):
    exec_line = line_of(CALLER, "call.exec()")
    script = "s\n"  # nobody can be asked: it goes over the call and says how to go into it
    done = debug(runtime, "caller", "-i", "X=5", "-b", str(exec_line), script=script)
    assert "this line calls the model scale: `into` stops there" in done.text

    script = f"into\nw\ntb {PRODUCT}\nc\nset factor 3\nc\np y\nc\n"
    done = debug(runtime, "caller", "-i", "X=5", script=script, status=1)
    assert f"called by caller (caller_0) at {runtime.repository}/caller" in done.text
    assert "● scale_0  stopped" in done.text
    assert f"model.py:{exec_line + 1} in execute" in done.text
    assert "← Y FP32[1]  [16.]" in done.text
    assert [each.line for each in client.breakpoints().breakpoints] == [exec_line]


def test_a_failed_request_again_in_the_debugger(runtime, client):
    client.forget_failures()
    missing = debug(runtime, "scale", "--replay", "failure", status=1)
    assert "no request to 'scale' has failed" in missing.errors
    with pytest.raises(Exception, match="negative"):
        ask(client, -3)
    done = debug(runtime, "--replay", "failure", script="why\nx\nc\n")
    for part in ("stopped at an exception", f"model.py:{RAISE} in execute",
                 "ValueError: negative", "float32[1] all -3  [-3]", "← error"):  # fmt: skip
        assert part in done.text
    assert not client.breakpoints().uncaught

    recording = runtime.workspace / "failed.recording"
    assert runtime.command("failures", "save", str(client.failures()[-1].number),
                           str(recording)).returncode == 0  # fmt: skip
    done = debug(runtime, "scale", "--replay", str(recording), script="c\n")
    assert f"model.py:{RAISE} in execute" in done.text


def test_waiting_has_an_end_where_one_is_asked_for(runtime, client):
    done = debug(runtime, "scale", "--wait", "0.2", script="c\n", status=1)
    assert "nothing has stopped within 0.2 s" in done.errors
    debug(runtime, status=2)
    debug(runtime, "absent", status=1)


def test_status_and_detach_as_json(runtime, client):
    client.debug("scale")
    told = json.loads(debug(runtime, "--status", "--json").text)
    assert [each["instance"] for each in told["sessions"]] == ["scale_0"]
    told = json.loads(debug(runtime, "scale", "--detach", "--json").text)
    assert told == {"detached": ["scale_0"]}
    assert not client.debug_sessions()


def _hear_interrupts():
    """Tests that run in the background may have been started with Ctrl-C switched off."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def terminal(runtime):
    """Starts `devkit debug` in a terminal of its own."""
    started = []

    def start(*words):
        child = pexpect.spawn(
            sys.executable, ["-m", "devkit.cli", "debug", *words], cwd=str(runtime.workspace),
            env={**runtime.environment(), "TERM": "xterm-256color", "PAGER": "cat"},
            dimensions=(50, 120), encoding="utf-8", timeout=60, preexec_fn=_hear_interrupts,
        )  # fmt: skip
        started.append(child)
        return child

    yield start
    for child in started:
        child.close(force=True)


def interrupt(at, says):
    """Ctrl-C until it is heard: the first may come while a line is still being written."""
    for _ in range(12):
        at.sendintr()
        if at.expect([says, pexpect.TIMEOUT], timeout=5) == 0:
            return
    pytest.fail("Ctrl-C is not heard")


def test_a_person_at_a_terminal(runtime, client, terminal):
    at = terminal("scale", "--break", str(PRODUCT))
    at.expect("waits for a request to scale")
    asked = Waiting(lambda: ask(client))
    at.expect(r"\(scale_0\) ")
    assert f"→{PRODUCT:>5}" in strip_colours(at.before)
    at.sendline("factor = 7")
    at.expect(r"\(scale_0\) ")
    at.send("p fac\t")  # the debugger knows what it is going to be
    at.expect("p factor")
    at.sendline("")
    at.expect("7\r\n")
    at.expect(r"\(scale_0\) ")
    at.sendline("n")
    at.expect("after a step")
    at.expect(r"\(scale_0\) ")
    at.sendline("")  # again
    at.expect("after a step")
    at.expect(r"\(scale_0\) ")
    at.sendline("c")
    at.expect("answered")
    assert asked.answer() == 35

    at.expect(r"\(scale_0 running\) ")
    at.sendline("c")
    at.expect("waits for a request")
    interrupt(at, "`q` leaves")
    at.expect(r"\(scale_0 running\) ")
    interrupt(at, "`q` leaves; the instance goes on")
    at.sendline("q")
    at.expect(pexpect.EOF)
    at.close()
    assert at.exitstatus == 0
    assert not client.debug_sessions()


def test_when_the_terminal_is_closed_the_instance_goes_on(runtime, client, terminal):
    at = terminal("scale", "--break", str(PRODUCT))
    at.expect("waits for a request to scale")
    asked = Waiting(lambda: ask(client))
    at.expect(r"\(scale_0\) ")
    at.kill(signal.SIGKILL)
    assert asked.answer() == 10
    eventually(lambda: not client.debug_sessions())
