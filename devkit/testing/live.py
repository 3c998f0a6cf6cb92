"""A real runtime for tests: started on free ports over the tests' models, ended with them.

What a test asks it goes over the sockets that any face uses, to models in processes of their own.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from devkit.control import messages, starter
from devkit.control.client import Array, Client
from devkit.errors import LoadError

_SECONDS = 30.0


class LiveModel:
    """A model of a live runtime, with the questions that a model under test answers too."""

    __test__ = False

    def __init__(self, runtime: LiveRuntime, name: str) -> None:
        self.runtime = runtime
        self.name = name

    def __repr__(self) -> str:
        return f"<LiveModel {self.name} at {self.runtime.http_url}>"

    @property
    def client(self) -> Client:
        """The runtime's client, for everything that is not here."""
        return self.runtime.client

    @property
    def status(self) -> messages.Model:
        """What the runtime knows of the model now."""
        return self.client.model(self.name)

    def infer(self, inputs: Mapping[str, Any], **options: Any) -> dict[str, Array]:
        """One inference, NumPy in and out; `options` are those of `devkit.infer`."""
        return self.client.infer(self.name, inputs, **options)

    def stream(self, inputs: Mapping[str, Any], **options: Any) -> Iterator[dict[str, Array]]:
        """The responses of a decoupled model, as they come."""
        return self.client.stream(self.name, inputs, **options)

    @property
    def logs(self) -> list[messages.LogLine]:
        """What the model's processes wrote."""
        return self.client.logs(self.name)


class LiveRuntime:
    """A runtime of its own, over `repositories`. Use it in a `with` block, or `start` and `stop`.

    Attributes:
        client: its control client; also takes `bls=` of `load_model`.
        http_url, grpc_url: where any Triton client finds it, `host:port`.
    """

    __test__ = False

    def __init__(self, repositories: Sequence[str | Path], flags: Sequence[str] = ()) -> None:
        self._repositories = [Path(one).absolute() for one in repositories]
        self._flags = list(flags)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.client: Client
        self.http_url = ""
        self.grpc_url = ""

    def __enter__(self) -> LiveRuntime:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> LiveRuntime:
        """Start it, with a workspace of its own, and wait until it serves."""
        self._folder = tempfile.TemporaryDirectory(prefix="devkit-testing-")
        try:
            runtime = starter.start(
                self._folder.name,
                repositories=self._repositories,
                flags=["--port=0", *self._flags],
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.client = Client(runtime)
        found = {one.protocol: f"{one.address}:{one.port}" for one in runtime.endpoints}
        self.http_url, self.grpc_url = found.get("http", ""), found.get("grpc", "")
        return self

    def stop(self) -> None:
        """End it, and its models' processes with it."""
        if self._folder is not None:
            folder, self._folder = self._folder, None
            family: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(self.client.runtime.pid)
                family = [process, *process.children(recursive=True)]
            try:
                self.client.shutdown()
            finally:
                psutil.wait_procs(family, timeout=_SECONDS)
                folder.cleanup()

    def model(self, name: str) -> LiveModel:
        """A model that serves. LoadError, with the reason, where it does not."""
        row = self.client.model(name)
        if row.state != "READY":
            self.client.load(name)
            row = self.client.model(name)
        if row.state != "READY":
            raise LoadError(f"model '{name}' is {row.state or 'not loaded'}", model=name)
        return LiveModel(self, name)
