"""A model.py and config for AWS Inferentia, in the form the Python backend's generator gives them.

A compiled model (torch-neuronx, traced) is loaded by each instance onto its share of the cores.
Nothing of it can run here: it needs a Neuron device, and is marked so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from devkit.contract import config as contract
from devkit.errors import DevkitError

MODEL = '''\
"""Serves a model compiled for AWS Inferentia. Written by devkit; not run: it needs Neuron cores."""

import json
import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        given = {key: entry["string_value"] for key, entry in config["parameters"].items()}
        first, last = int(given["NEURON_CORE_START_INDEX"]), int(given["NEURON_CORE_END_INDEX"])
        count = config["instance_group"][0]["count"]
        share = (last - first + 1) // count
        number = int(args["model_instance_name"].rsplit("_", 1)[1]) if count > 1 else 0
        begin = first + number * share
        # Before torch_neuronx is imported: the runtime takes its cores then.
        os.environ["NEURON_RT_VISIBLE_CORES"] = f"{begin}-{begin + share - 1}"
        import torch
        import torch_neuronx

        self.torch = torch
        path = given["COMPILED_MODEL"]
        if not os.path.isabs(path):
            path = os.path.join(pb_utils.get_model_dir(), path)
        self.net = torch.jit.load(path)
        if share > 1:
            self.net = torch_neuronx.DataParallel(self.net, device_ids=list(range(share)))
            self.net.num_workers = share * int(given["NUM_THREADS_PER_CORE"])
        self.inputs = [one["name"] for one in config["input"]]
        self.outputs = [
            (one["name"], pb_utils.triton_string_to_numpy(one["data_type"]))
            for one in config["output"]
        ]

    def execute(self, requests):
        responses = []
        for request in requests:
            tensors = [
                self.torch.as_tensor(pb_utils.get_input_tensor_by_name(request, name).as_numpy())
                for name in self.inputs
            ]
            found = self.net(*tensors)
            found = found if isinstance(found, (tuple, list)) else (found,)
            responses.append(
                pb_utils.InferenceResponse(
                    [
                        pb_utils.Tensor(name, result.numpy().astype(dtype, copy=False))
                        for (name, dtype), result in zip(self.outputs, found)
                    ]
                )
            )
        return responses
'''


class NeuronError(DevkitError):
    """The cores do not go round; `remedy` says what does."""


@dataclass(frozen=True, slots=True)
class Cores:
    """A range of Neuron cores, both ends in it, and the threads for each."""

    first: int = 0
    last: int = 1
    threads: int = 1

    @classmethod
    def parse(cls, text: str, threads: int = 1) -> Cores:
        """`0:3`; NeuronError where it is none."""
        first, colon, last = text.partition(":")
        if not (first.isdigit() and (not colon or last.isdigit())):
            raise NeuronError(f"'{text}' is no range of cores", remedy="write it as 0:3")
        made = cls(int(first), int(last or first), threads)
        if made.last < made.first or threads < 1:
            raise NeuronError(f"'{text}' is no range of cores", remedy="the first comes first")
        return made


def config(live: Any, cores: Cores, compiled: str) -> str:
    """The config of a served model for the cores: one group, KIND_MODEL, its instances kept."""
    count = sum(group.count for group in live.instance_group) or 1
    total = cores.last - cores.first + 1
    if total % count:
        raise NeuronError(
            f"{total} cores cannot be shared by {count} instances",
            remedy="change --neuron-cores, or the number of instances",
        )
    made = pb.ModelConfig()
    made.CopyFrom(live)
    del made.instance_group[:]
    made.instance_group.add(kind=pb.ModelInstanceGroup.KIND_MODEL, count=count)
    for key, value in (
        ("COMPILED_MODEL", compiled),
        ("NEURON_CORE_START_INDEX", str(cores.first)),
        ("NEURON_CORE_END_INDEX", str(cores.last)),
        ("NUM_THREADS_PER_CORE", str(cores.threads)),
    ):
        made.parameters[key].string_value = value
    head = "# For AWS Inferentia (Neuron cores). Written by devkit; not run here.\n"
    return head + contract.to_pbtxt(made, minimal=True)
