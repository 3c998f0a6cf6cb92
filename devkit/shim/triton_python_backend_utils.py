"""`import triton_python_backend_utils as pb_utils`, wherever devkit is installed.

In notebooks, tests and IDEs this is devkit's `pb_utils`, typed and documented. Inside the real
server it must stay out of the way: the backend's stub puts its own folder at the END of `sys.path`,
so this file is found before the real one. Hence it hands over whenever the backend's built-in
module exists. No logic of its own.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devkit.stub.pb_utils import *  # noqa: F403

_HERE = os.path.dirname(os.path.abspath(__file__))
_spec = None
try:
    import c_python_backend_utils  # noqa: F401  (only the real backend's stub has it)
except ImportError:
    pass
else:
    _elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    _spec = PathFinder.find_spec(__name__, _elsewhere)

if _spec is not None and _spec.loader is not None:
    _real = importlib.util.module_from_spec(_spec)
    sys.modules[__name__] = _real
    _spec.loader.exec_module(_real)
else:
    from devkit.stub import pb_utils as _ours

    sys.modules[__name__] = _ours
