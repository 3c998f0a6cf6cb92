"""`devkit.timeline`: the spans of traced requests, process by process.

Spans travel to the page as columns of numbers, not as JSON; which rectangles they become is the
page's business (`js/spans.js`), and for a notebook without a kernel `still`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import traitlets

from devkit.contract import trace_files, trace_words, tracing
from devkit.contract.tracing import Span, Trace
from devkit.control.tracing import Traces
from devkit.errors import DevkitError
from devkit.notebook.widgets import assets, still
from devkit.notebook.widgets.base import Widget, plain


@dataclass(frozen=True, slots=True)
class Columns:
    """Spans as arrays of one length; `lane`, `name` and `kind` are numbers of the lists."""

    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    lane: npt.NDArray[np.uint32]
    name: npt.NDArray[np.uint32]
    kind: npt.NDArray[np.uint8]
    trace: npt.NDArray[np.uint32]
    lanes: list[dict[str, Any]]
    names: list[str]
    kinds: list[str]


def columns_of(spans: Sequence[Span]) -> Columns:
    """The arrays of some spans, nanoseconds after the first of them."""
    origin = min((span.start for span in spans), default=0)
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    lanes: dict[tuple[int, int], int] = {}
    about: list[dict[str, Any]] = []
    for span in spans:
        if (span.pid, span.lane) not in lanes:
            lanes[span.pid, span.lane] = len(lanes)
            about.append({"pid": span.pid, "process": span.process, "name": span.lane_name})
    count = len(spans)
    return Columns(
        np.fromiter((span.start - origin for span in spans), np.float64, count),
        np.fromiter((max(span.end, span.start) - origin for span in spans), np.float64, count),
        np.fromiter((lanes[span.pid, span.lane] for span in spans), np.uint32, count),
        np.fromiter((names.setdefault(span.name, len(names)) for span in spans), np.uint32, count),
        np.fromiter((kinds.setdefault(span.kind, len(kinds)) for span in spans), np.uint8, count),
        np.fromiter((span.trace for span in spans), np.uint32, count),
        about, list(names), list(kinds),
    )  # fmt: skip


class Timeline(Widget):
    """Spans to zoom and pan in.

    Attributes:
        spans: all of them, ordered by start.
        summary: where the time went, in words; empty where only spans are known.
    """

    _esm = assets.module("spans", "page", "timeline")

    about = traitlets.Dict().tag(sync=True)
    start = traitlets.Bytes().tag(sync=True)
    end = traitlets.Bytes().tag(sync=True)
    lane = traitlets.Bytes().tag(sync=True)
    name = traitlets.Bytes().tag(sync=True)
    kind = traitlets.Bytes().tag(sync=True)
    trace = traitlets.Bytes().tag(sync=True)

    def __init__(self, spans: Sequence[Span], title: str = "", summary: str = "") -> None:
        self.spans = list(spans)
        self.summary = summary
        self.columns = columns_of(self.spans)
        columns = self.columns
        super().__init__(
            about={
                "title": title, "summary": summary, "lanes": columns.lanes,
                "names": columns.names, "kinds": columns.kinds,
            },
            **{
                key: getattr(columns, key).tobytes()
                for key in ("start", "end", "lane", "name", "kind", "trace")
            },
        )  # fmt: skip

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The attributes of a span."""
        index = int(question["index"])
        return {"index": index, "attributes": plain(self.spans[index].attributes)}

    def html(self) -> str:
        """A picture of it, and the words."""
        return still.timeline(self.columns, self.about["title"], self.summary)

    def words(self) -> str:
        """The words."""
        return "\n".join(filter(None, (self.about["title"], self.summary)))


def timeline(trace: Traces | Trace | Iterable[Trace | Span] | str | Path) -> Timeline:
    """A timeline to zoom and pan in: a lane for each request, process and thread.

    `trace` is what `devkit.trace` and `devkit.tracing` bring, one trace of it, spans, or a file
    that `devkit trace --out` wrote (Chrome's form, or OpenTelemetry's).
    """
    if isinstance(trace, (str, Path)):
        return _of_file(Path(trace))
    if isinstance(trace, Traces):
        return _made(trace.spans, trace.traces)
    if isinstance(trace, Trace):
        return _made(tracing.timeline([trace], 0), [trace])
    items = list(trace)
    spans = [one for one in items if isinstance(one, Span)]
    traces = [one for one in items if isinstance(one, Trace)]
    if len(spans) + len(traces) != len(items) or (spans and traces):
        odd = next((one for one in items if not isinstance(one, (Span, Trace))), trace)
        raise DevkitError(
            f"a timeline is made of traces or of spans, not of {type(odd).__name__}",
            remedy="give it what `devkit.trace()` returns, or a file of `devkit trace --out`",
        )
    return _made(spans or tracing.timeline(traces, 0), traces)


def _made(spans: Sequence[Span], traces: Sequence[Trace]) -> Timeline:
    requests = len(tracing.families(traces))
    title = f"{requests} request{'' if requests == 1 else 's'}, " if requests else ""
    return Timeline(
        spans, f"{title}{len(spans):,} spans", trace_words.summary(traces) if traces else ""
    )


def _of_file(path: Path) -> Timeline:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise trace_files.TraceFileError(f"{path} cannot be read: {problem}") from problem
    spans = trace_files.read(text)
    return Timeline(spans, f"{path.name}: {len(spans):,} spans", still.longest(spans))
