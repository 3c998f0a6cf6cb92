"""Ending together with the process that started this one. Linux only; elsewhere EOF does it.

Imports nothing of ours and no NumPy: it runs first, before anything that takes time.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, and end if it has ended already."""
    if sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went between the two lines
        os._exit(1)
