"""`devkit serve`: this process becomes the runtime. Its flags are `contract.flags`' business."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def become_runtime(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the runtime, which reads the arguments itself.

    A face never imports the runtime, and the runtime never carries a command line's modules.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "devkit.runtime", *arguments]
    os.execv(sys.executable, command)
