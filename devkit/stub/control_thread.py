"""The control socket's two ends in this process: what models report, and what the runtime asks.

The thread goes on while the main thread is inside `execute` or stopped in a debugger. It never runs
user code except the model's `is_ready`, and it ends the process when the runtime is gone.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from devkit.errors import TransportError
from devkit.stub import parent
from devkit.transport import messages

if TYPE_CHECKING:
    from devkit.stub.process import Stub
    from devkit.transport.channel import Channel

GRACE = 0.5  # seconds the main thread gets to notice that the runtime is gone


class Control:
    """Sends reports from any thread; answers the runtime's questions on a thread of its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._replies: Dict[int, Any] = {}
        self._answered = threading.Condition()
        self._closed = False
        self.verbose = 0
        self._stub: Optional[Stub] = None

    def start(self, stub: Stub) -> None:
        """Start serving the runtime's questions about `stub`."""
        self._stub = stub
        thread = threading.Thread(target=self._serve, name="devkit control", daemon=True)
        # A debugger must neither stop nor trace it: it is what keeps a paused model reachable.
        thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
        thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        thread.start()

    # -- reports --------------------------------------------------------------------------------

    def send(self, message: Dict[str, Any]) -> None:
        """Send one report. A runtime that is gone is the main thread's to notice."""
        try:
            self._channel.send(messages.json_frame(messages.CONTROL, message))
        except TransportError:
            self._closed = True

    def post(self, message: Dict[str, Any]) -> None:
        """Send one report from inside garbage collection: never waits."""
        self._channel.post(messages.json_frame(messages.CONTROL, message))

    def log(self, level: str, message: str, file: str, line: int) -> None:
        """A line for the server's log."""
        self.send({"op": "log", "level": level, "message": message, "file": file, "line": line})

    def warn(self, rule: str, message: str, line: str) -> None:
        """A contract warning: what a production server would do, and where the model does it."""
        self.send({"op": "warning", "rule": rule, "message": message, "line": line})

    def call(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """Send a report and wait for its reply. Raises TransportError when none can come."""
        number = next(self._numbers)
        self.send({**message, "call": number})
        with self._answered:
            self._answered.wait_for(lambda: number in self._replies or self._closed)
            if number not in self._replies:
                raise TransportError("the runtime is gone")
            reply: Dict[str, Any] = self._replies.pop(number)
        return reply

    # -- questions ------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            received = self._channel.receive()
            if received is None:
                break
            message = messages.parse_json(received[1])
            if message["op"] == "reply":
                with self._answered:
                    self._replies[message["call"]] = message
                    self._answered.notify_all()
            else:
                self._answer(message)
        with self._answered:
            self._closed = True
            self._answered.notify_all()
        threading.Event().wait(GRACE)
        os._exit(1)  # the main thread is inside user code that may never end

    def _answer(self, message: Dict[str, Any]) -> None:
        operation = message["op"]
        assert self._stub is not None
        if operation == "cancel":
            self._stub.cancel(message["sequences"])
        elif operation == "verbose":
            self.verbose = int(message["level"])
        elif operation == "probes":
            self._reply(message["call"], functools.partial(self._show_probes, message))
        elif operation == "debug":
            self._reply(message["call"], lambda: self._debug(message.get("debugpy", "")))
        elif operation in ("memory", "stack", "traceable", "undebug"):
            self._reply(message["call"], getattr(self, "_" + operation))
        elif operation == "ready":
            # The model's own code may take its time; cancellation and debugging must not wait.
            arguments = (message["call"], self._ready)
            threading.Thread(
                target=self._reply, args=arguments, name="is_ready", daemon=True
            ).start()

    def _reply(self, call: int, answer: Callable[[], Dict[str, Any]]) -> None:
        reply: Dict[str, Any] = {"op": "reply", "call": call}
        try:
            reply.update(answer())
        except Exception as problem:  # whatever debugpy or the model's is_ready raises
            reply["error"] = f"{type(problem).__name__}: {problem}"
        self.send(reply)

    def _debug(self, package: str) -> Dict[str, Any]:
        from devkit.stub import debugging

        return {"port": debugging.listen(package)}

    def _undebug(self) -> Dict[str, Any]:
        from devkit.stub import debugging

        debugging.close()
        return {}

    def _stack(self) -> Dict[str, Any]:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        threads = []
        for ident, frame in sys._current_frames().items():
            name = names.get(ident, "?")
            if name != "devkit control":
                threads.append({"thread": name, "stack": "".join(traceback.format_stack(frame))})
        return {"threads": threads}

    def _show_probes(self, message: Dict[str, Any]) -> Dict[str, Any]:
        assert self._stub is not None
        self._stub.show_probes(message["on"], message["every"], message["largest"])
        return {}

    def _memory(self) -> Dict[str, Any]:
        assert self._stub is not None
        return {"slab": self._stub.slab()}

    def _traceable(self) -> Dict[str, Any]:
        """Let a profiler that is no parent of this process look at it (Linux with Yama)."""
        parent.allow_tracing()
        return {}

    def _ready(self) -> Dict[str, Any]:
        assert self._stub is not None
        return {"ready": self._stub.is_ready()}
