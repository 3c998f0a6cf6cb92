"""What all widgets are: a live view in the notebook, and plain HTML wherever there is no kernel."""

from __future__ import annotations

import math
import threading
from typing import Any

import anywidget

from devkit.errors import DevkitError
from devkit.notebook.widgets import assets

_SLOW = ("replay",)
"""Questions answered on a thread of their own: the kernel goes on meanwhile."""


class Widget(anywidget.AnyWidget):  # type: ignore[misc]
    """Answers the page's questions; says itself as HTML and text, too."""

    _css = assets.style()

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self._asked)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What the page asked for; DevkitError becomes its `error`."""
        raise NotImplementedError

    def html(self) -> str:
        """The same as it stands, for a notebook without a kernel."""
        raise NotImplementedError

    def words(self) -> str:
        """The same as plain text."""
        raise NotImplementedError

    def _asked(self, _: Any, question: dict[str, Any], __: Any) -> None:
        if question.get("kind") in _SLOW:
            threading.Thread(target=self._reply, args=(question,), daemon=True).start()
        else:
            self._reply(question)

    def _reply(self, question: dict[str, Any]) -> None:
        try:
            found = self.answer(question)
        except DevkitError as problem:
            text = problem.message + (f" ({problem.remedy})" if problem.remedy else "")
            found = {"error": text}
        except (ValueError, TypeError, IndexError, KeyError) as problem:
            found = {"error": f"{type(problem).__name__}: {problem}"}
        if found:
            self.send(plain({"kind": question.get("kind"), "id": question.get("id"), **found}))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        found = super()._repr_mimebundle_(**options)
        if found is None:
            return None
        data, metadata = found if isinstance(found, tuple) else (found, {})
        return {**data, "text/html": self.html(), "text/plain": self.words()}, metadata


def plain(value: Any) -> Any:
    """As JSON can say it: NaN and infinities become text, tuples lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return value
