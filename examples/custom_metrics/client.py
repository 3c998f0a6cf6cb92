"""Lets custom_metrics count words, and finds the counts on /metrics."""

import argparse
import re
import urllib.request

import numpy as np
import tritonclient.http


def read(address):
    """The model's own metrics as {(family, length or ""): value}, and the kinds of the families."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    kinds = dict(re.findall(r"^# TYPE (example_\w+) (\w+)$", page, re.MULTILINE))
    values = {}
    for name, labels, value in re.findall(r"^(example_\w+)\{(.*)\} (\S+)$", page, re.MULTILINE):
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert (found["model"], found["version"]) == ("custom_metrics", "1"), found
        values[name, found.get("length", "")] = float(value)
    return values, kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000")
    parser.add_argument("--grpc", default="", help="not used here")
    parser.add_argument("--metrics", default="localhost:8002")
    arguments = parser.parse_args()
    before, kinds = read(arguments.metrics)
    assert kinds == {"example_words_total": "counter", "example_last_request_texts": "gauge"}
    texts = np.array(["a few short words", "considerably longer ones", ""], dtype=np.object_)
    tensor = tritonclient.http.InferInput("TEXT", [3], "BYTES")
    tensor.set_data_from_numpy(texts)
    with tritonclient.http.InferenceServerClient(arguments.http) as client:
        result = client.infer("custom_metrics", [tensor])
    assert result.as_numpy("WORDS").tolist() == [4, 3, 0]
    after, _ = read(arguments.metrics)
    counted = {
        length: after["example_words_total", length] - before["example_words_total", length]
        for length in ("short", "long")
    }
    assert counted == {"short": 3, "long": 4}, counted
    assert after["example_last_request_texts", ""] == 3
    print(f"custom_metrics: right; {counted}")


if __name__ == "__main__":
    main()
