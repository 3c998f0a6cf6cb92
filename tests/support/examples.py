"""The example models, and their own clients against a running server.

The clients are real programs that assert; here they are only found and started.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.session import HOST, Session

ROOT = Path(__file__).parents[2]
REPOSITORIES = [ROOT / "examples"]


@dataclass(frozen=True)
class Example:
    """A model folder with a client."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def run_client(self, session: Session) -> subprocess.CompletedProcess[str]:
        """Its client, to the end, against `session`."""
        client = self.folder / "client.py"
        command = [sys.executable, str(client)]
        command += ["--http", session.url, "--grpc", session.grpc_url]
        if "--metrics" in client.read_text(encoding="utf-8"):
            command += ["--metrics", f"{HOST}:{session.server.metrics_port}"]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


EXAMPLES = [
    Example(config.parent)
    for repository in REPOSITORIES
    for config in sorted(repository.glob("*/config.pbtxt"))
]
