"""`devkit.inspect` and `devkit.compare` in the notebook: a card for each tensor.

Numbers are made into words here, once, for the page and for the still picture of it. What the
runtime keeps stays there: a card asks for a slice, for every value or for a comparison when a
person does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import traitlets

from devkit.contract.differences import Difference
from devkit.contract.inspection import Held, InspectionError, Summary, number
from devkit.notebook.widgets import assets, still
from devkit.notebook.widgets.base import Widget, plain
from devkit.tools import inspection
from devkit.tools.inspection import Captured, Comparison, Inspection, TensorView

SLICE = 4 << 20
"""Bytes of a slice that are fetched to be looked at here; a larger one is looked at where it is."""


def card(view: TensorView, summary: Summary | None = None) -> dict[str, Any]:
    """What is shown of a tensor; `summary` where one is known better than its own."""
    one = summary or view.summary
    part = view.part + (f", response {view.reply + 1}" if view.reply else "")
    shown = _plainly(view) if summary is None else {}
    found = {"name": one.name, "part": part, "kind": _kind(one), "note": one.note,
             "facts": _facts(view, one), "shown": shown,
             "histogram": None, "frequent": []}  # fmt: skip
    if one.histogram is not None and len(one.histogram.counts) > 1:
        found["histogram"] = asdict(one.histogram)
    if one.distinct > 1 and (one.frequent and one.frequent[0].count > 1):
        found["frequent"] = [[each.value, f"{each.count:,}"] for each in one.frequent[:6]]
    done: dict[str, Any] = plain(found)
    return done


def _kind(one: Summary) -> str:
    return f"{one.datatype or one.dtype} {list(one.shape)}"


def _facts(view: TensorView, one: Summary) -> list[list[str]]:
    text = one.view == "text"
    facts = [["dtype", one.dtype], ["bytes", f"{one.bytes:,}" if one.bytes >= 0 else "?"]]
    if one.strides:
        facts.append(["strides", str(list(one.strides))])
    facts.append(["device", view.device])
    if one.minimum is not None:
        facts.append(["shortest" if text else "min", number(one.minimum)])
        facts.append(["longest" if text else "max", number(one.maximum)])
    if one.mean is not None:
        facts.append(["mean length" if text else "mean", number(one.mean)])
        facts.append(["std", number(one.std)])
    if not text:
        facts.append(["NaN", f"{one.nan:,}", "bad" if one.nan else ""])
        facts.append(["Inf", f"{one.infinite:,}", "bad" if one.infinite else ""])
    if one.looked_at:
        facts.append(["empty" if text else "zeros", f"{one.zeros:,}"])
        more = "at least " if one.distinct_more else ""
        facts.append(["distinct", f"{more}{one.distinct:,}"])
    return facts


def _plainly(view: TensorView) -> dict[str, Any]:
    """What shows a tensor best."""
    found = view.to_dict()
    parts = {key: found[key] for key in ("picture", "series", "table", "texts") if found.get(key)}
    few = view.summary.count <= len(view.summary.first)
    if (not parts or (few and "series" in parts)) and view.summary.first:
        dots = " …" if view.summary.count > len(view.summary.first) else ""
        parts["text"] = " ".join(view.summary.first) + dots
    return parts


def part_of(view: TensorView, index: str, way: str) -> dict[str, Any]:
    """A slice of a tensor in the way asked for; InspectionError, ControlError."""
    if way == "table":
        return {"table": asdict(view.table(index=index))}
    if way == "line":
        return {"series": asdict(view.series(index=index))}
    if way == "auto" and not index:
        return _plainly(view)
    if way not in ("auto", "values"):
        picture = view.picture(layout=way, index=index)
        if picture is None:
            raise InspectionError(f"this is no picture as {way}")
        return {"picture": asdict(picture)}
    array = view.values(index, limit=SLICE)
    if way == "values":
        return {"text": _values(array)}
    return _plainly(TensorView("", held=Held.of("", array)))


def _values(array: Any) -> str:
    import numpy as np

    return str(np.array2string(array, threshold=400, edgeitems=6, max_line_width=110))


def somewhere(shape: Sequence[int], window: tuple[int, int] = (20, 12)) -> str:
    """A slice at a random place: one plane of the tensor, and a window of that."""
    found = [str(random.randrange(extent)) for extent in shape[:-2] if extent]
    last = shape[-2:]
    sizes = window[-len(last) :] if len(last) > 1 else (100,)
    for extent, wide in zip(last, sizes, strict=False):
        start = random.randrange(max(extent - wide, 0) + 1)
        found.append(f"{start}:{min(start + wide, extent)}")
    return ", ".join(found)


def difference(one: Difference, names: Sequence[str]) -> dict[str, Any]:
    """What is shown of a comparison."""
    facts: list[list[str]] = []
    if one.unequal or one.nonfinite:
        facts = [["unequal", f"{one.unequal:,} of {one.looked_at:,}"],
                 ["max abs", f"{one.largest:.6g}"], ["max rel", f"{one.relative:.3g}"],
                 ["mean abs", f"{one.mean:.3g}"]]  # fmt: skip
        if one.ulps >= 0:
            facts.append(["ULPs", f"{one.ulps:,}"])
        if one.nonfinite:
            facts.append(["NaN or Inf on one side", f"{one.nonfinite:,}", "bad"])
        if one.where or one.left:
            facts.append(["largest at", str(list(one.where))])
            facts += [[names[0], one.left], [names[1], one.right]]
        if one.first:
            facts.append(["first at", str(list(one.first))])
    title = one.name or "array"
    detail = "; ".join(filter(None, (one.detail, one.note)))
    found: dict[str, Any] = plain({
        "title": f"{title}, {names[0]} and {names[1]}", "verdict": one.verdict, "detail": detail,
        "facts": facts,
    })  # fmt: skip
    return found


def look(view: TensorView, others: Sequence[TensorView], question: dict[str, Any]) -> Any:
    """Answers what a card asks about its tensor; `others` are those it may be compared with."""
    kind, way = question["kind"], str(question.get("way", "auto"))
    if kind == "slice":
        return {"shown": part_of(view, str(question.get("slice", "")).strip(), way)}
    if kind == "any":
        index = somewhere(view.summary.shape)
        return {"slice": index, "shown": part_of(view, index, way)}
    if kind == "exact":
        return {"about": card(view, view.look(exact=True))}
    if kind == "compare":
        other = others[int(question["with"])]
        names = (_label(view), _label(other))
        (found,) = inspection.compare(view, other, names=names)
        return {"difference": difference(found, names)}
    raise InspectionError(f"'{kind}' is no question about a tensor")


def _label(view: TensorView) -> str:
    return f"{view.part}/{view.name}" if view.part else view.name or "array"


def data_of(subject: Inspection | TensorView | Captured | Comparison) -> dict[str, Any]:
    """All that a page shows of it at first: a few kilobytes, however large the tensors are."""
    if isinstance(subject, Comparison):
        rows = [difference(one, subject.names) for one in subject]
        return {"title": f"{subject.names[0]} and {subject.names[1]}: {subject.verdict}",
                "notes": [], "tensors": [], "differences": rows}  # fmt: skip
    views = views_of(subject)
    if isinstance(subject, Captured):
        subject = subject.inspect()
    title, notes = ("", []) if isinstance(subject, TensorView) else (subject.title, subject.notes)
    return {"title": title, "notes": list(notes), "tensors": [card(view) for view in views]}


def views_of(subject: Inspection | TensorView | Captured | Comparison) -> list[TensorView]:
    """The tensors of it."""
    if isinstance(subject, TensorView):
        return [subject]
    if isinstance(subject, Comparison):
        return []
    return list(subject.inspect() if isinstance(subject, Captured) else subject)


class Inspector(Widget):
    """What tensors hold.

    Attributes:
        subject: what was given to `devkit.inspect`, as that returned it.
    """

    _esm = assets.module("page", "tensors", "inspection")

    data = traitlets.Dict().tag(sync=True)

    def __init__(self, subject: Inspection | TensorView | Captured | Comparison) -> None:
        self.subject = subject
        self._views = views_of(subject)
        super().__init__(data=data_of(subject))

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """A slice, the exact numbers, a comparison."""
        found: dict[str, Any] = look(self._views[int(question["tensor"])], self._views, question)
        return found

    def html(self) -> str:
        """The cards as they are."""
        return still.inspection(self.data)

    def words(self) -> str:
        """What it says in a terminal."""
        return self.subject.text(width=110)
