"""Rules about `config.pbtxt` by itself and the folder it lies in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from devkit.contract import config as contract
from devkit.contract.completion import CompletionError
from devkit.contract.ensembles import Lookup
from devkit.doctor.rules import (
    CONFIGURATION,
    ERROR,
    HINT,
    OBSERVED,
    WARNING,
    Edit,
    Hit,
    Place,
    rule,
)
from devkit.doctor.subject import Model, Repository, gpus_for
from devkit.errors import ConfigError, LoadError


@rule(
    "config-unreadable",
    ERROR,
    "`config.pbtxt` cannot be parsed",
    why="the server only says `failed to poll from model repository`; the cause is in its log",
    fix="correct the line that is shown",
    source=OBSERVED,
)
def config_unreadable(model: Model) -> Iterator[Hit]:
    broken = model.config_text.broken if model.config_text else None
    if broken is None or model.config_text is None:
        return
    told = broken.message.partition("\n")[0].removeprefix(f"{model.config_text.file}:")
    line, column, what = told.split(":", 2)
    remedy = re.sub(r"\s*\w+ has: .*", "", broken.remedy or "")  # all fields are a long list
    place = Place(model.config_text.file, int(line), int(column))
    yield Hit(place, f"{what.strip().rstrip('.')}. {remedy}".strip())


@rule(
    "config-refused",
    ERROR,
    "the server refuses what `config.pbtxt` says",
    why="the model does not load",
    fix="change what the server's own text names",
    source=OBSERVED,
)
def config_refused(model: Model) -> Iterator[Hit]:
    if model.config_text is None or model.config_text.parsed is None:
        return
    parsed = model.config_text.parsed
    if parsed.name and parsed.name != model.name:
        return  # a rule of its own says so, and can repair it
    if parsed.backend not in ("", "python") or parsed.platform not in ("", "ensemble"):
        return  # another backend's config is that backend's affair
    try:
        contract.complete(parsed, model.name, gpus=gpus_for(parsed))
    except CompletionError as problem:
        reason = problem.reason.removeprefix("Invalid argument: ").strip()
        yield Hit(_named_in(reason, model), reason)
    except (ConfigError, LoadError) as problem:
        yield Hit(model.place, problem.message.strip())


def _named_in(reason: str, model: Model) -> Place:
    """Where the tensor stands that a refusal names, else the first line."""
    for kind in ("input", "output"):
        found = re.search(rf"model {kind} '([^']+)'", reason)
        if found:
            return model.at(kind, found[1])
    return model.place


@rule(
    "name-not-folder",
    ERROR,
    "the name in `config.pbtxt` is not the folder's",
    why="the server does not load the model: `directory name must equal model name`",
    fix="give both the same name, or leave `name` out",
    source=OBSERVED,
    fixable=True,
)
def name_not_folder(model: Model) -> Iterator[Hit]:
    if model.config.name and model.config.name != model.name:
        place = model.at("name")
        edit = Edit(place, f'"{model.name}"')
        yield Hit(place, f"'{model.config.name}' in the folder '{model.name}'", (edit,))


@rule(
    "no-version",
    ERROR,
    "the model has no version folder",
    why="`at least one version must be available under the version policy`",
    fix="put the model's files into a folder `1`",
    source=OBSERVED,
)
def no_version(model: Model) -> Iterator[Hit]:
    if not model.versions:
        yield Hit(model.place, f"{model.folder} holds no folder whose name is a number")


@rule(
    "no-model-file",
    ERROR,
    "the version folder lacks `model.py`",
    why="the real server hangs for good while loading, and then ignores SIGTERM",
    fix="put the file there, or name it with `default_model_filename`",
    source=OBSERVED,
)
def no_model_file(model: Model) -> Iterator[Hit]:
    if model.versions and not model.is_ensemble and model.model_code is None:
        backend = model.config.backend
        if backend in ("", "python") and not model.config.platform:
            name = model.config.default_model_filename or "model.py"
            yield Hit(model.place, f"{model.folder / model.versions[0] / name} does not exist")


@rule(
    "batch-dimension",
    WARNING,
    "the batch dimension is in `dims` although `max_batch_size` is above 0",
    why="the server puts another dimension in front: clients' shapes are refused, or the model "
    "gets one dimension more than it was written for",
    fix="leave the batch dimension out of `dims`, or set `max_batch_size: 0`",
    source=CONFIGURATION,
)
def batch_dimension(model: Model) -> Iterator[Hit]:
    limit = model.config.max_batch_size
    if limit < 1:
        return
    tensors = [("input", one) for one in model.config.input]
    tensors += [("output", one) for one in model.config.output]
    shapes = [list(one.dims) for _, one in tensors]
    if not shapes or any(len(dims) < 2 for dims in shapes):
        return
    free = all(dims[0] == -1 and -1 not in dims[1:] for dims in shapes)
    same = limit > 1 and all(dims[0] == limit for dims in shapes)
    if free or same:
        kind, first = tensors[0]
        yield Hit(
            model.at(kind, first.name, "dims"),
            f"every tensor's dims begin with {shapes[0][0]}, and max_batch_size is {limit}: "
            f"a request for '{first.name}' must have the shape {[-1, *first.dims]}",
        )


@rule(
    "no-batcher",
    WARNING,
    "`max_batch_size` is above 0 without `dynamic_batching`",
    why="requests run one by one: the server adds no batcher to Python models, so only batches "
    "that a client sends are ever larger than one",
    fix="add `dynamic_batching { }`; if clients send the batches, say so with "
    "`# devkit: ignore[no-batcher]`",
    source=OBSERVED,
    fixable=True,
)
def no_batcher(model: Model) -> Iterator[Hit]:
    config = model.full
    if model.is_ensemble or config.max_batch_size < 2 or model.config_text is None:
        return
    if config.HasField("dynamic_batching") or config.HasField("sequence_batching"):
        return
    if any("set_dynamic_batching" in code.text for code in model.codes):
        return
    end = model.config_text.end
    new = "dynamic_batching { }\n"
    edit = Edit(end, new if not model.config_text.text or end.column == 1 else f"\n{new}")
    yield Hit(
        model.at("max_batch_size"),
        f"max_batch_size is {config.max_batch_size}, and nothing puts requests together",
        (edit,) if model.config.max_batch_size else (),
    )


@rule(
    "half-over-json",
    HINT,
    "FP16 or BF16 tensors cannot travel as JSON",
    why="a client that sends or asks for JSON gets 400 `... via JSON is not supported`; curl and "
    "KServe clients without the binary extension are shut out",
    fix="tell clients to use binary data (tritonclient's default), or declare TYPE_FP32",
    source=OBSERVED,
)
def half_over_json(model: Model) -> Iterator[Hit]:
    for kind, tensors in (("input", model.full.input), ("output", model.full.output)):
        for tensor in tensors:
            name = model.tensor_type(tensor.name, kind == "output")
            if name in ("TYPE_FP16", "TYPE_BF16"):
                place = model.at(kind, tensor.name, "data_type")
                yield Hit(place, f"{kind} '{tensor.name}' is {name.removeprefix('TYPE_')}")


@rule(
    "ensemble-map",
    ERROR,
    "an ensemble's maps do not fit its models",
    why="the ensemble does not load, or a step waits for a tensor that nothing writes",
    fix="name inputs and outputs as the step's model declares them, and give both ends one type "
    "and shape",
    source=OBSERVED,
    scope="repository",
)
def ensemble_map(repository: Repository) -> Iterator[Hit]:
    models = repository.models
    for model in models.values():
        if not model.is_ensemble or model.completed is None:
            continue
        if any(one.model_name not in models for one in model.config.ensemble_scheduling.step):
            continue  # said by another rule
        try:
            contract.check_ensemble(model.completed, _lookup(models))
        except (LoadError, ConfigError) as problem:
            text = problem.message.partition("': ")[2].strip() or problem.message
            yield Hit(model.at("ensemble_scheduling", "step"), text)
        except _Unknown:
            continue  # a step's config is only known once it runs


class _Unknown(Exception):
    """A step's model whose tensors its own code declares."""


def _lookup(models: dict[str, Model]) -> Lookup:
    def lookup(name: str, version: int) -> Any:
        other = models.get(name)
        if other is None:
            return None
        if not other.is_closed or other.completed is None:
            raise _Unknown
        if version >= 0 and str(version) not in other.versions:
            return False
        return other.completed

    return lookup


@rule(
    "ensemble-model-missing",
    ERROR,
    "an ensemble's step names a model that is not in the repository",
    why="the ensemble does not load: `contains models that are not available or ambiguous`",
    fix="add the model, or correct `model_name`",
    source=OBSERVED,
    scope="repository",
)
def ensemble_model_missing(repository: Repository) -> Iterator[Hit]:
    models = repository.models
    for model in models.values():
        for step in model.config.ensemble_scheduling.step:
            if step.model_name not in models:
                place = model.at("ensemble_scheduling", "step", step.model_name, "model_name")
                yield Hit(place, f"there is no model '{step.model_name}'")
