"""Every example's own client finds both servers right: one model, one client, no case apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devkit.tools.verify import verify
from tests.parity.pairs import REPORT, Row
from tests.support.examples import EXAMPLES, REPOSITORIES, Example
from tests.support.session import Session

Start = Callable[[str], Session]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """The server of a kind over all examples, started once."""
    running: dict[str, Session] = {}

    def session(kind: str) -> Session:
        if kind not in running:
            running[kind] = Session(kind, REPOSITORIES)
        return running[kind]

    yield session
    for each in running.values():
        each.close()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_answers_its_client(
    example: Example, start: Start, kinds: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    said = {}
    for kind in kinds:
        done = example.run_client(start(kind))
        said[kind] = "right" if done.returncode == 0 else done.stderr
    if len(kinds) == 2:
        row = Row(
            f"example {example.name}",
            "examples",
            said["real"][-300:],
            said["devkit"][-300:],
            said["real"] == said["devkit"],
        )
        request.config.stash[REPORT].append(row)
    wrong = {kind: text for kind, text in said.items() if text != "right"}
    assert not wrong, "\n".join(f"{kind}:\n{text}" for kind, text in wrong.items())


@pytest.mark.parametrize("repository", REPOSITORIES, ids=lambda path: path.name)
def test_the_verify_report_of_the_examples_is_clean(
    repository: Path, start: Start, kinds: tuple[str, ...]
) -> None:
    if len(kinds) < 2:
        return  # there is nothing to hold devkit against
    real = start("real")
    with start("devkit").client() as client:
        report = verify(
            repository, captures=[], client=client, generated=True,
            url=real.url, grpc_url=real.grpc_url,
        )  # fmt: skip
    assert report.verdict == "same", report.text(200)
    assert all(model.requests for model in report.models)
