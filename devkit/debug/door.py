"""A door for an editor that speaks the Debug Adapter Protocol itself, VS Code above all.

To the editor it is a debug adapter; to the runtime it is one more face of the session, so that the
instance is held, its clocks stand and other faces look on, as with any. On loopback, open as long
as its owner wants; one editor at a time.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from devkit.control.client import Client
from devkit.control.debug_calls import Debugging
from devkit.control.messages import Breakpoint, DebugSession, Event
from devkit.debug import shown
from devkit.debug.dap import Body, encode
from devkit.debug.follow import Follower
from devkit.errors import DebugError, DevkitError

CAPABILITIES: Body = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsLogPoints": True,
    "supportsEvaluateForHovers": True,
    "supportsSetVariable": True,
    "supportsSetExpression": True,
    "supportsCompletionsRequest": True,
    "supportsExceptionInfoRequest": True,
    "supportsGotoTargetsRequest": True,
    "supportsClipboardContext": True,
    "supportsDelayedStackTraceLoading": True,
    "exceptionBreakpointFilters": [
        {"filter": "raised", "label": "Raised Exceptions", "default": False},
        {"filter": "uncaught", "label": "Exceptions that leave the model", "default": True},
    ],
}
_MOVES = {"continue": "continue", "next": "next", "stepIn": "step_in", "stepOut": "step_out",
          "pause": "pause"}  # fmt: skip


class Door:
    """One instance's door.

    Attributes:
        port: where it listens on 127.0.0.1.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        instance: str = "",
        *,
        version: str = "",
        take: str = "every",
        port: int = 0,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open it. Raises DebugError where the port is taken."""
        self._client = client
        self._note = on_note
        self._attach: dict[str, Any] = {
            "name": model,
            "instance": instance,
            "version": version,
            "take": take,
        }
        self.instance = instance or model
        self._editor: _Editor | None = None
        self._closed = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
        except OSError as problem:
            self._socket.close()
            raise DebugError(f"port {port} cannot be opened: {problem}") from None
        self._socket.listen(2)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="devkit-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close it; an editor that is inside is put out, and the instance goes on."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._socket.close()
        editor = self._editor
        if editor is not None:
            editor.close()
        self._thread.join(10.0)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self._editor is not None and self._editor.alive:
                self._note(f"{self.instance}: a second editor was turned away")
                connection.close()
                continue
            self._editor = _Editor(self._client, self._attach, connection, self._note)


class _Editor:
    """The editor that is inside: what it asks, and what it is told."""

    def __init__(
        self, client: Client, attach: dict[str, Any], connection: socket.socket,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._client = client
        self._attach_to = attach
        self._connection = connection
        self._note = note
        self._session: Debugging | None = None
        self._follower: Follower | None = None
        self._roots: list[tuple[str, str]] = []
        self._scopes: dict[int, int] = {}
        self._own: dict[int, Breakpoint] = {}
        self._ready = False
        self._stop: tuple[Any, ...] | None = None
        self._turn = 0
        self._number = 0
        self._order = threading.RLock()
        """Held while a request is answered: no event may overtake its answer."""
        self._thread = threading.Thread(target=self._run, name="devkit-editor", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is still there."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Put it out, and wait until the instance goes on."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(10.0)

    # -- the wire --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._connection, self._connection.makefile("rb") as stream:
                while (message := _read(stream)) is not None:
                    if message.get("type") != "request":
                        continue
                    with self._order:
                        self._answer(message)
                    if message.get("command") in ("disconnect", "terminate"):
                        break
        except OSError:
            pass  # it has gone; what follows is the same
        finally:
            self._leave()

    def _answer(self, message: Body) -> None:
        command = str(message.get("command", ""))
        reply: Body = {"type": "response", "request_seq": message.get("seq"), "command": command}
        try:
            body = self._do(command, message.get("arguments") or {})
            reply.update(success=True, body=body)
        except DevkitError as problem:
            words = " - ".join(filter(None, (problem.message, problem.remedy)))
            error = {"id": 1, "format": words, "showUser": command == "attach"}
            reply.update(success=False, message=words, body={"error": error})
        self._write(reply)
        if command == "attach" and reply["success"]:
            self._event("initialized", {})
        elif command == "configurationDone":
            self._ready = True
            if self._follower is not None:
                self._changed(self._follower.told)

    def _event(self, name: str, body: Body) -> None:
        with contextlib.suppress(OSError):
            self._write({"type": "event", "event": name, "body": body})

    def _write(self, message: Body) -> None:
        with self._order:
            self._number += 1
            self._connection.sendall(encode({"seq": self._number, **message}))

    # -- what it asks ----------------------------------------------------------------------------

    def _do(self, command: str, arguments: Body) -> Body:
        if command == "initialize":
            return CAPABILITIES
        if command == "launch":
            raise DebugError('a model is served already: use "request": "attach"')
        if command == "attach":
            return self._attach(arguments)
        if command in ("disconnect", "terminate"):
            self._leave()
            return {}
        if command in _MOVES:
            return self._move(command, arguments)
        special = getattr(self, f"_do_{command}", None)
        if special is not None:
            found: Body = special(arguments)
            return found
        return self._attached().ask(command, **arguments)

    def _attach(self, arguments: Body) -> Body:
        for row in arguments.get("pathMappings") or ():
            near, far = str(row.get("localRoot", "")), str(row.get("remoteRoot", ""))
            if near and far and far != ".":
                self._roots.append((near.rstrip("/\\"), far.rstrip("/")))
        session = self._client.debug(**self._attach_to)
        self._session = session
        self._turn = session.told.turn
        self._follower = Follower(
            self._client, session, self._changed, self._said, self._breakpoints_changed
        )
        self._note(f"{session.told.instance}: an editor is attached")
        return {}

    def _attached(self) -> Debugging:
        if self._session is None:
            raise DebugError("nothing is attached")
        return self._session

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if self._follower is not None:
            self._follower.close()
        with contextlib.suppress(DevkitError):
            session.detach()
        self._note(f"{session.told.instance}: the editor has left, the instance goes on")

    def _do_configurationDone(self, arguments: Body) -> Body:
        return {}

    def _move(self, command: str, arguments: Body) -> Body:
        told = self._attached().move(_MOVES[command], thread=int(arguments.get("threadId") or 0))
        return self._moved(told)

    def _moved(self, told: DebugSession) -> Body:
        if told.state == "running":
            self._stop = None
            self._scopes.clear()
        self._turn = told.turn
        return {"allThreadsContinued": True}

    def _do_gotoTargets(self, arguments: Body) -> Body:
        line = int(arguments.get("line") or 0)
        return {"targets": [{"id": line, "label": f"line {line}", "line": line}]}

    def _do_goto(self, arguments: Body) -> Body:
        line = int(arguments.get("targetId") or 0)
        return self._moved(self._attached().move("goto", line=line))

    # -- places to stop at -----------------------------------------------------------------------

    def _do_setBreakpoints(self, arguments: Body) -> Body:
        path = self._far(str((arguments.get("source") or {}).get("path") or ""))
        asked = [
            Breakpoint(
                path=path, line=int(row["line"]), condition=row.get("condition") or "",
                hits=row.get("hitCondition") or "", log=row.get("logMessage") or "",
            )
            for row in arguments.get("breakpoints") or ()
        ]  # fmt: skip
        kept = self._client.set_breakpoints(path, asked)
        self._own = {key: each for key, each in self._own.items() if each.path != path}
        self._own |= {each.id: each for each in kept}
        return {"breakpoints": [self._breakpoint(each) for each in kept]}

    def _breakpoint(self, kept: Breakpoint) -> Body:
        body: Body = {"id": kept.id, "verified": kept.verified, "line": kept.line,
                      "source": {"path": self._near(kept.path)}}  # fmt: skip
        if kept.text:
            body["message"] = kept.text
        return body

    def _do_setExceptionBreakpoints(self, arguments: Body) -> Body:
        filters = {str(each) for each in arguments.get("filters") or ()}
        self._client.stop_at_exceptions(raised="raised" in filters, uncaught="uncaught" in filters)
        return {}

    # -- looking ---------------------------------------------------------------------------------

    def _do_stackTrace(self, arguments: Body) -> Body:
        frames = self._attached().stack(int(arguments.get("threadId") or 0))
        start = int(arguments.get("startFrame") or 0)
        stop = start + (int(arguments.get("levels") or 0) or len(frames))
        return {
            "totalFrames": len(frames),
            "stackFrames": [
                {
                    "id": each.id, "name": shown.clean(each.name), "line": each.line,
                    "column": each.column or 1, "source": {"path": self._near(each.path)},
                    "presentationHint": "normal" if each.own else "subtle",
                }
                for each in frames[start:stop]
            ],
        }  # fmt: skip

    def _do_scopes(self, arguments: Body) -> Body:
        found = self._attached().ask("scopes", **arguments)
        for each in found.get("scopes", ()):
            self._scopes[each["variablesReference"]] = int(arguments.get("frameId") or 0)
        return found

    def _do_variables(self, arguments: Body) -> Body:
        """As debugpy says it, but for tensors: what they are, and not how NumPy prints them."""
        session = self._attached()
        found = session.ask("variables", **arguments)
        reference = int(arguments.get("variablesReference") or 0)
        frame = self._scopes.get(reference)
        if frame:
            known = {each.name: each.tensor for each in session.variables(reference, frame=frame)}
            for each in found.get("variables", ()):
                summary = known.get(each.get("name"))
                if summary is not None:
                    each["value"] = shown.tensor(summary)
        return found

    # -- what it is told -------------------------------------------------------------------------

    def _changed(self, told: DebugSession) -> None:
        with self._order:
            if told.state == "ended":
                if self._session is not None:
                    self._session = None
                    self._event("terminated", {})
                return
            if not self._ready or told.turn < self._turn:
                return
            self._turn = told.turn
            if told.state == "stopped":
                self._stopped(told)
            elif self._stop is not None:
                self._stop = None
                body = {"threadId": self._number_of(told), "allThreadsContinued": True}
                self._event("continued", body)

    @staticmethod
    def _number_of(told: DebugSession) -> int:
        return told.thread or 1

    def _stopped(self, told: DebugSession) -> None:
        stop = (told.thread, told.reason, told.text, told.line, told.function)
        if stop == self._stop:
            return
        self._stop = stop
        body: Body = {"reason": told.reason or "breakpoint", "threadId": self._number_of(told),
                      "allThreadsStopped": True}  # fmt: skip
        if told.text:
            body["text"] = shown.clean(told.text)
        self._event("stopped", body)

    def _said(self, event: Event) -> None:
        self._event("output", {"category": "stdout", "output": f"{event.text}\n"})

    def _breakpoints_changed(self) -> None:
        """Another face has changed some, or a reload has moved them."""
        if not self._ready:
            return
        try:
            now = {each.id: each for each in self._client.breakpoints().breakpoints}
        except DevkitError:
            return
        with self._order:
            for number, before in list(self._own.items()):
                kept = now.get(number)
                if kept is None:
                    del self._own[number]
                    gone = {"id": number, "verified": False}
                    self._event("breakpoint", {"reason": "removed", "breakpoint": gone})
                elif kept != before:
                    self._own[number] = kept
                    self._event(
                        "breakpoint", {"reason": "changed", "breakpoint": self._breakpoint(kept)}
                    )

    # -- whose paths -----------------------------------------------------------------------------

    def _far(self, path: str) -> str:
        """The runtime's path of a file of the editor's."""
        for near, far in self._roots:
            if path == near or path.startswith((f"{near}/", f"{near}\\")):
                return far + path[len(near) :].replace("\\", "/")
        return path

    def _near(self, path: str) -> str:
        """The editor's path of a file of the runtime's."""
        for near, far in self._roots:
            if path == far or path.startswith(f"{far}/"):
                rest = path[len(far) :]
                return near + (rest.replace("/", "\\") if "\\" in near else rest)
        return path


def _read(stream: BinaryIO) -> Body | None:
    """The next message; None where the other side has ended or speaks something else."""
    length = -1
    while True:
        line = stream.readline(4096)
        if not line:
            return None
        if not line.strip():
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
    if length < 0:
        return None
    data = stream.read(length)
    if len(data) < length:
        return None
    try:
        message = json.loads(data)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
