"""The one place to import what `config.pbtxt` means: text, completion, JSON, tensors, drafts.

Everything is pure: text or a `ModelConfig` in, a value out. No file is opened, no server asked;
what the real server checks against the disk (versions, label files, warm-up data) stays with
whoever reads the repository. Each subject has a module of its own; this one only names them.
"""

from __future__ import annotations

from tritonclient.grpc.model_config_pb2 import ModelConfig

from devkit.contract.completion import (
    CompletionError,
    auto_complete_input,
    complete,
    load_failure,
    normalize,
    poll_failure,
)
from devkit.contract.drafts import infer_config, scale
from devkit.contract.ensembles import check_ensemble
from devkit.contract.jsonform import from_dict, from_json, to_dict, to_json
from devkit.contract.pbtxt import parse
from devkit.contract.pbtxt_writer import to_pbtxt
from devkit.contract.tensors import (
    InstanceSpec,
    IOSpec,
    ResourceSpec,
    inputs,
    instances,
    is_decoupled,
    metadata,
    outputs,
    versions_served,
)

__all__ = [
    "CompletionError",
    "IOSpec",
    "InstanceSpec",
    "ModelConfig",
    "ResourceSpec",
    "auto_complete_input",
    "check_ensemble",
    "complete",
    "from_dict",
    "from_json",
    "infer_config",
    "inputs",
    "instances",
    "is_decoupled",
    "load_failure",
    "metadata",
    "normalize",
    "outputs",
    "parse",
    "poll_failure",
    "scale",
    "to_dict",
    "to_json",
    "to_pbtxt",
    "versions_served",
]
