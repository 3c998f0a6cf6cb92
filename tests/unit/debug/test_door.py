"""An editor at a door: the configuration that `--vscode` writes, and a real client that uses it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from devkit.debug import jsonc, vscode
from devkit.debug.dap import Body, Dap, answer
from devkit.errors import DebugError
from tests.support.live import Live, eventually
from tests.unit.debug.conftest import PRODUCT, RAISE, Workshop


class Editor:
    """A client of the protocol that does what VS Code does, in its order."""

    def __init__(self, configuration: dict[str, Any], folder: Path) -> None:
        self.configuration = json.loads(
            json.dumps(configuration).replace("${workspaceFolder}", str(folder))
        )
        self.dap = Dap(self._heard, lambda: self._events.put_nowait(("gone", {})))
        self._events: asyncio.Queue[tuple[str, Body]] = asyncio.Queue()

    def _heard(self, name: str, body: Body) -> None:
        self._events.put_nowait((name, body))

    async def event(self, wanted: str) -> Body:
        while True:
            name, body = await asyncio.wait_for(self._events.get(), 20)
            if name == wanted:
                return body

    async def attach(self, points: dict[str, list[int]], filters: tuple[str, ...] = ()) -> Body:
        where = self.configuration["connect"]
        await self.dap.connect(where["host"], where["port"])
        capabilities = await self.dap.request("initialize", {"adapterID": "debugpy"})
        attached = self.dap.post("attach", self.configuration)
        await self.event("initialized")
        for path, lines in points.items():
            taken = await self.dap.request(
                "setBreakpoints",
                {"source": {"path": path}, "breakpoints": [{"line": line} for line in lines]},
            )
            assert [each["verified"] for each in taken["breakpoints"]] == [True] * len(lines)
        await self.dap.request("setExceptionBreakpoints", {"filters": list(filters)})
        await self.dap.request("configurationDone")
        await answer(attached, "attach")
        return capabilities

    async def locals(self, frame: int) -> dict[str, Body]:
        scopes = await self.dap.request("scopes", {"frameId": frame})
        reference = scopes["scopes"][0]["variablesReference"]
        found = await self.dap.request("variables", {"variablesReference": reference})
        return {each["name"]: each for each in found["variables"]}

    async def frames(self, stop: Body) -> list[Body]:
        found = await self.dap.request(
            "stackTrace", {"threadId": stop["threadId"], "startFrame": 0, "levels": 20}
        )
        frames: list[Body] = found["stackFrames"]
        return frames


@asynccontextmanager
async def editor(configuration: dict[str, Any], folder: Path) -> AsyncIterator[Editor]:
    made = Editor(configuration, folder)
    try:
        yield made
    finally:
        await made.dap.close()


@contextmanager
def vscode_command(served: Live, model: str) -> Iterator[list[dict[str, Any]]]:
    """`devkit debug MODEL --vscode`, ended by Ctrl-C; what it wrote."""
    command = [sys.executable, "-m", "devkit.cli", "debug", model, "--vscode"]
    process = subprocess.Popen(
        command, cwd=served.workspace, env=served.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("devkit: "), process.communicate()[1]
        found = jsonc.parse(vscode.read(served.workspace)).value["configurations"]
        yield [each for each in found if each["name"].startswith(f"devkit: {model}_")]
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors


async def test_an_editor_attaches_by_what_was_written_and_stops(workshop: Workshop):
    folder = workshop.runtime.workspace
    file = workshop.file("pair")
    with vscode_command(workshop.runtime, "pair") as found:
        assert [each["name"] for each in found] == ["devkit: pair_0_0", "devkit: pair_0_1"]
        async with editor(found[1], folder) as code:
            assert (await code.attach({file: [PRODUCT]}))["supportsConfigurationDoneRequest"]
            (session,) = workshop.client.debug_sessions()
            assert session.told.instance == "pair_0_1"
            asked = workshop.later("pair", debug=True)
            stop = await code.event("stopped")
            assert stop["reason"] == "breakpoint"
            frame = (await code.frames(stop))[0]
            assert (frame["source"]["path"], frame["line"]) == (file, PRODUCT)
            assert workshop.ask("pair", 2) == 4  # by the other instance

            found_locals = await code.locals(frame["id"])
            assert found_locals["x"]["value"] == "float32[1] all 5  [5]"
            scopes = await code.dap.request("scopes", {"frameId": frame["id"]})
            reference = scopes["scopes"][0]["variablesReference"]
            await code.dap.request(
                "setVariable", {"variablesReference": reference, "name": "factor", "value": "10"}
            )
            await code.dap.request("next", {"threadId": stop["threadId"]})
            assert (await code.event("stopped"))["reason"] == "step"
            hover = {"expression": "y.sum()", "frameId": (await code.frames(stop))[0]["id"]}
            assert "50" in (await code.dap.request("evaluate", hover))["result"]

            # Another face goes on with it, and the editor hears of that.
            session.resume()
            await code.event("continued")
            assert asked.answer() == 50
            await code.dap.request("disconnect", {"terminateDebuggee": False})
            await code.event("gone")
        eventually(lambda: not workshop.client.debug_sessions())
        assert workshop.ask("pair") == 10
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", found[0]["connect"]["port"])) != 0

    with vscode_command(workshop.runtime, "pair") as again:
        assert again == found  # the ports are those that VS Code knows


async def test_a_folder_of_another_machine_and_a_second_editor(workshop: Workshop):
    from devkit.debug.door import Door

    notes: list[str] = []
    door = Door(workshop.client, "scale", on_note=notes.append)
    try:
        far = str(workshop.runtime.repository)
        near = "/elsewhere/models"
        configuration = {
            "connect": {"host": "127.0.0.1", "port": door.port},
            "pathMappings": [{"localRoot": near, "remoteRoot": far}],
        }
        async with editor(configuration, Path(far)) as code:
            await code.attach({f"{near}/scale/1/model.py": [PRODUCT]}, ("uncaught",))
            async with editor(configuration, Path(far)) as second:
                await second.dap.connect("127.0.0.1", door.port)
                await second.event("gone")
            asked = workshop.later("scale", -1)
            stop = await code.event("stopped")
            assert (await code.frames(stop))[0]["source"]["path"] == f"{near}/scale/1/model.py"
            await code.dap.request("continue", {"threadId": stop["threadId"]})
            stop = await code.event("stopped")
            assert stop["reason"] == "exception"
            assert (await code.frames(stop))[0]["line"] == RAISE
            told = await code.dap.request("exceptionInfo", {"threadId": stop["threadId"]})
            assert told["description"].startswith("negative")
            workshop.client.clear_breakpoints()
            assert (await code.event("breakpoint"))["reason"] == "removed"
        with pytest.raises(Exception, match="negative"):  # the editor is gone: it goes on
            asked.answer()
        assert any("turned away" in note for note in notes)
    finally:
        door.close()
    assert not workshop.client.debug_sessions()


MINE = """{
    // mine
    "version": "0.2.0",
    "configurations": [
        {
            "name": "a", // keep, http://x
            "x": "//no comment", /* c */
        }, // the last
    ],
    "compounds": [],
}
"""


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"configurations": []}', '{ "configurations": [ {"name": "a"} ] }', MINE,
     '{"configurations": [\n // none yet\n]}', '{"compounds": [], // y\n}',
     '{\r\n  "configurations": [\r\n  ]\r\n}\r\n'],
)  # fmt: skip
def test_the_owners_own_text_stays(text: str, tmp_path: Path):
    file = tmp_path / vscode.FILE
    file.parent.mkdir()
    file.write_bytes(text.encode())
    vscode.write(tmp_path, {"s_0": 5001, "s_1": 5002})
    written = vscode.read(tmp_path)
    assert vscode.ports(written) == {"devkit: s_0": 5001, "devkit: s_1": 5002}
    assert "\r\n" not in text or written.count("\n") == written.count("\r\n")
    for line in filter(None, (part.strip(" ,{}[]") for part in text.splitlines())):
        assert line in written

    theirs = written.replace('"justMyCode": true', '"justMyCode": false')
    file.write_text(theirs, newline="")
    vscode.write(tmp_path, {"s_0": 6001, "s_1": 5002})
    changed = vscode.read(tmp_path)
    assert vscode.ports(changed) == {"devkit: s_0": 6001, "devkit: s_1": 5002}
    assert changed.count('"justMyCode": false') == 2
    assert [each.name for each in file.parent.iterdir()] == ["launch.json"]


@pytest.mark.parametrize("text", ["{", '{"configurations": {}}', "[]", "not json", '{"a": 1} x'])
def test_a_file_that_is_not_understood_is_left_alone(text: str, tmp_path: Path):
    file = tmp_path / vscode.FILE
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(DebugError, match="left as it is"):
        vscode.write(tmp_path, {"s_0": 1})
    assert file.read_text() == text
