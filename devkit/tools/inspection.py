"""What a person looks at: tensors, recorded requests, failures, comparisons.

Each object says itself in a terminal (`rich`), in IPython and as plain dicts (`to_dict`), which is
all that a widget needs. What the runtime has kept is looked at there and fetched only when asked
for; arrays and files are looked at here.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
import numpy.typing as npt
from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from devkit.contract import differences, inspection, pictures, recording
from devkit.contract.differences import CLOSE, DIFFERS, SAME, Difference
from devkit.contract.inspection import Grid, Held, Series, Summary
from devkit.contract.recording import Record
from devkit.control import messages
from devkit.control.client import Client
from devkit.control.messages import TensorAddress
from devkit.errors import ControlError, DevkitError
from devkit.tools import exporters
from devkit.tools.replay import ReplayReport, replay

Array = npt.NDArray[Any]
Item = TypeVar("Item")

_STYLE = {SAME: "green", CLOSE: "yellow", DIFFERS: "bold red"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
WHOLE = 1 << 40
"""A limit of bytes that stands for none: all of a tensor was asked for."""


class Shown:
    """Says itself as `__rich__` does, wherever it is shown.

    Attributes:
        bundle: set by the notebook: what it shows of such an object beside the text.
    """

    bundle: ClassVar[Callable[[Any], Any] | None] = None

    def __rich__(self) -> RenderableType:
        raise NotImplementedError

    def text(self, width: int | None = None) -> str:
        """As plain text."""
        console = Console(width=width, color_system=None, highlight=False, force_jupyter=False)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text(width=110))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return Shown.bundle(self) if Shown.bundle is not None else {}


class TensorView(Shown):
    """One tensor: its numbers at once, its values, picture, series, table or texts when asked.

    Attributes:
        part: `inputs`, `outputs`, `probes`, or empty for an array that came from nowhere.
        reply: which response of a stream.
        address: where the runtime keeps it; None for what is here.
        device: where its values lay when it was given to be looked at.
    """

    def __init__(
        self,
        name: str,
        part: str = "",
        reply: int = 0,
        *,
        held: Held | None = None,
        client: Client | None = None,
        address: TensorAddress | None = None,
        device: str = "cpu",
    ) -> None:
        self.name = name
        self.device = device
        self.part = part
        self.reply = reply
        self.address = address
        self._held = held
        self._client = client

    def _remote(self) -> tuple[Client, TensorAddress]:
        assert self._client is not None
        assert self.address is not None
        return self._client, self.address

    @cached_property
    def summary(self) -> Summary:
        """Its numbers; of a large one those of a sample, which `note` says."""
        return self.look()

    def look(self, *, exact: bool = False, bins: int = inspection.BINS) -> Summary:
        """Its numbers, of every value if `exact`."""
        if self._held is not None:
            return inspection.summarise(self._held, exact=exact, bins=bins)
        client, address = self._remote()
        return client.tensor_summary(address, exact=exact, bins=bins)

    @property
    def remote(self) -> bool:
        """Whether its values lie in the runtime."""
        return self._held is None

    def held(self) -> Held:
        """The tensor here: fetched whole if it lies in the runtime."""
        if self._held is None:
            summary = self.summary
            array = self.values(limit=WHOLE)
            if summary.datatype == "BF16":
                bits = (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)
                self._held = Held(self.name, "BF16", summary.shape, bits.tobytes())
            else:
                self._held = Held.of(self.name, array)
        return self._held

    def values(self, index: str = "", *, limit: int = 16 << 20) -> Array:
        """A slice such as `0, :, 10:20`, or all of it, up to `limit` bytes. BF16 comes as FP32."""
        if self._held is not None:
            return inspection.cut(self._held, index) if index else self._held.array()
        client, address = self._remote()
        return client.tensor_values(address, index, limit=limit)

    def picture(
        self, *, layout: str = "", index: str = "", largest: int = 512
    ) -> messages.Picture | None:
        """It as a PNG, None where it does not look like a picture and no `layout` is given."""
        if self._held is None:
            client, address = self._remote()
            try:
                return client.tensor_picture(address, layout=layout, index=index, largest=largest)
            except ControlError:
                if layout:
                    raise
                return None
        if self._held.text or not self._held.whole:
            return None
        made = pictures.picture(self.values(index), layout, largest)
        if made is None:
            return None
        png = base64.b64encode(made.png).decode()
        return messages.Picture(
            png, made.layout, made.width, made.height, made.shown, made.count, made.step,
            made.scaling,
        )  # fmt: skip

    def series(self, *, points: int = 1000, index: str = "") -> Series:
        """The values in order, at most `points` of them or their extremes."""
        if self._held is not None:
            return inspection.series(self._held, points, index)
        client, address = self._remote()
        return client.tensor_series(address, points=points, index=index)

    def table(self, *, rows: int = 20, columns: int = 12, index: str = "") -> Grid:
        """The upper left of a table."""
        if self._held is not None:
            return inspection.table(self._held, rows, columns, index)
        client, address = self._remote()
        return client.tensor_table(address, rows=rows, columns=columns, index=index)

    def texts(self, *, limit: int = 100) -> messages.Texts:
        """The first elements of a BYTES tensor."""
        if self._held is not None:
            found = tuple(inspection.shown(one) for one in self._held.texts(limit))
            return messages.Texts(self._held.count, found)
        client, address = self._remote()
        return client.tensor_texts(address, limit=limit)

    def to_dict(self) -> dict[str, Any]:
        """Its numbers, and what shows it best, under the name of that: `picture`, `series`,
        `table` or `texts`. A few kilobytes, however large it is.
        """
        found = {"name": self.name, "part": self.part, "reply": self.reply,
                 "summary": asdict(self.summary), "view": self.summary.view}  # fmt: skip
        found["address"] = asdict(self.address) if self.address is not None else None
        view = self.summary.view
        if view == "image":
            picture = self.picture()
            found["picture"] = asdict(picture) if picture is not None else None
        elif view == "series":
            found["series"] = asdict(self.series())
        elif view == "table":
            found["table"] = asdict(self.table())
        elif view == "text":
            found["texts"] = asdict(self.texts())
        return found

    def __rich__(self) -> RenderableType:
        one = self.summary
        lines = [Text.assemble((one.name or "array", "bold"), f"  {one.line}")]
        details = []
        if one.strides:
            details.append(f"strides {list(one.strides)}")
        if one.bytes >= 0:
            details.append(f"{one.bytes:,} bytes")
        if one.looked_at:
            more = "at least " if one.distinct_more else ""
            details.append(f"{more}{one.distinct:,} distinct")
            details.append(f"{one.zeros:,} {'empty' if one.view == 'text' else 'zeros'}")
        lines.append(Text("  " + ", ".join(details), style="dim"))
        if one.histogram is not None and len(one.histogram.counts) > 1:
            edges = one.histogram.edges
            bars = _bars(one.histogram.counts)
            low, high = inspection.number(edges[0]), inspection.number(edges[-1])
            lines.append(Text(f"  {low} {bars} {high}"))
        if one.view == "text":
            lines += [Text(f"  {value!r}") for value in one.first]
        elif one.first:
            dots = " …" if one.count > len(one.first) else ""
            lines.append(Text(f"  {' '.join(one.first)}{dots}"))
        return Group(*lines)


def _bars(counts: Sequence[int]) -> str:
    top = max(counts) or 1
    return "".join(_BLOCKS[0 if not n else max(1, round(n / top * 8))] for n in counts)


class Inspection(Shown):
    """Tensors that belong together, and what is known of the request they are of."""

    def __init__(
        self, title: str, tensors: Sequence[TensorView], notes: Sequence[str] = ()
    ) -> None:
        self.title = title
        self.tensors = tuple(tensors)
        self.notes = tuple(notes)

    def __iter__(self) -> Iterator[TensorView]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, name: str | int) -> TensorView:
        """A tensor by its name, or `part/name` where two have it."""
        if isinstance(name, int):
            return self.tensors[name]
        for one in self.tensors:
            if name in (one.name, f"{one.part}/{one.name}"):
                return one
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Everything that is shown."""
        tensors = [one.to_dict() for one in self.tensors]
        return {"title": self.title, "notes": list(self.notes), "tensors": tensors}

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [Text(self.title, style="bold")] if self.title else []
        parts += [Text(note) for note in self.notes]
        heading = ""
        for one in self.tensors:
            label = one.part + (f" of response {one.reply + 1}" if one.reply else "")
            if label != heading:
                parts.append(Text(label, style="cyan"))
                heading = label
            parts.append(one.__rich__())
        return Group(*parts)


class Captured(Shown):
    """One recorded request: in the runtime's ring, in a failure, or from a file.

    Attributes:
        info: all about it but the tensors.
        failure: number of the failure it belongs to, 0 for none.
    """

    def __init__(
        self,
        info: messages.CaptureInfo,
        client: Client | None = None,
        record: Record | None = None,
        failure: int = 0,
    ) -> None:
        self.info = info
        self.failure = failure
        self._client = client
        self._record = record

    @property
    def number(self) -> int:
        """Its number in the ring, the failure or the file."""
        return self.info.number

    @property
    def record(self) -> Record:
        """The whole of it, fetched when first asked for."""
        if self._record is None:
            assert self._client is not None
            if self.failure:
                found = self._client.captures(failure=self.failure, samples=True)
                found = [one for one in found if one.number == self.number]
            else:
                found = self._client.captures(numbers=[self.number], samples=True)
            if not found:
                raise ControlError(f"the recorded request {self.number} is not kept any more")
            self._record = found[0]
        return self._record

    def inputs(self) -> dict[str, Array]:
        """Its tensors, by name."""
        return self.record.inputs()

    def outputs(self) -> dict[str, Array]:
        """What was answered: the first response that has tensors."""
        return self.record.outputs()

    def inspect(self) -> Inspection:
        """Its tensors: inputs, what was probed, outputs."""
        if self._client is not None:
            if self.failure:
                rows = self._client.tensors(failure=self.failure, request=self.number)
            else:
                rows = self._client.tensors(self.number)
            tensors = [
                TensorView(row.address.name, row.address.part, row.address.reply,
                           client=self._client, address=row.address)
                for row in rows
            ]  # fmt: skip
        else:
            tensors = list(_views(self.record))
        return Inspection(self.title(), tensors, [self.info.error] if self.info.error else [])

    def title(self) -> str:
        """Which it is, in a line."""
        about = f"failure {self.failure}, request" if self.failure else "request"
        identity = f" id {self.info.id!r}" if self.info.id else ""
        when = time.strftime("%H:%M:%S", time.localtime(self.info.time))
        return (
            f"{about} {self.number} to {self.info.model}{identity}, {when}, "
            f"{self.info.seconds * 1000:.3g} ms"
        )

    def replay(self, to: str = "", **options: Any) -> ReplayReport:
        """Send it again (see `devkit.replay`)."""
        return replay([self.record], to, client=self._client, **options)

    def curl(self, url: str = "") -> str:
        """A shell line that sends it."""
        if not url and self._client is not None:
            url = self._client.runtime.url("http")
        return exporters.curl(self.record, url or "localhost:8000")

    def python(self) -> str:
        """Lines of Python that send it."""
        return exporters.python_call(self.record)

    def to_dict(self) -> dict[str, Any]:
        """All about it but the tensors; those are `inspect().to_dict()`'s."""
        found: dict[str, Any] = messages.to_plain(self.info)
        return {**found, "failure": self.failure}

    def __rich__(self) -> RenderableType:
        return self.inspect().__rich__()


def _views(record: Record) -> Iterator[TensorView]:
    for held in record.request.held("inputs"):
        yield TensorView(held.name, "inputs", held=held)
    for probe in record.probes:
        yield TensorView(probe.name, "probes", held=probe.held())
    for number, reply in enumerate(record.replies):
        if reply.wire.data:
            for held in reply.wire.held("outputs"):
                yield TensorView(held.name, "outputs", number, held=held)


class _List(Shown, Sequence[Item]):
    """A frozen list that shows itself as a table."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        """By place, not by number."""
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


class Captures(_List[Captured]):
    """Recorded requests, the oldest first."""

    @classmethod
    def of(cls, client: Client, name: str = "", **choice: Any) -> Captures:
        """Those that the runtime has in its ring."""
        return cls(Captured(info, client) for info in client.capture_list(name, **choice))

    @classmethod
    def read(cls, path: Path | str, name: str = "", **choice: Any) -> Captures:
        """Those of a recording file."""
        from devkit.tools.replay import read

        chosen = recording.matching(read(path), model=name, **choice)
        return cls(Captured(_info(record), record=record) for record in chosen)

    def number(self, number: int) -> Captured:
        """The one of that number."""
        for one in self:
            if one.number == number:
                return one
        raise ControlError(f"there is no recorded request {number} here")

    def records(self) -> list[Record]:
        """All of them whole."""
        return [one.record for one in self]

    def save(self, path: Path | str) -> Path:
        """Write them as a recording file."""
        target = Path(path)
        with target.open("wb") as stream:
            recording.write(stream, self.records())
        return target

    def replay(self, to: str = "", **options: Any) -> ReplayReport:
        """Send them again (see `devkit.replay`)."""
        clients = [one._client for one in self if one._client is not None]
        options.setdefault("client", clients[0] if clients else None)
        return replay(self.records(), to, **options)

    def to_dict(self) -> dict[str, Any]:
        """All about them but the tensors."""
        return {"captures": [one.to_dict() for one in self]}

    def __rich__(self) -> RenderableType:
        table = Table()
        for column in ("number", "model", "id", "time", "ms", "inputs", "bytes", "error"):
            numeric = column in ("number", "ms", "bytes")
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for one in self:
            info = one.info
            inputs = ", ".join(f"{t.name} {t.datatype} {list(t.shape)}" for t in info.inputs)
            marks = "" if info.whole else " (a sample)"
            table.add_row(
                str(info.number), info.model, info.id,
                time.strftime("%H:%M:%S", time.localtime(info.time)),
                f"{info.seconds * 1000:.3g}", inputs + marks,
                f"{info.request_bytes + info.response_bytes:,}",
                Text(info.error.partition("\n")[0], style="red"),
            )  # fmt: skip
        return table


def _info(record: Record) -> messages.CaptureInfo:
    header = record.request.header
    inputs = tuple(
        messages.Tensor(row["name"], row["datatype"], tuple(row["shape"]))
        for row in header.get("inputs", ())
    )
    return messages.CaptureInfo(
        record.number, record.model, record.version, record.id, record.time, record.seconds,
        len(record.request.data), sum(len(reply.wire.data) for reply in record.replies),
        len(record.replies) + record.dropped, record.error, record.whole, len(record.probes),
        record.dropped, inputs,
    )  # fmt: skip


class Failed(Shown):
    """An `execute` that raised, or a process that died."""

    def __init__(self, info: messages.FailureInfo, client: Client) -> None:
        self.info = info
        self._client = client

    @property
    def number(self) -> int:
        """Its number."""
        return self.info.number

    @cached_property
    def details(self) -> messages.PostMortem:
        """All that is known of it."""
        return self._client.failure(self.info.number)

    @property
    def requests(self) -> Captures:
        """The requests that were executed."""
        return Captures(
            Captured(info, self._client, failure=self.number) for info in self.details.requests
        )

    def inspect(self) -> Inspection:
        """The tensors of its first request."""
        requests = self.requests
        if not requests:
            return Inspection(f"failure {self.number}", [], ["its requests were not kept"])
        return requests[0].inspect()

    def replay(self, to: str = "", **options: Any) -> ReplayReport:
        """Send its requests again, all at once as they were."""
        options.setdefault("together", len(self.details.requests) > 1)
        return self.requests.replay(to, **options)

    def to_dict(self) -> dict[str, Any]:
        """All that is known of it."""
        found: dict[str, Any] = messages.to_plain(self.details)
        return found

    def __rich__(self) -> RenderableType:
        info, details = self.details.info, self.details
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.time))
        what = "died" if info.kind == "died" else "raised in execute"
        again = f", {info.repeats} more times right after" if info.repeats else ""
        parts: list[RenderableType] = [
            Text(f"failure {info.number}: {info.instance} (pid {info.pid}) {what}, {when}{again}",
                 style="bold"),
            Text(info.error.partition("\n\nAt:")[0], style="red"),
        ]  # fmt: skip
        if info.ending:
            parts.append(Text(info.ending, style="red"))
        for frame in details.frames:
            parts.append(Text(f"\n{frame.file}:{frame.line} in {frame.function}", style="cyan"))
            parts.append(_source(frame))
            if frame.locals:
                parts.append(_locals(frame.locals))
        if not details.frames and details.traceback:
            parts.append(Text(details.traceback))
        for request in self.requests:
            row = request.info
            inputs = ", ".join(f"{t.name} {t.datatype} {list(t.shape)}" for t in row.inputs)
            parts.append(Text(f"\n{request.title()}: {inputs}"))
        if details.log:
            parts.append(Text("\nlast lines of the process", style="cyan"))
            parts += [Text(f"  {line.text}") for line in details.log]
        return Group(*parts)


def _source(frame: messages.KeptFrame) -> RenderableType:
    if not frame.source:
        return Text("")
    return Syntax(
        "\n".join(line.text for line in frame.source), "python", line_numbers=True,
        start_line=frame.source[0].number, highlight_lines={frame.line}, theme="ansi_dark",
        background_color="default",
    )  # fmt: skip


def _locals(values: Mapping[str, str]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, value in values.items():
        table.add_row(Text(f"  {name}", style="dim"), Text(value))
    return table


class FailureList(_List[Failed]):
    """Failures, the oldest first.

    Attributes:
        again: looks for them anew; None where they are a choice of somebody's.
    """

    again: Callable[[], FailureList] | None = None

    @classmethod
    def of(cls, client: Client, name: str = "") -> FailureList:
        """Those that the runtime keeps."""
        found = cls(Failed(info, client) for info in client.failures(name))
        found.again = lambda: cls.of(client, name)
        return found

    def number(self, number: int) -> Failed:
        """The one of that number."""
        for one in self:
            if one.number == number:
                return one
        raise ControlError(
            f"there is no failure {number} any more", remedy="`devkit failures` lists those kept"
        )

    def to_dict(self) -> dict[str, Any]:
        """A line about each."""
        return {"failures": [messages.to_plain(one.info) for one in self]}

    def __rich__(self) -> RenderableType:
        if not self:
            return Text("No execute has raised and no process has died.")
        table = Table()
        for column in ("number", "time", "instance", "what", "where", "requests"):
            table.add_column(column, overflow="fold")
        for one in self:
            info = one.info
            error = info.ending or info.error.partition("\n")[0]
            table.add_row(
                str(info.number), time.strftime("%H:%M:%S", time.localtime(info.time)),
                info.instance, Text(error + (f" (+{info.repeats})" if info.repeats else ""),
                                    style="red"),
                info.line, str(info.requests),
            )  # fmt: skip
        return table


# --- comparing ----------------------------------------------------------------------------------


class Comparison(Shown):
    """What differs between two sets of tensors, an entry for each name."""

    def __init__(self, differences: Sequence[Difference], names: Sequence[str]) -> None:
        self.differences = tuple(differences)
        self.names = tuple(names)

    @property
    def verdict(self) -> str:
        """`same`, `close` or `differs`, of the worst."""
        order = (SAME, CLOSE, DIFFERS)
        return max((one.verdict for one in self.differences), key=order.index, default=SAME)

    @property
    def same(self) -> bool:
        """Whether nothing differs but by rounding."""
        return self.verdict != DIFFERS

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __getitem__(self, name: str) -> Difference:
        """The entry of a tensor."""
        for one in self.differences:
            if one.name == name:
                return one
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Everything that is shown."""
        rows = [asdict(one) for one in self.differences]
        return {"names": list(self.names), "verdict": self.verdict, "differences": rows}

    def __rich__(self) -> RenderableType:
        table = Table(title=f"{self.names[0]} and {self.names[1]}", title_justify="left")
        for column in ("tensor", "type", "verdict", "unequal", "max abs", "max rel", "ulp", "what"):
            table.add_column(column, overflow="fold")
        for one in self.differences:
            kind = f"{one.datatype} {list(one.shape)}" if one.datatype else ""
            numbers = ["", "", "", ""]
            if one.unequal:
                ulps = f"{one.ulps:,}" if one.ulps >= 0 else "-"
                numbers = [f"{one.unequal:,}", f"{one.largest:.3g}", f"{one.relative:.2g}", ulps]
            detail = "; ".join(filter(None, (one.detail, one.note)))
            verdict = Text(one.verdict, _STYLE[one.verdict])
            table.add_row(one.name, kind, verdict, *numbers, Text(detail))
        return table


def records_of(subject: Any, client: Client | None) -> list[Record]:
    """The recorded requests meant by one, several, their numbers, a failure or a file."""
    if isinstance(subject, Record):
        return [subject]
    if isinstance(subject, Captured):
        return [subject.record]
    if isinstance(subject, Captures):
        return subject.records()
    if isinstance(subject, Failed):
        return subject.requests.records()
    if isinstance(subject, (str, Path)):
        return Captures.read(subject).records()
    if isinstance(subject, int) and client is not None:
        return [Captures.of(client, numbers=[subject]).number(subject).record]
    return [record for one in subject for record in records_of(one, client)]


def inspect(subject: Any, *, client: Client | None = None) -> Any:
    """What can be looked at of a result, a recorded request or its number, a failure, an array."""
    if isinstance(subject, (Inspection, TensorView, Comparison)):
        return subject
    if isinstance(subject, (Captured, Failed)):
        return subject.inspect()
    if isinstance(subject, Record):
        return Captured(_info(subject), record=subject).inspect()
    if isinstance(subject, int) and not isinstance(subject, bool) and client is not None:
        return Captures.of(client, numbers=[subject]).number(subject).inspect()
    if isinstance(subject, ReplayReport):
        rows = [Inspection(f"request {one.record.number} at {subject.target}", _got_views(one))
                for one in subject]  # fmt: skip
        return rows[0] if len(rows) == 1 else rows
    if isinstance(subject, Mapping):
        tensors = [_view(str(name), array) for name, array in subject.items()]
        return Inspection("", tensors)
    return _view("", subject)


def _view(name: str, value: Any) -> TensorView:
    return TensorView(name, held=Held.of(name, _array(value)), device=_device(value))


def _device(value: Any) -> str:
    """Where another library's tensor lies: `cuda:0`."""
    device = getattr(value, "device", None)
    return str(device) if device is not None and not callable(device) else "cpu"


def _array(value: Any) -> Any:
    """What NumPy understands of a tensor of another library."""
    for step in ("detach", "cpu", "get"):
        if hasattr(value, step) and not isinstance(value, (np.ndarray, np.generic)):
            value = getattr(value, step)()
    return np.asarray(value)


def _got_views(one: Any) -> list[TensorView]:
    return [
        TensorView(held.name, "outputs", number, held=held)
        for number, got in enumerate(one.got) for held in got.tensors
    ]  # fmt: skip


def compare(
    left: Any,
    right: Any,
    *,
    client: Client | None = None,
    exact: bool = False,
    names: Sequence[str] = ("left", "right"),
) -> Comparison:
    """Compare two of anything that `inspect` takes, tensor by tensor of the same name.

    Two that the runtime keeps are compared there, without fetching them. `exact` looks at every
    value of large tensors.
    """
    one, other = (_sides(subject, client) for subject in (left, right))
    if not all(any(key[0] for key in side) for side in (one, other)):  # outputs alone on a side
        one, other = ({key: view for key, view in side.items() if not key[0]} or side
                      for side in (one, other))  # fmt: skip
    if len(one) == len(other) == 1:  # two single tensors need no common name
        pairs = [(next(iter(one.values())), next(iter(other.values())))]
    else:
        pairs = [(one[key], other[key]) for key in one if key in other]
        if not pairs:
            raise DevkitError("the two have no tensor of one name in common")
    found = [_difference(a, b, exact, names) for a, b in pairs]
    if len(one) != 1 or len(other) != 1:
        for side, mine, theirs in ((names[0], one, other), (names[1], other, one)):
            found += [
                Difference(view.name, DIFFERS, f"there in {side} only")
                for key, view in mine.items() if key not in theirs
            ]  # fmt: skip
    return Comparison(found, names)


def _sides(subject: Any, client: Client | None) -> dict[tuple[str, str, int, int], TensorView]:
    """Tensors by (part, name, reply, occurrence); outputs and loose arrays count as the same."""
    shown = inspect(subject, client=client)
    if isinstance(shown, list):
        raise DevkitError("several requests cannot be compared at once: choose one")
    views = [shown] if isinstance(shown, TensorView) else list(shown)
    found: dict[tuple[str, str, int, int], TensorView] = {}
    for view in views:
        key = (view.part.replace("outputs", ""), view.name, view.reply)
        place = (*key, 0)
        while place in found:
            place = (*key, place[-1] + 1)
        found[place] = view
    return found


def _difference(
    left: TensorView, right: TensorView, exact: bool, names: Sequence[str]
) -> Difference:
    if left.remote and right.remote and left._client is right._client:
        client, address = left._remote()
        found = client.compare_tensors(address, right._remote()[1], exact=exact)
    else:
        found = differences.compare(left.held(), right.held(), exact=exact, names=names)
    return found if found.name else replace(found, name=left.name or right.name)
