# SPDX-License-Identifier: Apache-2.0
"""Caches whose K and V are two tensors: the bits of one, and strides and widths of their own."""

import copy
import pickle

import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets
from torch.nn.functional import scaled_dot_product_attention

NEW, CACHED = [3, 0, 4, 1], [2, 5, 0, 9]


def split(cache, *, transposed=False):
    """The same rows in two tensors; transposed: V in another order of dimensions."""
    keys, values = cache.blocks[:, :1].copy(), cache.blocks[:, 1:].copy()
    if transposed:
        values = values.swapaxes(3, 4).copy().swapaxes(3, 4)
    return quire.PagedKVCache(keys, cache.cache_lengths, cache.page_table, value_blocks=values)


@pytest.mark.parametrize("transposed", [False, True], ids=["same_strides", "other_strides"])
def test_attention_gives_the_bits_of_one_tensor(transposed, rng):
    cache = make_cache(NEW, CACHED, rng=rng, heads=2)
    q = rng.standard_normal((sum(NEW), 4, 8)).astype(np.float32)
    expected = quire.flash_attention(q, offsets(NEW), cache, 1)
    two = split(cache, transposed=transposed)
    assert not two.is_mla
    np.testing.assert_array_equal(quire.flash_attention(q, offsets(NEW), two, 1), expected)


def test_rows_are_written_to_both(rng):
    one, rows = make_cache(NEW, CACHED, rng=rng, heads=2), offsets(NEW)
    two = split(one, transposed=True)
    k, v = (rng.standard_normal((sum(NEW), 2, 8)).astype(np.float32) for _ in range(2))
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((sum(NEW), 16), (16 + 2 * 16, 16)))
    gamma, freqs = rng.standard_normal(8).astype(np.float32), rng.standard_normal((32, 8)).astype(np.float32)
    q = rng.standard_normal((sum(NEW), 4, 8)).astype(np.float32)
    pairs = np.array([[int(one.page_table[0, 0]), int(one.page_table[3, 0])]], np.uint32)
    for cache in (one, two):
        quire.store(k, rows, cache, 0)
        quire.store(v, rows, cache, 0, side="value")
        quire.rms_norm_value(rows, cache, 0, gamma=gamma)
        quire.rms_norm_key(rows, cache, 0, gamma=gamma)
        quire.rope(q, rows, cache, 0, freqs_cis=freqs)
        quire.fused_qkv_matmul(x, rows, weight, cache, 1)
        quire.copy_pages(cache, pairs)
    np.testing.assert_array_equal(two.blocks[:, 0], one.blocks[:, 0])
    np.testing.assert_array_equal(two.value_blocks[:, 0], one.blocks[:, 1])


@pytest.mark.parametrize(("head_dim", "value_dim"), [(8, 6), (6, 8), (192, 128)])
def test_values_of_another_width(head_dim, value_dim, rng):
    """Pools as FlashAttention takes them, against torch's attention."""
    keys = torch.from_numpy(rng.standard_normal((5, 4, 2, head_dim)).astype(np.float32))
    values = torch.from_numpy(rng.standard_normal((5, 4, 2, value_dim)).astype(np.float32))
    table = torch.tensor([[3, 0, 4]], dtype=torch.int32)
    cache = quire.PagedKVCache.from_key_value(keys, values, torch.tensor([7], dtype=torch.int32), table)
    assert (cache.head_dim, cache.value_dim, cache.page_size, cache.num_layers) == (head_dim, value_dim, 4, 1)
    q = torch.from_numpy(rng.standard_normal((3, 4, head_dim)).astype(np.float32))
    out = quire.flash_attention(q, torch.tensor([0, 3], dtype=torch.int32), cache)
    k, v = (pool[table[0].long()].flatten(0, 1)[:10].transpose(0, 1) for pool in (keys, values))
    sees = torch.arange(10)[None] <= 7 + torch.arange(3)[:, None]
    expected = scaled_dot_product_attention(q.transpose(0, 1), k, v, attn_mask=sees, enable_gqa=True)
    torch.testing.assert_close(out, expected.transpose(0, 1), rtol=1e-5, atol=1e-6)


def test_rows_of_another_width_are_stored(rng):
    keys, values = np.zeros((3, 4, 2, 8), np.float32), np.zeros((3, 4, 2, 6), np.float32)
    cache = quire.PagedKVCache.from_key_value(keys, values, np.array([2], np.uint32), np.array([[1, 2]], np.uint32))
    v = rng.standard_normal((3, 2, 6)).astype(np.float32)
    quire.store(v, offsets([3]), cache, 0, side="value")
    np.testing.assert_array_equal(values[[1, 1, 2], [2, 3, 0]], v)
    assert (values[0] == 0).all() and (keys == 0).all()


def two_pools(**changes):
    arguments = {
        "blocks": np.zeros((3, 1, 2, 4, 2, 8), np.float32), "cache_lengths": np.array([2], np.uint32),
        "page_table": np.array([[1, 2]], np.uint32), "value_blocks": np.zeros((3, 1, 2, 4, 2, 8), np.float32),
    }  # fmt: skip
    return quire.PagedKVCache(**arguments | changes)


@pytest.mark.parametrize(
    ("argument", "expected", "changes"),
    [
        ("cache.blocks", r"\[num_pages, 1 \(K only\), …\] beside value_blocks", {"blocks": (3, 2, 2, 4, 2, 8)}),
        ("cache.value_blocks", r"f32\[3, 1, 2, 4, 2, value row\]", {"value_blocks": (2, 1, 2, 4, 2, 8)}),
        ("cache.value_blocks", r"f32\[3, 1, 2, 4, 2, value row\]", {"value_blocks": (3, 1, 1, 4, 2, 8)}),
        ("cache.value_blocks", r"f32\[3, 1, 2, 4, 2, value row\]", {"value_blocks": (3, 2, 2, 4, 2, 8)}),
        ("out", "at most 6 wide like the cache", {"value_blocks": (3, 1, 2, 4, 2, 6)}),
    ],
)
def test_refusals(argument, expected, changes):
    cache = two_pools(**{name: np.zeros(shape, np.float32) for name, shape in changes.items()})
    q, out = np.zeros((1, 2, 8), np.float32), np.zeros((1, 2, 8), np.float32)
    with pytest.raises(ValueError, match=f"'{argument}' must be {expected}"):
        quire.flash_attention(q, offsets([1]), cache, 0, out=out)


def test_an_op_of_both_sides_wants_one_width():
    cache = two_pools(value_blocks=np.zeros((3, 1, 2, 4, 2, 6), np.float32))
    x, weight = np.zeros((1, 4), np.float32), np.zeros((16 + 28, 4), np.float32)
    with pytest.raises(ValueError, match="fused_qkv_matmul: 'cache.value_blocks' must be 8 wide like blocks for this op"):
        quire.fused_qkv_matmul(x, offsets([1]), weight, cache, 0)


def test_scales_want_one_width():
    cache = two_pools(
        blocks=np.zeros((3, 1, 2, 4, 2, 8), np.int8), value_blocks=np.zeros((3, 1, 2, 4, 2, 6), np.int8),
        scales=np.ones((3, 2, 2, 4, 2, 1), np.float32),
    )  # fmt: skip
    with pytest.raises(ValueError, match="'cache.value_blocks' must be 8 wide like blocks, as rows have scales"):
        quire.flash_attention(np.zeros((1, 2, 8), np.float32), offsets([1]), cache, 0)


def test_copies_keep_the_values():
    cache = two_pools()
    cache.value_blocks[0] = 3
    assert copy.copy(cache).value_blocks is cache.value_blocks
    for other in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        np.testing.assert_array_equal(other.value_blocks, cache.value_blocks)
