"""`backend: "pytorch"`: a TorchScript program, run by the model's own PyTorch.

Which argument an input is follows Triton's PyTorch backend: `NAME__<index>` by its number, a name
of the program's own arguments by name, and else the order of the config. Outputs likewise: by
number, by key where the program returns a dict, else in order.
"""

import json
import os
import re
from typing import Any, Dict, List

import triton_python_backend_utils as pb_utils

from devkit.stub import batching

_NUMBERED = re.compile(r"__(\d+)$")


def _torch() -> Any:
    try:
        import torch
    except ImportError as problem:
        import sys

        raise pb_utils.TritonModelException(
            f"a model of the pytorch backend needs PyTorch in {sys.executable}: {problem}"
        ) from None
    return torch


def _numbered(names: List[str]) -> List[str]:
    """`names` by their numbers where all have one, else as they are."""
    found = [_NUMBERED.search(name) for name in names]
    if names and all(found):
        return sorted(names, key=lambda name: int(_NUMBERED.search(name).group(1)))  # type: ignore[union-attr]
    return names


class TritonPythonModel:
    """One instance of a TorchScript model."""

    def initialize(self, args: Dict[str, str]) -> None:
        """Load the program. Raises TritonModelException where PyTorch is missing."""
        torch = self.torch = _torch()
        config = json.loads(args["model_config"])
        file = config.get("default_model_filename") or "model.pt"
        path = os.path.join(args["model_repository"], args["model_version"], file)
        kind = args["model_instance_kind"]
        self.device = torch.device(
            "cuda:{}".format(args["model_instance_device_id"]) if kind == "GPU" else "cpu"
        )
        self.program = torch.jit.load(path, map_location=self.device).eval()
        self.batched = config.get("max_batch_size", 0) > 0
        names = [each["name"] for each in config["input"]]
        known = [each.name for each in self.program.forward.schema.arguments][1:]
        self.by_name = bool(names) and all(name in known for name in names)
        self.inputs = names if self.by_name else _numbered(names)
        self.outputs = _numbered([each["name"] for each in config["output"]])

    def execute(self, requests: List[Any]) -> List[Any]:
        """Run the program once for the requests whose inputs are alike."""
        return batching.run(requests, self.batched, self.outputs, self._run)

    def _run(self, given: Dict[str, Any]) -> Dict[str, Any]:
        torch = self.torch
        tensors = {
            name: torch.from_numpy(array.copy()).to(self.device) for name, array in given.items()
        }
        with torch.inference_mode():
            if self.by_name:
                found = self.program(**tensors)
            else:
                found = self.program(*(tensors[name] for name in self.inputs if name in tensors))
        if isinstance(found, dict):
            return {name: found[name].cpu().numpy() for name in self.outputs if name in found}
        several = found if isinstance(found, (tuple, list)) else (found,)
        if len(several) < len(self.outputs):
            raise ValueError(
                f"the program returns {len(several)} tensors, "
                f"the config has {len(self.outputs)} outputs"
            )
        return {name: tensor.cpu().numpy() for name, tensor in zip(self.outputs, several)}
