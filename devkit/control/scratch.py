"""Models made by cells: their files in the workspace's own repository, and their configs.

A cell brings Python and perhaps a line of options; what a `config.pbtxt` needs beyond that comes
from the model's `auto_complete_config`, or is drafted from the tensors of its first request. What
was drafted is remembered, so that running the cell again keeps it until a request says otherwise.
Nothing here loads a model.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from devkit.contract import config as contract
from devkit.control.messages import ModelOptions, Tensor, from_plain, to_plain
from devkit.errors import ConfigError

FOLDER = Path(".devkit") / "models"
_STATE = Path(".devkit") / "drafts"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a model's config is made of.

    Attributes:
        given: whether the user wrote the config himself; then nothing here is used.
        inputs, outputs: learned from samples.
        stale: whether the code changed since the outputs were learned.
        asked: inputs of a first request that is under way; until its answer is learned, the config
            has these and no outputs.
    """

    options: ModelOptions = field(default_factory=ModelOptions)
    given: bool = False
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    stale: bool = False
    asked: tuple[Tensor, ...] = ()


class Scratch:
    """The scratch repository of one workspace, and the drafts of the models in it."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace / FOLDER
        self._states = workspace / _STATE
        self._elsewhere: dict[str, Draft] = {}  # models of other repositories, not ours to write

    def prepare(self) -> None:
        """Make the repository; a `.gitignore` in it keeps it out of the user's commits."""
        self.root.mkdir(parents=True, exist_ok=True)
        ignore = self.root.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")

    def has(self, name: str) -> bool:
        """Whether a model of that name was made here."""
        return (self.root / name).is_dir()

    def put(self, name: str, files: dict[str, str], options: ModelOptions) -> None:
        """Write `files` and the config that `options` ask for. Raises ConfigError.

        What is not named stays as it was, and a file that has not changed is not touched.
        """
        checked = {self._inside(name, path): text for path, text in files.items()}
        if options.config is not None:
            contract.parse(options.config, f"{name}/config.pbtxt")
        self.prepare()
        for path, text in checked.items():
            _write(path, text)
        own_config = self.root / name / "config.pbtxt"
        if own_config in checked or options.config is not None:
            if options.config is not None:
                _write(own_config, options.config)
            self._keep(name, Draft(options, given=True))
            return
        draft = self.draft(name)
        if draft.given and not files:
            return
        completes_itself = any("auto_complete_config" in text for text in files.values())
        if completes_itself or draft.given:
            draft = Draft()
        draft = replace(draft, options=options, given=False, stale=bool(draft.inputs), asked=())
        self._keep(name, draft)
        _write(own_config, config_text(name, draft))

    def before(self, name: str, files: dict[str, str]) -> dict[Path, bytes | None]:
        """What `put` is about to overwrite; None where there is nothing yet."""
        paths = [self._inside(name, path) for path in files]
        paths += [self.root / name / "config.pbtxt", self._states / f"{name}.json"]
        return {path: path.read_bytes() if path.is_file() else None for path in paths}

    def restore(self, before: dict[Path, bytes | None]) -> None:
        """Put back what `before` found.

        The version that goes on serving must be the one on disk: an instance of it that dies is
        started again from there.
        """
        for path, data in before.items():
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)

    def learn(self, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Draft:
        """Take sample tensors into the draft of `name`; its config is written where it is ours.

        Without `outputs` it is a question: what was known before is kept until there is an answer,
        and stands again after `learn(name, (), ())`, which says that there will be none.
        """
        draft = self.draft(name)
        if outputs:
            draft = replace(draft, inputs=inputs, outputs=outputs, stale=False, asked=())
        else:
            draft = replace(draft, stale=True, asked=inputs)
        self._keep(name, draft)
        if self.has(name):
            _write(self.root / name / "config.pbtxt", config_text(name, draft))
        return draft

    def remove(self, name: str) -> None:
        """Delete a model that was made here."""
        shutil.rmtree(self.root / self._named(name), ignore_errors=True)
        (self._states / f"{name}.json").unlink(missing_ok=True)

    def draft(self, name: str) -> Draft:
        """What is known of the config of `name`."""
        if not self.has(name):
            return self._elsewhere.get(name, Draft())
        try:
            value = json.loads((self._states / f"{name}.json").read_bytes())
            return from_plain(Draft, value)
        except FileNotFoundError:
            # Put there by hand: what config it has is the user's own.
            return Draft(given=(self.root / name / "config.pbtxt").exists())
        except ValueError:
            return Draft()

    def _keep(self, name: str, draft: Draft) -> None:
        if not self.has(name):
            self._elsewhere[name] = draft
            return
        self._states.mkdir(parents=True, exist_ok=True)
        _write(self._states / f"{name}.json", json.dumps(to_plain(draft), indent=1) + "\n")

    def _inside(self, name: str, path: str) -> Path:
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise ConfigError(f"'{path}' is not a path inside the model's folder", model=name)
        return self.root / self._named(name) / relative

    @staticmethod
    def _named(name: str) -> str:
        if not name or "/" in name or "\0" in name or name[0] == ".":
            raise ConfigError(
                f"'{name}' cannot name a model: it is the name of a folder, too", model=name
            )
        return name


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that no reader ever sees half of it; unchanged ones stay."""
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def model_config(name: str, draft: Draft) -> Any:
    """The ModelConfig of a draft: its tensors, as far as they are known, and its options."""
    options = draft.options
    size = options.max_batch_size or 0
    inputs, outputs = _tensors(draft)
    if inputs or outputs:
        config = contract.infer_config(name, _sample(inputs), _sample(outputs) or None, size)
    else:
        config = contract.ModelConfig(backend="python", max_batch_size=size)
    if options.instances is not None or options.kind is not None:
        group = config.instance_group.add()
        group.count = options.instances or 1
        group.kind = group.Kind.Value(options.kind or "KIND_CPU")
    _set_batching(config, options)
    if options.decoupled:
        config.model_transaction_policy.decoupled = True
    for key, value in options.parameters.items():
        config.parameters[key].string_value = value
    return config


def _set_batching(config: Any, options: ModelOptions) -> None:
    delay = options.max_queue_delay_microseconds
    if not (options.dynamic_batching or options.preferred_batch_size or delay is not None):
        return
    config.dynamic_batching.SetInParent()
    config.dynamic_batching.preferred_batch_size.extend(options.preferred_batch_size)
    if delay is not None:
        config.dynamic_batching.max_queue_delay_microseconds = delay
    config.dynamic_batching.preserve_ordering = options.preserve_ordering


def _tensors(draft: Draft) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs that the config has now."""
    return (draft.asked, ()) if draft.asked else (draft.inputs, draft.outputs)


def _sample(tensors: tuple[Tensor, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {one.name: (one.datatype, one.shape) for one in tensors}


def config_text(name: str, draft: Draft) -> str:
    """The `config.pbtxt` of a draft."""
    text: str = contract.to_pbtxt(model_config(name, draft))
    return text


def assumptions(name: str, draft: Draft) -> tuple[str, ...]:
    """What a draft takes for granted, a sentence each, for the user to check."""
    inputs, outputs = _tensors(draft)
    if draft.given or not inputs:
        return ()
    config = model_config(name, draft)
    found = []
    for role, samples, rows in (
        ("input", inputs, config.input),
        ("output", outputs, config.output),
    ):
        shapes = {one.name: list(one.shape) for one in samples}
        for row in rows:
            kind = row.DESCRIPTOR.fields_by_name["data_type"].enum_type
            datatype = kind.values_by_number[row.data_type].name
            found.append(
                f"{role} {row.name}: {datatype}, dims {list(row.dims)}, "
                f"from a sample of shape {shapes[row.name]}"
            )
    if config.max_batch_size:
        found.append(f"the first dimension is the batch, of at most {config.max_batch_size}")
    return tuple(found)
