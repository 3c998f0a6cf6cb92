"""FACTS 2: the completed configuration, byte for byte."""

from __future__ import annotations

from tests.parity.asking import Case, get

SERVED = (
    *("actor", "actor_batch", "actor_dynamic", "actor_tuned", "actor_pair", "actor_groups"),
    *("actor_kind_auto", "actor_kind_model", "actor_versions", "actor_chosen", "actor_all"),
    *("evaluator", "reporter", "passer", "passer_square", "upper", "counter", "add_sub"),
)
CASES = [
    *(
        Case(f"config {name}", (get(f"/v2/models/{name}/config"),), "2", status=200)
        for name in SERVED
    ),
    Case("config of a version", (get("/v2/models/actor/versions/1/config"),), "2", status=200),
    Case("config of unknown model", (get("/v2/models/nobody/config"),), "1", status=404),
    Case(
        "config of unknown version", (get("/v2/models/actor/versions/7/config"),), "1", status=404
    ),
]
