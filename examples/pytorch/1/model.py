"""A PyTorch network behind the dynamic batcher: one forward pass for all requests of a call.

DLPack hands the tensors over without a copy, both ways: `from_dlpack` of the input, and
`Tensor.from_dlpack` of the result.
"""

import torch
import triton_python_backend_utils as pb_utils


class Net(torch.nn.Module):
    """Two layers with weights that never change, so that a client can check the answer."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(4, 8)
        self.out = torch.nn.Linear(8, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                steps = torch.arange(parameter.numel(), dtype=torch.float32)
                parameter.copy_(((steps % 7 - 3) / 4).reshape(parameter.shape))

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


class TritonPythonModel:
    def initialize(self, args):
        self.device = torch.device("cpu")
        if args["model_instance_kind"] == "GPU":
            self.device = torch.device("cuda", int(args["model_instance_device_id"]))
        self.net = Net().to(self.device).eval()

    @torch.inference_mode()
    def execute(self, requests):
        inputs = [
            torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X").to_dlpack())
            for request in requests
        ]
        rows = self.net(torch.cat(inputs).to(self.device))
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("Y", part.contiguous())])
            for part in rows.split([len(one) for one in inputs])
        ]
