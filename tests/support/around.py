"""Models of what the server does around a Python model: warmup, response cache, access."""

from __future__ import annotations

from tests.support.repository import ModelFiles, python_config, tensor

CODE = """
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seen = []

    def execute(self, requests):
        answers = []
        for request in requests:
            x = request.inputs()[0].as_numpy()
            told = {
                "requests": len(requests), "id": request.request_id(), "flags": request.flags(),
                "parameters": json.loads(request.parameters()), "shape": x.shape,
                "values": [str(each) for each in x.ravel()[:4]],
                "wanted": sorted(request.requested_output_names()),
            }
            self.seen.append(told)
            MORE
            y = pb_utils.Tensor("Y", x)
            answers.append(pb_utils.InferenceResponse([y, self.told()]))
        return answers

    def told(self):
        import numpy as np

        return pb_utils.Tensor("SEEN", np.array([json.dumps(self.seen)], dtype=object))
"""
FAILS = (
    'answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("not today")))\n'
    "            continue"
)


def _model(
    name: str, *config: str, datatype: str = "FP32", dims: str = "4", more: str = "pass",
    extra: dict[str, str] | None = None,
) -> ModelFiles:  # fmt: skip
    parts = (
        tensor("input", "X", datatype, dims),
        tensor("output", "Y", datatype, dims),
        tensor("output", "SEEN", "STRING", "1"),
    )
    return ModelFiles(
        name, CODE.replace("MORE", more), python_config(*parts, *config), extra=extra or {}
    )


def _warmup(*samples: str) -> str:
    return "model_warmup [ " + ", ".join(f"{{ {sample} }}" for sample in samples) + " ]\n"


def _sample(
    data: str = "zero_data: true", *, name: str = "w", rows: int = 1, count: int = 0,
    key: str = "X", datatype: str = "FP32", dims: str = "4",
) -> str:  # fmt: skip
    given = (
        f'inputs {{ key: "{key}" value: {{ data_type: TYPE_{datatype} dims: [{dims}] {data} }} }}'
    )
    return f'name: "{name}" batch_size: {rows} count: {count} {given}'


BATCHED = "max_batch_size: 8\n"
FILE = 'input_data_file: "data"'
CACHED = "response_cache { enable: true }\n"
WARMED = [
    _model("warm_zero", _warmup(_sample())),
    _model("warm_batch", BATCHED, _warmup(_sample(rows=3))),
    _model("warm_batcher", BATCHED, "dynamic_batching { }\n", _warmup(_sample(rows=3))),
    _model("warm_twice", BATCHED, _warmup(_sample(count=2), _sample(name="v", rows=2))),
    _model("warm_nothing", _warmup(_sample(rows=0))),
    _model("warm_file", _warmup(_sample(FILE)), extra={"warmup/data": "abcdefghijklmnop"}),
    _model("warm_long_file", _warmup(_sample(FILE)), extra={"warmup/data": "abcdefghijklmnopqrst"}),
    _model(
        "warm_texts",
        _warmup(_sample(datatype="STRING", dims="2"), _sample(FILE, datatype="STRING", dims="2")),
        datatype="STRING", dims="2", extra={"warmup/data": "\x01\0\0\0a\x02\0\0\0bc"},
    ),
    _model(
        "warm_sequence", "max_batch_size: 2\nsequence_batching { }\n", _warmup(_sample(rows=2))
    ),
]  # fmt: skip
COLD = [
    _model("cold_no_file", _warmup(_sample(FILE))),
    _model("cold_short_file", _warmup(_sample(FILE)), extra={"warmup/data": "abcd"}),
    _model("cold_error", _warmup(_sample()), more=FAILS),
    _model("cold_name", _warmup(_sample(key="Z"))),
    _model("cold_type", _warmup(_sample(datatype="INT32"))),
    _model("cold_dims", _warmup(_sample(dims="5"))),
    _model("cold_open_dims", _warmup(_sample(dims="-1")), dims="-1"),
    _model("cold_rows", "max_batch_size: 2\n", _warmup(_sample(rows=4))),
    _model("cold_no_data", _warmup(_sample(""))),
]
KEPT = [
    _model("kept", CACHED),
    _model("kept_batched", CACHED, BATCHED, "dynamic_batching { }\n"),
    _model("kept_error", CACHED, more=FAILS),
    _model("kept_warm", CACHED, _warmup(_sample())),
    _model("kept_decoupled", CACHED, "model_transaction_policy { decoupled: true }\n"),
    _model("kept_sequence", CACHED, "max_batch_size: 2\nsequence_batching { }\n"),
    _model("kept_not"),
    *(_model(f"forward_{door}") for door in ("http", "generate", "grpc")),
]
# Kept from the real server: an `execute` that raises while it is warmed up ends that.
COLD_RAISES = _model("cold_raises", _warmup(_sample()), more='raise ValueError("not today")')
AROUND = [*WARMED, *COLD, *KEPT]
GUARDED = [_model("plain")]
