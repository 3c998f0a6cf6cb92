"""A warm process with the imports done, which forks stubs on request.

    <python> -Xfrozen_modules=off <devkit>/stub/__main__.py --zygote FD

FD is a Unix stream socket. Frames of kind CONTROL with JSON, one request at a time is answered in
order:

    {"op": "preload", "modules": ["torch", ...]}
        -> {"op": "preloaded", "failed": {module: why}, "usable": bool, "reason": str, "seconds": s}
    {"op": "fork", "call": N, "env": {...}} with 5 descriptors by SCM_RIGHTS on its first byte:
        data, control, bls, stdout, stderr (or the first three, to keep the zygote's own)
        -> {"op": "forked", "call": N, "pid": P} or {"op": "refused", "call": N, "reason": str}
    -> {"op": "exited", "pid": P, "status": S}     S negative: the signal that ended it

The socket's end ends the zygote, and by PR_SET_PDEATHSIG its stubs: whoever holds it keeps it open
while a forked stub lives.

Forking is safe only from one thread, without a GPU context and without gRPC. OpenBLAS starts
threads when NumPy is imported, but stops them itself before a fork and starts new ones when it
needs them (pthread_atfork), in parent and child. So the threads are counted after a trial fork:
what is left then belongs to somebody who does not know about forking. The model's own files are
never imported here.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional

from devkit.transport import messages

_DESCRIPTORS = 5
_CHUNK = 64 * 1024


def serve(descriptor: int) -> int:
    """Serve a zygote's socket. In a forked stub, returns the stub's exit status."""
    os.set_inheritable(descriptor, False)
    return Zygote(socket.socket(fileno=descriptor)).serve()


class Zygote:
    """The forking process's one loop."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._reader = messages.FrameReader()
        self._children: Dict[int, int] = {}
        self._descriptors: List[int] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)

    def serve(self) -> int:
        """Answer until the socket ends."""
        import selectors

        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._socket, selectors.EVENT_READ)
        selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not self._socket:
                    self._reap()
                    continue
                # One read never goes beyond descriptors, but it may bring an earlier request too.
                data, descriptors, _, _ = socket.recv_fds(self._socket, _CHUNK, _DESCRIPTORS)
                if not data:
                    return 0
                self._descriptors += descriptors
                for _, payload in self._reader.feed(data):
                    status = self._answer(messages.parse_json(payload), selector)
                    if status is not None:
                        return status

    def _send(self, message: Dict[str, Any]) -> None:
        self._socket.sendall(messages.json_frame(messages.CONTROL, message))

    def _answer(self, message: Dict[str, Any], selector: Any) -> Optional[int]:
        """Answer one request; in a forked stub, run it and return its exit status."""
        if message["op"] == "preload":
            self._preload(message["modules"])
        elif message["op"] == "fork":
            descriptors, self._descriptors = self._descriptors, []
            reason = unusable()
            if reason:
                self._send({"op": "refused", "call": message["call"], "reason": reason})
            else:
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    return self._become_stub(descriptors, message.get("env") or {})
                self._children[pid] = message["call"]
                self._send({"op": "forked", "call": message["call"], "pid": pid})
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def _preload(self, modules: List[str]) -> None:
        started = time.monotonic()
        failed = {}
        for name in modules:
            try:
                importlib.import_module(name)
            except BaseException as problem:  # an import may do anything, exit included
                failed[name] = f"{type(problem).__name__}: {problem}"
        # From here on nothing of the parent's is garbage: children then share its pages for good.
        gc.collect()
        gc.freeze()
        reason = unusable()
        self._send(
            {
                "op": "preloaded",
                "failed": failed,
                "usable": not reason,
                "reason": reason,
                "seconds": time.monotonic() - started,
            }
        )

    def _reap(self) -> None:
        try:
            while os.read(self._wake_read, 512):
                pass
        except BlockingIOError:
            pass
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                self._send({"op": "exited", "pid": pid, "status": _exit_code(status)})

    def _become_stub(self, descriptors: List[int], environment: Dict[str, str]) -> int:
        """What a forked child does: let go of the zygote's things, then be a stub."""
        from devkit.stub import parent, process

        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._socket.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        os.setsid()  # as a stub started by exec: no signal meant for the runtime's group comes here
        data, control, bls, *streams = descriptors
        for target, descriptor in zip((1, 2), streams):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.update(environment)
        parent.die_with_parent()
        _fresh_randomness()
        return process.run(data, control, bls)


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _fresh_randomness() -> None:
    """Instances that are exec'd differ in their random numbers; forked ones must too."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def unusable() -> str:
    """Why this process must not fork stubs, `""` where it may."""
    if "grpc" in sys.modules:
        return "gRPC is loaded: it does not survive a fork"
    if any(name.startswith("/dev/nvidia") for name in _open_files()):
        return "a GPU is in use: its context does not survive a fork"
    count = _threads()
    if count > 1:
        pid = os.fork()  # makes libraries that know about forking stop their threads
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        count = _threads()
    if count > 1:
        return f"the imports left {count - 1} threads running"
    return ""


def _threads() -> int:
    """Threads of this process, whoever started them; 1 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except FileNotFoundError:
        import threading

        return threading.active_count()


def _open_files() -> List[str]:
    found = []
    try:
        numbers = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return []
    for number in numbers:
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # the descriptor of the listing itself
    return found
