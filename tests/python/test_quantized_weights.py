# SPDX-License-Identifier: Apache-2.0
"""Quantized weights: GGUF against the dequantizer of PyPI's `gguf`, the int4 formats against packing done here."""

import gguf
import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets

NEW = [2, 1]
DIM = 8  # one KV head
N = 40  # 24 rows of Q, 8 of K, 8 of V

TYPES = gguf.GGMLQuantizationType
GGUF_TYPES = {  # name → type, columns and bytes of a block, where it has f16 factors
    "q4_0": (TYPES.Q4_0, 32, 18, [0]),
    "q4_1": (TYPES.Q4_1, 32, 20, [0, 2]),
    "q5_0": (TYPES.Q5_0, 32, 22, [0]),
    "q5_1": (TYPES.Q5_1, 32, 24, [0, 2]),
    "q8_0": (TYPES.Q8_0, 32, 34, [0]),
    "iq4_nl": (TYPES.IQ4_NL, 32, 18, [0]),
    "mxfp4": (TYPES.MXFP4, 32, 17, []),
    "q4_k": (TYPES.Q4_K, 256, 144, [0, 2]),
    "q5_k": (TYPES.Q5_K, 256, 176, [0, 2]),
    "q6_k": (TYPES.Q6_K, 256, 210, [208]),
}


def project(weight, hidden, rng, **arguments):
    """Y [tokens, N] as Quire computes it, put together from Q and the cache, and the x it was given."""
    cache = make_cache(NEW, [0, 0], rng=rng, heads=1, head_dim=DIM, page_size=4, layers=1)
    x = rng.standard_normal((sum(NEW), hidden)).astype(np.float32)
    q = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0, **arguments)
    kv = [
        np.stack([cache.blocks[cache.page_table[b, 0], side, 0, i, 0] for b, n in enumerate(NEW) for i in range(n)])
        for side in (0, 1)
    ]
    return np.concatenate([q, *kv], axis=1), x


def check(y, x, dequantized):
    expected = x.astype(np.float64) @ dequantized.astype(np.float64).T
    bound = np.abs(x).astype(np.float64) @ np.abs(dequantized).astype(np.float64).T
    assert y.shape == expected.shape
    assert (np.abs(y - expected) <= 1e-6 * bound + 1e-30).all()


def random_blocks(name, hidden, rng):
    """Random bytes, with the half-precision scales inside kept finite."""
    _, columns, size, scale_offsets = GGUF_TYPES[name]
    blocks = rng.integers(0, 256, (N, hidden // columns, size), dtype=np.uint8)
    for offset in scale_offsets:
        scale = rng.standard_normal((N, hidden // columns, 1)).astype(np.float16)
        blocks[..., offset : offset + 2] = scale.view(np.uint8)
    if name == "mxfp4":
        blocks[..., 0] = rng.integers(120, 136, blocks.shape[:-1])  # exponents
    return blocks.reshape(N, -1)


@pytest.mark.parametrize("name", GGUF_TYPES)
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_gguf(name, num_blocks, rng):
    kind, columns, _, _ = GGUF_TYPES[name]
    hidden = columns * num_blocks
    weight = random_blocks(name, hidden, rng)
    y, x = project(weight, hidden, rng, quant=quire.Quant(name))
    check(y, x, gguf.dequantize(weight, kind))


@pytest.mark.parametrize("kernel", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", GGUF_TYPES)
def test_gguf_bit_by_bit(name, dtype, kernel, rng):
    """x is the identity, so that every sum has one term: a value of the weight, which is gguf's to the last bit."""
    kind, columns, _, _ = GGUF_TYPES[name]
    weight = random_blocks(name, columns, rng)
    if name == "mxfp4":  # as far as 12 · 2^(e - 128) is an f32
        weight[:, 0] = rng.permutation(np.r_[0:8, 100:124, 245:253])[:N]
    cache = make_cache([columns], [0], rng=rng, heads=1, head_dim=DIM, page_size=columns, layers=1)
    out = np.empty((columns, N - 2 * DIM), np.float32)
    with quire.using(kernel=kernel):
        x = np.eye(columns).astype(dtype)
        quire.fused_qkv_matmul(x, offsets([columns]), weight, cache, 0, quant=quire.Quant(name), out=out)
    np.testing.assert_array_equal(out, gguf.dequantize(weight, kind)[: N - 2 * DIM].T)


@pytest.mark.parametrize("name", [name for name, entry in GGUF_TYPES.items() if entry[1] == 32])
@pytest.mark.parametrize("activations", ["exact", "int8"])
def test_gguf_packed(name, activations, rng):
    hidden = 96
    weight = random_blocks(name, hidden, rng)
    packed = quire.pack_weight(weight, quant=quire.Quant(name))
    assert packed.format == name
    y, x = project(packed, hidden, rng, activations=activations)
    if activations == "int8":
        groups = x.reshape(len(x), -1, 32)
        scale = (np.abs(groups).max(axis=-1, keepdims=True) / np.float32(127)).astype(np.float32)
        x = (np.rint(groups / scale) * scale.astype(np.float64)).reshape(x.shape)
    check(y, x, gguf.dequantize(weight, GGUF_TYPES[name][0]))


# How far a projection over 64 columns may be from that of the matrix: the step of the codes.
@pytest.mark.parametrize(
    ("name", "far"), [("q4_0", 3.0), ("q4_1", 3.0), ("q5_0", 1.5), ("q5_1", 1.5), ("q8_0", 0.2), ("mxfp4", 6.0)]
)
def test_gguf_of_a_real_matrix(name, far, rng):
    """gguf's own quantizer: the projection is close to that of the matrix itself."""
    matrix = rng.standard_normal((N, 64)).astype(np.float32)
    packed = gguf.quantize(matrix, GGUF_TYPES[name][0])
    y, x = project(packed, 64, rng, quant=quire.Quant(name))
    np.testing.assert_allclose(y, x @ matrix.T, atol=far)


def make_int4(hidden, group, rng):
    codes = rng.integers(0, 16, (N, hidden), dtype=np.uint8)
    scale = rng.uniform(0.01, 0.1, (N, hidden // group)).astype(np.float32)
    zeros = rng.integers(0, 16, (N, hidden // group), dtype=np.uint8)
    return codes, scale, zeros


def dequantize(codes, scale, zeros, group):
    return (codes.astype(np.float64) - zeros.repeat(group, 1)) * scale.repeat(group, 1)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_int4(group, with_zeros, rng):
    codes, scale, zeros = make_int4(128, group, rng)
    if not with_zeros:
        zeros = np.full_like(zeros, 8)
    y, x = project(
        quire.pack_int4(codes), 128, rng, weight_scale=scale,
        quant=quire.Quant("int4", group_size=group, zeros=zeros if with_zeros else None),
    )
    check(y, x, dequantize(codes, scale, zeros, group))


def test_pack_int4_in_every_framework(rng):
    codes = rng.integers(0, 16, (3, 6), dtype=np.uint8)
    expected = codes[:, 0::2] + 16 * codes[:, 1::2]
    np.testing.assert_array_equal(quire.pack_int4(codes), expected)
    np.testing.assert_array_equal(quire.pack_int4(codes.astype(ml_dtypes.uint4)), expected)
    np.testing.assert_array_equal(quire.pack_int4(torch.from_numpy(codes)).numpy(), expected)
    with pytest.raises(ValueError, match="'codes' must be"):
        quire.pack_int4(codes[:, :5])


def test_int4_act_order(rng):
    codes, scale, zeros = make_int4(64, 32, rng)
    perm = rng.permutation(64).astype(np.int32)
    y, x = project(
        quire.pack_int4(codes), 64, rng, weight_scale=scale,
        quant=quire.Quant("int4", group_size=32, zeros=zeros, perm=perm),
    )
    check(y, x[:, perm], dequantize(codes, scale, zeros, 32))


def pack_words(codes, order=range(8)):
    """Eight 4-bit codes of the last axis per int32; nibble i holds code order[i]."""
    groups = codes.reshape(*codes.shape[:-1], -1, 8).astype(np.uint32)
    words = np.zeros(groups.shape[:-1], np.uint32)
    for nibble, code in enumerate(order):
        words |= groups[..., code] << (4 * nibble)
    return words.view(np.int32)


@pytest.mark.parametrize("name", ["gptq", "gptq_v2"])
def test_gptq(name, rng):
    codes, scale, zeros = make_int4(64, 32, rng)
    zeros = np.clip(zeros, 1, 15)  # GPTQ stores zero - 1
    packed = np.ascontiguousarray(pack_words(codes).T)  # [K/8, N]
    stored = pack_words((zeros - (1 if name == "gptq" else 0)).T)  # [K/g, N/8]
    y, x = project(
        packed, 64, rng, weight_scale=np.ascontiguousarray(scale.T),
        quant=quire.Quant(name, group_size=32, zeros=stored),
    )
    check(y, x, dequantize(codes, scale, zeros, 32))


def test_awq(rng):
    codes, scale, zeros = make_int4(64, 32, rng)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    y, x = project(
        pack_words(codes.T, order), 64, rng, weight_scale=np.ascontiguousarray(scale.T),
        quant=quire.Quant("awq", group_size=32, zeros=pack_words(zeros.T, order)),
    )
    check(y, x, dequantize(codes, scale, zeros, 32))


def test_unknown_format(rng):
    with pytest.raises(ValueError, match="fused_qkv_matmul: 'quant.format' must be .*, got 'q3'"):
        project(np.zeros((N, 18), np.uint8), 32, rng, quant=quire.Quant("q3"))


def test_group_size_out_of_range(rng):
    codes, scale, _ = make_int4(128, 64, rng)
    with pytest.raises(ValueError, match="group_size' must be .*, got 48"):
        project(quire.pack_int4(codes), 128, rng, weight_scale=scale, quant=quire.Quant("int4", group_size=48))
