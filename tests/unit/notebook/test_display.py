from html.parser import HTMLParser

from devkit.notebook.display import InstanceRow, ModelCard, Note, Table, TensorRow, duration, size

CARD = ModelCard(
    name="add_sub",
    state="READY",
    version="1",
    seconds=0.0042,
    instances=[
        InstanceRow("add_sub_0_0", 101, "CPU", "ready", 38_400_000),
        InstanceRow("add_sub_0_1", 102, "CPU", "busy", 0),
    ],
    inputs=[TensorRow("X", "FP32", (-1, 4))],
    outputs=[TensorRow("Y", "BYTES", ())],
    notes=["A <note>."],
)


def balanced(html):
    """Whether every element is closed where it must be; the void ones are not used here."""
    open_tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    reader = Reader()
    reader.feed(html)
    reader.close()
    return not open_tags


def test_the_plain_form_is_a_table_of_its_own():
    assert repr(CARD).splitlines() == [
        "add_sub: READY, version 1, 2 instances, loaded in 4.2 ms, 38 MB in all",
        "  instance     pid  kind  state  memory",
        "  add_sub_0_0  101  CPU   ready  38 MB",
        "  add_sub_0_1  102  CPU   busy   ?",
        "  X FP32[-1, 4] → Y BYTES[]",
        "  A <note>.",
    ]


def test_the_html_form_says_the_same_and_escapes_it():
    html = CARD._repr_html_()
    assert balanced(html)
    assert "A &lt;note&gt;." in html
    for word in ("add_sub", "READY", "101", "38 MB", "4.2 ms", "X FP32[-1, 4]"):
        assert word in html


def test_tables_and_notes():
    table = Table("devkit", ("model", "state"), [("a<b", "READY")], ("pid 1",))
    assert balanced(table._repr_html_())
    assert "a&lt;b" in table._repr_html_()
    assert repr(table).splitlines() == ["devkit · pid 1", "  model  state", "  a<b    READY"]
    empty = Table("devkit", ("model",), [], empty="none")
    assert "none" in repr(empty)
    assert "none" in empty._repr_html_()
    note = Note("m", "words", "<text>", tone="bad")
    assert balanced(note._repr_html_())
    assert "&lt;text&gt;" in note._repr_html_()
    assert repr(note) == "m: words\n<text>"


def test_numbers_are_short():
    assert [size(n) for n in (0, 999, 1500, 38_400_000, 2_500_000_000)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "38 MB",
        "2.5 GB",
    ]
    assert [duration(s) for s in (0.0042, 0.25, 1.33)] == ["4.2 ms", "250 ms", "1.3 s"]
