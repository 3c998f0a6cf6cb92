"""A model's own `is_ready`, as servers since 26.02 ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from devkit.core import instance
from tests.unit.core.conftest import CONFIG, Bench

CODE = """
import asyncio, time

class TritonPythonModel:
    asked = 0

    {}

    def execute(self, requests):
        return []
"""


@pytest.mark.parametrize(
    ("method", "ready"),
    [
        ("def is_ready(self): return True", True),
        ("def is_ready(self): return False", False),
        ("def is_ready(self): return 1", False),
        ("def is_ready(self): raise ValueError('no')", False),
        ("async def is_ready(self):\n        await asyncio.sleep(0)\n        return True", True),
        ("def is_ready(self): time.sleep(30)", False),
    ],
)
async def test_the_answers_and_failures_of_is_ready(
    bench: Callable[..., Bench], method: str, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "READY_SECONDS", 0.3)
    made = bench()
    made.write("m", CONFIG, CODE.format(method))
    assert await made.engine.start() == []
    model = made.engine.model("m")
    assert model.asks_ready
    assert await model.is_ready() is ready


async def test_who_asks_while_it_is_asked_shares_the_answer(bench: Callable[..., Bench]) -> None:
    method = (
        "def is_ready(self):\n        self.asked += 1\n        time.sleep(0.2)\n"
        "        return self.asked == 1"
    )
    made = bench()
    made.write("m", CONFIG, CODE.format(method))
    assert await made.engine.start() == []
    model = made.engine.model("m")
    assert await asyncio.gather(*(model.is_ready() for _ in range(3))) == [True] * 3
    assert await model.is_ready() is False


async def test_a_model_without_one_is_ready(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.write("m")
    assert await made.engine.start() == []
    model = made.engine.model("m")
    assert not model.asks_ready
    assert await model.is_ready()
