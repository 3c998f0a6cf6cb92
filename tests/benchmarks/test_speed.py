"""Speed beside the real server: a table of ratios, and the figures as JSON. See `measure`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from devkit.tools.real_server import ensure, unsupported
from tests.benchmarks import measure
from tests.support.models import add_sub
from tests.support.repository import write_repository
from tests.support.session import Session


@pytest.mark.bench
def test_speed_beside_the_real_server(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    problem = unsupported()
    if problem is not None:
        pytest.skip(str(problem))
    installation = ensure()
    sessions: dict[str, Session] = {}
    arguments = ["--model-control-mode=explicit", "--load-model=add_sub"]
    arguments += ["--load-model=add_sub_reload"]
    try:
        for kind in ("real", "devkit"):
            # A repository each: the reload writes into it.
            repository = write_repository(tmp_path / kind, [add_sub(), add_sub("add_sub_reload")])
            sessions[kind] = Session(kind, repository, arguments)
        rounds = request.config.getoption("--bench-rounds")
        figures = measure.run(sessions, measure.measures(installation), rounds)
    finally:
        for session in sessions.values():
            session.close()
    Console().print(measure.show(figures))
    target = Path(request.config.getoption("--bench-json") or "benchmarks.json")
    measure.save(figures, target)
    assert all(ratio > 0 for row in figures for ratio in row.ratios)
