"""Types of `triton_python_backend_utils` for checkers: those of devkit's own `pb_utils`."""

from devkit.stub.pb_utils import *  # noqa: F403
