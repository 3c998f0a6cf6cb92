import os

import torch
import triton_python_backend_utils as pb_utils
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TensorType


class TritonPythonModel:
    tokenizer: AutoTokenizer

    def initialize(self, args: dict[str, str]) -> None:
        path = os.path.join(args["model_repository"], args["model_version"])
        self.device = (
            "cuda:" + args["model_instance_device_id"]
            if args["model_instance_kind"] == "GPU"
            else "cpu"
        )
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForSequenceClassification.from_pretrained(path).to(self.device).eval()

    def execute(self, requests) -> "list[list[pb_utils.Tensor]]":
        texts = []
        sizes = []
        for request in requests:
            query = [
                t.decode("UTF-8")
                for t in pb_utils.get_input_tensor_by_name(request, "TEXT")
                .as_numpy()
                .reshape(-1)
                .tolist()
            ]
            texts += query
            sizes.append(len(query))
        tokens = self.tokenizer(texts, return_tensors=TensorType.PYTORCH, padding=True).to(
            self.device
        )
        with torch.no_grad():
            logits = self.model(**tokens).logits.float().cpu().numpy()
        responses, at = [], 0
        for size in sizes:
            part = logits[at : at + size]
            at += size
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", part)]))
        return responses
