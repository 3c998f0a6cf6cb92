"""The terminal workbench over a live runtime: keys pressed, what is then shown, what was done."""

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from devkit.tools import real_server
from devkit.tui.app import Workbench
from devkit.tui.debug import DebugPane
from devkit.tui.lines import Lines, Table
from devkit.tui.source import Source
from devkit.tui.timeline import Timeline
from tests.support.live import ROOT, Live, eventually, in_folder, live, write_model

PATIENCE = 40.0
SCALE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            factor = 2
            y = x * factor
            if x[0] < 0:
                raise ValueError("negative")
            print("scaled", len(x))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return answers
"""
PRODUCT = 10  # the line of `y = x * factor`

real = pytest.mark.skipif(
    real_server.unsupported() is not None, reason="the real server does not run here"
)


@pytest.fixture(scope="module")
def runtime():
    with live("--allow-grpc=false", models={"scale": SCALE}) as one:
        ask(one.client(), 1.0, id="first")
        yield one


def ask(client, value, **options):
    return client.infer("scale", {"X": np.full(8, value, np.float32)}, **options)


class Bench:
    """A workbench in no terminal, and a person in front of it."""

    def __init__(self, app, pilot):
        self.app, self.pilot = app, pilot

    async def until(self, what):
        """Wait until something is so."""
        end = time.monotonic() + PATIENCE
        while not (value := what()):
            assert time.monotonic() < end, f"never became true; shown:\n{self.shown()}"
            await self.pilot.pause(0.02)
        return value

    async def press(self, *keys):
        await self.pilot.press(*keys)

    async def type(self, text):
        await self.pilot.press(*("space" if one == " " else one for one in text))

    def text(self, selector):
        return self.app.screen.query_one(selector, Lines).text

    def shown(self):
        parts = [one.text for one in self.app.screen.query(Lines) if one.display]
        notes = [one.message for one in self.app._notifications]
        return "\n".join([*parts, *notes])

    async def sees(self, text, selector=""):
        await self.until(lambda: text in (self.text(selector) if selector else self.shown()))


@asynccontextmanager
async def bench(runtime, screen="models", size=(120, 40)):
    with in_folder(runtime.folder / "run"):
        app = Workbench(str(runtime.workspace), screen=screen)
        async with app.run_test(size=size) as pilot:
            made = Bench(app, pilot)
            await made.until(lambda: app.store.snapshot is not None and not app.store.trouble)
            yield made


async def test_live_models_and_what_can_be_done_with_them(runtime):
    async with bench(runtime) as it:
        await it.sees("scale_0", "#models-tree")
        await it.sees("FP32 [-1]", "#models-about")
        await it.press("plus")
        await it.until(lambda: len(runtime.client().model("scale").instances) == 2)
        await it.sees("scale_1", "#models-tree")
        await it.press("minus")
        await it.until(lambda: "scale_1" not in it.text("#models-tree"))
        await it.press("c")
        await it.sees('name: "X"', "#note")
        await it.press("escape", "w")
        await it.sees("loaded in", "#note")
        await it.press("escape", "question_mark")
        await it.sees("Stop serving it", "#note")


async def test_a_request_is_found_opened_sent_again_and_copied(runtime):
    client = runtime.client()
    with pytest.raises(Exception, match="negative"):
        ask(client, -1.0, id="bad")
    async with bench(runtime, "requests") as it:
        await it.sees("first", "#requests-table")
        await it.press("slash")
        await it.type("negative")
        await it.press("enter")
        await it.until(lambda: "first" not in it.text("#requests-table"))
        await it.press("w")  # why it failed: the source with the values at that moment
        await it.sees('raise ValueError("negative")', "#note")
        await it.sees("factor", "#note")
        await it.press("escape", "escape")
        await it.press("slash")
        await it.type("first")
        await it.press("enter")
        await it.sees("first", "#requests-table")
        sent = len(client.capture_list())
        await it.press("s")
        await it.sees("answered the same")
        assert len(client.capture_list()) > sent
        await it.press("c")
        await it.sees("curl -s", "#note")
        line = it.app.clipboard
        await it.press("escape", "y")
        await it.sees("devkit.infer", "#note")
        await it.press("escape", "enter")
        await it.sees("FP32 [8]", "#tensors-view")
        await it.press("down")
        await it.sees("2 … 2", "#tensors-view")
        await it.press("slash")
        await it.type("2:5")
        await it.press("enter")
        await it.sees("[2. 2. 2.]", "#tensors-view")
    answer = subprocess.run(line, shell=True, capture_output=True, text=True, check=True)
    assert '"data":[2.0,2.0' in answer.stdout.replace(" ", "")


async def test_stop_at_a_breakpoint_look_step_change_and_go_on(runtime):
    client = runtime.client()
    client.clear_breakpoints()
    answers = []
    async with bench(runtime, "debug") as it:
        pane = it.app.query_one(DebugPane)
        await it.until(lambda: it.app.store.debug.text)
        it.app.query_one(Source).point_at(PRODUCT)
        await it.press("f9")
        await it.until(lambda: it.app.store.debug.breakpoints.breakpoints)
        await it.press("a")
        await it.until(lambda: it.app.store.debug.session is not None)
        asked = threading.Thread(target=lambda: answers.append(ask(client, 5.0, debug=True)))
        asked.start()
        await it.until(lambda: it.app.store.debug.here == PRODUCT)
        await it.sees("float32[8]", "#debug-variables")
        await it.sees("factor = 2", "#debug-variables")
        await it.sees("execute", "#debug-stack")
        await it.press("p")
        await it.type("factor = 10")
        await it.press("enter", "escape")
        await it.sees("factor = 10", "#debug-variables")
        await it.press("f10")
        await it.until(lambda: it.app.store.debug.here == PRODUCT + 1)
        await it.sees("y float32[8]", "#debug-variables")
        await it.press("f5")
        await it.until(lambda: answers)
        asked.join()
        await it.press("a")
        await it.until(lambda: pane.debug.session is None)
        assert client.model("scale").state == "READY"
    assert answers[0]["Y"][0] == 50
    client.clear_breakpoints()


async def test_the_next_requests_are_traced(runtime):
    client = runtime.client()
    async with bench(runtime, "trace") as it:
        await it.press("T")
        await it.until(lambda: len(it.app.screen_stack) > 1)
        await it.press("ctrl+u")
        await it.type("2 scale")
        await it.press("enter")
        await it.until(lambda: client.trace_sessions())
        ask(client, 1.0, id="traced")
        ask(client, 1.0, id="traced")
        await it.until(lambda: it.app.store.traces is not None)
        chart = it.app.query_one(Timeline)
        await it.press("0")
        assert "requests 1" in chart.text
        assert chart.chosen is not None
        whole = chart.window
        for _ in range(4):
            if chart.chosen.kind != "execute":
                await it.press("down")
        assert chart.chosen.kind == "execute"
        await it.press("z")
        assert chart.window != whole
        await it.until(lambda: "execute" in chart.text)
        await it.sees("2 requests", "#trace-about")


async def test_logs_are_followed_and_searched(runtime):
    client = runtime.client()
    async with bench(runtime, "logs") as it:
        ask(client, 1.0)
        await it.sees("scaled 8", "#logs-lines")
        await it.press("slash")
        await it.type("loaded in")
        await it.press("enter")
        await it.press("N")
        view = it.app.query_one("#logs-lines", Lines)
        line = next(one for one in it.app.store.logs if one.sequence == view.key)
        assert "loaded in" in line.text


async def test_memory_shows_every_process(runtime):
    async with bench(runtime, "memory") as it:
        pid = runtime.client().model("scale").instances[0].pid
        await it.sees(str(pid), "#memory-processes")
        await it.sees("/dev/shm", "#memory-overview")


@real
async def test_an_export_is_previewed_written_changed_and_verified(runtime):
    async with bench(runtime, "export") as it:
        await it.sees("1/model.py", "#export-files")
        assert it.app.store.export.plan.state == "new"
        await it.press("x")
        await it.sees(": written, 2", "#export-steps")
        file = runtime.workspace / "export" / "scale" / "1" / "model.py"
        right = file.read_text()
        file.write_text(right.replace("factor = 2", "factor = 3"))
        await it.press("p")
        await it.sees("-            factor = 3", "#export-files")
        await it.press("x", "y")
        await it.until(lambda: file.read_text() == right)
        await it.press("v")
        await it.until(lambda: it.app.store.export.report is not None)
        await it.sees("The real server answers the same", "#export-steps")


async def test_the_palette_finds_commands(runtime):
    async with bench(runtime) as it:
        await it.press("ctrl+p")
        await it.until(lambda: len(it.app.screen_stack) > 1)
        await it.type("open memory")
        await it.until(lambda: it.app.screen.query("OptionList") and
                       it.app.screen.query_one("OptionList").option_count == 1)  # fmt: skip
        await it.press("enter")
        await it.until(lambda: it.app.screen_stack[1:] == [] and it.app.pane.NAME == "memory")


async def test_the_mouse_and_the_other_theme(runtime):
    client = runtime.client()
    client.clear_breakpoints()
    async with bench(runtime) as it:
        await it.sees("scale_0", "#models-tree")
        await it.pilot.click("#models-tree", offset=(10, 3))  # the instance below its model
        await it.sees("pid", "#models-about")
        dark = it.app.query_one("#models-tree", Lines).render_line(1)
        await it.press("ctrl+t")
        await it.until(lambda: it.app.query_one("#models-tree", Lines).render_line(1) != dark)
        tabs = it.text("#tabs")
        await it.pilot.click("#tabs", offset=(tabs.index("Debug"), 0))
        await it.until(lambda: it.app.pane.NAME == "debug" and it.app.store.debug.text)
        await it.pilot.click("#debug-source", offset=(2, PRODUCT))  # the margin, below the frame
        found = await it.until(lambda: client.breakpoints().breakpoints)
        assert (found[0].path, found[0].line) == (it.app.store.debug.file, PRODUCT)
        await it.sees("●", "#debug-source")
    client.clear_breakpoints()


async def test_the_runtime_may_die_and_another_come(tmp_path):
    one = Live(tmp_path, ["--allow-grpc=false"])
    one.repository.mkdir()
    write_model(one.repository, "double")
    one.start()
    try:
        async with bench(one) as it:
            await it.sees("double_0", "#models-tree")
            one.process.kill()
            one.process.wait()
            await it.until(lambda: it.app.store.trouble)
            assert it.app.has_class("trouble")
            await it.press("r")
            await it.until(lambda: it.app._notifications)
            await it.press("2", "7", "1")
            one.start()
            await it.until(lambda: not it.app.store.trouble)
            await it.until(
                lambda: (
                    it.app.store.snapshot.runtime.pid == one.process.pid
                    and it.app.store.the_model("double").state == "READY"
                )
            )
            assert not it.app.has_class("trouble")
    finally:
        one.stop()


async def test_it_opens_where_no_runtime_is(tmp_path):
    with in_folder(tmp_path):
        app = Workbench(str(tmp_path))
        async with app.run_test(size=(80, 24)) as pilot:
            it = Bench(app, pilot)
            await it.until(lambda: "no runtime serves" in app.store.trouble)
            for key in "12345678":
                await it.press(key)
            assert app.query_one("#models-tree", Table).key is None


# --- in a terminal --------------------------------------------------------------------------------


class Terminal:
    """A tmux session of its own."""

    def __init__(self, socket):
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]

    def __call__(self, *words):
        return subprocess.run(
            [*self._tmux, *words], capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def press(self, *keys):
        assert self("send-keys", *keys).returncode == 0

    def screen(self):
        return self("capture-pane", "-p").stdout

    def sees(self, text):
        try:
            eventually(lambda: text in self.screen(), seconds=PATIENCE)
        except AssertionError:
            raise AssertionError(f"{text!r} never came:\n{self.screen()}") from None

    def alive(self):
        return self("has-session").returncode == 0


@contextmanager
def terminal(runtime, socket, command, size=(80, 24), **variables):
    assert shutil.which("tmux"), "this test needs tmux"
    made = Terminal(socket)
    environment = {**runtime.environment(), "TERM": "xterm-256color", **variables}
    words = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
    line = shlex.join(words)
    place = str(runtime.workspace)
    made("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-c", place, line)
    try:
        yield made
    finally:
        made("kill-server")


def test_in_tmux_with_keys_and_an_editor(runtime, tmp_path):
    """What a person over ssh has: a real terminal, real keys, an editor that takes the screen."""
    editor = tmp_path / "editor"
    told = tmp_path / "told"
    editor.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {told}\nprintf editing\nread line\n')
    editor.chmod(0o755)
    command = [sys.executable, "-m", "devkit.cli", "tui"]
    with terminal(runtime, tmp_path / "tmux", command, EDITOR=str(editor)) as screen:
        screen.sees("scale_0")
        screen.sees("8 Export")
        screen.press("e")
        screen.sees("editing")
        assert told.read_text().split() == [
            "+1", str(runtime.repository / "scale" / "1" / "model.py")
        ]  # fmt: skip
        screen.press("Enter")
        screen.sees("scale_0")
        screen.press("2")
        screen.sees("first")
        done = screen("resize-window", "-x", "140", "-y", "40")
        assert done.returncode == 0, done.stderr
        screen.press("1")
        screen.sees("the last 90 seconds")
        screen.press("F5")  # of another screen: does nothing here
        screen.press("7")
        screen.sees("class TritonPythonModel")
        screen.press("?")
        screen.sees("Shift+F11")
        screen.press("Escape")  # and a key right after it would be Alt and that key
        eventually(lambda: "Shift+F11" not in screen.screen())
        screen.press("q")
        eventually(lambda: not screen.alive())


def test_it_says_what_is_missing(runtime):
    done = runtime.command("tui")
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr
    done = runtime.command("tui", "nowhere")
    assert done.returncode == 2
    code = (
        "import sys; sys.modules['textual'] = None\n"  # as where it is not installed
        "from devkit.cli.app import run\n"
        "sys.exit(run(['tui']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "pip install 'triton-devkit[tui]'" in done.stderr


def test_the_shell_completes_models(runtime):
    environment = {
        **runtime.environment(), "_DEVKIT_COMPLETE": "complete_bash",
        "COMP_WORDS": "devkit reload sc", "COMP_CWORD": "2",
    }  # fmt: skip
    words = [Path(sys.executable).with_name("devkit")]
    done = subprocess.run(
        words, cwd=runtime.workspace, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["scale"]
