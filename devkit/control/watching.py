"""The client's calls about numbers, batches, streams, sequences, loads and profiles.

A part of `Client`, apart so that each can be read in one sitting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from devkit.control import messages

if TYPE_CHECKING:
    from collections.abc import Mapping


class Watching:
    """Mixed into `Client`, which brings `_call` and `_request`."""

    if TYPE_CHECKING:

        def _call(
            self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
        ) -> Any: ...

        def _request(
            self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
        ) -> bytes: ...

    def history(self, model: str = "", *, seconds: float = 600) -> messages.History:
        """The numbers of the last `seconds` (at most ten minutes), one a second."""
        query = {"model": model, "seconds": int(seconds)}
        return messages.from_plain(messages.History, self._call("GET", "/history", query=query))

    def batches(self, model: str, *, version: str = "", count: int = 50) -> messages.Batches:
        """How a model's requests became batches, and why each closed; what waits and runs now."""
        query = {"model": model, "version": version, "count": count}
        return messages.from_plain(messages.Batches, self._call("GET", "/batches", query=query))

    def streams(self, model: str = "", *, count: int = 50) -> list[messages.Streamed]:
        """The last requests to decoupled models, with every response's flags."""
        rows = self._call("GET", "/streams", query={"model": model, "count": count})
        return [messages.from_plain(messages.Streamed, row) for row in rows]

    def sequences(self, model: str = "", *, count: int = 200) -> list[messages.SequenceLane]:
        """The last sequences, a lane for each correlation id."""
        rows = self._call("GET", "/sequences", query={"model": model, "count": count})
        return [messages.from_plain(messages.SequenceLane, row) for row in rows]

    def operations(self, model: str = "", *, count: int = 50) -> list[messages.Operation]:
        """The last loads, swaps, unloads and restarts: why, what they did, what blocks them."""
        rows = self._call("GET", "/operations", query={"model": model, "count": count})
        return [messages.from_plain(messages.Operation, row) for row in rows]

    def stack(self, model: str, instance: str = "") -> list[messages.Stack]:
        """Where every thread of a model's instances is now, also of one that is stuck."""
        path = f"/models/{quote(model)}/stack"
        rows = self._call("GET", path, query={"instance": instance})
        return [messages.from_plain(messages.Stack, row) for row in rows]

    def profile(
        self,
        model: str,
        instance: str = "",
        *,
        seconds: float = 5.0,
        format: str = "speedscope",
        rate: int = 200,
        native: bool = False,
        idle: bool = False,
        pause: bool = False,
    ) -> bytes:
        """Sample an instance (the busiest, where none is named) while it serves.

        The bytes are a speedscope JSON, an SVG flame graph or py-spy's raw lines.
        """
        asked = messages.TakeProfile(instance, seconds, rate, format, native, idle, pause)
        return self._request("POST", f"/models/{quote(model)}/profile", asked)
