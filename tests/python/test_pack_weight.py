# SPDX-License-Identifier: Apache-2.0
"""Packed weights give the bits of plain ones, hold their own memory, and refuse what they cannot be."""

import gc

import numpy as np
import pytest
import quire
from problems import make_cache, offsets

NEW = [2, 1]
DIM = 8  # one KV head
N, HIDDEN = 40, 256


def project(weight, x, **arguments):
    """Q and the new rows of the cache."""
    cache = make_cache(NEW, [0, 0], rng=np.random.default_rng(3), heads=1, head_dim=DIM, page_size=4, layers=1)
    q = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0, **arguments)
    rows = [cache.blocks[cache.page_table[b, 0], side, 0, :n, 0] for b, n in enumerate(NEW) for side in (0, 1)]
    return np.concatenate([q.ravel(), *(row.ravel() for row in rows)])


def int4(rng, group_size, zeros=False, perm=False):
    codes = rng.integers(0, 16, (N, HIDDEN), dtype=np.uint8)
    scale = rng.uniform(0.01, 0.1, (N, HIDDEN // group_size)).astype(np.float16)
    quant = quire.Quant(
        "int4",
        group_size=group_size,
        zeros=rng.integers(0, 16, scale.shape, dtype=np.uint8) if zeros else None,
        perm=rng.permutation(HIDDEN).astype(np.int32) if perm else None,
    )
    return quire.pack_int4(codes), {"weight_scale": scale, "quant": quant}


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: (rng.standard_normal((N, HIDDEN)).astype(np.float32), {}),
        lambda rng: (rng.standard_normal((N, HIDDEN)).astype(np.float16), {}),
        lambda rng: int4(rng, 32),
        lambda rng: int4(rng, 128, zeros=True, perm=True),
    ],
    ids=["f32", "f16", "int4", "int4 with zeros and perm"],
)
def test_packed_gives_the_same_bits(make, rng):
    weight, more = make(rng)
    x = rng.standard_normal((sum(NEW), HIDDEN)).astype(np.float32)
    plain = project(weight, x, **more)
    packed = quire.pack_weight(weight, **more)
    del weight, more
    gc.collect()
    assert packed.shape == (N, HIDDEN)
    np.testing.assert_array_equal(project(packed, x), plain)


@pytest.mark.parametrize("tokens", [1, 3, 40])  # vectors and tiles
def test_zero_points_beyond_the_codes(tokens, rng):
    codes = rng.integers(0, 16, (N, HIDDEN), dtype=np.uint8)
    zeros = rng.integers(0, 17, (N, HIDDEN // 64), dtype=np.uint8)
    zeros[3, 1] = 16
    x = rng.integers(-3, 4, (tokens, HIDDEN)).astype(np.float32)
    scale = np.full(zeros.shape, 0.5, np.float32)

    def more():
        return {"weight_scale": scale, "quant": quire.Quant("int4", group_size=64, zeros=zeros)}

    def expected():
        return x @ ((codes - np.repeat(zeros, 64, axis=1).astype(np.float32)) * 0.5).T

    packed = quire.pack_weight(quire.pack_int4(codes), **more())
    np.testing.assert_array_equal(quire.linear(x, packed), expected())  # integers: exact
    zeros[3, 1] = 17  # numbers that the packed kernels cannot make, and plain ones can
    np.testing.assert_array_equal(quire.linear(x, quire.pack_int4(codes), **more()), expected())
    with pytest.raises(ValueError, match=r"'weight.zeros' must be of at most 16, got 17 for row 3, group 1"):
        quire.pack_weight(quire.pack_int4(codes), **more())


def test_properties_of_a_packed_weight(rng):
    weight, more = int4(rng, 64)
    packed = quire.pack_weight(weight, **more)
    assert packed.format == "int4"
    assert packed.packing != "none"
    assert packed.nbytes >= N * HIDDEN // 2


def test_packed_weight_needs_no_scale(rng):
    weight, more = int4(rng, 64)
    packed = quire.pack_weight(weight, **more)
    x = np.zeros((sum(NEW), HIDDEN), np.float32)
    with pytest.raises(ValueError, match="None for a packed weight") as error:
        project(packed, x, weight_scale=more["weight_scale"])
    assert error.value.argument == "weight_scale"


def test_wrong_weights_are_named(rng):
    weight, more = int4(rng, 64)
    with pytest.raises(ValueError, match="32, 64 or 128") as error:
        quire.pack_weight(weight, weight_scale=more["weight_scale"], quant=quire.Quant("int4", group_size=48))
    assert (error.value.op, error.value.argument) == ("pack_weight", "weight.group_size")
    packed = quire.pack_weight(weight, **more)
    with pytest.raises(ValueError, match="a plain weight"):
        quire.pack_weight(packed)
    x = np.zeros((sum(NEW), HIDDEN // 2), np.float32)
    with pytest.raises(ValueError, match=rf"packed from \[{N}, {HIDDEN // 2}\]"):
        project(packed, x)


def test_a_kernel_that_cannot_read_the_order_says_so(rng):
    packed = quire.pack_weight(rng.standard_normal((N, HIDDEN)).astype(np.float32))
    with quire.using(kernel="reference"), pytest.raises(NotImplementedError, match="the weight is packed as"):
        project(packed, np.zeros((sum(NEW), HIDDEN), np.float32))


def test_int8_activations_are_close_and_asked_for(rng):
    weight, more = int4(rng, 32, zeros=True)
    x = rng.standard_normal((sum(NEW), HIDDEN)).astype(np.float32)
    packed = quire.pack_weight(weight, **more)
    exact, rounded = project(packed, x), project(packed, x, activations="int8")
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()
    with quire.using(kernel="reference"):
        oracle = project(weight, x, activations="int8", **more)
    np.testing.assert_allclose(rounded, oracle, atol=1e-5 * np.abs(exact).max())
    with pytest.raises(ValueError, match="'exact' or 'int8'"):
        project(packed, x, activations="int4")
