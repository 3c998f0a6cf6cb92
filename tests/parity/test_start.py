"""FACTS 6, how a server starts and ends: exit status, readiness, log; both kinds, one story each."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from devkit.tools.real_server import RealServerError
from tests.parity.asking import act, get, load, post, unload
from tests.support.models import LOADED_ON_REQUEST, MINIMAL, actor
from tests.support.repository import ModelFiles, write_repository
from tests.support.session import Session, StartError, shared_memory_entries

BROKEN = {model.name: model for model in LOADED_ON_REQUEST}
GOOD, BAD = actor("actor"), BROKEN["broken_initialize"]
EXPLICIT = "--model-control-mode=explicit"
INDEX = post("/v2/repository/index")


@pytest.fixture(params=["real", "devkit"])
def kind(request: pytest.FixtureRequest, kinds: tuple[str, ...]) -> str:
    if request.param not in kinds:
        pytest.skip(f"only {kinds} asked")
    return str(request.param)


class Serve(Protocol):
    """Starts a server for a `with`; it is ended while the next test begins."""

    def __call__(
        self, kind: str, folder: Path, models: list[ModelFiles], *flags: str, wait: str = "ready"
    ) -> contextlib.AbstractContextManager[Session]: ...


@pytest.fixture(scope="module")
def serving() -> Iterator[Serve]:
    """Each server must leave nothing behind; the real one takes seconds to end."""
    ending: list[Future[int | None]] = []
    with ThreadPoolExecutor(4) as pool:

        @contextlib.contextmanager
        def serve(
            kind: str, folder: Path, models: list[ModelFiles], *flags: str, wait: str = "ready"
        ) -> Iterator[Session]:
            repository = write_repository(folder / "models", models)
            session = Session(kind, repository, flags, wait=wait)
            try:
                yield session
            finally:
                ending.append(pool.submit(session.close))

        yield serve
        for each in ending:
            each.result()


def refused(kind: str, folder: Path, models: list[ModelFiles], *flags: str) -> tuple[int, str]:
    """Status and log of a server that must not come up."""
    repository = write_repository(folder / "models", models)
    try:
        session = Session(kind, repository, flags)
    except StartError as failure:
        if failure.status is None:
            raise
        return failure.status, failure.log
    except RealServerError as failure:
        return int(failure.message.split("status ")[1].split()[0]), failure.log
    session.close()
    raise AssertionError("it came up")


def test_a_model_that_fails_ends_the_start(kind: str, tmp_path: Path) -> None:
    status, log = refused(kind, tmp_path, [BAD, GOOD], "--exit-on-error=true")
    assert status == 1
    assert "error: creating server: Internal - failed to load all models" in log
    assert "actor down actor_0" in log


def test_a_model_that_fails_spares_the_others(kind: str, tmp_path: Path, serving: Serve) -> None:
    flags = "--exit-on-error=false"
    with serving(kind, tmp_path, [BAD, GOOD], flags, wait="live") as session:
        assert act("double").ask(session)["status"] == 200
        assert get("/v2/health/ready").ask(session)["status"] == 400
        good, bad = json.loads(INDEX.ask(session)["body"])
        assert bad["state"] == "UNAVAILABLE"
        assert bad["reason"].startswith("Internal: ValueError: no weights\n\nAt:\n")
        assert good == {"name": "actor", "version": "1", "state": "READY"}


def test_readiness_may_overlook_a_failed_model(kind: str, tmp_path: Path, serving: Serve) -> None:
    flags = ("--exit-on-error=false", "--strict-readiness=false")
    with serving(kind, tmp_path, [BAD, GOOD], *flags) as session:
        assert get("/v2/health/ready").ask(session)["status"] == 200


def test_a_config_that_cannot_be_read_ends_the_start(kind: str, tmp_path: Path) -> None:
    status, log = refused(kind, tmp_path, [BROKEN["broken_text"], GOOD], "--exit-on-error=true")
    assert status == 1
    assert "failed to load all models" in log


def test_an_unknown_flag(kind: str, tmp_path: Path) -> None:
    status, log = refused(kind, tmp_path, [GOOD], "--nonsense=1")
    assert status == 1
    assert "nonsense" in log


def test_an_unknown_model_asked_for(kind: str, tmp_path: Path) -> None:
    flags = (EXPLICIT, "--load-model=nobody", "--exit-on-error=true")
    status, _ = refused(kind, tmp_path, [GOOD], *flags)
    assert status == 1


def test_an_empty_repository_is_ready(kind: str, tmp_path: Path, serving: Serve) -> None:
    with serving(kind, tmp_path, []) as session:
        assert INDEX.ask(session)["body"] == "[]"


def test_explicit_mode_loads_what_is_named(kind: str, tmp_path: Path, serving: Serve) -> None:
    models = [GOOD, actor("other")]
    with serving(kind, tmp_path, models, EXPLICIT, "--load-model=actor") as session:
        index = json.loads(INDEX.ask(session)["body"])
        assert index == [{"name": "actor", "version": "1", "state": "READY"}, {"name": "other"}]


def test_without_auto_complete_the_model_is_not_asked(
    kind: str, tmp_path: Path, serving: Serve
) -> None:
    flag = "--disable-auto-complete-config"
    with serving(kind, tmp_path, [BROKEN["broken_auto"]], flag) as session:
        assert get("/v2/models/broken_auto/ready").ask(session)["status"] == 200


def test_without_auto_complete_a_config_is_needed(kind: str, tmp_path: Path) -> None:
    flags = ("--disable-auto-complete-config", "--exit-on-error=true")
    status, _ = refused(kind, tmp_path, [ModelFiles("bare", MINIMAL)], *flags)
    assert status == 1


def test_version_folders_that_are_no_numbers_are_told(
    kind: str, tmp_path: Path, serving: Serve
) -> None:
    with serving(kind, tmp_path, [actor("actor", versions=("1", "draft"))]) as session:
        said = "ignore version directory 'draft' which fails to convert to integral number"
        assert session.wait_for_log(said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_gracefully(
    kind: str, number: signal.Signals, tmp_path: Path, serving: Serve
) -> None:
    with serving(kind, tmp_path, [GOOD]) as session:
        psutil.Process(session.server.pid).send_signal(number)
        deadline = time.monotonic() + 30
        while session.server.returncode is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert session.server.returncode == 0
        assert "actor down actor_0" in session.log()


def test_what_runs_at_unload_is_finished(kind: str, tmp_path: Path, serving: Serve) -> None:
    with serving(kind, tmp_path, [GOOD], EXPLICIT, "--load-model=actor") as session:
        answers = []
        running = threading.Thread(target=lambda: answers.append(act("sleep:2").ask(session)))
        running.start()
        time.sleep(0.5)
        began = time.monotonic()
        assert unload("actor").ask(session)["status"] == 200
        assert running.is_alive(), f"unload waited {time.monotonic() - began:.1f} s"
        late = act("double").ask(session)
        assert late["status"] == 404
        assert "Request for unknown model: 'actor' has no available versions" in late["body"]
        running.join()
        assert answers[0]["status"] == 200
        assert session.wait_for_log("actor down actor_0")
        assert load("actor").ask(session)["status"] == 200


def test_requests_spread_over_instances(kind: str, tmp_path: Path, serving: Serve) -> None:
    pair = actor("actor", "instance_group [ { count: 2 } ]\n")
    with serving(kind, tmp_path, [pair]) as session:
        barrier = threading.Barrier(2)
        spans: list[tuple[float, float]] = []

        def ask() -> None:
            barrier.wait()
            began = time.monotonic()
            assert act("sleep:0.5").ask(session)["status"] == 200
            spans.append((began, time.monotonic()))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # One after the other, the second would have begun to sleep when the first was answered.
        assert max(end for _, end in spans) - min(begin for begin, _ in spans) < 1.0


def test_killed_it_leaves_no_process_and_the_next_start_no_memory(tmp_path: Path) -> None:
    repository = write_repository(tmp_path / "models", [GOOD])
    session = Session("devkit", repository)
    processes = session.descendants()
    assert len(processes) > 1
    own = f"devkit-{session.server.pid}-"
    psutil.Process(session.server.pid).kill()
    assert not psutil.wait_procs(processes, timeout=5)[1]
    session.close(check=False)
    with Session("devkit", repository):
        assert not [name for name in shared_memory_entries() if name.startswith(own)]
