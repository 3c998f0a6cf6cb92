"""DLPack both ways: same memory, right types, nothing freed too early or kept too long."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from devkit.stub import dlpack, pb_utils
from devkit.transport import dtypes


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("datatype", [t for t in dtypes.NUMPY if t != "BYTES"])
def test_out_and_in_again_is_the_same_memory(datatype):
    array = np.ones((2, 3), dtypes.NUMPY[datatype])
    tensor = pb_utils.Tensor.from_dlpack("b", pb_utils.Tensor("a", array).to_dlpack())
    assert tensor.name() == "b"
    assert tensor.shape() == [2, 3]
    assert tensor.as_numpy().dtype == array.dtype
    assert address(tensor.as_numpy()) == address(array)


def test_numpy_takes_ours_and_we_take_numpys():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    theirs = np.from_dlpack(pb_utils.Tensor("a", array))
    assert address(theirs) == address(array)
    ours = pb_utils.Tensor.from_dlpack("a", array)
    assert address(ours.as_numpy()) == address(array)
    ours.as_numpy()[0, 0] = 7
    assert array[0, 0] == 7


def test_memory_lives_as_long_as_its_users_and_no_longer():
    array = np.ones(3)
    gone = weakref.ref(array)
    ours = pb_utils.Tensor.from_dlpack("a", pb_utils.Tensor("a", array).to_dlpack())
    view = ours.as_numpy()[1:]
    del array, ours
    gc.collect()
    assert gone() is not None
    assert view.tolist() == [1, 1]
    del view
    assert gone() is None


def test_a_capsule_nobody_took_lets_go():
    array = np.ones(3)
    gone = weakref.ref(array)
    capsule = pb_utils.Tensor("a", array).to_dlpack()
    del array
    assert gone() is not None
    del capsule
    assert gone() is None
    assert dlpack._exported == {}


def test_a_capsule_is_good_for_one_consumer():
    capsule = pb_utils.Tensor("a", np.ones(3)).to_dlpack()
    first = pb_utils.Tensor.from_dlpack("a", capsule)
    with pytest.raises(pb_utils.TritonModelException, match="consumed"):
        pb_utils.Tensor.from_dlpack("a", capsule)
    assert first.as_numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("producer", "text"),
    [
        (
            np.zeros((4, 4))[:, ::2],
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in "
            "C-Order are supported.",
        ),
        (
            5,
            "Provided tensor is not supported. Tensor must be a DLPack capsule         or have "
            "`__dlpack__` and `__dlpack_device__` attributes",
        ),
        (np.zeros(2, np.complex64), "DLPack tensor's data type is not supported."),
    ],
)
def test_what_is_refused(producer, text):
    with pytest.raises(pb_utils.TritonModelException) as caught:
        pb_utils.Tensor.from_dlpack("a", producer)
    assert str(caught.value) == text


def test_strings_have_no_dlpack():
    tensor = pb_utils.Tensor("a", np.array([b"x"], dtype=object))
    with pytest.raises(pb_utils.TritonModelException, match="string tensors"):
        tensor.to_dlpack()


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 5), (3, 1)])
def test_odd_shapes(shape):
    array = np.zeros(shape, np.int16)
    tensor = pb_utils.Tensor.from_dlpack("a", array)
    assert tensor.as_numpy().shape == shape
    assert tensor.__dlpack_device__() == (1, 0)


def test_torch_shares_memory():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.bfloat16)
    ours = pb_utils.Tensor.from_dlpack("a", tensor)
    assert ours.shape() == [6]
    with pytest.raises(pb_utils.TritonModelException, match="BF16"):
        ours.as_numpy()
    assert torch.from_dlpack(ours).data_ptr() == tensor.data_ptr()


def test_jax_shares_memory():
    jax = pytest.importorskip("jax")
    array = jax.numpy.arange(64, dtype=jax.numpy.float32).reshape(8, 8)
    ours = pb_utils.Tensor.from_dlpack("a", array)
    assert address(ours.as_numpy()) == array.unsafe_buffer_pointer()
    theirs = jax.dlpack.from_dlpack(pb_utils.Tensor("b", ours.as_numpy()))
    assert theirs.unsafe_buffer_pointer() == address(ours.as_numpy())
    np.testing.assert_array_equal(theirs, array)


def test_jax_bf16_passes_through():
    jax = pytest.importorskip("jax")
    array = jax.numpy.ones((4,), dtype=jax.numpy.bfloat16)
    ours = pb_utils.Tensor.from_dlpack("a", array)
    assert ours.shape() == [4]
    assert jax.dlpack.from_dlpack(ours).dtype == jax.numpy.bfloat16
