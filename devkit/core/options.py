"""What a runtime is started with; one field per option of the command line, no behaviour.

Names and defaults are tritonserver's, except where README "Differences" lists another default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Options:
    """Options of one runtime.

    Attributes:
        model_repository: folders of models, searched in this order.
        model_control_mode: `none`, `poll` or `explicit`, as tritonserver's.
        load_model: models to load at start in explicit mode (`*` for all).
        strict_readiness: whether a failed model makes `/v2/health/ready` 400.
        exit_on_error: whether a model that fails to load at start ends the server (here False).
        exit_timeout_secs: how long a stop waits for running requests.
        disable_auto_complete_config: skip `auto_complete_config` and completion of inputs.
        backend_directory: folder of Python-based backends: `NAME/model.py` serves every model whose
            config has `backend: "NAME"`.
        skip_model: models not to load at start, whatever the mode.
        start_method: `warm` (fork from a process that has the imports) or `spawn`; a model's own
            `parameters` entry `DEVKIT_START_METHOD` comes first.
        shm_default_byte_size, shm_growth_byte_size: first size and step of every slab, bytes.
        stub_timeout_seconds: how long a stub may take to load its model; 0 for no limit.
        restart_backoff: seconds between restarts of an instance that keeps dying, the last repeats.
        cache_config: `local,size=BYTES`, the response cache; none where empty.
        rate_limit: `off`, or `execution_count`: instances run when they get the resources their
            groups name.
        rate_limit_resource: `NAME:COUNT` or `NAME:COUNT:DEVICE`, how much there is of a resource.
        bls_circle_grace_secs: seconds after which a BLS call that waits for its own caller fails; 0
            only warns, and lets it wait for good as the real backend does.
        no_debug: whether attaching a debugger is refused.
        strict: whether outputs that the config does not declare, or declares otherwise, are errors.
        probes: what stubs are told about `devkit.probe`: whether somebody looks (`on`), nanoseconds
            from one execute that is shown to the next (`every`), bytes of a tensor (`largest`).
        python: interpreter of the stubs, empty for the runtime's own.
        workspace: folder whose `.devkit/` holds scratch models; also names the discovery file.
    """

    model_repository: list[Path] = field(default_factory=list)
    model_control_mode: str = "none"
    load_model: list[str] = field(default_factory=list)
    skip_model: list[str] = field(default_factory=list)
    backend_directory: str = ""
    strict_readiness: bool = True
    exit_on_error: bool = False
    exit_timeout_secs: int = 30
    disable_auto_complete_config: bool = False
    start_method: str = "warm"
    shm_default_byte_size: int = 1 << 20
    shm_growth_byte_size: int = 1 << 20
    stub_timeout_seconds: float = 0.0
    bls_circle_grace_secs: float = 0.0
    restart_backoff: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
    cache_config: tuple[str, ...] = ()
    rate_limit: str = "off"
    rate_limit_resource: tuple[str, ...] = ()
    python: str = ""
    log_verbose: int = 0
    watch: bool = False
    strict: bool = False
    no_debug: bool = False
    workspace: Path = field(default_factory=Path.cwd)
    probes: dict[str, Any] = field(
        default_factory=lambda: {"on": True, "every": 100_000_000, "largest": 1 << 20}
    )
