"""The Models panel, as a person sees and uses it."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.support.browser import DARK, LIGHT, PATIENCE
from tests.support.live import eventually


@pytest.fixture(autouse=True)
def patience():
    expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture
def page(bench):
    one = bench.open()
    one.command("devkit:show-models")
    row(one, "double").wait_for()
    return one


def row(page, model):
    return page.page.locator(f'.dk-Model-row[data-dk-model="{model}"]')


def opened(page, model):
    if row(page, model).get_attribute("aria-expanded") == "false":
        row(page, model).click()
    return page.page.locator(f'.dk-Details[data-dk-model="{model}"]')


def test_a_model_its_numbers_and_its_instances(bench, page):
    details = opened(page, "double")
    for _ in range(20):
        bench.client.infer("double", {"X": np.ones(4, np.float32)})
    expect(details).to_contain_text("X FP32 [-1]")
    expect(details).to_contain_text(re.compile(r"2\d inferences"))
    expect(details.locator(".dk-Instance")).to_have_count(1)
    expect(details.locator(".dk-Instance-facts")).to_contain_text("pid")
    expect(details.locator(".dk-Bar em")).to_contain_text("MB")
    for theme in (LIGHT, DARK):
        page.theme(theme)
        page.page.wait_for_selector("#jupyterlab-splash", state="detached")
        page.screenshot(f"lab-models-{'light' if theme == LIGHT else 'dark'}")
    assert page.problems == []


def test_instances_come_and_go_by_a_click(bench, page):
    details = opened(page, "double")
    details.get_by_label("One instance more").click()
    expect(details.locator(".dk-Instance")).to_have_count(2)
    details.get_by_label("One instance less").click()
    expect(details.locator(".dk-Instance")).to_have_count(1)
    assert page.problems == []


def test_unloading_and_loading(bench, page):
    details = opened(page, "double")
    details.get_by_role("button", name="Unload").click()
    eventually(lambda: bench.client.model("double").state == "UNAVAILABLE")
    details.get_by_role("button", name="Load", exact=True).click()
    expect(details.get_by_role("button", name="Unload")).to_be_visible()
    assert bench.client.model("double").state == "READY"
    assert page.problems == []


def test_a_save_that_does_not_load_shows_its_traceback(bench, page):
    file = bench.runtime.repository / "fails" / "1" / "model.py"
    good = file.read_text()
    details = opened(page, "fails")
    file.write_text("this is no Python\n")
    expect(details.locator(".dk-Problem")).to_contain_text("SyntaxError")
    file.write_text(good)
    expect(details.locator(".dk-Problem")).to_have_count(0)
    assert page.problems == []


def test_by_keyboard_alone(page):
    row(page, "double").focus()
    page.page.keyboard.press("ArrowDown")
    expect(row(page, "fails")).to_be_focused()
    page.page.keyboard.press("Home")
    page.page.keyboard.press("ArrowRight")
    expect(row(page, "double")).to_have_attribute("aria-expanded", "true")
    page.page.keyboard.press("ArrowLeft")
    expect(row(page, "double")).to_have_attribute("aria-expanded", "false")


def test_what_was_open_is_open_after_a_reload(page):
    opened(page, "double").wait_for()
    # Kept by the server, a moment after the last change.
    with page.page.expect_request_finished(
        lambda one: (
            "/api/workspaces/" in one.url
            and '"filter":"dou"' in (one.post_data or "").replace("\\", "")
        )
    ):
        page.page.get_by_label("Filter models").fill("dou")
    expect(row(page, "fails")).to_have_count(0)
    page.page.goto(page.lab.address().replace("&reset", ""))
    expect(row(page, "double")).to_have_attribute("aria-expanded", "true")
    expect(row(page, "fails")).to_have_count(0)


def test_the_source_opens_in_an_editor(page):
    opened(page, "double").get_by_role("button", name="Source").click()
    expect(page.page.locator(".jp-FileEditor .cm-content")).to_contain_text("TritonPythonModel")
    assert page.problems == []
