"""What one side packs the other reads, whatever the pieces it arrives in."""

from __future__ import annotations

import random
import time

import pytest

from devkit.transport import messages as m
from devkit.transport.messages import Place, Plan, Result, Signature, WireRequest, WireResponse


def frames_of(data, size):
    reader = m.FrameReader()
    found = []
    for start in range(0, len(data), size):
        found += [(k, bytes(p)) for k, p in reader.feed(data[start : start + size])]
    return found


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100, 10_000])
def test_frames_survive_any_cut(size):
    chance = random.Random(size)
    sent = [(chance.randrange(1, 97), chance.randbytes(chance.randrange(40))) for _ in range(50)]
    data = b"".join(m.frame(kind, payload) for kind, payload in sent)
    assert frames_of(data, size) == sent


def payload_of(data):
    ((kind, payload),) = m.FrameReader().feed(data)
    return kind, payload


def test_plans_and_signatures():
    plan = Plan((("X", "FP32", (-1, 2)), ("ü", "BYTES", ())), ("Y", "Z"), '{"a":1}')
    kind, payload = payload_of(m.plan_frame(3, plan))
    assert (kind, m.parse_plan(payload)) == (m.PLAN, (3, plan))
    signature = Signature((("Y", "INT8", (0, 3)),))
    kind, payload = payload_of(m.signature_frame(9, signature))
    assert (kind, m.parse_signature(payload)) == (m.SIGNATURE, (9, signature))
    kind, payload = payload_of(m.region_frame(2, "/dev/shm/x", 64, 128))
    assert (kind, m.parse_slot(payload)) == (m.REGION, (2, ["/dev/shm/x", 64, 128]))


def test_requests():
    plans = {1: Plan((("X", "FP32", (1,)), ("B", "BYTES", (1,))), ("Y",)), 2: Plan((), ())}
    sent = [
        WireRequest(2**63, 1, [b"abcd", Place(4, 2**40, 7)]),
        WireRequest(5, 2, [], id="ü\udcff", extra={"correlation_id": "s", "flags": 3}),
        WireRequest(6, 1, [b"", b"xyz"], id="q"),
    ]
    kind, payload = payload_of(m.execute_frame(77, sent))
    assert kind == m.EXECUTE
    batch, found = m.parse_execute(payload, plans)
    assert batch == 77
    assert [plan for _, plan in found] == [plans[1], plans[2], plans[1]]
    for (request, _), expected in zip(found, sent, strict=True):
        request.tensors = [t if type(t) is Place else bytes(t) for t in request.tensors]
        assert request == expected


RESPONSES = [
    WireResponse(1, signature=4, tensors=[b"ab", Place(1, 64, 9)]),
    WireResponse(2, m.ERROR, error="ü!", code=5, parameters='{"a":"é"}'),
    WireResponse(3, m.NOTHING, flags=m.FINAL),
    WireResponse(4, signature=5, tensors=[], flags=0, parameters='{"b":1}'),
    WireResponse(5, m.NOTHING, flags=m.RESCHEDULE),
]
SIGNATURES = {
    4: Signature((("Y", "INT8", (2,)), ("Z", "INT8", (9,)))),
    5: Signature(()),
}


def plain(response):
    response.tensors = [t if type(t) is Place else bytes(t) for t in response.tensors]
    return response


def test_results_and_responses():
    result = Result(7, 10, 2**50, RESPONSES)
    kind, payload = payload_of(m.result_frame(result))
    found = m.parse_result(payload, SIGNATURES)
    assert kind == m.RESULT
    assert [plain(response) for response in found.responses] == RESPONSES
    assert (found.batch, found.started, found.ended) == (7, 10, 2**50)
    kind, payload = payload_of(m.responses_frame(RESPONSES))
    assert kind == m.RESPONSES
    assert [plain(r) for r in m.parse_responses(payload, SIGNATURES)] == RESPONSES


def test_the_prepared_pieces_make_the_same_result():
    responses = [WireResponse(n, signature=4, tensors=[b"ab", b"123456789"]) for n in (1, 2)]
    body = b"".join(
        m.response_head(r.sequence, m.FINAL, 4)
        + b"".join(m.inline_place(len(t)) + t for t in r.tensors)
        for r in responses
    )
    head = m.result_head(len(body), 7, 8, 9, 2)
    assert head + body == m.result_frame(Result(7, 8, 9, responses))
    assert len(m.response_head(1, 1, 4)) == m.RESPONSE_SIZE


def test_number_lists():
    for numbers in ((), (1,), (0, 2**64 - 1, 7)):
        kind, payload = payload_of(m.sequences_frame(m.HOLD, numbers))
        assert (kind, m.parse_sequences(payload)) == (m.HOLD, numbers)


@pytest.mark.parametrize("described", ["inputs", "outputs"])
def test_bls_frames(described):
    header = {"call": 3, described: [["A", "FP32", [1]], ["B", "BYTES", [2]]]}
    kind, payload = payload_of(m.bls_frame(m.BLS_REQUEST, header, [b"abcd", Place(1, 2, 3)]))
    found, tensors = m.parse_bls(payload)
    assert (kind, found) == (m.BLS_REQUEST, header)
    assert [t if type(t) is Place else bytes(t) for t in tensors] == [b"abcd", Place(1, 2, 3)]
    _, payload = payload_of(m.bls_frame(m.BLS_RESPONSE, {"call": 3, "error": "x"}))
    assert m.parse_bls(payload) == ({"call": 3, "error": "x"}, [])


def test_ids_and_parameters_of_any_length():
    plans = {1: Plan((("X", "FP32", (1,)),), ("Y",))}
    long = "i" * 200_000
    _, payload = payload_of(m.execute_frame(1, [WireRequest(1, 1, [b"abcd"], id=long)]))
    _, ((request, _),) = m.parse_execute(payload, plans)
    assert request.id == long
    answer = WireResponse(1, m.OK, m.FINAL, 2, [b"abcd"], parameters=long)
    _, payload = payload_of(m.result_frame(Result(1, 2, 3, [answer])))
    signatures = {2: Signature((("Y", "FP32", (1,)),))}
    (found,) = m.parse_result(payload, signatures).responses
    assert found.parameters == long


def test_a_long_frame_is_joined_once_however_many_pieces_it_comes_in():
    data = m.frame(3, bytes(32 << 20))
    reader = m.FrameReader()
    began = time.process_time()
    found = [
        (kind, len(payload))
        for start in range(0, len(data), 4096)
        for kind, payload in reader.feed(data[start : start + 4096])
    ]
    assert found == [(3, 32 << 20)]
    assert time.process_time() - began < 2.0  # joining at each piece copies 128 GB
