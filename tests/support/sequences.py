"""Models of the sequence batcher that answer with what their `execute` was given."""

from __future__ import annotations

from tests.support.repository import ModelFiles, python_config, tensor

MODEL = '''\
"""Each request is answered with the whole batch it was in."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS = 0.15


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]

    def execute(self, requests):
        batch = []
        for request in requests:
            tensors = {t.name(): t.as_numpy() for t in request.inputs()}
            controls = {n: [a.tolist() if a.dtype != object else [str(v) for v in a.reshape(-1)],
                            str(a.dtype)] for n, a in sorted(tensors.items()) if n != "X"}
            batch.append([request.request_id(), request.correlation_id(), request.flags(),
                          list(tensors["X"].shape), controls])
        said = json.dumps([self.name, batch]).encode()
        time.sleep(SECONDS)
        answers = []
        for request in requests:
            shape = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().shape
            array = np.empty(shape, dtype=object)
            array.fill(said)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("SAID", array)]))
        return answers
'''
IO = tensor("input", "X", "FP32", "1") + tensor("output", "SAID", "STRING", "1")


def _controls(correlation: str = "UINT64") -> str:
    kinds = (
        ("START", "CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ]"),
        ("END", "CONTROL_SEQUENCE_END bool_false_true: [ false, true ]"),
        ("READY", "CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ]"),
        ("CORRID", f"CONTROL_SEQUENCE_CORRID data_type: TYPE_{correlation}"),
    )
    return (
        "control_input [ "
        + ", ".join(f'{{ name: "{name}" control [ {{ kind: {kind} }} ] }}' for name, kind in kinds)
        + " ]"
    )


def _sequences(name: str, batch: int, batching: str, *config: str) -> ModelFiles:
    return ModelFiles(
        name,
        MODEL,
        python_config(
            IO, f"max_batch_size: {batch}\n", f"sequence_batching {{ {batching} }}\n", *config
        ),
    )


_LONG = "max_sequence_idle_microseconds: 30000000"
_SHORT = "max_sequence_idle_microseconds: 700000"
PAIR = "instance_group [ { count: 2 } ]\n"
SEQUENCES = [
    _sequences("direct", 3, f"direct {{ }} {_LONG} {_controls()}"),
    _sequences("direct_pair", 2, f"direct {{ }} {_LONG} {_controls()}", PAIR),
    _sequences("alone", 0, f"{_LONG} {_controls()}"),
    _sequences("short", 0, f"{_SHORT} {_controls()}"),
    _sequences("text_ids", 2, f"{_LONG} {_controls('STRING')}"),
    _sequences("small_ids", 2, f"{_LONG} {_controls('UINT32')}"),
    _sequences("signed_ids", 0, f"{_LONG} {_controls('INT32')}"),
    _sequences("no_controls", 2, _LONG),
    _sequences("oldest", 3, f"oldest {{ max_candidate_sequences: 2 }} {_LONG} {_controls()}"),
    _sequences(
        "oldest_waits",
        4,
        "oldest { max_candidate_sequences: 6 preferred_batch_size: [ 2 ] "
        f"max_queue_delay_microseconds: 300000 }} {_LONG} {_controls()}",
    ),
    _sequences(
        "waits",
        2,
        "direct { max_queue_delay_microseconds: 400000 minimum_slot_utilization: 1.0 } "
        f"{_LONG} {_controls()}",
    ),
]
