"""A model that has no config yet, and a debugger for its very first request."""

from __future__ import annotations

import numpy as np

from tests.unit.debug.conftest import PRODUCT, SCALE, Waiting, Workshop


def test_the_first_request_of_a_model_without_a_config_may_stop(workshop: Workshop):
    client = workshop.client
    client.put_model("fresh", {"1/model.py": SCALE})
    inputs = {"X": np.array([5], np.float32)}
    client.announce("fresh", inputs)
    client.set_breakpoint(client.model("fresh").file, PRODUCT)
    session = client.debug("fresh")
    asked = Waiting(lambda: client.infer("fresh", inputs, debug=True)["Y"].tolist())
    session.wait_stopped()
    session.set("factor", "3")
    session.resume()
    assert asked.answer() == [15]
    session.detach()
    assert client.infer("fresh", inputs)["Y"].tolist() == [10]  # this one teaches
    assert not client.model("fresh").unlearned
    client.remove_model("fresh")
