"""What the server adds to a configuration before it serves a model, and what it refuses.

`normalize` only fills in; `complete` fills in and checks, in the server's two stages: scheduling
while the repository is polled, tensors and instances while the model loads. The texts are the real
server's. Nothing here reads a file: versions, label and library files are the repository's affair.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.contract import checks, scheduling
from devkit.contract.checks import Refusal
from devkit.contract.jsonform import to_dict
from devkit.errors import Code, LoadError

_IDLE_MICROSECONDS = 1_000_000
_OTHER_BACKENDS = (
    "devkit runs Python models; those of the pytorch (TorchScript) and onnxruntime backends by "
    "Python models of its own; and Python-based backends of --backend-directory. TensorRT, "
    "TensorFlow, OpenVINO, DALI and other compiled backends need tritonserver"
)
_MODEL_FILE = {"python": "model.py", "pytorch": "model.pt", "onnxruntime": "model.onnx"}


class CompletionError(LoadError):
    """The server would refuse this configuration; `message` is its answer to the load request.

    Attributes:
        reason: the cause alone; the repository index shows it, and the log for a failed poll.
        stage: `poll` (answered 500, no version gets a state) or `load` (400, each version fails).
    """

    def __init__(
        self, message: str, code: Code, *, model: str, reason: str, stage: str,
        remedy: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message, code, model=model, remedy=remedy)
        self.reason = reason
        self.stage = stage


def load_failure(name: str, reasons: Mapping[int, str]) -> str:
    """The server's answer to a load that failed, from the reason of each version."""
    states = "".join(
        f"version {version} is at UNAVAILABLE state: {reason};\n"
        for version, reason in sorted(reasons.items())
    )
    return f"load failed for model '{name}': {states}"


def poll_failure(name: str) -> str:
    """The server's answer to a load whose configuration it could not even take in."""
    return f"failed to load '{name}', failed to poll from model repository"


def complete(
    config: Any,
    name: str,
    *,
    backend_default: str = "python",
    gpus: int = 0,
    versions: Iterable[int] = (1,),
    python_backends: Container[str] = (),
) -> Any:
    """A copy of `config` as the server serves it under `name`; completing it again changes nothing.

    `backend_default` is the backend of a config that names none: `python` where the version folder
    has a `model.py`, "" where nothing tells. Raises CompletionError, a LoadError, with the server's
    text; `versions` are the ones it names.
    Pure checks only: an ensemble is checked against its models by `ensembles.check_ensemble`.
    """
    try:
        checks.check_name(config, name)
        checks.check_backend(config, name, backend_default)
        done = normalize(
            config,
            name,
            backend_default=backend_default,
            gpus=gpus,
            python_backends=python_backends,
        )
        scheduling.check(done)
    except Refusal as refusal:
        raise CompletionError(
            poll_failure(name), Code.INTERNAL, model=name, reason=refusal.text, stage="poll"
        ) from None
    try:
        checks.check(done, gpus)
    except Refusal as refusal:
        reason = f"Invalid argument: {refusal.text}"
        message = load_failure(name, dict.fromkeys(versions, reason))
        raise CompletionError(
            message, Code.INVALID_ARG, model=name, reason=reason, stage="load",
            remedy=_OTHER_BACKENDS if "find backend library" in reason else None,
        ) from None  # fmt: skip
    return done


def auto_complete_input(config: Any, name: str = "", *, gpus: int = 0) -> dict[str, Any]:
    """What `auto_complete_config`'s ModelConfig starts from: filled in, not yet checked."""
    return to_dict(normalize(config, name or config.name, gpus=gpus))


def normalize(
    config: Any,
    name: str,
    *,
    backend_default: str = "python",
    gpus: int = 0,
    python_backends: Container[str] = (),
) -> Any:
    """A copy of `config` with everything filled in that the server fills in, unchecked.

    `python_backends` are backends that are a `model.py` themselves.
    """
    done = pb.ModelConfig()
    done.CopyFrom(config)
    done.name = name
    ensemble = is_ensemble(done)
    if not ensemble and not done.backend:
        done.backend = checks.PLATFORMS.get(done.platform, backend_default)
    if done.backend in python_backends:
        done.runtime = done.runtime or _MODEL_FILE["python"]
    if not done.HasField("version_policy"):
        done.version_policy.latest.num_versions = 1
    _fill_scheduling(done)
    if ensemble:
        _fill_ensemble(done)
    else:
        _fill_optimization(done.optimization)
        _fill_instance_groups(done, gpus)
        done.default_model_filename = done.default_model_filename or _MODEL_FILE.get(
            done.backend, ""
        )
    return done


def is_ensemble(config: Any) -> bool:
    """Whether `config` describes an ensemble: it then has no backend and no instances."""
    return bool(config.platform == "ensemble")


def _fill_optimization(policy: Any) -> None:
    for name in ("input_pinned_memory", "output_pinned_memory"):
        if not policy.HasField(name):
            getattr(policy, name).enable = True


def _fill_ensemble(config: Any) -> None:
    """`decoupled` is said outright; namespaces are dropped, as the server's default has it."""
    config.model_transaction_policy.decoupled = config.model_transaction_policy.decoupled
    for step in config.ensemble_scheduling.step:
        step.model_namespace = ""


def _fill_scheduling(config: Any) -> None:
    choice = config.WhichOneof("scheduling_choice")
    if choice == "dynamic_batching":
        _fill_preferred(config.dynamic_batching, config.max_batch_size)
    elif choice == "sequence_batching":
        batching = config.sequence_batching
        batching.max_sequence_idle_microseconds = (
            batching.max_sequence_idle_microseconds or _IDLE_MICROSECONDS
        )
        if batching.HasField("oldest"):
            _fill_preferred(batching.oldest, config.max_batch_size)


def _fill_preferred(batching: Any, max_batch_size: int) -> None:
    if max_batch_size > 0 and not batching.preferred_batch_size:
        batching.preferred_batch_size.append(max_batch_size)


def _fill_instance_groups(config: Any, gpus: int) -> None:
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        _fill_group(group, gpus)


def _fill_group(group: Any, gpus: int) -> None:
    kind = pb.ModelInstanceGroup.Kind.Value
    if group.kind == kind("KIND_AUTO"):
        group.kind = kind("KIND_GPU" if gpus else "KIND_CPU")
    if group.kind == kind("KIND_GPU") and not group.gpus:
        group.gpus.extend(range(gpus))
    group.count = max(group.count, 1)
