"""Exports of one, several or all models with everything that goes with them: planned, then made.

`export` writes one model's own files; here they are put together in a folder beside the target,
compared with what is there, and moved into place all at once or not at all.
"""

from __future__ import annotations

import contextlib
import difflib
import filecmp
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from devkit.contract import config as contract
from devkit.contract import releases
from devkit.contract.recording import Record
from devkit.control import findings, messages
from devkit.control.findings import ExportAsked, ExportedFile, ExportPlan
from devkit.doctor import Target, examine
from devkit.tools import deploy, exporters, imports, inferentia, packing, warmup
from devkit.tools.export import ExportError, Source, export
from devkit.tools.samples import sample_requests

_DIFF_LINES = 80
_LITTER = ("__pycache__", ".ipynb_checkpoints")


class LiveSource(Source, Protocol):
    """What an export of several models asks of a runtime; `control.client.Client` is one."""

    def models(self) -> list[messages.Model]:
        """Every model."""

    def memory(self) -> messages.SharedMemory:
        """Shared memory in use."""

    def captures(self, name: str = "") -> list[Record]:
        """Recorded requests."""


@dataclass
class _Staged:
    """An export put together beside its target."""

    folder: Path
    names: tuple[str, ...]
    brought: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    requirements: dict[str, str] = field(default_factory=dict)
    unrecorded: list[str] = field(default_factory=list)


def plan(source: LiveSource, asked: ExportAsked) -> ExportPlan:
    """What `write` would do; nothing is written where the export is to be."""
    dest = _dest(asked)
    with _staged(source, asked, dest, elsewhere=True) as staged:
        return _planned(staged, dest)


def write(source: LiveSource, asked: ExportAsked) -> ExportPlan:
    """Write the export; ExportError where something else is there and `force` does not agree."""
    dest = _dest(asked)
    with _staged(source, asked, dest) as staged:
        found = _planned(staged, dest)
        if found.state == "differs" and not asked.force:
            changed = [f"{one.path} would be {one.state}" for one in found.files
                       if one.state != "same"]  # fmt: skip
            raise ExportError(
                f"{dest} exists and differs: {', '.join(changed[:8])}"
                + (f" and {len(changed) - 8} more" if len(changed) > 8 else ""),
                remedy="see them with --diff; replace them with --force, or export elsewhere",
                differences=changed,
            )
        try:
            _put_in_place(staged, dest, found)
        except OSError as problem:
            raise ExportError(
                f"{dest} could not be written: {problem}",
                remedy="nothing was changed; see to what the system says and export again",
            ) from problem
    states = {"new": "written", "differs": "replaced", "unchanged": "unchanged"}
    return ExportPlan(
        found.dest, found.models, states[found.state], found.files, found.brought, found.assumed,
        found.warnings,
    )  # fmt: skip


def _dest(asked: ExportAsked) -> Path:
    return Path(asked.dest).expanduser().resolve()


# --- what belongs to it -------------------------------------------------------------------------


def chosen(source: LiveSource, names: Sequence[str]) -> tuple[str, ...]:
    """The models that are meant, and those that an ensemble of them is made of."""
    rows = {one.name: one for one in source.models()}
    if not names:
        names = [name for name, one in rows.items() if one.state == "READY"]
        if not names:
            raise ExportError("no model is served", remedy="load one first: `devkit load NAME`")
    found: list[str] = []
    todo = list(names)
    while todo:
        name = todo.pop(0)
        if name in found:
            continue
        found.append(name)
        steps = source.config(name).get("ensemble_scheduling", {}).get("step", [])
        todo += [step["model_name"] for step in steps]
    return tuple(found)


@contextlib.contextmanager
def _staged(
    source: LiveSource, asked: ExportAsked, dest: Path, *, elsewhere: bool = False
) -> Iterator[_Staged]:
    release = releases.find(asked.release or releases.DEFAULT)
    names = chosen(source, asked.models)
    for name in names:
        home = Path(source.model(name).folder).resolve()
        if dest / name == home or home in (dest / name).parents:
            raise ExportError(
                f"{dest / name} is the folder that '{name}' is served from",
                model=name,
                remedy="export to another folder",
            )
    place: Path | None = None
    if not elsewhere:
        dest.parent.mkdir(parents=True, exist_ok=True)
        place = _beside(dest)
    folder = Path(tempfile.mkdtemp(prefix=".devkit-export-", dir=place))
    try:
        staged = _Staged(folder, names)
        for name in names:
            _stage_model(source, asked, name, staged, dest)
        if asked.deploy:
            _stage_deployment(source, staged, release)
        if staged.unrecorded:
            names = tuple(dict.fromkeys(staged.unrecorded))
            staged.warnings.append(
                f"no warmup or perf_data.json for {', '.join(names)}: no request is recorded"
            )
        _look_over(staged, release)
        yield staged
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(dest: Path) -> Path:
    """Where things can be put together and then renamed: inside `dest` where that is a mount."""
    if dest.is_dir() and dest.stat().st_dev != dest.parent.stat().st_dev:
        return dest
    return dest.parent


def _stage_model(
    source: LiveSource, asked: ExportAsked, name: str, staged: _Staged, dest: Path
) -> None:
    report = export(source, name, staged.folder, full=asked.full)
    staged.brought += [f"{name}/{one}" for one in report.brought]
    staged.assumed += report.assumed
    made = report.folder
    model = source.model(name)
    config = contract.from_dict(source.config(name))
    _bring_modules(made, name, staged)
    _say_what_is_outside(model, made, name, staged)
    records = _records(source, name) if asked.warmup or asked.client or asked.perf else []
    if asked.warmup:
        _stage_warmup(made, config, records, name, staged)
    if asked.client and not (made / "client.py").exists():  # the user's own is better
        request = records[-1].request if records else sample_requests(config)[0]
        (made / "client.py").write_text(deploy.client(config, request), "utf-8")
    if asked.perf:
        _stage_perf(made, config, records, name, staged)
    if asked.requirements or asked.environment or asked.deploy:
        _stage_packages(made, asked, name, staged)
    if asked.version:
        _renumber(made, asked.version, dest / name, name)


def _records(source: LiveSource, name: str) -> list[Record]:
    return [one for one in source.captures(name) if one.whole]


def _bring_modules(made: Path, name: str, staged: _Staged) -> None:
    """Modules that the code imports, loaded yet or not, from folders that production lacks."""
    versions = [one for one in made.iterdir() if one.name.isdigit()]
    for file in imports.local_modules(made):
        root = file.parent
        while (root / "__init__.py").is_file() and root != root.parent:
            root = root.parent
        inside = file.relative_to(root)
        for version in versions:
            target = version / inside
            if not target.exists() and not (made / inside).exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
                staged.brought.append(f"{name}/{version.name}/{inside} from {file}")


def _say_what_is_outside(model: messages.Model, made: Path, name: str, staged: _Staged) -> None:
    served = Path(model.folder)
    for file, line, path in imports.opened_outside(served):
        staged.warnings.append(
            f"{name}: {file.relative_to(served)}:{line} names {path}, which production lacks: put "
            "it into the version folder and open it from there (pb_utils.get_model_dir())"
        )
    pids = [one.pid for one in model.instances if one.pid > 0]
    for held in imports.opened_by(pids, served):
        staged.warnings.append(f"{name}: its process has {held} open, which production lacks")


def _stage_warmup(
    made: Path, config: Any, records: Sequence[Record], name: str, staged: _Staged
) -> None:
    if config.HasField("sequence_batching"):
        staged.warnings.append(f"{name}: no warmup, since its requests belong to sequences")
        return
    found = warmup.warmup(config, records)
    if not found.samples:
        staged.unrecorded.append(name)
        return
    for path, data in found.files.items():
        file = made / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    pbtxt = made / "config.pbtxt"
    own = contract.parse(pbtxt.read_text("utf-8"))
    if own.model_warmup:
        staged.warnings.append(f"{name}: its config has model_warmup already, which is kept")
        return
    pbtxt.write_text(warmup.config_text(pbtxt.read_text("utf-8"), found.samples), "utf-8")


def _stage_perf(
    made: Path, config: Any, records: Sequence[Record], name: str, staged: _Staged
) -> None:
    if not records:
        staged.unrecorded.append(name)
        return
    text = exporters.perf_analyzer(records, batching=config.max_batch_size > 0)
    (made / "perf_data.json").write_text(text, "utf-8")


def _stage_packages(made: Path, asked: ExportAsked, name: str, staged: _Staged) -> None:
    names = imports.third_party(made)
    if not names and not asked.environment:
        return
    found = imports.packages(names)
    for one in found.unknown:
        staged.warnings.append(f"{name}: {one} is imported and not installed here")
    release = releases.find(asked.release or releases.DEFAULT)
    fits = _numpy_fits(found, release)
    if not fits:
        staged.warnings.append(
            f"the stub of Triton {release.name} takes NumPy 1, and NumPy 2 serves the models here: "
            "the requirements say numpy<2"
        )
    if asked.requirements:
        for file, text in (("requirements.txt", found.requirements()),
                           ("requirements.lock", found.lock())):  # fmt: skip
            if not (made / file).exists():  # the user's own is better
                (made / file).write_text(text if fits else _older_numpy(text), "utf-8")
    if asked.environment:
        packed = [key for key, _ in found.all if fits or key.lower() != "numpy"]
        _stage_environment(made, asked, packed, release, name, staged)
    else:
        staged.requirements.update(found.direct)


def _numpy_fits(found: imports.Packages, release: releases.Release) -> bool:
    version = {key.lower(): value for key, value in found.all}.get("numpy", "1")
    return int(version.partition(".")[0]) <= release.numpy


def _older_numpy(text: str) -> str:
    return re.sub(r"(?mi)^numpy==.*$", "numpy<2", text)


def _stage_environment(
    made: Path,
    asked: ExportAsked,
    packages: Sequence[str],
    release: releases.Release,
    name: str,
    staged: _Staged,
) -> None:
    if not packages:
        staged.warnings.append(f"{name}: no env.tar.gz, since it needs nothing but NumPy")
        return
    home = "" if asked.environment in ("1", "yes") else asked.environment
    version = packing.pack(packages, made / packing.ARCHIVE, home=home)
    file = made / "config.pbtxt"
    text = file.read_text("utf-8")
    if "EXECUTION_ENV_PATH" not in text:
        value = f'value {{ string_value: "{packing.VALUE}" }}'
        added = f'parameters {{ key: "EXECUTION_ENV_PATH" {value} }}'
        file.write_text(f"{text.rstrip()}\n{added}\n", "utf-8")
    if version != release.python:
        staged.warnings.append(
            f"{name}: packed for Python {version}; the stub of Triton {release.name} has "
            f"{release.python}"
        )


def _renumber(made: Path, version: str, there: Path, name: str) -> None:
    """Put the newest served version under another number, beside those that are there."""
    numbers = sorted((int(one.name) for one in made.iterdir() if one.name.isdigit()), reverse=True)
    kept = sorted(
        int(one.name) for one in (there.iterdir() if there.is_dir() else ()) if one.name.isdigit()
    )
    if version == "next":
        wanted = max(kept, default=0) + 1
    elif version.isdigit() and int(version) > 0:
        wanted = int(version)
    else:
        raise ExportError(
            f"'{version}' is no version", model=name, remedy="a number above 0, or `next`"
        )
    newest = made / str(numbers[0])
    moved = made / ".moved"
    newest.rename(moved)
    for other in numbers[1:]:
        shutil.rmtree(made / str(other))
    for number in kept:
        if number != wanted:
            ignore = shutil.ignore_patterns(*_LITTER)
            shutil.copytree(there / str(number), made / str(number), ignore=ignore)
    moved.rename(made / str(wanted))
    for entry in there.iterdir() if there.is_dir() else ():
        if not entry.name.isdigit() and not (made / entry.name).exists():
            copy = shutil.copytree if entry.is_dir() else shutil.copy2
            copy(entry, made / entry.name)


def _stage_deployment(source: LiveSource, staged: _Staged, release: releases.Release) -> None:
    memory = source.memory()
    used = instances = 0
    gpus = False
    for name in staged.names:
        used += findings.used_by(memory, name)
        model = source.model(name)
        instances += len(model.instances)
        gpus |= any(one.kind == "GPU" for one in model.instances)
    lines = tuple(
        f"{key}=={value}" for key, value in sorted(staged.requirements.items())
        if key.lower() != "numpy"
    )  # fmt: skip
    of = deploy.Deployment(
        staged.names, release, deploy.shared_memory(used, instances), lines, gpus
    )
    for name, text in deploy.files(of).items():
        file = staged.folder / name
        file.write_text(text, "utf-8")
        if name.endswith(".sh"):
            file.chmod(0o755)


def _look_over(staged: _Staged, release: releases.Release) -> None:
    """The doctor's errors and warnings about the export as it stands, for the target release."""
    report = examine(staged.folder, target=Target(release.name))
    for one in report.findings:
        if one.severity != "hint":
            file = Path(one.file).relative_to(staged.folder.resolve())
            staged.warnings.append(f"{file}:{one.line}: {one.message} [{one.rule}]")


# --- comparing, and putting in place -------------------------------------------------------------


def _files(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any(part in _LITTER for part in inside.parts):
            found.append(str(inside))
    return found


def _planned(staged: _Staged, dest: Path) -> ExportPlan:
    new = _files(staged.folder)
    old = {
        f"{name}/{one}" for name in staged.names for one in _files(dest / name)
    } | {one for one in new if (dest / one).is_file()}  # fmt: skip
    rows = [_row(one, staged.folder, dest) for one in new]
    rows += [ExportedFile(one, 0, "removed") for one in sorted(old - set(new))]
    states = {one.state for one in rows}
    state = "unchanged" if states <= {"same"} else "new"
    if states & {"changed", "removed"}:
        state = "differs"
    return ExportPlan(
        str(dest), staged.names, state, tuple(rows), tuple(staged.brought),
        tuple(dict.fromkeys(staged.assumed)), tuple(dict.fromkeys(staged.warnings)),
    )  # fmt: skip


def _row(path: str, made: Path, dest: Path) -> ExportedFile:
    size = (made / path).stat().st_size
    if not (dest / path).is_file():
        return ExportedFile(path, size, "new")
    if filecmp.cmp(made / path, dest / path, shallow=False):
        return ExportedFile(path, size, "same")
    return ExportedFile(path, size, "changed", _diff(dest / path, made / path, path))


def _diff(old: Path, new: Path, name: str) -> str:
    try:
        before, after = (one.read_text("utf-8").splitlines() for one in (old, new))
    except UnicodeDecodeError:
        return ""
    lines = list(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="", n=2))
    if len(lines) > _DIFF_LINES:
        lines = [*lines[:_DIFF_LINES], f"... {len(lines) - _DIFF_LINES} more lines"]
    return "\n".join(lines)


def _put_in_place(staged: _Staged, dest: Path, found: ExportPlan) -> None:
    """Every entry of the staged folder to its place; on an error everything as it was."""
    if found.state == "unchanged":
        return
    staged.folder.chmod(0o755)
    if not dest.exists() and not dest.is_symlink():
        staged.folder.rename(dest)
        return
    if not dest.is_dir():
        raise ExportError(f"{dest} is a file", remedy="export to a folder")
    aside = Path(tempfile.mkdtemp(prefix=".devkit-replaced-", dir=_beside(dest)))
    done: list[tuple[Path, Path | None]] = []
    try:
        for entry in sorted(staged.folder.iterdir()):
            target, old = dest / entry.name, None
            if target.exists() or target.is_symlink():
                old = aside / entry.name
                target.rename(old)
            done.append((target, old))
            entry.rename(target)
    except OSError:
        for target, old in reversed(done):
            if target.is_dir():
                shutil.rmtree(target, ignore_errors=True)
            elif target.exists():
                os.unlink(target)
            if old is not None:
                old.rename(target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


# --- AWS Inferentia -----------------------------------------------------------------------------


def for_inferentia(
    source: Source, name: str, dest: Path, *, cores: str, compiled: Path | None, force: bool = False
) -> tuple[Path, list[str]]:
    """Write model.py and config for Neuron cores to `dest/name`; returns its files too."""
    target = dest.expanduser().resolve() / name
    config = contract.from_dict(source.config(name))
    file = compiled.name if compiled is not None else "model_neuron.pt"
    text = inferentia.config(config, inferentia.Cores.parse(cores), file)
    if target.exists() and not force:
        raise ExportError(
            f"{target} exists", model=name, remedy="export elsewhere, or agree with --force"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{name}.export-", dir=target.parent))
    try:
        (made / "1").mkdir()
        (made / "1" / "model.py").write_text(inferentia.MODEL, "utf-8")
        (made / "config.pbtxt").write_text(text, "utf-8")
        if compiled is not None:
            shutil.copy2(compiled, made / "1" / file)
        made.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target, _files(target)


def plain(found: ExportPlan) -> str:
    """A plan as JSON text."""
    return json.dumps(messages.to_plain(found), indent=2)
