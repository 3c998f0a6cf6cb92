"""Puts devkit's few addresses into a Jupyter server, all under `devkit/api/` of its base URL.

Only composes: the runtime is found and started by `desk`, calls are passed on by `handlers`, events
by `relay`. Everything here stands behind Jupyter's own token, cookies and XSRF check.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_server.utils import url_path_join

from devkit.lab.desk import Desk
from devkit.lab.handlers import AskHandler, CallHandler, NewModelHandler, RuntimeHandler
from devkit.lab.relay import EventsHandler

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def load(server: ServerApp) -> None:
    """Add the addresses to `server`."""
    desk = Desk(Path(server.root_dir))
    atexit.register(desk.close)
    base = url_path_join(server.web_app.settings["base_url"], "devkit", "api")
    with_desk = {"desk": desk}
    server.web_app.add_handlers(  # type: ignore[no-untyped-call]
        ".*$",
        [
            (url_path_join(base, "runtime"), RuntimeHandler, with_desk),
            (url_path_join(base, "events"), EventsHandler, with_desk),
            (url_path_join(base, "ask"), AskHandler, with_desk),
            (url_path_join(base, "new"), NewModelHandler, with_desk),
            (url_path_join(base, r"(v\d+/.*)"), CallHandler, with_desk),
        ],
    )
    server.log.info("devkit: serving the workspace %s", desk.workspace)
