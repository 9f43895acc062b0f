# SPDX-License-Identifier: Apache-2.0
"""The border: what Quire sees of an array is the array, in place, whatever framework it comes from."""

import gc
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from quire import _quire

NUMPY_TYPES = [
    (np.float32, "f32"),
    (np.float16, "f16"),
    (ml_dtypes.bfloat16, "bf16"),
    (ml_dtypes.float8_e4m3fn, "fp8_e4m3"),
    (ml_dtypes.float8_e5m2, "fp8_e5m2"),
    (ml_dtypes.float8_e8m0fnu, "e8m0"),
    (np.int8, "i8"),
    (np.uint8, "u8"),
    (np.int32, "i32"),
    (np.uint32, "u32"),
    (np.int64, "i64"),
    (np.bool_, "u8"),
]
TORCH_TYPES = [
    (torch.float32, "f32"),
    (torch.float16, "f16"),
    (torch.bfloat16, "bf16"),
    (torch.float8_e4m3fn, "fp8_e4m3"),
    (torch.float8_e5m2, "fp8_e5m2"),
    (torch.float8_e8m0fnu, "e8m0"),
    (torch.int8, "i8"),
    (torch.uint8, "u8"),
    (torch.int32, "i32"),
    (torch.uint32, "u32"),
    (torch.int64, "i64"),
    (torch.bool, "u8"),
]


class DLPackOnly:
    """An array of some other framework: nothing but the two methods of the protocol."""

    def __init__(self, array, *, versioned=True):
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if not self.versioned and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**arguments)


@pytest.mark.parametrize(("dtype", "name"), NUMPY_TYPES)
def test_numpy_array_is_seen_in_place(dtype, name):
    array = np.zeros((3, 5), dtype)
    seen = _quire.describe_tensor(array, write=True)
    assert seen["dtype"] == name
    assert seen["shape"] == (3, 5)
    assert seen["strides"] == (5, 1)
    assert seen["device"] == "cpu"
    assert seen["address"] == array.__array_interface__["data"][0]


@pytest.mark.parametrize(("dtype", "name"), TORCH_TYPES)
def test_torch_tensor_is_seen_in_place(dtype, name):
    tensor = torch.zeros(3, 5, dtype=torch.int32).view(dtype) if dtype is torch.uint32 else torch.zeros(3, 5).to(dtype)
    seen = _quire.describe_tensor(tensor, write=True)
    assert seen["dtype"] == name
    assert seen["shape"] == (3, 5)
    assert seen["strides"] == (5, 1)
    assert seen["address"] == tensor.data_ptr()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_numpy_strides_and_offset(dtype):
    array = np.zeros((4, 6, 8), dtype)
    view = array.transpose(2, 0, 1)[1::2, ::-1, 2:]
    seen = _quire.describe_tensor(view)
    assert seen["shape"] == (4, 4, 4)
    assert seen["strides"] == (2, -48, 8)
    assert seen["address"] == view.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_torch_strides_and_offset(dtype):
    tensor = torch.zeros(4, 6, 8).to(dtype)
    view = tensor.permute(2, 0, 1)[1::2, :, 2:]
    seen = _quire.describe_tensor(view)
    assert seen["shape"] == (4, 4, 4)
    assert seen["strides"] == (2, 48, 8)
    assert seen["address"] == view.data_ptr()


def test_broadcast_has_stride_zero():
    seen = _quire.describe_tensor(np.broadcast_to(np.float32(1), (2, 3)))
    assert seen["strides"] == (0, 0)


def test_scalar_has_rank_zero():
    seen = _quire.describe_tensor(torch.tensor(1.0))
    assert seen["shape"] == ()


@pytest.mark.parametrize("versioned", [True, False])
def test_any_dlpack_producer(versioned):
    array = np.zeros((2, 3), np.float32)
    seen = _quire.describe_tensor(DLPackOnly(array, versioned=versioned))
    assert seen["text"] == "f32[2, 3]"
    assert seen["address"] == array.__array_interface__["data"][0]


def test_parameter_that_requires_grad():
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    assert _quire.describe_tensor(parameter)["address"] == parameter.data_ptr()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_read_only_array_can_be_read_and_not_written(dtype):
    array = np.zeros((2, 3), dtype)
    array.flags.writeable = False
    assert _quire.describe_tensor(array)["shape"] == (2, 3)
    with pytest.raises(ValueError, match="'tensor' must be a writable tensor, got a read-only one"):
        _quire.describe_tensor(array, write=True)


def test_read_only_output_is_refused_before_writing():
    out = np.full((1, 1, 1), 5, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="merge_states: 'out' must be a writable tensor"):
        quire.merge_states(np.ones((2, 1, 1, 1), np.float32), np.zeros((2, 1, 1), np.float32), out=out)
    assert out.item() == 5


@pytest.mark.parametrize(
    ("array", "actual"),
    [
        (np.zeros(2), "float64"),
        (np.zeros(2, np.complex64), "complex64"),
        (np.zeros(2, np.uint16), "uint16"),
        (np.zeros(2, ">f4"), "float32 of foreign byte order"),
        (np.array(["a"]), "str"),
        (np.zeros(2, ml_dtypes.float8_e4m3fnuz), "float8_e4m3fnuz"),
        (torch.zeros(2, dtype=torch.float64), "torch.float64"),
        ([1.0, 2.0], "list"),
        (None, "NoneType"),
        (3.0, "float"),
    ],
)
def test_foreign_types_are_named(array, actual):
    with pytest.raises(TypeError, match="describe_tensor: 'tensor' must be") as raised:
        _quire.describe_tensor(array)
    assert raised.value.actual.startswith(actual)


def test_unpacked_int4_points_to_pack_int4():
    with pytest.raises(TypeError, match="pack_int4.*got uint4"):
        _quire.describe_tensor(np.zeros((2, 2), ml_dtypes.uint4))


def test_rank_above_six():
    with pytest.raises(ValueError, match="at most 6 dimensions, got 7"):
        _quire.describe_tensor(np.zeros((1,) * 7, np.float32))


def test_unaligned_strides():
    records = np.zeros(4, np.dtype([("byte", np.uint8), ("number", ml_dtypes.bfloat16)]))
    with pytest.raises(ValueError, match="strides of whole elements"):
        _quire.describe_tensor(records["number"])


def test_other_device():
    with pytest.raises(Exception, match="meta|device|storage"):
        _quire.describe_tensor(torch.zeros(2, device="meta"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((4, 4), np.float32),
        lambda: np.zeros((4, 4), ml_dtypes.bfloat16),
        lambda: torch.zeros(4, 4),
        lambda: torch.zeros(4, 4).to(torch.float8_e4m3fn),
    ],
)
def test_nothing_is_kept_after_the_call(make):
    array = make()
    before = sys.getrefcount(array)
    for _ in range(3):
        _quire.describe_tensor(array)
    assert sys.getrefcount(array) == before
    reference = weakref.ref(array)
    del array
    gc.collect()
    assert reference() is None


def test_nothing_is_kept_after_an_error():
    states = np.zeros((2, 1, 1, 1), np.float32)
    before = sys.getrefcount(states)
    with pytest.raises(ValueError):
        quire.merge_states(states, np.zeros((2, 5, 5), np.float32))
    assert sys.getrefcount(states) == before


def test_strided_operands_give_the_same_bits(rng):
    states = rng.standard_normal((2, 3, 4, 8)).astype(np.float32)
    lses = rng.standard_normal((2, 3, 4)).astype(np.float32)
    strided = np.zeros((3, 4, 2, 16), np.float32).transpose(2, 0, 1, 3)[..., 4:12]
    strided[...] = states
    assert not strided.flags.c_contiguous
    np.testing.assert_array_equal(quire.merge_states(strided, lses), quire.merge_states(states, lses))
