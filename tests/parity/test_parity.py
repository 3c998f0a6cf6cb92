"""Every row of FACTS, asked of the real server and of devkit: they must answer the same."""

from __future__ import annotations

import difflib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.parity import (
    cases_around,
    cases_bls,
    cases_config,
    cases_decoupled,
    cases_grpc,
    cases_http,
    cases_lifecycle,
    cases_load,
    cases_model,
    cases_modes,
    cases_queued,
    cases_running,
    cases_sequences,
    cases_stats,
)
from tests.parity.asking import Answer, Case
from tests.parity.pairs import REPORT, Row, Servers

CASES = [
    *cases_http.CASES,
    *cases_config.CASES,
    *cases_model.CASES,
    *cases_grpc.CASES,
    *cases_stats.CASES,
    *cases_load.CASES,
    *cases_modes.CASES,
    *cases_decoupled.CASES,
    *cases_bls.CASES,
    *cases_running.CASES,
    *cases_queued.CASES,
    *cases_lifecycle.CASES,
    *cases_sequences.CASES,
    *cases_around.CASES,
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    limit = metafunc.config.getoption("--parity-issue", 2)
    chosen = [case for case in CASES if case.issue <= limit]
    metafunc.parametrize("case", chosen, ids=[case.name for case in chosen])


def test_both_servers_answer_the_same(
    case: Case, servers: Servers, kinds: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    answers = _ask(case, servers, kinds)
    real, devkit = answers.get("real"), answers.get("devkit")
    if real is not None and case.recorded is None:
        case.check(real)
    if devkit is None:
        return
    if real is None:
        case.check(devkit)
        return
    texts = _lines(real), _lines(devkit)
    same = texts[0] == texts[1]
    row = Row(case.name, case.fact, _cell(real), _cell(devkit), same, case.differs)
    request.config.stash[REPORT].append(row)
    if case.differs:
        assert not same, f"no longer a difference: {case.differs}"
    elif not same:
        difference = difflib.unified_diff(*texts, "real", "devkit", lineterm="", n=2)
        pytest.fail("\n".join([f"FACTS {case.fact}", *difference]), pytrace=False)


def _ask(case: Case, servers: Servers, kinds: tuple[str, ...]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    if case.recorded is not None:
        answers["real"] = case.recorded
    asked = [kind for kind in kinds if kind not in answers]
    if not case.alone and len(asked) > 1:
        sessions = servers.both(case.setup, asked)
        with ThreadPoolExecutor(len(asked)) as pool:
            answers.update(zip(asked, pool.map(case.ask, sessions), strict=True))
    else:
        for kind in asked:
            answers[kind] = case.ask(servers.get(case.setup, kind))
    for kind in asked:
        servers.check_alive(case.setup, kind)
    return answers


def _lines(answer: Answer) -> list[str]:
    return json.dumps(answer, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def _cell(answer: Answer) -> str:
    text = json.dumps(answer, ensure_ascii=False)
    return text if len(text) <= 300 else text[:297] + "..."
