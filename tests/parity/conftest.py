"""The options of the parity tests, and the servers they ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.tools.real_server import unsupported
from tests.parity.pairs import REPORT, Servers, summary, write_report


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("parity")
    group.addoption(
        "--parity-report",
        metavar="FILE",
        help="write every case with both answers to FILE (.json or Markdown)",
    )
    group.addoption(
        "--parity-issue",
        type=int,
        default=9,
        metavar="N",
        help="run the cases up to this stage of the contract (2: default mode, 3: all modes, 9: all of it)",
    )
    group.addoption(
        "--parity-only",
        choices=("real", "devkit"),
        help="ask one server only; `real` checks that FACTS still holds",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REPORT] = []


def pytest_unconfigure(config: pytest.Config) -> None:
    target = config.getoption("--parity-report", None)
    rows = config.stash.get(REPORT, [])
    if target and rows:
        write_report(Path(target), rows)
        print(f"\nparity: {summary(rows)} ({target})")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pairs = Servers(tmp_path_factory.mktemp("parity"))
    yield pairs
    pairs.close()


@pytest.fixture(scope="session")
def kinds(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Which servers to ask: both, where the real one can run."""
    only = request.config.getoption("--parity-only", None)
    if only:
        return (only,)
    problem = unsupported()
    if problem is not None:
        pytest.skip(str(problem))
    return ("real", "devkit")
