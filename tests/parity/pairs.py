"""Both servers over the same repositories, started when first asked; and the report of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devkit.tools.real_server import RealServerError
from tests.support.around import AROUND, GUARDED
from tests.support.lifecycle import LIFECYCLE
from tests.support.models import LOADED_ON_REQUEST, NO_FILE, SERVED
from tests.support.repository import write_repository
from tests.support.scripts import BF16, FLOWS, QUEUES, SCRIPTS
from tests.support.sequences import SEQUENCES
from tests.support.session import Session, StartError


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    case: str
    fact: str
    real: str
    devkit: str
    same: bool
    differs: str = ""


REPORT: pytest.StashKey[list[Row]] = pytest.StashKey()


def summary(rows: list[Row]) -> str:
    """The report in one line."""
    same = sum(row.same for row in rows)
    listed = sum(bool(row.differs) and not row.same for row in rows)
    unexplained = len(rows) - same - listed
    return (
        f"{same} of {len(rows)} cases the same, {listed} differ on purpose, "
        f"{unexplained} without an explanation"
    )


def write_report(target: Path, rows: list[Row]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix == ".json":
        target.write_text(json.dumps([row.__dict__ for row in rows], indent=1) + "\n")
        return
    lines = [
        f"# Parity with the real server: {summary(rows)}",
        "",
        "| case | FACTS | real | devkit | same |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        verdict = "yes" if row.same else f"no: {row.differs}" if row.differs else "**no**"
        cells = (row.case, row.fact, row.real, row.devkit, verdict)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    target.write_text("\n".join(lines) + "\n")


class Servers:
    """The pairs of servers by setup name and kind, each started once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[tuple[str, str], Session] = {}
        self._failed: dict[tuple[str, str], str] = {}

    def get(self, setup: str, kind: str) -> Session:
        (session,) = self.both(setup, [kind])
        return session

    def both(self, setup: str, kinds: Sequence[str]) -> list[Session]:
        """The servers of those kinds, started at once where they do not run yet."""
        repository = self.folder / setup
        if not repository.exists():
            write_repository(repository, _SETUPS[setup])
        if len(kinds) == 1 or all((setup, kind) in self._running for kind in kinds):
            return [self._get(setup, kind, repository) for kind in kinds]
        with ThreadPoolExecutor(1) as pool:
            # Not the real one in the thread: it would be ended with the thread that started it.
            ours = pool.submit(self._get, setup, "devkit", repository)
            made = {"real": self._get(setup, "real", repository), "devkit": ours.result()}
        return [made[kind] for kind in kinds]

    def _get(self, setup: str, kind: str, repository: Path) -> Session:
        if (setup, kind) in self._failed:
            pytest.fail(self._failed[setup, kind], pytrace=False)
        if (setup, kind) not in self._running:
            try:
                arguments = [*_ARGUMENTS[setup], _SOON]
                self._running[setup, kind] = Session(kind, repository, arguments)
            except (StartError, RealServerError) as failure:
                # Not tried once more for each of its cases.
                self._failed[setup, kind] = f"the {kind} server of {setup!r} did not start"
                pytest.fail(str(failure), pytrace=False)
        return self._running[setup, kind]

    def check_alive(self, setup: str, kind: str) -> None:
        """Fail at the case that ended a server, and start another for the cases after it."""
        session = self._running[setup, kind]
        if session.server.returncode is not None:
            log = session.log()[-2000:]
            del self._running[setup, kind]
            session.close(check=False)
            pytest.fail(f"the {kind} server ended with {session.server.returncode}:\n{log}")

    def close(self) -> None:
        sessions = list(self._running.values())
        self._running.clear()
        with ThreadPoolExecutor(len(sessions) or 1) as pool:
            failures = [failure for failure in pool.map(_close, sessions) if failure]
        assert not failures, failures


def _close(session: Session) -> str:
    try:
        session.close()
    except AssertionError as failure:
        return str(failure)
    return ""


# `serving` is never asked to load, so that its readiness stays; `loading` starts with nothing.
_SETUPS: dict[str, Any] = {
    "serving": SERVED,
    "counting": [model for model in SERVED if model.name in ("actor", "actor_batch", "add_sub")],
    "loading": [*SERVED[:2], *LOADED_ON_REQUEST],
    "no_file": [NO_FILE],
    "contract": [*SCRIPTS, BF16, *FLOWS, *QUEUES],
    "lifecycle": LIFECYCLE,
    "sequences": SEQUENCES,
    "around": AROUND,
    "guarded": GUARDED,
}
# What the real server never answers would keep it from ending.
_SOON = "--exit-timeout-secs=2"
_ARGUMENTS: dict[str, list[str]] = {
    "serving": [],
    "counting": [],
    "loading": ["--model-control-mode=explicit"],
    "no_file": ["--model-control-mode=explicit"],
    "contract": ["--model-control-mode=explicit", "--load-model=*"],
    "lifecycle": ["--model-control-mode=explicit"],
    "sequences": [],
    "around": [
        "--model-control-mode=explicit",
        "--cache-config=local,size=65536",
        "--http-header-forward-pattern=^fwd",
        "--grpc-header-forward-pattern=FWD",
    ],
    "guarded": [
        "--http-restricted-api=model-repository,model-config:admin-key=right",
        "--http-restricted-api=shared-memory,logging,trace:admin-key=right",
        "--grpc-restricted-protocol=model-repository:admin-key=right",
        "--grpc-restricted-protocol=inference,health:key=val",
    ],
}
