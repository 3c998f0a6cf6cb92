"""The connection of this process to the runtime, for whoever needs it from inside `pb_utils`.

`current` is None outside a server (a notebook, pytest): then `pb_utils` still makes tensors,
requests and responses, and only what needs a server says that there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Set

if TYPE_CHECKING:
    from devkit.stub.bls import Client
    from devkit.stub.control_thread import Control
    from devkit.stub.outbox import Outbox
    from devkit.stub.spans import Recorder

_MOST_CANCELLED = 10_000  # numbers only grow, so the smallest are the ones long gone


class Link:
    """What a served model's process holds.

    Attributes:
        cancelled: numbers of the requests that their clients gave up.
        executing: number of the request that BLS calls are made for, 0 outside `execute`.
        spans: records what `devkit.span` marks; None where nothing does.
        version_dir: folder of the model's version, what `get_model_dir()` says.
    """

    def __init__(
        self,
        outbox: Outbox,
        control: Control,
        bls: Client,
        args: Dict[str, str],
        version_dir: str,
        decoupled: bool,
    ) -> None:
        self.outbox = outbox
        self.control = control
        self.bls = bls
        self.args = args
        self.version_dir = version_dir
        self.decoupled = decoupled
        self.cancelled: Set[int] = set()
        self.executing = 0
        self.spans: Optional[Recorder] = None

    def cancel(self, sequences: List[int]) -> None:
        """Note requests as given up. A cancellation may come when its request has ended already."""
        self.cancelled.update(sequences)
        if len(self.cancelled) > _MOST_CANCELLED:
            oldest = sorted(self.cancelled)[: _MOST_CANCELLED // 2]
            self.cancelled.difference_update(oldest)

    @property
    def instance(self) -> str:
        """Name of the model instance, `modes_0`."""
        return self.args.get("model_instance_name", "")


current: Optional[Link] = None
