"""JupyterLab in a real browser: for tests of what a person sees and clicks.

`lab(folder)` serves a folder, `chromium()` is the browser, `LabPage` one tab in it. Playwright's
synchronous interface keeps an event loop half open as long as a browser is: tests that use it
start no loop of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
SCREENSHOTS = ROOT / "build" / "screenshots"
LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"

expect.set_options(timeout=PATIENCE * 1000)

_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_CONFIG = """
c.LabApp.expose_app_in_browser = True
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""
_HARMLESS = (
    "GPU stall due to ReadPixels",  # software rendering says so
    "Canvas2D: Multiple readback",
)


def chromium_path() -> str | None:
    """The browser to use: `PLAYWRIGHT_CHROMIUM`, else one that is installed; None leaves it to
    playwright, which fails and says how to get one.
    """
    named = os.environ.get("PLAYWRIGHT_CHROMIUM")
    if named:
        return named
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=list(_FLAGS), timeout=PATIENCE * 1000
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Lab:
    """A JupyterLab server.

    Attributes:
        folder: what it serves.
        url: ends with a slash.
    """

    folder: Path
    url: str
    token: str
    log: Path

    def address(self, path: str = "") -> str:
        """Of a file of the folder, in a fresh workspace."""
        place = f"lab/tree/{path}" if path else "lab"
        return f"{self.url}{place}?token={self.token}&reset"


@contextlib.contextmanager
def lab(folder: Path, environment: dict[str, str] | None = None) -> Iterator[Lab]:
    """JupyterLab on `folder`, with settings of its own; ended with all its kernels.

    `environment` is what its kernels get beside this process's: `Live.environment()` plus
    `DEVKIT_WORKSPACE` leads them to a test's runtime.
    """
    token = "a-token-of-the-tests"
    with tempfile.TemporaryDirectory(prefix="devkit-lab-") as name:
        own = Path(name)
        _settle(own / "settings")
        (own / "config").mkdir()
        (own / "config" / "jupyter_lab_config.py").write_text(_CONFIG)
        log = own / "log"
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.port=0",
            f"--ServerApp.root_dir={folder}",
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.append("--allow-root")
        variables = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
            "JUPYTER_TOKEN": token,
            "JUPYTER_RUNTIME_DIR": str(own / "run"),
            "JUPYTER_CONFIG_DIR": str(own / "config"),
            "JUPYTER_DATA_DIR": str(own / "data"),
            "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
            "IPYTHONDIR": str(own / "ipython"),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            yield Lab(folder, _listening(process, own / "run", log), token, log)
        finally:
            _end(process)


def _settle(folder: Path) -> None:
    """No news, no questions: each would lie over what is tested."""
    place = folder / "@jupyterlab" / "apputils-extension"
    place.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
    (place / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    docs = folder / "@jupyterlab" / "docmanager-extension"
    docs.mkdir()
    (docs / "plugin.jupyterlab-settings").write_text(json.dumps({"autosave": False}))


def _listening(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    file = runtime / f"jpserver-{process.pid}.json"
    until = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text("utf-8", "replace")
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return str(json.loads(file.read_text("utf-8"))["url"])
        assert time.monotonic() < until, log.read_text("utf-8", "replace")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(family, timeout=5)
    for one in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


@dataclass
class LabPage:
    """One tab with JupyterLab.

    Attributes:
        page: playwright's own.
        problems: errors that the page wrote on its console, or threw; a test ends with none.
        lost: urls outside this machine that it asked for, which were refused.
    """

    page: Page
    lab: Lab
    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @classmethod
    def open(
        cls, browser: Browser, lab: Lab, path: str = "", *, width: int = 1400, height: int = 1000
    ) -> LabPage:
        """A new tab with a file of the lab's folder; waits until JupyterLab is there."""
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(PATIENCE * 1000)
        one = cls(page, lab)
        page.on("console", one._said)
        page.on("pageerror", lambda error: one.problems.append(f"thrown: {error}"))
        page.route(lambda url: not url.startswith((lab.url, "data:", "blob:")), one._refused)
        page.goto(lab.address(path))
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        page.wait_for_function("() => window.jupyterapp && window.jupyterapp.shell")
        page.evaluate(
            "() => void window.jupyterapp.restored.then(() => (window.devkitRestored = true))"
        )
        page.wait_for_function("() => window.devkitRestored")
        return one

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(part in message.text for part in _HARMLESS):
            where = message.location.get("url", "")
            self.problems.append(f"{message.text} ({where})")

    def _refused(self, route: Any) -> None:
        self.lost.append(route.request.url)
        route.abort()

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab and wait until it is done; fails if it fails."""
        self.page.evaluate(
            """([name, given]) => {
                const call = (window.devkitCall = {});
                window.jupyterapp.commands.execute(name, given).then(
                    () => (call.over = "done"), (error) => (call.over = String(error)));
            }""",
            [name, arguments],
        )
        over = self.page.wait_for_function("() => window.devkitCall.over").json_value()
        assert over == "done", f"{name}: {over}"

    def theme(self, name: str) -> None:
        """Change to `LIGHT` or `DARK`."""
        self.command("apputils:change-theme", theme=name)
        light = "true" if name == LIGHT else "false"
        self.page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', state="attached")

    def wait_for_kernel(self) -> None:
        """Until the notebook's kernel takes code."""
        self.page.wait_for_function(
            """() => {
                const context = window.jupyterapp.shell.currentWidget?.sessionContext;
                return context?.isReady && context.session?.kernel?.status === "idle";
            }"""
        )

    def run_all(self) -> None:
        """Run every cell of the notebook in front, and wait until the last one is done."""
        self.wait_for_kernel()
        self.command("notebook:run-all-cells")

    def cell(self, number: int) -> Locator:
        """A cell of the notebook in front, from 0."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def screenshot(self, name: str, of: Locator | None = None) -> Path:
        """Into `build/screenshots`, to be looked at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        target = SCREENSHOTS / f"{name}.png"
        (of or self.page).screenshot(path=target)
        return target

    def close(self) -> None:
        """Close the tab."""
        self.page.close()
