"""The metrics page: names, labels, order, content type of the real server."""

from __future__ import annotations

import re
from http.client import HTTPConnection

import numpy as np
import pytest
import tritonclient.http as client

from devkit.protocols.metrics import custom_family, family, label_text, number_text
from tests.unit.protocols.conftest import Running

FAMILIES = [
    ("nv_inference_request_success", "counter"),
    ("nv_inference_request_failure", "counter"),
    ("nv_inference_count", "counter"),
    ("nv_inference_exec_count", "counter"),
    ("nv_inference_request_duration_us", "counter"),
    ("nv_inference_queue_duration_us", "counter"),
    ("nv_inference_compute_input_duration_us", "counter"),
    ("nv_inference_compute_infer_duration_us", "counter"),
    ("nv_inference_compute_output_duration_us", "counter"),
    ("nv_inference_pending_request_count", "gauge"),
    ("nv_pinned_memory_pool_total_bytes", "gauge"),
    ("nv_pinned_memory_pool_used_bytes", "gauge"),
    ("nv_cpu_utilization", "gauge"),
    ("nv_cpu_memory_total_bytes", "gauge"),
    ("nv_cpu_memory_used_bytes", "gauge"),
]


def page(running: Running, path: str = "/metrics") -> tuple[int, str, str]:
    connection = HTTPConnection(running.metrics, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.headers["Content-Type"], response.read().decode()
    connection.close()
    return answer


def test_families_come_in_the_servers_order(running: Running) -> None:
    status, content_type, text = page(running)
    assert (status, content_type) == (200, "text/plain; charset=utf-8")
    assert re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE) == FAMILIES
    assert len(re.findall(r"^# HELP ", text, re.MULTILINE)) == len(FAMILIES)


def test_counters_advance(running: Running) -> None:
    with client.InferenceServerClient(running.http) as triton:
        item = client.InferInput("IN", [1], "FP32")
        item.set_data_from_numpy(np.zeros(1, np.float32))
        triton.infer("identity", [item])
    text = page(running)[2]
    assert '\nnv_inference_count{model="identity",version="1"} 1\n' in text
    assert '\nnv_inference_count{model="modes",version="1"} 0\n' in text
    for reason in ("OTHER", "BACKEND", "CANCELED", "REJECTED"):
        line = f'nv_inference_request_failure{{model="modes",reason="{reason}",version="1"}} 0'
        assert line in text


def test_other_paths_are_empty(running: Running) -> None:
    assert page(running, "/") == (200, "text/plain; charset=utf-8", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (0.1, "0.1"),
        (-0.0, "-0"),
        (3e15, "3000000000000000"),
        (1e20, "1e+20"),
        (1234567.125, "1234567.125"),
        (float("inf"), "+Inf"),
        (float("nan"), "Nan"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


def test_labels_are_escaped_and_sorted() -> None:
    assert label_text((("b", 'x"\\\n'), ("a", "1"))) == '{a="1",b="x\\"\\\\\\n"}'
    assert family("nothing", "gauge", "Nothing", []) == ""


def test_a_models_own_family_is_printed_under_its_kind() -> None:
    samples = [("", (("model", "m"), ("length", "long")), 4.0)]
    assert custom_family("words_total", "COUNTER", "Words", samples).splitlines() == [
        "# HELP words_total Words",
        "# TYPE words_total counter",
        'words_total{length="long",model="m"} 4',
    ]


def test_the_bound_of_a_bucket_comes_after_the_other_labels() -> None:
    labels = (("model", "m"),)
    samples = [
        ("_count", labels, 3),
        ("_sum", labels, 1.5),
        ("_bucket", (*labels, ("le", "0.5")), 2),
        ("_bucket", (("le", "+Inf"),), 3),
    ]
    assert custom_family("seconds", "HISTOGRAM", "Seconds", samples).splitlines()[1:] == [
        "# TYPE seconds histogram",
        'seconds_count{model="m"} 3',
        'seconds_sum{model="m"} 1.5',
        'seconds_bucket{model="m",le="0.5"} 2',
        'seconds_bucket{le="+Inf"} 3',
    ]
