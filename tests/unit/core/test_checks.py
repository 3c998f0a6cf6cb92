"""The refusals of requests that do not fit, to the letter."""

from __future__ import annotations

import struct

import pytest

from devkit.contract.config import IOSpec
from devkit.core import checks
from devkit.core.request import Description, Request, TensorSpec
from devkit.errors import InferError

X = TensorSpec("X", "FP32", (2,))
MODE = TensorSpec("MODE", "BYTES", (1,))
INPUTS = {"MODE": IOSpec("MODE", "BYTES", (1,), (1,)), "X": IOSpec("X", "FP32", (-1,), (-1,))}
OUTPUTS = {"Y": IOSpec("Y", "FP32", (-1,), (-1,))}
BATCHED = {"X": IOSpec("X", "FP32", (4,), (-1, 4))}


def make(
    *inputs: TensorSpec, outputs: tuple[str, ...] = (), data: tuple[bytes, ...] = ()
) -> Request:
    return Request("modes", Description(inputs, outputs), list(data), lambda _: None)


def refusal(request: Request, inputs: dict[str, IOSpec] = INPUTS, batch: int = 0) -> str:
    try:
        fit = checks.check_description(request, "modes", inputs, OUTPUTS, batch)
        checks.check_buffers(request, "modes", fit)
    except InferError as caught:
        return caught.message
    return "accepted"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            make(MODE, TensorSpec("W", "FP32", (2,))),
            "unexpected inference input 'W' for model 'modes'",
        ),
        (make(MODE, X, outputs=("N",)), "unexpected inference output 'N' for model 'modes'"),
        (
            make(MODE),
            "[request id: <id_unknown>] expected 2 inputs but got 1 inputs for model 'modes'. Got "
            "input(s) ['MODE'], but missing required input(s) ['X']. Please provide all required "
            "input(s).",
        ),
        (
            make(MODE, X, TensorSpec("E", "FP32", (1,))),
            "[request id: <id_unknown>] expected 2 inputs but got 3 inputs for model 'modes'. Got "
            "input(s) ['E','X','MODE'], but missing required input(s) ]. Please provide all "
            "required input(s).",
        ),
        (
            make(MODE, TensorSpec("X", "INT32", (2,))),
            "[request id: <id_unknown>] inference input 'X' data-type is 'INT32', but model "
            "'modes' expects 'FP32'",
        ),
        (
            make(MODE, TensorSpec("X", "FP32", (1, 2))),
            "[request id: <id_unknown>] unexpected shape for input 'X' for model 'modes'. "
            "Expected [-1], got [1,2]. ",
        ),
        (
            make(MODE, TensorSpec("X", "FP32", (-1,))),
            "[request id: <id_unknown>] All input dimensions should be specified for input 'X' "
            "for model 'modes', got [-1]",
        ),
    ],
)
def test_descriptions_that_do_not_fit(request_: Request, text: str) -> None:
    assert refusal(request_) == text


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((5, 4), "inference request batch-size must be <= 4 for 'modes'"),
        (
            (4,),
            "unexpected shape for input 'X' for model 'modes'. Expected [-1,4], got [4]. "
            + checks.BATCH_NOTE,
        ),
        ((0, 4), "input byte size mismatch for input 'X' for model 'modes'. Expected 16, got 0"),
    ],
)
def test_batches_that_do_not_fit(shape: tuple[int, ...], text: str) -> None:
    request = make(TensorSpec("X", "FP32", shape), data=(b"",))
    request.id = "7"
    assert refusal(request, BATCHED, 4) == f"[request id: 7] {text}"


def test_batch_sizes_must_agree() -> None:
    inputs = {**BATCHED, "MODE": IOSpec("MODE", "BYTES", (1,), (-1, 1))}
    request = make(TensorSpec("MODE", "BYTES", (2, 1)), TensorSpec("X", "FP32", (1, 4)))
    assert refusal(request, inputs, 4) == (
        "[request id: <id_unknown>] input 'MODE' batch size does not match other inputs for 'modes'"
    )


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (
            struct.pack("<I", 9) + b"abc",
            "incomplete string data for inference input 'MODE', expecting string of length 9 but "
            "only 3 bytes available",
        ),
        (
            b"\1\0",
            "[request id: <id_unknown>] incomplete string length indicator for inference input "
            "'MODE' for model 'modes', expecting 4 bytes but only 2 bytes available. Please make "
            "sure the string length indicator is in one buffer.",
        ),
        (
            (struct.pack("<I", 2) + b"ok") * 2,
            "[request id: <id_unknown>] unexpected number of string elements 2 for inference "
            "input 'MODE' for model 'modes', expecting 1",
        ),
        (
            b"",
            "[request id: <id_unknown>] expected 1 string elements for inference input 'MODE' for "
            "model 'modes', got 0",
        ),
    ],
)
def test_strings_that_do_not_add_up(mode: bytes, text: str) -> None:
    assert refusal(make(MODE, X, data=(mode, bytes(8)))) == text


def test_what_fits_is_described_once() -> None:
    request = make(TensorSpec("X", "FP32", (3, 4)), data=(bytes(48),))
    fit = checks.check_description(request, "m", BATCHED, OUTPUTS, 4)
    checks.check_buffers(request, "m", fit)
    assert (fit.batch_size, fit.sizes) == (3, (48,))


def test_requests_of_other_item_shapes_have_another_batch_key() -> None:
    inputs = {"X": IOSpec("X", "FP32", (-1,), (-1, -1))}
    ragged = {"X": IOSpec("X", "FP32", (-1,), (-1, -1), allow_ragged=True)}

    def key(length: int, specs: dict[str, IOSpec]) -> object:
        request = make(TensorSpec("X", "FP32", (1, length)))
        return checks.check_description(request, "m", specs, OUTPUTS, 4).batch_key

    assert key(2, inputs) != key(3, inputs)
    assert key(2, ragged) == key(3, ragged)
