"""What a timeline draws where: the pure module of the widget, run by a browser's own engine."""

import pytest

from devkit.notebook.widgets import assets
from tests.support.browser import chromium

IMPORT = """async ([source, body]) => {
    const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
    const spans = await import(url);
    return await (new Function("spans", `return (async () => { ${body} })()`))(spans);
}"""

MAKE = """
const one = (name, start, end, lane = 1, pid = 1, kind = "own") =>
    ({name, kind, start, end, pid, process: `p${pid}`, lane, lane_name: `l${lane}`, trace: 0});
const laid = (list) => {
    const packed = spans.pack(list);
    return {...packed, layout: spans.layOut(packed.columns, packed.lanes)};
};
"""


@pytest.fixture(scope="module")
def engine():
    source = (assets.FOLDER / "spans.js").read_text("utf-8")
    with chromium() as browser:
        page = browser.new_page()

        def run(body):
            return page.evaluate(IMPORT, [source, MAKE + body])

        yield run


def test_a_span_lies_below_the_one_it_lies_in(engine):
    rows = engine("""
        const {layout} = laid([one("a", 0, 100), one("b", 10, 40), one("c", 12, 20),
                               one("d", 40, 60), one("e", 100, 110)]);
        return [...layout.row].map((row) => layout.rows[row].depth);
    """)
    assert rows == [0, 1, 2, 1, 0]


def test_the_lanes_of_a_process_lie_together_under_its_name(engine):
    found = engine("""
        const {layout, lanes} = laid([one("a", 0, 10, 1, 1), one("b", 1, 5, 2, 2),
                                      one("c", 2, 9, 3, 1)]);
        return {heads: layout.heads.map(h => h.process), lanes: lanes.map(l => l.name),
                tops: [...layout.row].map(row => layout.rows[row].y)};
    """)
    assert found["heads"] == ["p1", "p2"]
    first, second, third = found["tops"]
    assert first < third < second


def test_spans_that_overlap_in_a_lane_never_share_a_row(engine):
    assert (
        engine("""
        let seed = 7;
        const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
        const list = [];
        for (let i = 0; i < 2000; i++) {
            const start = Math.floor(random() * 1e6);
            list.push(one("s", start, start + Math.floor(random() * 2e4), i % 3));
        }
        const {layout} = laid(list);
        for (const {from, to} of layout.rows) {
            for (let at = from + 1; at < to; at++) {
                if (layout.starts[at] < layout.ends[at - 1]) return `overlap at ${at}`;
            }
        }
        return layout.rows.reduce((sum, row) => sum + row.to - row.from, 0);
    """)
        == 2000
    )


def test_many_spans_become_few_rectangles_and_none_is_lost(engine):
    found = engine("""
        const list = [];
        for (let i = 0; i < 100000; i++) list.push(one("s", i * 1000, i * 1000 + 900, i % 4));
        const {layout} = laid(list);
        const width = 900;
        const count = (view) => spans.visible(layout, {...view, width})
            .reduce(([r, s], one) => [r + 1, s + one.count], [0, 0]);
        const whole = spans.fitted(layout);
        const near = spans.zoomed(layout, whole, 1 / 2000, 5e7);
        const exact = list.filter(s => s.end > near.t0 && s.start <= near.t1).length;
        return {whole: count(whole), near: count(near), exact};
    """)
    assert found["whole"][0] <= 4 * 900
    assert found["whole"][1] == 100_000
    assert found["near"] == [found["exact"], found["exact"]]


def test_rectangles_lie_where_their_spans_are(engine):
    found = engine("""
        const {layout} = laid([one("a", 0, 1000), one("b", 2000, 2001), one("c", 2001, 2002),
                               one("d", 2002, 6000)]);
        return spans.visible(layout, {t0: 0, t1: 10000, width: 100})
            .map(({x, width, count}) => [x, width, count]);
    """)
    assert found[0] == [0, 10, 1]
    assert found[1] == [20, 1, 2]
    assert found[2][2] == 1
    assert found[2][1] == pytest.approx(39.98)


def test_what_is_outside_the_view_is_not_drawn(engine):
    assert engine("""
        const {layout} = laid([one("a", 0, 10), one("b", 100, 110), one("c", 200, 210)]);
        const names = (view) => spans.visible(layout, view).map(one => one.span);
        return [names({t0: 50, t1: 150, width: 100}),
                names({t0: 0, t1: 300, width: 100, y0: 500, y1: 900})];
    """) == [[1], []]


def test_a_merged_rectangle_is_marked_when_any_of_its_spans_matches(engine):
    assert engine("""
        const list = [];
        for (let i = 0; i < 500; i++) list.push(one(i === 300 ? "wanted" : "other", i, i + 1));
        const {layout, names} = laid(list);
        const flags = spans.matching(names, " WANT ");
        const drawn = spans.visible(layout, {t0: 0, t1: 500000, width: 100}, flags);
        return [drawn.length, drawn[0].marked, spans.matches(layout, flags),
                spans.matching(names, "  ")];
    """) == [1, 1, [300], None]


def test_the_pointer_finds_the_span_below_it(engine):
    assert engine("""
        const {layout} = laid([one("a", 0, 100), one("b", 20, 30), one("c", 500, 500)]);
        const y = (depth) => layout.rows[depth].y + 3;
        return [spans.spanAt(layout, 10, y(0)), spans.spanAt(layout, 25, y(1)),
                spans.spanAt(layout, 40, y(1)), spans.spanAt(layout, 502, y(0), 5),
                spans.spanAt(layout, 10, 5000)];
    """) == [0, 1, -1, 2, -1]


def test_a_range_is_summed_up_by_name_and_process(engine):
    found = engine("""
        const {layout, names} = laid([one("run", 0, 100, 1, 1), one("step", 10, 30, 1, 1),
                                      one("step", 40, 90, 1, 1), one("run", 0, 50, 2, 2)]);
        return spans.summarise(layout, 20, 60, names);
    """)
    assert [(one["name"], one["count"], one["total"]) for one in found["names"]] == [
        ("run", 2, 70),
        ("step", 2, 30),
    ]
    assert [(one["process"], one["total"]) for one in found["processes"]] == [
        ("p1", 40),
        ("p2", 30),
    ]


def test_zooming_keeps_the_place_and_moving_keeps_spans_in_sight(engine):
    assert engine("""
        const {layout} = laid([one("a", 0, 1e6)]);
        const view = spans.fitted(layout);
        const near = spans.zoomed(layout, view, 0.5, 250000);
        const share = (v) => (250000 - v.t0) / (v.t1 - v.t0);
        let far = view;
        for (let i = 0; i < 50; i++) far = spans.moved(layout, far, 0.5);
        let closest = view;
        for (let i = 0; i < 200; i++) closest = spans.zoomed(layout, closest, 0.5, 10);
        return [Math.abs(share(view) - share(near)) < 1e-9, far.t0 < layout.last,
                Math.round(closest.t1 - closest.t0)];
    """) == [True, True, 100]


def test_times_are_said_as_a_person_says_them(engine):
    assert engine("""
        return [spans.duration(12), spans.duration(38_500), spans.duration(3.14e6),
                spans.duration(1.42e9), spans.duration(2.5e6, 1e5),
                spans.ticks(0, 1000, 440).at];
    """) == ["12 ns", "38.5 µs", "3.14 ms", "1.42 s", "2.5 ms", [0, 500, 1000]]


def test_nothing_at_all_is_drawn_without_complaint(engine):
    assert (
        engine("""
        const {layout} = laid([]);
        return spans.visible(layout, {...spans.fitted(layout), width: 100}).length;
    """)
        == 0
    )
