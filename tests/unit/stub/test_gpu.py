"""Tensors on a GPU: same memory through DLPack, told apart from the host's, copied only when asked.

Run by `pytest -m gpu` where a CUDA device and PyTorch for it are there.
"""

from __future__ import annotations

import numpy as np
import pytest

from devkit.stub import pb_utils

pytestmark = pytest.mark.gpu


@pytest.fixture
def cuda():
    import torch

    assert torch.cuda.is_available(), "-m gpu asks for the tests that need a CUDA device"
    return torch


def test_a_device_tensor_is_not_on_the_host(cuda):
    tensor = pb_utils.Tensor.from_dlpack("a", cuda.arange(6, device="cuda", dtype=cuda.float32))
    assert not tensor.is_cpu()
    assert tensor.__dlpack_device__()[0] == 2


def test_a_device_tensor_goes_through_without_a_copy(cuda):
    array = cuda.ones((2, 3), device="cuda")
    tensor = pb_utils.Tensor.from_dlpack("a", array)
    assert cuda.from_dlpack(tensor).data_ptr() == array.data_ptr()


def test_as_numpy_of_a_device_tensor_is_refused_with_what_to_do(cuda):
    tensor = pb_utils.Tensor.from_dlpack("a", cuda.ones(3, device="cuda"))
    with pytest.raises(pb_utils.TritonModelException, match="GPU"):
        tensor.as_numpy()


def test_an_answer_on_the_device_reaches_the_client(cuda):
    from devkit.stub.tensor import raw

    array = cuda.arange(6, device="cuda", dtype=cuda.float32)
    tensor = pb_utils.Tensor.from_dlpack("a", array)
    copied = np.frombuffer(bytes(raw(tensor)), np.float32)
    assert copied.tolist() == [0, 1, 2, 3, 4, 5]
