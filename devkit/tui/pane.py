"""What every screen is: a pane that draws itself from the store when a topic of its own changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.containers import Vertical
from textual.widget import Widget

if TYPE_CHECKING:
    from devkit.tui.app import Workbench
    from devkit.tui.store import Store


class Pane(Vertical):
    """One screen of the workbench.

    Attributes:
        NAME: how commands and the command line call it.
        TITLE: what its tab says.
        TOPICS: what it shows; it is drawn again when one of these changes while it is in sight.
        ABOUT: what it is for, a sentence for the help.
        START: what has the keys first, a selector.
    """

    NAME: ClassVar[str] = ""
    TITLE: ClassVar[str] = ""
    TOPICS: ClassVar[frozenset[str]] = frozenset()
    ABOUT: ClassVar[str] = ""
    START: ClassVar[str] = ""

    @property
    def bench(self) -> Workbench:
        """The app, by its own type."""
        return cast("Workbench", self.app)

    @property
    def store(self) -> Store:
        """What is shown."""
        return self.bench.store

    def draw(self, topic: str = "") -> None:
        """Show what the store holds; `topic` is what has changed, empty for anything."""

    def arrive(self) -> None:
        """It comes into sight: fetch what only this screen shows."""

    def start(self) -> None:
        """Give the keys to where they are most useful."""
        if self.START:
            self.query_one(self.START, Widget).focus()

    def on_resize(self) -> None:
        """Texts wrap and charts fill anew, once the parts have their sizes."""
        self.call_after_refresh(self.draw)
