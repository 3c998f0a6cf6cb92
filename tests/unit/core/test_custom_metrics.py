"""Metrics that models make, from several instances together."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from tests.unit.core.conftest import CONFIG, Bench

CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily("requests_seen", "Requests seen", pb_utils.MetricFamily.COUNTER)
        self.seen = self.family.Metric({"model": "m"})
        self.sizes = pb_utils.MetricFamily("sizes", "Sizes", pb_utils.MetricFamily.HISTOGRAM)
        self.size = self.sizes.Metric(labels={}, buckets=[1.0, 2.0])

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            self.seen.increment(1)
            self.size.observe(float(x[0]))
            total = np.array([self.seen.value()], np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", total)]))
        return responses
"""


async def test_instances_share_a_metric_until_the_last_ends(bench: Callable[..., Bench]) -> None:
    made = bench()
    made.write("m", CONFIG + "instance_group [ { count: 2 } ]", CODE)
    assert await made.engine.start() == []
    totals = [float((await made.ask("m", [n]))[0]) for n in (1, 2, 3, 0)]
    assert totals == [1.0, 2.0, 3.0, 4.0]
    counter, histogram = made.engine.custom_metrics()
    assert counter.samples() == [("", (("model", "m"),), 4.0)]
    assert histogram.samples() == [
        ("_count", (), 4),
        ("_sum", (), 6.0),
        ("_bucket", (("le", "1"),), 2),
        ("_bucket", (("le", "2"),), 3),
        ("_bucket", (("le", "+Inf"),), 4),
    ]
    dying = made.engine.model("m").instances[0]
    os.kill(dying.pid, signal.SIGKILL)
    await asyncio.wait_for(dying.ended.wait(), 10)
    assert made.engine.custom_metrics()[0].samples()[0][2] == 4.0
    await made.engine.unload("m")
    while made.engine.custom_metrics():
        await asyncio.sleep(0.01)
