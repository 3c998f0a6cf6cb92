"""The notebook's widgets: in JupyterLab in a browser, without a kernel, and in plain Python."""

import base64
import json
import re
import struct
import time

import nbformat
import numpy as np
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import expect

import devkit
from devkit.contract.trace_files import TraceFileError
from devkit.contract.tracing import Span
from devkit.errors import DevkitError
from devkit.notebook import widgets
from devkit.notebook.widgets import still
from devkit.notebook.widgets.board import Dashboard, owner_of, state_of
from devkit.notebook.widgets.failures import FailureViewer
from devkit.notebook.widgets.tensors import Inspector, somewhere
from devkit.tools.inspection import Captures, FailureList, inspect
from tests.support.browser import DARK, LIGHT, LabPage, chromium, lab
from tests.support.live import eventually, live
from tests.support.shown import SHOWING

CELLS = {
    "work": """
import devkit
import numpy as np

x = np.arange(30_000, dtype=np.float32)
for _ in range(20):
    devkit.infer("double", {"X": x})
try:
    devkit.infer("double", {"X": np.full(3, -1, np.float32)})
except devkit.errors.InferError as problem:
    print(problem.message.splitlines()[0])
""",
    "dashboard": "devkit.dashboard()",
    "timeline": """
from devkit.contract.tracing import Span

spans = []
for i in range(25_000):
    at, pid = i * 1_000_000, 100 + i % 4
    common = (pid, f"double_{i % 4}", pid, "execute", i)
    spans.append(Span("execute", "execute", at, at + 900_000, *common))
    spans.append(Span("tokenize", "own", at + 10_000, at + 300_000, *common, 0, {"words": i}))
    spans.append(Span("forward", "own", at + 310_000, at + 800_000, *common))
    spans.append(Span("double", "request", at, at + 950_000, 1, "runtime", 0, "requests 1", i))
devkit.timeline(spans)
""",
    "inspect": """
ramp = np.add.outer(np.arange(64), np.arange(96))
devkit.inspect({
    "image": (ramp[..., None] * np.array([1.5, 0.8, 0.3])).astype(np.uint8),
    "table": np.arange(54, dtype=np.float32).reshape(6, 9) / 7,
    "text": np.array([b"one", "zw\\u00f6lf".encode(), b"\\xff<b>"], object),
    "signal": np.where(np.arange(5000) == 9, np.nan, np.sin(np.arange(5000) / 200)),
})
""",
    "failures": "devkit.failures()",
    "compare": 'devkit.compare({"a": x}, {"a": np.where(x == 7, 7.25, x).astype(np.float32)})',
    "traced": """
with devkit.tracing("double") as run:
    for _ in range(3):
        devkit.infer("double", {"X": x})
devkit.timeline(run.result)
""",
}
NUMBER = {name: number for number, name in enumerate(CELLS)}


@pytest.fixture(scope="module")
def runtime():
    with live(models={"double": SHOWING}) as one:
        client = one.client()
        client.infer("double", {"X": np.ones(30_000, np.float32)})
        with pytest.raises(DevkitError):
            client.infer("double", {"X": np.full(3, -1, np.float32)})
        eventually(lambda: client.capture_list() and client.failures())
        yield one


@pytest.fixture
def client(runtime):
    return runtime.client()


@pytest.fixture(scope="module")
def page(runtime, tmp_path_factory):
    """A notebook with every widget, run in JupyterLab."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code.strip()) for code in CELLS.values()],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    nbformat.write(notebook, folder / "widgets.ipynb")
    environment = {**runtime.environment(), "DEVKIT_WORKSPACE": str(runtime.workspace)}
    with lab(folder, environment) as server, chromium() as browser:
        one = LabPage.open(browser, server, "widgets.ipynb")
        one.run_all()
        yield one
        one.close()


def output(page, name):
    """The widget under a cell, scrolled to."""
    cell = page.cell(NUMBER[name])
    cell.scroll_into_view_if_needed()
    widget = cell.locator(".dk")
    widget.wait_for()
    return widget


def drawn(canvas, key):
    return canvas.evaluate("(one, key) => one.dataset[key]", key)


# --- in the browser -----------------------------------------------------------------------------


@pytest.mark.parametrize("theme", [DARK, LIGHT])
def test_every_widget_shows_itself_in_both_themes(page, theme):
    page.theme(theme)
    texts = {
        "dashboard": "double_0", "timeline": "100,000 spans", "inspect": "UINT8 [64, 96, 3]",
        "failures": "asked to fail", "compare": "differs", "traced": "3 requests",
    }  # fmt: skip
    for name, text in texts.items():
        widget = output(page, name)
        expect(widget).to_contain_text(text)
        ground, ink = widget.evaluate(
            "(one) => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]"
        )
        dark = brightness(ground) < 128
        assert dark == (theme == DARK), (name, ground)
        assert (brightness(ink) > brightness(ground)) == dark
        page.screenshot(f"widget-{name}-{'dark' if dark else 'light'}", page.cell(NUMBER[name]))
    assert page.problems == []
    assert page.lost == []  # nothing was fetched from anywhere else


def brightness(colour):
    red, green, blue = map(float, re.findall(r"[\d.]+", colour)[:3])
    return 0.3 * red + 0.59 * green + 0.11 * blue


def test_a_hundred_thousand_spans_pan_with_few_rectangles(page):
    widget = output(page, "timeline")
    canvas = widget.locator("canvas")
    page.page.wait_for_function("one => one.dataset.rectangles > 0", arg=canvas.element_handle())
    canvas.click(position={"x": 400, "y": 10})
    whole = drawn(canvas, "view")
    for _ in range(8):
        page.page.keyboard.press("+")
    changed = "([one, before]) => one.dataset.view !== before"
    page.page.wait_for_function(changed, arg=[canvas.element_handle(), whole])
    box = canvas.bounding_box()
    rows = 2 * 4 + 1
    for step in range(5):
        before = drawn(canvas, "view")
        page.page.mouse.move(box["x"] + 600, box["y"] + 60)
        page.page.mouse.down()
        page.page.mouse.move(box["x"] + 500 - 20 * step, box["y"] + 60, steps=3)
        page.page.mouse.up()
        page.page.wait_for_function(changed, arg=[canvas.element_handle(), before])
        assert 0 < int(drawn(canvas, "rectangles")) <= rows * box["width"]
        assert int(drawn(canvas, "spans")) < 100_000  # what is out of sight costs nothing
    near = drawn(canvas, "view")
    page.page.mouse.wheel(0, 300)
    page.page.wait_for_function(changed, arg=[canvas.element_handle(), near])
    page.page.keyboard.press("f")
    page.page.wait_for_function(
        "([one, whole]) => one.dataset.view === whole", arg=[canvas.element_handle(), whole]
    )


def test_a_span_says_what_it_was_and_a_range_is_summed_up(page):
    widget = output(page, "timeline")
    canvas, search = widget.locator("canvas"), widget.locator("input")
    search.fill("TOKEN")
    expect(widget).to_contain_text("25,000 found")
    search.press("Enter")
    expect(widget).to_contain_text("1 of 25,000")
    box = canvas.bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 22 + 20 + 16 + 8)
    tip = widget.locator(".dk-tip")
    expect(tip).to_contain_text("290 µs")
    expect(tip).to_contain_text("double_0 (pid 100)")
    expect(tip).to_contain_text("words")  # an attribute, fetched from the kernel
    page.page.keyboard.down("Shift")
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 60, steps=3)
    page.page.mouse.up()
    page.page.keyboard.up("Shift")
    expect(widget.locator(".dk-selection")).to_contain_text("Selection of")
    expect(widget.locator(".dk-selection")).to_contain_text("tokenize")
    page.screenshot("widget-timeline-selection", page.cell(NUMBER["timeline"]))
    search.press("Escape")
    canvas.press("Escape")
    expect(widget.locator(".dk-selection")).to_be_hidden()
    canvas.press("f")
    assert page.problems == []


def test_the_dashboard_lives_while_it_is_seen(page, client):
    widget = output(page, "dashboard")
    (instance,) = client.model("double").instances
    expect(widget).to_contain_text(str(instance.pid))
    expect(widget).to_contain_text("double_0 responses")
    clock = widget.locator(".dk-clock")
    before = clock.inner_text()
    expect(clock).not_to_have_text(before)
    client.infer("double", {"X": np.ones(3, np.float32)})
    count = f"{client.model('double').inferences:,} inferences"
    expect(widget).to_contain_text(count)


def test_slices_are_fetched_when_they_are_asked_for(page):
    widget = output(page, "inspect")
    card = widget.locator('[data-tensor="table"]')
    card.locator("input").fill("2, 1:3")
    card.get_by_role("button", name="Show").click()
    expect(card.locator(".dk-shown")).to_contain_text("2.71429 2.85714")
    card.locator("input").fill("99")
    card.locator("input").press("Enter")
    expect(card.locator(".dk-told")).to_contain_text("out of bounds")
    card.locator("input").fill("")
    card.locator("select").first.select_option("values")
    card.get_by_role("button", name="Show").click()
    expect(card.locator("pre")).to_contain_text("[0.        0.1428")
    picture = widget.locator("img").first
    assert picture.evaluate("one => one.naturalWidth") == 96
    text = widget.locator('[data-tensor="text"]')
    expect(text).to_contain_text("\\xff<b>")
    assert page.problems == []


def test_a_failure_opens_to_its_lines_and_is_sent_again(page):
    widget = output(page, "failures")
    row = widget.locator(".dk-row").first
    if row.get_attribute("aria-expanded") == "false":
        row.click()
    expect(widget.locator(".dk-here").last).to_contain_text('raise ValueError("asked to fail")')
    expect(widget).to_contain_text("ndarray float32 (3,) [-1.0, -1.0, -1.0]")
    widget.get_by_role("button", name="Inspect").first.click()
    expect(widget.locator(".dk-shown").first).to_contain_text("FP32 [3]")
    page.screenshot("widget-failures-opened", page.cell(NUMBER["failures"]))
    widget.get_by_role("button", name="Replay").first.click()
    expect(widget.locator(".dk-verdict").first).to_contain_text("answered as recorded")
    assert page.problems == []


def test_a_saved_notebook_shows_everything_without_a_kernel(page):
    page.command("docmanager:save")
    path = page.lab.folder / "widgets.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert "widgets" not in notebook.metadata  # JupyterLab keeps no state unless told to
    html, _ = HTMLExporter().from_filename(str(path))
    assert "widget-view+json" not in html
    assert html.count("<svg") >= 3
    for text in ("double_0", "100,000 spans", "asked to fail", "/dev/shm", "30,000"):
        assert text in html, text
    assert "\\xff&lt;b&gt;" in html
    assert "data:image/png;base64," in html


# --- in plain Python ----------------------------------------------------------------------------


def test_the_dashboard_asks_only_while_it_is_seen(client):
    board = Dashboard(client, every=0.01)
    assert board.asked == 0
    board.answer({"kind": "sight", "visible": True})
    eventually(lambda: board.asked > 2)
    board.answer({"kind": "sight", "visible": False})

    def quiet():
        before = board.asked
        time.sleep(0.2)
        return board.asked == before

    eventually(quiet)
    assert board.running
    board.close()
    eventually(lambda: not board.running)


def test_the_dashboard_ends_with_its_runtime():
    with live(models={"double": SHOWING}) as own:
        board = Dashboard(own.client(), every=0.01)
        board.answer({"kind": "sight", "visible": True})
        eventually(lambda: board.asked > 0)
        own.stop()
        eventually(lambda: not board.running)
        assert "no more" in board.state["gone"]
        board.close()


def test_a_slab_tells_whose_it_is(client):
    state = state_of(client)
    owners = [one["owner"] for one in state["memory"]["slabs"]]
    assert "double_0 responses" in owners
    ((model,),) = ([one for one in state["models"] if one["name"] == "double"],)
    assert model["instances"][0]["shm"] > 0
    assert owner_of("devkit-7-my_model_0_1_12-responses") == ("my_model_0_1", "responses")
    assert owner_of("devkit-7-local-responses") == ("local clients", "responses")


def test_what_the_runtime_keeps_is_looked_at_there(client):
    inspector = Inspector(Captures.of(client)[0])
    assert len(json.dumps(inspector.data)) < 200_000
    found = inspector.answer({"kind": "slice", "tensor": 0, "slice": "5:8", "way": "values"})
    assert found == {"shown": {"text": "[1. 1. 1.]"}}
    (first, *_) = inspector.subject.inspect()
    assert first.remote
    compared = inspector.answer({"kind": "compare", "tensor": 0, "with": 1})["difference"]
    assert compared["verdict"] == "differs"
    assert ["max abs", "0.5"] in compared["facts"]
    exact = inspector.answer({"kind": "exact", "tensor": 0})["about"]
    assert ["distinct", "1"] in exact["facts"]


def test_a_slice_somewhere_lies_within(client):
    for shape in ((), (5,), (1000,), (3, 4), (2, 3, 100, 100)):
        index = somewhere(shape)
        assert np.zeros(shape)[eval(f"np.s_[{index or '...'}]")].size > 0


def test_failures_are_found_again(client):
    found = FailureList.of(client)
    viewer = FailureViewer(found, found.again)
    count = len(viewer.rows)
    with pytest.raises(DevkitError):
        client.infer("double", {"X": np.full(5, -1, np.float32)})
    eventually(lambda: len(client.failures()) > count)
    viewer.answer({"kind": "refresh"})
    assert len(viewer.rows) == count + 1
    assert viewer.rows[0]["number"] > viewer.rows[-1]["number"]
    sent = []
    viewer.send = sent.append
    viewer._asked(None, {"kind": "open", "id": 3, "number": 9999}, [])
    assert sent == [{"kind": "open", "id": 3, "error": sent[0]["error"]}]
    assert "no failure 9999" in sent[0]["error"]


@pytest.mark.parametrize("form", ["chrome", "otlp"])
def test_a_file_of_traces_is_a_timeline_again(client, tmp_path, form):
    with client.start_trace("double") as run:
        for _ in range(3):
            client.infer("double", {"X": np.ones(3, np.float32)})
    path = run.result.save(tmp_path / "traces.json", form)
    read = devkit.timeline(path)
    live_one = devkit.timeline(run.result)
    assert {lane["pid"] for lane in read.columns.lanes} == {
        lane["pid"] for lane in live_one.columns.lanes
    }
    assert "double_0" in read.words()
    assert "3 requests" in live_one.words()
    assert live_one.answer({"index": 0})["attributes"]["model"] == "double"
    starts = struct.unpack(f"<{len(live_one.spans)}d", live_one.start)
    assert min(starts) == 0.0


def test_what_is_no_trace_is_refused_with_what_to_do(client, tmp_path):
    with client.start_trace("double") as run:
        client.infer("double", {"X": np.ones(3, np.float32)})
    for text in (run.result.text("triton"), "nothing", "{}", '{"traceEvents": [{"ph": "X"}]}'):
        path = tmp_path / "file.json"
        path.write_text(text)
        with pytest.raises(TraceFileError) as caught:
            devkit.timeline(path)
        assert "devkit trace --out" in caught.value.remedy
    with pytest.raises(TraceFileError):
        devkit.timeline(tmp_path / "nowhere.json")
    with pytest.raises(DevkitError, match="not of int"):
        devkit.timeline([1])


def test_without_anywidget_the_text_remains_and_widgets_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    assert widgets.bundle(inspect(np.ones(3))) == {}
    with pytest.raises(widgets.WidgetsMissing) as caught:
        devkit.timeline([])
    assert "triton-devkit[lab]" in caught.value.remedy


def test_a_still_picture_has_a_row_for_each_level():
    spans = [
        Span("a", "execute", 0, 1000, 7, "m_0", 7, "execute", 1),
        Span("b <c>", "own", 100, 900, 7, "m_0", 7, "execute", 1),
    ]
    one = devkit.timeline(spans)
    assert still.depths(one.columns).tolist() == [0, 1]
    html = one.html()
    assert html.count("<rect") == 2
    assert "b &lt;c&gt;" in html
    data, _ = one._repr_mimebundle_()
    assert set(data) >= {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}


def test_a_picture_in_a_saved_notebook_is_a_png():
    html = Inspector(inspect(np.zeros((32, 32, 3), np.uint8))).html()
    (found,) = re.findall(r"data:image/png;base64,([^\"]+)", html)
    assert base64.b64decode(found).startswith(b"\x89PNG")
