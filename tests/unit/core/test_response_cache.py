"""The response cache beside what parity cases show: its flag, its room, and reloads."""

from __future__ import annotations

import numpy as np
import pytest

from devkit.core.request import OutputSignature
from devkit.core.response_cache import CacheConfigError, Entry, ResponseCache, parse
from tests.support.live import DOUBLE_CONFIG, live, write_model

COUNTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    calls = 0

    def execute(self, requests):
        self.calls += len(requests)
        y = pb_utils.Tensor("Y", np.full(1, self.calls, np.float32))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
"""


@pytest.mark.parametrize(
    ("settings", "size"), [([], 0), (["local,size=4096"], 4096), (["local,size=2048"], 2048)]
)
def test_the_flag(settings: list[str], size: int):
    assert parse(settings) == size


@pytest.mark.parametrize("text", ["local", "redis,host=a", "local,size=many", "local,size=10"])
def test_a_flag_that_cannot_be_taken(text: str):
    with pytest.raises(CacheConfigError, match="--cache-config"):
        parse([text])


def entry(size: int) -> Entry:
    return Entry(OutputSignature(()), (), size)


def test_the_least_recently_used_answer_makes_room():
    cache = ResponseCache(100)
    for name in (b"a", b"b"):
        cache.insert(name, entry(40))
    assert cache.find(b"a") is not None
    cache.insert(b"c", entry(40))
    assert cache.find(b"b") is None
    assert cache.find(b"a") is not None
    assert (len(cache), cache.used, cache.evictions) == (2, 80, 1)


def test_what_is_larger_than_the_cache_is_not_kept():
    cache = ResponseCache(100)
    cache.insert(b"a", entry(40))
    cache.insert(b"b", entry(101))
    assert (len(cache), cache.used) == (1, 40)


def test_new_code_is_asked_again():
    config = DOUBLE_CONFIG + "response_cache { enable: true }\n"
    with live("--cache-config=local,size=65536") as runtime:
        write_model(runtime.repository, "counts", COUNTS, config)
        client = runtime.client()
        client.load("counts")

        def ask() -> float:
            return float(client.infer("counts", {"X": np.ones(1, np.float32)})["Y"][0])

        assert [ask(), ask()] == [1, 1]
        code = COUNTS.replace("calls = 0", "calls = 10")
        write_model(runtime.repository, "counts", code, config)
        client.load("counts")
        assert [ask(), ask()] == [11, 11]
