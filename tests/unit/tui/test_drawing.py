"""What the terminal workbench draws, as text: tables, charts, pictures, timelines, wrapped lines."""

import base64

import numpy as np
import pytest

from devkit.contract import inspection, pictures
from devkit.contract.inspection import Held
from devkit.control import messages
from devkit.tui import drawing, editor, themes, words
from devkit.tui.dialogs import key_name, wrapped
from devkit.tui.lines import Column, _fit, _widths
from devkit.tui.source import coloured
from devkit.tui.store import Store
from devkit.tui.timeline import bar_line, layout, ruler
from tests.support import workbench


def text(line):
    return "".join(piece for piece, _ in line)


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.000038, "38 µs"), (0.0031, "3.1 ms"), (0.42, "420 ms"), (0.9996, "1.0 s"), (250, "4 min"),
     (12_000, "3 h 20 min")],
)  # fmt: skip
def test_durations(value, told):
    assert words.seconds(value) == told


@pytest.mark.parametrize(("count", "told"), [(-1, "-"), (12, "12 B"), (38_000, "37.1 KiB"),
                                             (300 << 20, "300 MiB"), (3 << 30, "3.0 GiB")])  # fmt: skip
def test_sizes(count, told):
    assert words.size(count) == told


def test_the_last_minute_as_bars():
    values = [0.0] * 30 + [5.0] * 30
    assert words.bars(values, 10) == "     █████"
    assert words.bars([], 10) == " " * 10
    assert words.bars([1.0, None], 10).endswith("█")


def test_columns_that_matter_less_go_first():
    columns = (Column("NAME", 10, fills=True), Column("A", 8, keep=2), Column("B", 8, keep=5))
    rows = [[[("x" * 40, "")], [("a", "")], [("b", "")]]]
    assert _widths(columns, rows, 80) == [80 - 1 - 2 * 9 - 1, 8, 8]
    assert _widths(columns, rows, 22)[1:] == [0, 8]
    assert text(_fit([("twelve", "bad"), (" cells", "")], 8, right=False)) == "twelve …"
    assert text(_fit([("7", "")], 3, right=True)) == "  7"


def test_lines_are_cut_between_words_and_keep_their_tones():
    line = [("file ", "dim"), ("a rather long sentence", "accent")]
    made = wrapped([line], 14)
    assert [text(one).strip() for one in made] == ["file a rather", "long sentence"]
    assert made[1][0][1] == "accent"
    _, second = wrapped([[("  key  ", ""), ("words and words", "")]], 16, indent=7)
    assert text(second).startswith(" " * 7)
    assert [text(one) for one in wrapped([[("x" * 10, "")]], 4)] == ["xxxx", "xxxx", "xx"]


def test_a_histogram_and_a_curve():
    held = Held.of("X", np.array([0, 0, 0, 1, 2], np.float32))
    shown = drawing.histogram(inspection.summarise(held, bins=4).histogram, 8, 2)
    assert text(shown[0]).startswith("██")
    assert text(shown[-1]).split() == ["0", "2"]
    ramp = Held.of("X", np.arange(64, dtype=np.float32))
    lines = drawing.curve(inspection.series(ramp, 64), 16, 4)
    assert text(lines[0])[:16].strip() != ""
    assert text(lines[0])[0] == " "
    assert text(lines[-1])[1] != " "


def test_a_picture_in_half_blocks():
    made = pictures.picture(workbench.picture())
    assert np.array_equal(pictures.pixels_of(made.png), workbench.picture())
    lines = drawing.half_blocks(pictures.pixels_of(made.png), 40, 15)
    assert len(lines) == 15
    assert len(lines[0]) == 40
    char, tone = lines[0][0]
    assert char == "▀"
    assert themes.style(tone, {}).bgcolor is not None


def test_spans_become_lanes_and_bars_that_share_a_cell_are_merged():
    traces = workbench.traces()
    rows = layout(traces.spans)
    labels = [row.label for row in rows]
    assert labels[:2] == ["requests 1", ""]
    assert "brighten_0" in labels
    for row in rows:
        for before, after in zip(row.spans, row.spans[1:], strict=False):
            assert before.end <= after.start
    first, last = traces.spans[0].start, max(span.end for span in traces.spans)
    whole = text(bar_line(rows[0], first, last, 60, None))
    assert len(whole) == 60
    assert "brighten" in whole
    tight = bar_line(rows[1], first, first + 1000 * (last - first), 20, rows[1].spans[2])
    assert [tone for _, tone in tight if tone] == ["bar-chosen"]
    assert text(ruler(first, last, first, 60)).count("╷") >= 2


def test_python_in_colours():
    lines = coloured('def f(x):\n    return "a" + 1  # why\n')
    assert lines[0][0] == ("def", "keyword")
    assert ("f", "definition") in lines[0]
    assert {tone for _, tone in lines[1]} >= {"keyword", "string", "number", "comment"}
    assert text(lines[1]) == '    return "a" + 1  # why'
    assert lines[2] == []


def test_every_tone_has_a_look_in_both_themes():
    for theme in themes.THEMES.values():
        colours = {**theme.to_color_system().generate(), **theme.variables}
        for tone in themes.TONES:
            themes.style(tone, colours)


def test_keys_by_their_names():
    assert key_name("question_mark") == "?"
    assert key_name("f10") == "F10"
    assert key_name("ctrl+p") == "Ctrl+P"
    assert key_name("shift+f11") == "Shift+F11"
    assert key_name("l") == "l"


def test_the_editor_is_told_the_line(monkeypatch):
    monkeypatch.setenv("EDITOR", "nano -w")
    monkeypatch.delenv("VISUAL", raising=False)
    assert editor.command("/m/model.py", 7) == ["nano", "-w", "+7", "/m/model.py"]
    monkeypatch.setenv("VISUAL", "code")
    assert editor.command("/m/model.py", 7) == ["code", "--wait", "--goto", "/m/model.py:7"]
    monkeypatch.setenv("VISUAL", "/nowhere/ed")
    with pytest.raises(editor.EditorError, match="cannot be run"):
        editor.edit("/m/model.py", 7)


def test_a_runtime_that_is_lost_takes_its_sessions_along():
    store = workbench.store()
    heard = []
    store.listeners.append(heard.append)
    store.lost("the runtime has ended")
    assert store.debug.session is None
    assert store.series == {}
    assert {"connection", "snapshot", "debug"} <= set(heard)
    heard.clear()
    store.lost("the runtime has ended")
    assert heard == []
    store.began()
    store.found(workbench.snapshot())
    assert (store.trouble, store.captures, store.opened) == ("", (), None)


def test_the_chosen_model_is_one_that_is_there():
    store = Store()
    store.found(workbench.snapshot())
    assert store.model == "brighten"
    store.choose("tokenizer")
    store.found(messages.Snapshot(1, workbench.snapshot().runtime))
    assert store.model == ""


def test_pictures_travel_as_base64():
    opened = workbench.opened()
    (look, *_) = opened.looks.values()
    assert base64.b64decode(look.picture.png).startswith(b"\x89PNG")
