"""The Logs panel: whose lines, their colours, the filter, and following what comes."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from devkit.errors import DevkitError
from tests.support.browser import DARK, LIGHT, PATIENCE

CHATTY = """
class TritonPythonModel:
    def execute(self, requests):
        print("plain \\x1b[31mred\\x1b[0m \\x1b[1;32mgreen\\x1b[0m done", flush=True)
        raise ValueError("on purpose")
"""


@pytest.fixture(autouse=True)
def patience():
    expect.set_options(timeout=PATIENCE * 1000)


def speak(bench, times=1):
    for _ in range(times):
        with pytest.raises(DevkitError):
            bench.client.infer("fails", {"X": np.ones(1, np.float32)})


def test_the_lines_of_a_model_and_of_its_instance(bench):
    (bench.runtime.repository / "fails" / "1" / "model.py").write_text(CHATTY)
    bench.client.reload("fails")
    speak(bench)
    page = bench.open()
    page.command("devkit:logs", model="fails")
    panel = page.page.locator(".dk-Logs")
    spoken = panel.locator(".dk-Logs-line", has_text="plain red green done")
    expect(spoken).to_have_count(1)
    expect(spoken.locator(".dk-ansi-red")).to_have_text("red")
    expect(spoken.locator(".dk-ansi-green")).to_have_class(re.compile("dk-ansi-bold"))

    speak(bench, 30)
    expect(spoken).to_have_count(31)
    lines = panel.locator(".dk-Logs-lines")
    expect(spoken.last).to_be_in_viewport()
    lines.hover()
    page.page.mouse.wheel(0, -5000)
    expect(panel.get_by_label("Follow")).not_to_be_checked()
    speak(bench)
    expect(spoken).to_have_count(32)
    expect(spoken.last).not_to_be_in_viewport()
    panel.get_by_label("Follow").check()
    expect(spoken.last).to_be_in_viewport()
    for theme in (LIGHT, DARK):
        page.theme(theme)
        page.page.wait_for_selector("#jupyterlab-splash", state="detached")
        page.screenshot(f"lab-logs-{'light' if theme == LIGHT else 'dark'}")

    filtered = panel.get_by_label("Filter lines")
    filtered.fill("no such words")
    expect(panel).to_contain_text("No line fits the filter.")
    filtered.fill("/red.*done/")
    expect(panel.locator(".dk-Logs-line")).to_have_count(32)
    filtered.fill("/(/")
    expect(panel).to_contain_text("no valid pattern")
    filtered.fill("")

    (instance,) = bench.client.model("fails").instances
    panel.get_by_label("Whose lines").select_option(label=f"\u2003{instance.name}")
    expect(spoken).to_have_count(32)
    panel.get_by_label("Whose lines").select_option(label="double")
    expect(spoken).to_have_count(0)
    assert page.problems == []


def test_the_button_in_the_models_panel_and_a_clean_start(bench):
    page = bench.open()
    page.command("devkit:show-models")
    page.page.locator('.dk-Model-row[data-dk-model="fails"]').click()
    details = page.page.locator('.dk-Details[data-dk-model="fails"]')
    details.locator(".dk-Actions").get_by_role("button", name="Logs").click()
    panel = page.page.locator(".dk-Logs")
    expect(panel.get_by_label("Whose lines")).to_have_value('["fails",""]')
    speak(bench)
    expect(panel.locator(".dk-Logs-line").first).to_be_visible()
    panel.get_by_role("button", name="Clear").click()
    expect(panel.locator(".dk-Logs-line")).to_have_count(0)
    speak(bench)
    expect(panel.locator(".dk-Logs-line").first).to_be_visible()
    assert page.problems == []
