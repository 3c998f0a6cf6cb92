"""debugpy inside a stub, on demand: nothing of it is imported before somebody asks.

Loopback only, because the port has no authentication. What a debugger does over it is the runtime's
and the faces' business.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Optional

_port: Optional[int] = None
_debugpy: Any = None
_connected = False

# From 3.12 on debugpy uses sys.monitoring, which costs nothing once the client is gone.
_TRACES_THREADS = sys.version_info < (3, 12)


def listen() -> int:
    """Make this process debuggable; returns the port, the same one at every call."""
    global _port, _debugpy
    if _port is None:
        debugpy = importlib.import_module("debugpy")
        _, _port = debugpy.listen(("127.0.0.1", 0))
        _debugpy = debugpy
    return _port


def before_execute() -> None:
    """Stop tracing the calling thread while no client is attached, and trace it while one is.

    Before 3.12 a thread stays many times slower after a client left unless it is told so.
    """
    global _connected
    if _debugpy is None or not _TRACES_THREADS:
        return
    connected = bool(_debugpy.is_client_connected())
    if connected != _connected:
        _connected = connected
        _debugpy.trace_this_thread(connected)
