"""Metrics of a model's own, on /metrics beside the server's.

A family has a name, a text and a kind; a metric of it has labels. Keep both as attributes, for as
long as they are to be seen: a metric must not outlive its family.
"""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.words = pb_utils.MetricFamily(
            name="example_words_total",
            description="Words counted, by how long they are",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.short = self.words.Metric(labels={**labels, "length": "short"})
        self.long = self.words.Metric(labels={**labels, "length": "long"})
        self.sizes = pb_utils.MetricFamily(
            name="example_last_request_texts",
            description="Texts in the last request",
            kind=pb_utils.MetricFamily.GAUGE,
        )
        self.size = self.sizes.Metric(labels=labels)

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            words = [text.decode("utf-8").split() for text in texts]
            lengths = [len(word) for found in words for word in found]
            self.short.increment(sum(length < 5 for length in lengths))
            self.long.increment(sum(length >= 5 for length in lengths))
            self.size.set(len(texts))
            counts = np.array([len(found) for found in words], dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("WORDS", counts)]))
        return responses
