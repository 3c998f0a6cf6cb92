"""Each rule finds its bad case and is quiet on the good one, which no other rule minds either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devkit.doctor import Target, every_rule, examine, lint, repair
from devkit.doctor.examine import DoctorError
from devkit.doctor.report import github, line, plain, sarif, table
from devkit.errors import ConfigError
from tests.unit.doctor.cases import CASES, IO, Case, code, config, loop, model

ROOT = Path(__file__).parents[3]
NUMBERED = [pytest.param(case, id=f"{case.rule}-{number}") for number, case in enumerate(CASES)]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", NUMBERED)
def test_the_bad_case_is_found(case: Case, tmp_path: Path) -> None:
    seen = {"m": case.seen} if case.seen else None
    report = examine(write(tmp_path, case.bad), target=case.target, observed=seen)
    found = [one for one in report.findings if one.rule == case.rule]
    assert found, [line(one) for one in report.findings]
    assert all(one.model and one.file and one.why and one.fix for one in found)


@pytest.mark.parametrize("case", NUMBERED)
def test_the_good_case_is_quiet(case: Case, tmp_path: Path) -> None:
    target = case.good_target or case.target
    seen = {"m": case.fine} if case.fine else None
    report = examine(write(tmp_path, case.good), target=target, observed=seen)
    assert [line(one) for one in report.findings if one.rule == case.rule] == []


def test_every_rule_has_a_case() -> None:
    assert {one.id for one in every_rule()} == {case.rule for case in CASES}


def test_the_examples_are_clean() -> None:
    report = examine(ROOT / "examples", target=Target(cores=4))
    assert [line(one) for one in report.findings] == []
    assert len(report.models) > 15


def test_models_as_people_write_them_are_clean() -> None:
    report = examine(Path(__file__).parent / "written", target=Target(cores=4))
    assert [line(one) for one in report.findings] == []
    assert len(report.models) == 5


def test_the_docs_have_the_table_of_the_rules() -> None:
    assert table() in (ROOT / "devkit" / "doctor" / "RULES.md").read_text("utf-8")


def test_repairs_make_their_findings_go(tmp_path: Path) -> None:
    text = "max_batch_size: 4\n" + IO.replace("FP32", "STRING")
    source = code(loop('y = np.array([f"ü{len(x)}"])'))
    write(tmp_path, {**model(text, source), "m/config.pbtxt": config(text, "wrong")})
    before = examine(tmp_path).findings
    fixed = repair(before)
    for file, new in fixed.items():
        file.write_text(new, "utf-8")
    after = {one.rule for one in examine(tmp_path).findings}
    assert {one.rule for one in before if one.fixable} == {
        "name-not-folder", "no-batcher", "string-array",
    }  # fmt: skip
    assert not after & {one.rule for one in before if one.fixable}
    assert 'y = np.array([f"ü{len(x)}"], dtype=object)' in (tmp_path / "m/1/model.py").read_text()


def test_a_comment_passes_over_a_rule(tmp_path: Path) -> None:
    source = code(loop("print(x)  # devkit: ignore[print-in-execute]\ny = x"))
    write(tmp_path, model(source=source))
    assert examine(tmp_path).findings == ()
    write(tmp_path, model(source=source.replace("[print-in-execute]", "[no-finalize]")))
    assert [one.rule for one in examine(tmp_path).findings] == ["print-in-execute"]


def test_a_text_that_is_not_saved(tmp_path: Path) -> None:
    file = write(tmp_path, model()) / "m" / "1" / "model.py"
    assert lint(file) == []
    (found,) = lint(file, code(loop("print(x)\ny = x")))
    text = found.text
    assert (found.rule, text) == ("print-in-execute", "print(x)")
    broken = lint(tmp_path / "m" / "config.pbtxt", config('input [ { nam: "X" } ]\n'))
    assert broken[0].rule == "config-unreadable"
    assert broken[0].line == 3


def test_findings_point_into_the_config(tmp_path: Path) -> None:
    write(tmp_path, model("max_batch_size: 8\n" + IO))
    (found,) = examine(tmp_path / "m").findings
    lines = (tmp_path / "m" / "config.pbtxt").read_text().splitlines()
    assert lines[found.line - 1][found.column - 1 :] == "8"


def test_the_forms_for_editors_and_ci(tmp_path: Path) -> None:
    write(tmp_path, model(source=code(loop("print(x)\ny = x"))))
    (found,) = examine(tmp_path).findings
    assert re.fullmatch(
        r"m/1/model\.py:\d+:13: warning: print of values in the hot path \[print-in-execute\]",
        line(found, tmp_path),
    )
    assert github(found, tmp_path).startswith("::warning file=m/1/model.py,line=")
    assert '"ruleId": "print-in-execute"' in sarif([found], tmp_path)
    assert plain(found)["fixable"] is False


def test_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="does not exist"):
        examine(tmp_path / "nowhere")
    with pytest.raises(DoctorError, match="holds no model"):
        examine(tmp_path)


def test_a_release_without_an_entry(tmp_path: Path) -> None:
    write(
        tmp_path, model(source=code(loop("y = x"), more="    def is_ready(self):\n        pass\n"))
    )
    with pytest.raises(ConfigError, match="not in the table"):
        examine(tmp_path, target=Target("22.01", 4))
    with pytest.raises(ConfigError, match="no Triton release"):
        examine(tmp_path, target=Target("newest", 4))
