"""Loading, in every way: what auto_complete_config may do, several files, finalize."""

from __future__ import annotations

from tests.parity.asking import (
    Case,
    Logged,
    Quiet,
    get,
    given,
    infer,
    load,
    replacing,
    unload,
)
from tests.support.lifecycle import COMPLETIONS, FORCED

HELPER = r"  [^ ]*triton_python_backend_utils\.py\(\d+\): \w+\\\\n"
COMPLETED = [
    Case(
        f"auto_complete_config: {name}",
        (load(f"auto_{name}"), get(f"/v2/models/auto_{name}/config")),
        "3",
        setup="lifecycle",
        issue=3,
        blur=replacing((HELPER, "")),
        differs="the real server takes the whole config for empty and says nothing"
        if name == "sets_nonsense"
        else "",
    )
    for name in COMPLETIONS
]
COMPLETED.append(
    Case(
        "auto_complete_config: frames of pb_utils",
        (load("auto_policy_more"),),
        "3",
        setup="lifecycle",
        issue=3,
        differs="the real ModelConfig is Python code, and its frames are under `At:`",
    )
)
ROOM = replacing(
    (r"\([^ ]*/(triton_python_backend|pb)_utils\.py\)", "(FILE)"),
    (r"importlib\._bootstrap(_external)?>\(\d+\)", r"importlib._bootstrap\1>(0)"),
)
IMPORTED = [
    Case(f"files: {name}", (load(name),), "3", setup="lifecycle", issue=3, blur=ROOM)
    for name in (
        *("files", "other_file", "shadowing", "search_path"),
        *("early_tensor", "early_annotation", "early_later", "early_from", "early_constant"),
        *("early_unknown", "environment_nowhere", "environment_nowhere_in_model"),
    )
]
ENDED = [
    Case(
        f"finalize: {name}",
        (
            Logged(load(name), rf"^comes {name}$"),
            infer(name, [given("X", "FP32", [4], [1, 2, 3, 4])]),
            Logged(unload(name), r"^goes$"),
            Quiet(load(name)),
            Logged(unload(name), r"^goes$"),
        ),
        "3",
        setup="lifecycle",
        issue=3,
    )
    for name in ("finalizes", "finalizes_badly")
]
FORCES = [
    Case(
        f"parameters: FORCE_CPU_ONLY_INPUT_TENSORS {name}",
        (load(f"force_cpu_{name}"),),
        "3",
        setup="lifecycle",
        issue=3,
    )
    for name in FORCED
]
CASES = [*FORCES, *COMPLETED, *IMPORTED, *ENDED]
