"""Control calls to the doctor: `/doctor` of the models that are served, and of unsaved text; and
`/config/help`, what an editor of a `config.pbtxt` may offer.

Runtime side: adds what the runtime has seen of each model to what its files say.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from devkit.contract import assistance
from devkit.control import calls, findings, messages
from devkit.doctor import Observed, Target, examine
from devkit.doctor.examine import DoctorError, Report
from devkit.doctor.rules import Finding
from devkit.errors import ControlError, UnknownModelError

if TYPE_CHECKING:
    from devkit.control.calls import Row
    from devkit.control.snapshots import Photographer
    from devkit.core.engine import Engine


def routes(engine: Engine, photographer: Photographer) -> list[Row]:
    """What can be asked."""
    topic = _Doctor(engine, photographer)
    return [
        ("GET", "/doctor", topic.examine),
        ("POST", "/doctor", topic.lint),
        ("POST", "/config/help", _help),
    ]


async def _help(request: Request) -> Response:
    asked = await calls.asked(request, findings.ConfigPlace)
    place = (asked.text, asked.line, asked.column)
    found = tuple(assistance.suggestions(*place))
    return calls.reply(findings.ConfigHelp(found, assistance.explanation(*place)))


class _Doctor:
    def __init__(self, engine: Engine, photographer: Photographer) -> None:
        self._engine = engine
        self._photographer = photographer

    async def examine(self, request: Request) -> Response:
        name = request.query_params.get("model", "")
        target = _target(request.query_params.get("release", ""))
        await self._photographer.look()
        models = self._photographer.models()
        chosen = [one for one in models if one.folder and name in ("", one.name)]
        if name and not chosen:
            raise UnknownModelError(f"there is no model '{name}'", model=name)
        seen = self._observed(models)
        reports = await asyncio.to_thread(_examined, chosen, target, seen)
        found = tuple(_finding(one) for report in reports for one in report.findings)
        names = tuple(one.name for one in chosen)
        return calls.reply(findings.Diagnosis(found, names, target.release))

    async def lint(self, request: Request) -> Response:
        asked = await calls.asked(request, findings.LintText)
        target = _target(asked.release)
        model = next(
            (one for one in self._photographer.models() if one.name == asked.model and one.folder),
            None,
        )
        seen = self._observed([model] if model else [])
        report = await asyncio.to_thread(_linted, asked, model, target, seen)
        found = tuple(_finding(one) for one in report.findings)
        return calls.reply(findings.Diagnosis(found, (asked.model,), target.release))

    def _observed(self, models: list[messages.Model]) -> dict[str, Observed]:
        memory = self._photographer.memory()
        return {one.name: self._seen(one, memory) for one in models}

    def _seen(self, model: messages.Model, memory: messages.SharedMemory) -> Observed:
        config: Any = None
        if model.state == "READY" and not model.unlearned:
            config = self._engine.model(model.name).config
        words = [f"{one.name}: {one.last_words}" for one in model.instances if one.last_words]
        return Observed(
            model.name,
            model.folder,
            config,
            tuple((one.rule, one.text, one.line, one.count) for one in model.warnings),
            tuple(words),
            findings.used_by(memory, model.name),
            max((one.load_seconds for one in model.instances), default=0.0),
            len(model.instances),
            model.decoupled,
        )


def _target(release: str) -> Target:
    target = Target(release) if release else Target()
    assert target.known  # a release that is not in the table is an error here
    return target


def _examined(
    models: list[messages.Model], target: Target, seen: Mapping[str, Observed]
) -> list[Report]:
    return [
        examine(one.folder, target=target, observed=seen)
        for one in models
        if Path(one.folder).is_dir()
    ]


def _linted(
    asked: findings.LintText,
    model: messages.Model | None,
    target: Target,
    seen: Mapping[str, Observed],
) -> Report:
    """Findings of the text; of a model that is not there yet, from a folder made for it."""
    inside = Path(asked.file)
    if inside.is_absolute() or ".." in inside.parts:
        raise ControlError(
            f"'{asked.file}' is not a path inside the model's folder",
            remedy="such as 1/model.py or config.pbtxt",
        )
    if model is None:
        if not asked.model or "/" in asked.model or asked.model.startswith("."):
            raise ControlError(f"'{asked.model}' cannot be a model's name")
        with tempfile.TemporaryDirectory(prefix="devkit-lint-") as folder:
            home = Path(folder).resolve() / asked.model
            (home / "1").mkdir(parents=True)
            file = home / inside
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(asked.text, "utf-8")
            return _of_file(examine(home, target=target), file, asked.file)
    file = (Path(model.folder) / inside).resolve()
    report = examine(model.folder, target=target, observed=seen, texts={file: asked.text})
    return _of_file(report, file, str(file))


def _of_file(report: Report, file: Path, shown: str) -> Report:
    if file.suffix not in (".py", ".pbtxt"):
        raise DoctorError(f"{file.name} is neither Python nor config.pbtxt")
    absent = ("no-model-file", "no-version")  # a text alone has no files beside it
    found = tuple(
        one for one in report.findings if one.file == str(file) and one.rule not in absent
    )
    return Report(_shown_as(found, shown), report.models, report.release)


def _shown_as(found: tuple[Finding, ...], shown: str) -> tuple[Finding, ...]:
    return tuple(dataclasses.replace(one, file=shown) for one in found)


def _finding(one: Finding) -> findings.Finding:
    changes = tuple(
        findings.Change(
            findings.Place(
                str(edit.place.file), edit.place.line, edit.place.column, edit.place.end_line,
                edit.place.end_column,
            ),
            edit.text,
        )
        for edit in one.edits
    )  # fmt: skip
    place = findings.Place(one.file, one.line, one.column, one.end_line, one.end_column)
    return findings.Finding(
        one.rule, one.severity, one.message, one.why, one.fix, one.model, place, one.source,
        one.text, changes,
    )  # fmt: skip
