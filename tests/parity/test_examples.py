"""Every example's own client finds both servers right: one model, one client, no case apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from devkit.tools.verify import verify
from tests.parity.pairs import REPORT, Row
from tests.support.examples import EXAMPLES, REPOSITORIES, Example
from tests.support.session import Session

# What the real server answers once a stub of its own has died, which on a busy machine happens now
# and then to one that streams to another model; it never starts it again.
LOST = "is not healthy"


class Start(Protocol):
    """The server of a kind; `anew`: another one, for the rest of the tests."""

    def __call__(self, kind: str, *, anew: bool = False) -> Session: ...


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """The server of a kind over all examples, started once."""
    running: dict[str, Session] = {}

    def session(kind: str, *, anew: bool = False) -> Session:
        if anew:
            running.pop(kind).close()
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
        if kind == "real" and LOST in done.stderr:
            done = example.run_client(start(kind, anew=True))
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
    for anew in (False, True):
        real = start("real", anew=anew)
        with start("devkit").client() as client:
            report = verify(
                repository, captures=[], client=client, generated=True,
                url=real.url, grpc_url=real.grpc_url,
            )  # fmt: skip
        if LOST not in report.text(200):
            break
    assert report.verdict == "same", report.text(200)
    assert all(model.requests for model in report.models)
