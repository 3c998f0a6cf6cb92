"""`backend: "onnxruntime"`: an ONNX file, run by the model's own ONNX Runtime.

Inputs and outputs that the config leaves out are completed from the file, as Triton's ONNX Runtime
backend does.
"""

import json
import os
import sys
from typing import Any, Dict, List

import triton_python_backend_utils as pb_utils

from devkit.stub import batching

_TYPES = {
    "tensor(float)": "TYPE_FP32", "tensor(double)": "TYPE_FP64", "tensor(float16)": "TYPE_FP16",
    "tensor(bfloat16)": "TYPE_BF16", "tensor(int8)": "TYPE_INT8", "tensor(int16)": "TYPE_INT16",
    "tensor(int32)": "TYPE_INT32", "tensor(int64)": "TYPE_INT64", "tensor(uint8)": "TYPE_UINT8",
    "tensor(uint16)": "TYPE_UINT16", "tensor(uint32)": "TYPE_UINT32",
    "tensor(uint64)": "TYPE_UINT64", "tensor(bool)": "TYPE_BOOL", "tensor(string)": "TYPE_STRING",
}  # fmt: skip


def _session(path: str, gpu: bool = False) -> Any:
    try:
        import onnxruntime
    except ImportError as problem:
        raise pb_utils.TritonModelException(
            f"a model of the onnxruntime backend needs ONNX Runtime in {sys.executable}: {problem}"
        ) from None
    wanted = ["CUDAExecutionProvider"] if gpu else []
    known = onnxruntime.get_available_providers()
    providers = [each for each in (*wanted, "CPUExecutionProvider") if each in known]
    return onnxruntime.InferenceSession(path, providers=providers)


class TritonPythonModel:
    """One instance of an ONNX model."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Add the inputs and outputs that the config leaves out."""
        config = auto_complete_model_config.as_dict()
        if config["input"] and config["output"]:
            return auto_complete_model_config
        file = config.get("default_model_filename") or "model.onnx"
        session = _session(os.path.join(pb_utils.get_model_dir(), file))
        batched = config.get("max_batch_size", 0) > 0
        for known, rows, add in (
            (config["input"], session.get_inputs(), auto_complete_model_config.add_input),
            (config["output"], session.get_outputs(), auto_complete_model_config.add_output),
        ):
            if known:
                continue
            for row in rows:
                dims = [each if isinstance(each, int) else -1 for each in row.shape]
                add(
                    {
                        "name": row.name,
                        "data_type": _TYPES[row.type],
                        "dims": dims[1:] if batched else dims,
                    }
                )
        return auto_complete_model_config

    def initialize(self, args: Dict[str, str]) -> None:
        """Load the file. Raises TritonModelException where ONNX Runtime is missing."""
        config = json.loads(args["model_config"])
        file = config.get("default_model_filename") or "model.onnx"
        path = os.path.join(args["model_repository"], args["model_version"], file)
        self.session = _session(path, args["model_instance_kind"] == "GPU")
        self.batched = config.get("max_batch_size", 0) > 0
        self.outputs = [each["name"] for each in config["output"]]

    def execute(self, requests: List[Any]) -> List[Any]:
        """Run the model once for the requests whose inputs are alike."""
        return batching.run(requests, self.batched, self.outputs, self._run)

    def _run(self, given: Dict[str, Any]) -> Dict[str, Any]:
        return dict(zip(self.outputs, self.session.run(self.outputs, given)))
