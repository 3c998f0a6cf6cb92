"""Warmup where the real server cannot be asked: it ends when `execute` raises then."""

from __future__ import annotations

import pytest

from devkit.errors import LoadError
from tests.support.around import COLD_RAISES
from tests.support.live import live
from tests.support.repository import ModelFiles

DIES = ModelFiles("dies", COLD_RAISES.code.replace("raise", "import os; os._exit(3)\n            raise"),
                  COLD_RAISES.config)  # fmt: skip


def test_a_model_whose_warmup_fails_does_not_load_and_harms_nobody():
    with live() as runtime:
        client = runtime.client()
        for model, said in (
            (COLD_RAISES, "failed to run warmup sample 'w': Failed to process the request"),
            (DIES, "failed to run warmup sample 'w': .*Stub process 'dies_0' is not healthy"),
        ):
            model.write(runtime.repository)
            with pytest.raises(LoadError, match=said):
                client.load(model.name)
        fixed = COLD_RAISES.code.replace('raise ValueError("not today")', "pass")
        (runtime.repository / "cold_raises" / "1" / "model.py").write_text(fixed)
        client.load("cold_raises")
        assert client.model("cold_raises").instances[0].state == "ready"
