# SPDX-License-Identifier: Apache-2.0
import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from problems import attention, make_cache, offsets, rows

BATCHES = [
    ([5], [0]),
    ([1, 1, 1], [7, 0, 13]),
    ([3, 0, 4, 1], [2, 5, 0, 9]),
]


def make_q(new_tokens, heads, head_dim, rng, dtype=np.float32):
    return rng.standard_normal((sum(new_tokens), heads, head_dim)).astype(dtype)


@pytest.mark.parametrize(("new_tokens", "cached"), BATCHES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2), (4, 1)], ids=["mha", "gqa", "mqa"])
def test_against_numpy(new_tokens, cached, heads, kv_heads, rng):
    cache = make_cache(new_tokens, cached, rng=rng, heads=kv_heads)
    q = make_q(new_tokens, heads, 8, rng)
    out = quire.flash_attention(q, offsets(new_tokens), cache, 1)
    expected = attention(q, offsets(new_tokens), cache, 1, scale=8**-0.5)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3)])
def test_half_types(dtype, tolerance, rng):
    cache = make_cache([3, 2], [4, 0], rng=rng, dtype=dtype)
    q = make_q([3, 2], 4, 8, rng, dtype)
    out = quire.flash_attention(q, offsets([3, 2]), cache, 0)
    assert out.dtype == dtype
    expected = attention(q, offsets([3, 2]), cache, 0, scale=8**-0.5)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_against_torch_sdpa(rng):
    cache = make_cache([6], [0], rng=rng, heads=2)
    q = make_q([6], 4, 8, rng)
    k, v = (torch.from_numpy(rows(cache, 0, side, 0, 6)).transpose(0, 1) for side in (0, 1))
    expected = torch.nn.functional.scaled_dot_product_attention(
        torch.from_numpy(q).transpose(0, 1), k, v, is_causal=True, enable_gqa=True
    )
    out = quire.flash_attention(q, offsets([6]), cache, 0)
    np.testing.assert_allclose(out, expected.transpose(0, 1), rtol=1e-5, atol=1e-6)


def test_scale_softcap_alibi_and_sinks(rng):
    cache = make_cache([3], [4], rng=rng, heads=1)
    q = make_q([3], 2, 8, rng)
    slopes, sinks = np.array([0.5, -0.25], np.float32), np.array([0.3, -2.0], np.float32)
    out, lse = quire.flash_attention(
        q, offsets([3]), cache, 0, scale=0.7, softcap=2.0, alibi_slopes=slopes, sinks=sinks, return_lse=True
    )
    k, v = (rows(cache, 0, side, 0, 7)[:, 0].astype(np.float64) for side in (0, 1))
    for i in range(3):
        for head in range(2):
            position = 4 + i
            keys = np.arange(position + 1)
            scores = 2.0 * np.tanh(k[keys] @ q[i, head].astype(np.float64) * 0.7 / 2.0)
            scores += slopes[head] * (keys - position)
            denominator = np.exp(scores).sum() + np.exp(float(sinks[head]))
            np.testing.assert_allclose(out[i, head], np.exp(scores) @ v[keys] / denominator, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(lse[i, head], np.log(denominator), rtol=1e-5)


def test_lse_of_cached_and_new_parts_merge(rng):
    """Attention over all keys = the merge of attentions over disjoint windows."""
    cache = make_cache([4], [8], rng=rng, page_size=4)
    q = make_q([4], 2, 8, rng)
    whole, whole_lse = quire.flash_attention(q, offsets([4]), cache, 0, return_lse=True)
    parts = []
    for first, last in ((0, 8), (8, 12)):
        bits = np.zeros((4, 12), bool)
        k, v = (rows(cache, 0, side, 0, 12)[first:last].astype(np.float64) for side in (0, 1))
        out, lse = np.zeros((4, 2, 8)), np.zeros((4, 2))
        for i in range(4):
            bits = np.arange(first, last) <= 8 + i
            for head in range(2):
                scores = k[bits, head] @ q[i, head] * 8**-0.5
                lse[i, head] = np.log(np.exp(scores).sum())
                out[i, head] = np.exp(scores - lse[i, head]) @ v[bits, head]
        parts.append((out.astype(np.float32), lse.astype(np.float32)))
    states, lses = (np.stack(part) for part in zip(*parts))
    merged, merged_lse = quire.merge_states(states, lses, return_lse=True)
    np.testing.assert_allclose(merged, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(merged_lse, whole_lse, rtol=1e-5)


def test_row_without_keys(rng):
    cache = make_cache([2], [4], rng=rng)
    nothing = quire.tree(np.zeros((2, 2), np.uint8)) & quire.sliding_window(1)
    out, lse = quire.flash_attention(
        make_q([2], 2, 8, rng), offsets([2]), cache, 0, mask=nothing, return_lse=True
    )
    assert (out == 0).all()
    assert np.isneginf(lse).all()


def test_narrow_value(rng):
    cache = make_cache([3], [2], rng=rng)
    q = make_q([3], 2, 8, rng)
    whole = quire.flash_attention(q, offsets([3]), cache, 0)
    out = np.empty((3, 2, 5), np.float32)
    assert quire.flash_attention(q, offsets([3]), cache, 0, out=out) is out
    np.testing.assert_array_equal(out, whole[..., :5])


def test_hnd_pool_gives_the_same_bits(rng):
    """Heads outside tokens in memory: only the strides differ."""
    cache = make_cache([3, 1], [6, 2], rng=rng)
    q = make_q([3, 1], 4, 8, rng)
    expected = quire.flash_attention(q, offsets([3, 1]), cache, 1)
    cache.blocks = np.ascontiguousarray(cache.blocks.swapaxes(3, 4)).swapaxes(3, 4)
    assert not cache.blocks.flags.c_contiguous
    np.testing.assert_array_equal(quire.flash_attention(q, offsets([3, 1]), cache, 1), expected)


def test_unassigned_page_is_masked(rng):
    cache = make_cache([1], [11], rng=rng, page_size=4)
    q = make_q([1], 2, 8, rng)
    holes = cache.page_table.copy()
    holes[0, 1] = 0xFFFFFFFF
    cache.page_table = holes
    out = quire.flash_attention(q, offsets([1]), cache, 0)
    k, v = (
        np.concatenate([part[:4], part[8:12]]).astype(np.float64)
        for part in (
            np.stack([cache.blocks[holes[0, t // 4] % cache.num_pages, side, 0, t % 4] for t in range(12)])
            for side in (0, 1)
        )
    )
    for head in range(2):
        weights = np.exp(k[:, head] @ q[0, head].astype(np.float64) * 8**-0.5)
        np.testing.assert_allclose(out[0, head], weights @ v[:, head] / weights.sum(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cached", [[], [4, 2]], ids=["no sequences", "no new tokens"])
def test_zero_tokens(cached, rng):
    new_tokens = [0] * len(cached)
    cache = make_cache(new_tokens, cached, rng=rng)
    out, lse = quire.flash_attention(
        np.zeros((0, 2, 8), np.float32), offsets(new_tokens), cache, 0, return_lse=True
    )
    assert out.shape == (0, 2, 8)
    assert lse.shape == (0, 2)


def test_batch_invariant(rng):
    cache = make_cache([3, 2], [5, 9], rng=rng)
    q = make_q([3, 2], 2, 8, rng)
    both = quire.flash_attention(q, offsets([3, 2]), cache, 0, batch_invariant=True)
    alone = quire.PagedKVCache(cache.blocks, cache.cache_lengths[1:], cache.page_table[1:])
    np.testing.assert_array_equal(
        quire.flash_attention(q[3:], offsets([2]), alone, 0, batch_invariant=True), both[3:]
    )


def test_allowed_fp8_products_change_nothing_where_there_are_none(rng):
    cache = make_cache([3], [5], rng=rng)
    q = make_q([3], 2, 8, rng)
    np.testing.assert_array_equal(
        quire.flash_attention(q, offsets([3]), cache, 0, allow_fp8_products=True),
        quire.flash_attention(q, offsets([3]), cache, 0),
    )


@pytest.mark.parametrize("store_dtype", [ml_dtypes.float8_e4m3fn, np.int8], ids=["fp8", "int8"])
def test_scaled_cache(store_dtype, rng):
    """K and V quantized by `store`; attention reads number × scale."""
    plain = make_cache([4], [0], rng=rng, head_dim=16)
    k, v = (rows(plain, 0, side, 0, 4) for side in (0, 1))
    blocks = np.zeros(plain.blocks.shape, store_dtype)
    scales = np.zeros((*blocks.shape[:5], 2), np.float32)
    cache = quire.PagedKVCache(blocks, plain.cache_lengths, plain.page_table, scales)
    quire.store(k, offsets([4]), cache, 0, side="key")
    quire.store(v, offsets([4]), cache, 0, side="value")
    q = make_q([4], 2, 16, rng)
    dequantized = quire.PagedKVCache(
        (blocks.astype(np.float32) * np.repeat(scales, 8, axis=-1)), plain.cache_lengths, plain.page_table
    )
    out = quire.flash_attention(q, offsets([4]), cache, 0)
    expected = attention(q, offsets([4]), dequantized, 0, scale=16**-0.5)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    original = attention(q, offsets([4]), plain, 0, scale=16**-0.5)
    np.testing.assert_allclose(out, original, atol=0.15)
