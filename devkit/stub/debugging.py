"""debugpy inside a stub, on demand: nothing of it is imported before somebody asks.

Loopback only, because the port has no authentication; closed again when the debugger has left, so
that a process that was debugged once costs and offers no more than one that never was. What a
debugger does over the port is the runtime's business.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any, Optional

_port: Optional[int] = None
_debugpy: Any = None
_connected = False
watching = False
"""Whether `before_execute` has anything to do; the one thing an undebugged stub looks at."""

# From 3.12 on debugpy uses sys.monitoring, which costs nothing once the client is gone.
_TRACES_THREADS = sys.version_info < (3, 12)


def listen(package: str = "") -> int:
    """Make this process debuggable; returns the port, the same one until `close`.

    `package` is the folder of a debugpy for interpreters that have none of their own.
    """
    global _port, _debugpy, watching
    if _port is None:
        debugpy = _import(package)
        # Child processes of the model are not debugged, and starting one must not find its
        # `subprocess` changed.
        debugpy.configure(subProcess=False)
        _, _port = debugpy.listen(("127.0.0.1", 0))
        _debugpy = debugpy
        watching = _TRACES_THREADS
    return _port


def _import(package: str) -> Any:
    """debugpy, found without a change of `sys.path`, which is the model's."""
    if package and "debugpy" not in sys.modules and importlib.util.find_spec("debugpy") is None:
        spec = importlib.util.spec_from_file_location(
            "debugpy", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["debugpy"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return importlib.import_module("debugpy")


def close() -> None:
    """Close the port and end debugpy's threads and its adapter; `listen` may be called again."""
    global _port
    if _port is None:
        return
    _port = None
    importlib.import_module("pydevd").stoptrace()
    # debugpy listens once in a process's life, by this flag alone; everything behind it is gone.
    importlib.import_module("debugpy.server.api").listen.called = False
    loops = sys.modules.get("devkit.stub.event_loop")
    if loops is not None:
        loops.call_on_loop(_untrace)


def _untrace() -> None:
    sys.settrace(None)


def before_execute() -> None:
    """Stop tracing the calling thread while no client is attached, and trace it while one is.

    Before 3.12 a thread stays many times slower after a client left unless it is told so.
    """
    global _connected, watching
    if _port is None:
        _connected = watching = False
        _untrace()
        return
    connected = bool(_debugpy.is_client_connected())
    if connected != _connected:
        _connected = connected
        _debugpy.trace_this_thread(connected)
