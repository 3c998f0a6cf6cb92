"""The JupyterLab face: what runs in or starts the Jupyter server process. No model runs here.

`extension` is what the Jupyter server loads; `python -m devkit.lab` is `make lab`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """What the Jupyter server asks a package for that is named in its configuration."""
    return [{"module": "devkit.lab"}]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    """Called once by the Jupyter server when it starts."""
    from devkit.lab import extension

    extension.load(server)
