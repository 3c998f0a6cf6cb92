"""What the kernel is told about this process: that it ends with its parent, who may trace it.

Linux only; elsewhere the end of a socket does the first, and nothing is in the way of the second.

Imports nothing of ours and no NumPy: it runs first, before anything that takes time.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_ANYBODY = -1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, and end if it has ended already."""
    if sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went between the two lines
        os._exit(1)


def allow_tracing() -> None:
    """Let any process of this user look into this one, where Yama allows only its parents to."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_long(_ANYBODY), 0, 0, 0)
