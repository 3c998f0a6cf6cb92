"""The command palette's entries: every screen, every key of the one in sight, every model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

if TYPE_CHECKING:
    from devkit.tui.app import Workbench

Entry = tuple[str, str, Callable[[], Any]]
"""What is looked for, what it does, and the doing."""


class Commands(Provider):
    """What can be done now."""

    async def discover(self) -> Hits:
        """Before anything is typed: all of it."""
        for title, about, run in self._entries():
            yield DiscoveryHit(title, run, help=about)

    async def search(self, query: str) -> Hits:
        """What matches, the best first."""
        matcher = self.matcher(query)
        for title, about, run in self._entries():
            score = matcher.match(title)
            if score:
                yield Hit(score, matcher.highlight(title), run, help=about)

    def _entries(self) -> Iterator[Entry]:
        from devkit.tui.app import PANES

        bench = cast("Workbench", self.app)
        pane = bench.pane
        for one in pane.BINDINGS:
            if isinstance(one, Binding) and one.description and not one.system:
                about = one.tooltip or f"{pane.TITLE}: {one.description}"
                yield (
                    f"{pane.TITLE}: {one.description}",
                    about,
                    partial(pane.run_action, one.action),
                )
        for number, each in enumerate(PANES, 1):
            yield (
                f"Open {each.TITLE}",
                f"{each.ABOUT} ({number})",
                partial(bench.action_open, each.NAME),
            )
        yield "Switch between dark and light", "Another theme", bench.action_theme
        models = bench.store.snapshot.models if bench.store.snapshot else ()
        for model in models:
            yield (
                f"Choose {model.name}",
                "Make it the model that all screens show",
                partial(bench.store.choose, model.name),
            )
