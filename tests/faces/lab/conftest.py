"""JupyterLab with the extension on a runtime of its own, in a browser, for all tests of a module."""

import contextlib

import pytest

from tests.support.browser import LabPage, chromium, lab
from tests.support.live import DOUBLE, live

FAILS = """
class TritonPythonModel:
    def execute(self, requests):
        print("about to fail")
        raise ValueError("no good \\x1b[31mred\\x1b[0m")
"""


class Bench:
    """One runtime, one JupyterLab, one browser; `open` is a new tab, `close` closes them all."""

    def __init__(self, runtime, lab, browser):
        self.runtime, self.lab, self.browser = runtime, lab, browser
        self.client = runtime.client()
        self.pages = []

    def open(self, path="", **options):
        page = LabPage.open(
            self.browser, self.lab, path, **{"width": 1280, "height": 800, **options}
        )
        self.pages.append(page)
        return page

    def close(self):
        while self.pages:
            self.pages.pop().close()


@pytest.fixture(scope="module")
def whole_bench():
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(live("--watch", models={"double": DOUBLE, "fails": FAILS}))
        environment = {**runtime.environment(), "DEVKIT_WORKSPACE": str(runtime.workspace)}
        server = stack.enter_context(lab(runtime.folder, environment))
        yield Bench(runtime, server, stack.enter_context(chromium()))


@pytest.fixture
def bench(whole_bench):
    """The bench, with every tab closed behind each test."""
    yield whole_bench
    whole_bench.close()
