"""The screen Tensors: what a recorded request's inputs, probes and outputs hold."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from devkit.contract import inspection, pictures
from devkit.control import messages
from devkit.control.client import Client
from devkit.control.messages import TensorAddress
from devkit.control.observing import png_of
from devkit.tui import drawing, words
from devkit.tui.dialogs import Ask, plain, wrapped
from devkit.tui.lines import Cell, Column, Lines, Table
from devkit.tui.pane import Pane
from devkit.tui.store import Look, Opened
from devkit.tui.words import Line

COLUMNS = (
    Column("TENSOR", 10, fills=True, most=30),
    Column("TYPE", 4),
    Column("SHAPE", 6, keep=5, most=20),
    Column("BYTES", 8, right=True, keep=3),
)


class TensorsPane(Pane):
    """Tensors of one request: a list, and the chosen one in numbers and pictures."""

    NAME = "tensors"
    TITLE = "Tensors"
    TOPICS = frozenset({"opened", "captures"})
    ABOUT = "The tensors of one recorded request: numbers, histogram, values, pictures."
    START = "#tensors-list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", "Older", tooltip="The request before"),
        Binding("right_square_bracket", "step(1)", "Newer", tooltip="The request after"),
        Binding("slash,v", "slice", "Slice", tooltip="Show some values: 0, :, 10:20"),
        Binding("x", "exact", "Exact", tooltip="Look at every value of a large tensor"),
        Binding("w", "save", "Save", tooltip="Write it to a file: .npy, or .png of a picture"),
        Binding("b", "compare", "Compare", tooltip="Compare with another request's tensors"),
        Binding("s", "send", "Send again", show=False, tooltip="Send the request again"),
        Binding("escape", "back", "Requests", tooltip="Back to the requests"),
    ]  # fmt: skip

    def compose(self) -> ComposeResult:
        """The list, and what the chosen one holds."""
        with Vertical(id="tensors-body"):
            table = Table(COLUMNS, id="tensors-list", classes="box")
            table.empty = "none"
            yield table
            yield Lines(id="tensors-view", classes="box")

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self, topic: str = "") -> None:
        """The list, and the chosen tensor."""
        table = self.query_one("#tensors-list", Table)
        opened = self.store.opened
        if opened is None and topic == "captures":
            self.arrive()
        if opened is None:
            table.entitle("Tensors")
            table.show_rows([])
            self._draw_view()
            return
        one = opened.capture
        table.entitle(f"{one.model} #{one.number}")
        table.show_rows([(info.address, _row(info)) for info in opened.tensors])
        self._draw_view()

    @property
    def chosen(self) -> messages.TensorInfo | None:
        """The tensor under the cursor."""
        key = self.query_one("#tensors-list", Table).key
        tensors = self.store.opened.tensors if self.store.opened else ()
        return next((info for info in tensors if info.address == key), None)

    def _draw_view(self) -> None:
        view = self.query_one("#tensors-view", Lines)
        info, opened = self.chosen, self.store.opened
        if opened is None or info is None:
            view.entitle("")
            hint = "Enter on a request (screen Requests) shows its tensors here."
            told = hint if opened is None else "it has no tensors that were kept"
            view.show(wrapped([[(told, "dim")]], max(20, view.size.width - 1)))
            return
        view.entitle(f"{info.address.part}/{info.address.name}")
        look = opened.looks.get(info.address)
        if look is None:
            view.show([[("…", "dim")]])
            return
        width = max(20, view.size.width - 1)
        view.show(look_lines(look, width, max(6, view.size.height)))

    # -- what the user does ----------------------------------------------------------------------

    def arrive(self) -> None:
        """With nothing open, the last request is."""
        if self.store.opened is None and self.store.captures and self.bench.client is not None:
            self.look_at(self.store.captures[-1])

    def look_at(self, capture: messages.CaptureInfo) -> None:
        """Open a request."""
        number = capture.number

        def shown(found: list[messages.TensorInfo]) -> None:
            self.store.opened = Opened(capture, tuple(found))
            self.store.changed("opened")
            self._look()

        self.bench.call(lambda client: client.tensors(number), shown, newest="tensors")

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Another tensor."""
        if event.lines.id == "tensors-list":
            self._draw_view()
            self._look()

    def _look(self, *, index: str = "", exact: bool = False) -> None:
        info, opened = self.chosen, self.store.opened
        if info is None or opened is None or self.bench.client is None:
            return
        if info.address in opened.looks and not index and not exact:
            return
        room = self.query_one("#tensors-view").size.width * 2

        def shown(look: Look) -> None:
            opened.looks[info.address] = look
            self._draw_view()

        self.bench.call(
            lambda client: fetch(client, info, index=index, exact=exact, pixels=max(32, room)),
            shown, newest="look",
        )  # fmt: skip

    def action_step(self, by: int) -> None:
        """The next request, or the one before."""
        numbers = [one.number for one in self.store.captures]
        opened = self.store.opened
        if opened is None or opened.capture.number not in numbers:
            self.arrive()
            return
        at = numbers.index(opened.capture.number) + by
        if 0 <= at < len(numbers):
            self.look_at(self.store.captures[at])

    def action_slice(self) -> None:
        """Some of its values."""
        info = self.chosen
        if info is None:
            return

        def answered(text: str | None) -> None:
            if text:
                self._look(index=text)

        hint = f"{info.datatype} {words.shape(info.shape)}: NumPy's own form, 0, :, 10:20"
        self.app.push_screen(Ask(f"Slice of {info.address.name}", "", hint), answered)

    def action_exact(self) -> None:
        """Every value, not a sample."""
        self._look(exact=True)

    def action_save(self) -> None:
        """Into a file."""
        info = self.chosen
        if info is None:
            return
        name = f"{info.address.name}.npy"

        def answered(text: str | None) -> None:
            if text:
                from pathlib import Path

                file = Path(text).expanduser().absolute()
                self.bench.call(
                    lambda client: _save(client, info, str(file)),
                    lambda _: self.bench.tell(f"{file} written"),
                )

        self.app.push_screen(Ask("File (.npy, or .png of a picture)", name), answered)

    def action_compare(self) -> None:
        """With another request, tensor by tensor."""
        opened = self.store.opened
        if opened is None:
            return
        left = opened.capture.number

        def answered(text: str | None) -> None:
            if text and text.lstrip("#").isdigit():
                right = int(text.lstrip("#"))
                width = max(40, min(self.app.size.width - 14, 116))
                self.bench.call(
                    lambda client: _compared(client, left, right, width),
                    lambda told: self.bench.read(f"#{left} and #{right}", plain(told)),
                )

        self.app.push_screen(Ask(f"Compare #{left} with the request of number"), answered)

    def action_send(self) -> None:
        """Send the request again."""
        from devkit.tui.requests import RequestsPane

        opened = self.store.opened
        if opened is not None:
            pane = self.bench.query_one(RequestsPane)
            pane.draw()
            pane.query_one("#requests-table", Table).point_at(opened.capture.number)
            pane.action_send()

    def action_back(self) -> None:
        """To the requests."""
        self.bench.action_open("requests")


def fetch(
    client: Client, info: messages.TensorInfo, *, index: str = "", exact: bool = False,
    pixels: int = 200,
) -> Look:  # fmt: skip
    """What is shown of a tensor, asked of the runtime."""
    at = info.address
    look = Look(client.tensor_summary(at, exact=exact))
    view = look.summary.view
    if index:
        look.slice = index
        array = client.tensor_values(at, index)
        look.values = np.array2string(array, threshold=2000, max_line_width=100)
    elif view == "image":
        look.picture = client.tensor_picture(at, largest=min(pixels, 512))
    elif view == "series":
        look.series = client.tensor_series(at, points=400)
    elif view == "table":
        look.grid = client.tensor_table(at, rows=40, columns=16)
    elif view == "text":
        look.texts = client.tensor_texts(at)
    return look


def look_lines(look: Look, width: int, height: int) -> list[Line]:
    """A tensor in lines: its numbers, then what shows it best."""
    one = look.summary
    lines: list[Line] = [
        [(f"{one.datatype or one.dtype} {words.shape(one.shape)}", "bold"),
         (f"  {words.size(one.bytes)}, {words.plural(one.count, 'value')}", "dim")],
    ]  # fmt: skip
    number = inspection.number
    if one.minimum is not None:
        kind = "length" if one.view == "text" else "range "
        lines.append(
            [(f"{kind}   ", "dim"), (f"{number(one.minimum)} … {number(one.maximum)}", "")]
        )
    if one.mean is not None and one.view != "text":
        lines.append([("mean     ", "dim"), (number(one.mean), ""), ("   std ", "dim"),
                      (number(one.std), "")])  # fmt: skip
    distinct = f"{one.distinct}{' or more' if one.distinct_more else ''}"
    lines.append([("distinct ", "dim"), (distinct, ""), ("   zeros ", "dim"), (str(one.zeros), "")])
    if one.nan or one.infinite:
        lines.append([("! ", "bad"), (f"{one.nan} NaN, {one.infinite} infinite", "bad")])
    if one.note:
        lines.append([(one.note, "warn")])
    lines.append([])
    if look.slice:
        lines += [[("slice ", "dim"), (f"[{look.slice}]", "accent")], *plain(look.values)]
        return lines
    chart = min(6, max(3, (height - len(lines)) // 4))
    if one.histogram is not None and one.view != "image" and one.count > 1:
        lines += [*drawing.histogram(one.histogram, min(64, width - 10), chart), []]
    room = max(3, height - len(lines) - 1)
    if look.picture is not None:
        pixels = pictures.pixels_of(png_of(look.picture))
        lines += drawing.half_blocks(pixels, width, room)
        shown = "" if look.picture.count == 1 else f", {look.picture.shown} of {look.picture.count}"
        lines.append([(f"{look.picture.layout}, {look.picture.scaling}{shown}", "dim")])
    elif look.series is not None and look.series.count > 8:
        lines += drawing.curve(look.series, max(16, min(width - 12, 96)), min(8, room))
    elif look.grid is not None:
        lines += drawing.grid(look.grid, width)
    elif look.texts is not None:
        lines += [
            [(f"{n:>4} ", "dim"), (text, "string")] for n, text in enumerate(look.texts.texts)
        ]
        return lines
    if one.first and look.grid is None and look.picture is None:
        rest = " …" if one.count > len(one.first) else ""
        lines += [[], [("first    ", "dim"), (", ".join(one.first) + rest, "number")]]
    repeated = [each for each in one.frequent if each.count > 1]
    for each in repeated[:5]:
        lines.append([(f"{each.count:>7}× ", "dim"), (each.value, "number")])
    return lines


_PARTS = {"inputs": "in", "outputs": "out", "probes": "probe"}


def _row(info: messages.TensorInfo) -> list[Cell]:
    at: TensorAddress = info.address
    name: Line = [(f"{_PARTS.get(at.part, at.part):<5} ", "dim"), (at.name, "bold")]
    if at.reply or at.occurrence:
        name.append((f" #{at.reply + 1 if at.reply else at.occurrence + 1}", "dim"))
    return [name, (info.datatype, "second"), words.shape(info.shape), words.size(info.bytes)]


def _save(client: Client, info: messages.TensorInfo, file: str) -> None:
    if file.endswith(".png"):
        from pathlib import Path

        Path(file).write_bytes(png_of(client.tensor_picture(info.address)))
        return
    array = client.tensor_values(info.address, limit=1 << 40)
    np.save(file, array.astype("S") if array.dtype == np.object_ else array, allow_pickle=False)


def _compared(client: Client, left: int, right: int, width: int) -> str:
    from devkit.tools.inspection import Captures, compare

    sides = [
        Captures.of(client, numbers=[one]).number(one).inspect() for one in (left, right)
    ]  # fmt: skip
    return compare(*sides, names=(f"#{left}", f"#{right}")).text(width)
