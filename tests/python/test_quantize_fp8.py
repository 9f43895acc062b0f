# SPDX-License-Identifier: Apache-2.0
"""quantize_fp8 and merge_states against arithmetic with ml_dtypes and numpy."""

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from problems import round_once

FP8 = {"fp8_e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "fp8_e5m2": (ml_dtypes.float8_e5m2, 57344.0)}


def expected(x, group, name, bound=np.inf, power_of_two=False):
    dtype, largest = FP8[name]
    rows, columns = x.shape
    codes = np.zeros(x.shape, dtype)
    scales = np.zeros((rows, -(-columns // group)), np.float32)
    for row in range(rows):
        for index, first in enumerate(range(0, columns, group)):
            part = x[row, first : first + group].astype(np.float64)
            scale = min(np.abs(part).max(), bound) / largest
            if power_of_two:
                scale = 2.0 ** np.ceil(np.log2(max(scale, 1e-10)))
            scales[row, index] = scale
            if scales[row, index] != 0:
                codes[row, first : first + group] = round_once(part / np.float64(scales[row, index]), dtype)
    return codes, scales


@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("group", [-1, 16, 24])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_against_ml_dtypes(name, group, dtype, rng):
    x = (rng.standard_normal((5, 64)) * 10).astype(dtype)
    x[2, :24] = 0
    out, scale = quire.quantize_fp8(x, group_size=group, dtype=name)
    codes, scales = expected(x, 64 if group < 0 else group, name)
    np.testing.assert_array_equal(scale, scales)
    np.testing.assert_array_equal(out.astype(np.float32), codes.astype(np.float32))


def test_power_of_two_scales_round_up(rng):
    x = (rng.standard_normal((6, 32)) * 100).astype(np.float32)
    x[1] *= 448 / np.abs(x[1]).max()  # amax / 448 is 1: already a power of two
    out, scale = quire.quantize_fp8(x, group_size=8, power_of_two_scale=True)
    codes, scales = expected(x, 8, "fp8_e4m3", power_of_two=True)
    np.testing.assert_array_equal(scale, scales)
    np.testing.assert_array_equal(out.astype(np.float32), codes.astype(np.float32))
    assert (np.frexp(scale)[0] == 0.5).all()


def test_power_of_two_scales_as_bytes(rng):
    x = (rng.standard_normal((6, 32)) * np.exp2(rng.integers(-20, 20, (6, 1)))).astype(np.float32)
    x[3, :8] = 0
    out, scale = quire.quantize_fp8(x, group_size=8, power_of_two_scale=True)
    powers = np.zeros((4, 6), ml_dtypes.float8_e8m0fnu).T  # a transposed view
    codes, stored = quire.quantize_fp8(x, group_size=8, power_of_two_scale=True, scale=powers)
    assert stored is powers
    np.testing.assert_array_equal(powers.astype(np.float32), scale)
    np.testing.assert_array_equal(codes.view(np.uint8), out.view(np.uint8))
    with pytest.raises(TypeError, match="'scale' must be f32 where scales are no powers of two"):
        quire.quantize_fp8(x, group_size=8, scale=powers)


def test_upper_bound_saturates(rng):
    x = np.array([[3.0, -5000.0, 100.0, 1200.0]], np.float32)
    out, scale = quire.quantize_fp8(x, scale_upper_bound=1200.0)
    assert scale[0, 0] == np.float32(1200.0 / 448)
    assert out.astype(np.float32)[0, 1] == -448


def test_all_zero_group():
    out, scale = quire.quantize_fp8(np.zeros((1, 8), np.float32), group_size=4)
    assert (scale == 0).all()
    assert (out.view(np.uint8) == 0).all()


def test_scale_may_be_a_transposed_view(rng):
    x = rng.standard_normal((5, 32)).astype(np.float32)
    _, scale = quire.quantize_fp8(x, group_size=8)
    m_major = np.zeros((4, 5), np.float32)
    quire.quantize_fp8(x, group_size=8, scale=m_major.T)
    np.testing.assert_array_equal(m_major.T, scale)


def test_torch_result(rng):
    x = torch.from_numpy(rng.standard_normal((3, 16)).astype(np.float32))
    out, scale = quire.quantize_fp8(x)
    assert out.dtype == torch.float8_e4m3fn
    codes, scales = expected(x.numpy(), 16, "fp8_e4m3")
    np.testing.assert_array_equal(scale.numpy(), scales)
    np.testing.assert_array_equal(out.to(torch.float32).numpy(), codes.astype(np.float32))


def test_merge_states_against_numpy(rng):
    states = rng.standard_normal((4, 3, 2, 5)).astype(np.float32)
    lses = (rng.standard_normal((4, 3, 2)) * 30).astype(np.float32)
    lses[1, 0, 0] = -np.inf
    states[1, 0, 0] = np.nan  # an empty state may hold anything
    out, lse = quire.merge_states(states, lses, return_lse=True)
    joint = np.logaddexp.reduce(lses.astype(np.float64), axis=0)
    weights = np.exp(lses.astype(np.float64) - joint)
    np.testing.assert_allclose(out, (weights[..., None] * np.nan_to_num(states)).sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse, joint, rtol=1e-6)


def test_merge_of_empty_states():
    out, lse = quire.merge_states(
        np.full((2, 1, 1, 3), np.nan, np.float32), np.full((2, 1, 1), -np.inf, np.float32), return_lse=True
    )
    assert (out == 0).all()
    assert np.isneginf(lse).all()
