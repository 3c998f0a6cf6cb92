"""A live model written out as a repository that the real Triton server loads.

Here is decided which files belong to a model, what its `config.pbtxt` says, and how the folder
comes into being: all at once or not at all, and never over something that differs unless the
user says so. Whether the result answers alike is `verify`'s business.
"""

from __future__ import annotations

import difflib
import filecmp
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from devkit.contract import config as contract
from devkit.control import messages
from devkit.errors import ConfigError, DevkitError, LoadError
from devkit.tools import standin

CELL_HEADER = "# %%model"  # how the first line of a model.py that a cell became begins
_LEFT_OUT = ("__pycache__", ".ipynb_checkpoints")
_DIFF_LINES = 40


class ExportError(DevkitError):
    """The model can't be exported as it is, or something else is in the way; `remedy` says what.

    `differences` lists what is at the target and differs, file by file.
    """

    def __init__(
        self,
        message: str,
        *,
        model: str | None = None,
        remedy: str | None = None,
        differences: Sequence[str] = (),
    ) -> None:
        super().__init__(message, model=model, remedy=remedy)
        self.differences = tuple(differences)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote.

    Attributes:
        folder: the model's folder, `DEST/NAME`.
        files: what it holds, by path inside it.
        state: `written`, `replaced` (something that differed was there) or `unchanged`.
        config: text of the `config.pbtxt`.
        brought: files that the model uses from elsewhere, and where they came from.
        assumed: what no config said and was taken from sample requests, a sentence each.
    """

    name: str
    folder: Path
    files: tuple[str, ...]
    state: str
    config: str
    brought: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def text(self) -> str:
        """What was written, for people."""
        lines = [f"{self.folder}: {self.state}", *(f"  {file}" for file in self.files)]
        lines += [f"  brought {what}" for what in self.brought]
        lines += [f"  assumed {sentence}" for sentence in self.assumed]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How IPython shows it below a cell."""
        printer.text(self.text())


class Source(Protocol):
    """What an export asks of a runtime; `control.client.Client` is one."""

    def model(self, name: str) -> messages.Model:
        """The model as it is served now."""

    def config(self, name: str) -> dict[str, Any]:
        """Its completed config, as JSON says it."""


def export(
    client: Source, name: str, dest: Path | str, *, force: bool = False, full: bool = False
) -> ExportReport:
    """Write model `name` to `dest/name`; raises ExportError and then has written nothing.

    `full` writes every field of the completed config, also those the server would add.
    """
    model = client.model(name)
    if model.state != "READY":
        raise ExportError(
            f"'{name}' is not served: {model.reason or 'it was not loaded'}",
            model=name,
            remedy="load it first; what is exported is what was seen to work",
        )
    if model.unlearned or not model.outputs:
        raise ExportError(
            f"the config of '{name}' does not name its inputs and outputs yet",
            model=name,
            remedy=f'call it once with sample inputs, `devkit.infer("{name}", {{...}})`, or write '
            f"its config with `%%config {name}`",
        )
    return export_folder(
        name,
        Path(model.folder),
        contract.from_dict(client.config(name)),
        Path(dest),
        versions=model.versions or (model.version,),
        used=[Path(file) for file in model.files],
        assumed=model.assumed,
        force=force,
        full=full,
    )


def is_current(client: Source, name: str, folder: Path) -> bool:
    """Whether `folder` still holds what the runtime serves as `name`; its config aside."""
    source = Path(client.model(name).folder)
    for path in map(Path, _relative_files(folder)):
        if path.name in _LEFT_OUT or path.name == "config.pbtxt" or not (source / path).is_file():
            continue
        if path.name != "model.py":
            same = filecmp.cmp(source / path, folder / path, shallow=False)
        else:
            served, exported = ((at / path).read_text("utf-8") for at in (source, folder))
            same = without_cell_header(served) == without_cell_header(exported)
        if not same:
            return False
    return True


def export_folder(
    name: str,
    source: Path,
    config: contract.ModelConfig,
    dest: Path,
    *,
    versions: Sequence[str],
    used: Iterable[Path] = (),
    assumed: Sequence[str] = (),
    force: bool = False,
    full: bool = False,
) -> ExportReport:
    """Write the model that lies in `source` to `dest/name`, with `config` as its config."""
    target = dest.expanduser().resolve() / name
    source = source.resolve()
    if target == source or source in target.parents:
        raise ExportError(
            f"{target} is the folder that '{name}' is served from",
            model=name,
            remedy="export to another folder",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{name}.export-", dir=target.parent))
    try:
        text = config_text(name, source, config, full=full)
        brought = _fill(made, source, text, versions, used)
        files = tuple(_relative_files(made))
        state = _put_in_place(made, target, name, force)
    except standin.MissingError as problem:
        raise ExportError(problem.message, model=name, remedy=problem.remedy) from problem
    except OSError as problem:
        raise ExportError(
            f"{target} could not be written: {problem}",
            model=name,
            remedy="nothing was changed; see to what the system says and export again",
        ) from problem
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return ExportReport(name, target, files, state, text, tuple(brought), tuple(assumed))


def config_text(
    name: str, source: Path, config: contract.ModelConfig, *, full: bool = False
) -> str:
    """The `config.pbtxt` to write: the user's own text where it still says it all, else ours.

    His comments and order are worth keeping; a config that the runtime completed otherwise (an
    override, a live change of the instance count) must be written anew.
    """
    own = source / "config.pbtxt"
    if full:
        return contract.to_pbtxt(config, minimal=False)
    if own.is_file():
        text = own.read_text("utf-8")
        try:
            # Completing what is complete changes nothing, so both sides are in the same form.
            mine = contract.to_json(contract.complete(contract.parse(text, str(own)), name))
            if mine == contract.to_json(config) and contract.outputs(config):
                return without_cell_header(text)
        except (ConfigError, LoadError):
            pass  # overridden at load by one that works: that one is written
    return contract.to_pbtxt(config, minimal=True)


def without_cell_header(source: str) -> str:
    """`model.py` or `config.pbtxt` without the line that stands for the notebook's magic."""
    first, _, rest = source.partition("\n")
    return rest.lstrip("\n") if first.startswith((CELL_HEADER, "# %%config", "%%model")) else source


def _fill(
    made: Path, source: Path, config: str, versions: Sequence[str], used: Iterable[Path]
) -> list[str]:
    """Copy what belongs to the model into `made`; tells what came from elsewhere."""
    for path in sorted(source.iterdir()):
        if path.name == "config.pbtxt" or (path.name.isdigit() and path.name not in versions):
            continue
        if not _is_left_out(path):
            _copy(path, made / path.name)
    made.chmod(0o755)  # mkdtemp makes it private; a model repository is read by the server's user
    for version in versions:
        (made / version).mkdir(exist_ok=True)  # an ensemble's, which holds nothing
        file = made / version / "model.py"
        if file.is_file():
            file.write_text(without_cell_header(file.read_text("utf-8")), "utf-8")
    (made / "config.pbtxt").write_text(config, "utf-8")
    brought = _bring(made, source, versions, used)
    return brought + standin.place(made, versions)


def _bring(made: Path, source: Path, versions: Sequence[str], used: Iterable[Path]) -> list[str]:
    """Put modules that the model loads from outside its folder where it will find them."""
    installed = [Path(path).resolve() for path in set(sysconfig.get_paths().values())]
    brought = []
    for file in used:
        real = file.resolve()
        if not real.is_file() or real.is_relative_to(source):
            continue
        if any(real.is_relative_to(folder) for folder in installed):
            continue
        inside = _import_path(real)
        for version in versions:
            target = made / version / inside
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(real, target)
                brought.append(f"{version}/{inside} from {real}")
    return brought


def _import_path(file: Path) -> Path:
    """Where a module's file lies below the folder it is imported from."""
    root = file.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        root = root.parent
    return file.relative_to(root)


def _is_left_out(path: Path) -> bool:
    return path.name.startswith(".") or path.name in _LEFT_OUT or path.suffix in (".pyc", ".pyo")


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(
            path,
            target,
            ignore=lambda folder, names: [n for n in names if _is_left_out(Path(folder, n))],
        )
    else:
        shutil.copy2(path, target)


def _relative_files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder))


def _put_in_place(made: Path, target: Path, name: str, force: bool) -> str:
    """Move the new folder to its place; an old one that differs goes only by `force`."""
    if not target.exists() and not target.is_symlink():
        made.rename(target)
        return "written"
    changes = differences(target, made)
    if not changes:
        return "unchanged"
    if not force:
        raise ExportError(
            f"{target} exists and differs: {', '.join(line.split(chr(10))[0] for line in changes)}",
            model=name,
            remedy="export to another folder, or replace it with --force (force=True)",
            differences=changes,
        )
    old = Path(tempfile.mkdtemp(prefix=f".{name}.old-", dir=target.parent))
    target.rename(old / name)
    try:
        made.rename(target)
    except OSError:
        (old / name).rename(target)
        raise
    finally:
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
    return "replaced"


def differences(old: Path, new: Path) -> list[str]:
    """What differs between two folders, an entry a file; texts with their changed lines."""
    if not old.is_dir():
        return [f"{old.name} is a file"]
    before, after = set(_relative_files(old)), set(_relative_files(new))
    found = [f"{path} would be removed" for path in sorted(before - after) if _is_kept(path)]
    found += [f"{path} would be added" for path in sorted(after - before)]
    for path in sorted(before & after):
        if not filecmp.cmp(old / path, new / path, shallow=False):
            found.append(f"{path} would change{_changed_lines(old / path, new / path)}")
    return found


def _is_kept(path: str) -> bool:
    """Whether a file is the user's own, not a by-product of having been run."""
    return not any(part in _LEFT_OUT for part in path.split(os.sep))


def _changed_lines(old: Path, new: Path) -> str:
    try:
        before, after = (path.read_text("utf-8").splitlines() for path in (old, new))
    except UnicodeDecodeError:
        return ""
    lines = list(difflib.unified_diff(before, after, "there now", "exported", lineterm="", n=1))
    if len(lines) > _DIFF_LINES:
        lines = [*lines[:_DIFF_LINES], f"... {len(lines) - _DIFF_LINES} more lines"]
    return "".join(f"\n  {line}" for line in lines)
