# SPDX-License-Identifier: Apache-2.0
"""Caches of int4 rows: the bytes that are stored and the values that are read, against numpy."""

import ml_dtypes
import numpy as np
import pytest
import quire
from problems import attention, make_cache, offsets, round_once, rows

NEW, CACHED = [3, 0, 1, 20], [2, 5, 37, 0]
SCALES = {"f16": np.float16, "f32": np.float32, "bf16": ml_dtypes.bfloat16}

formats = pytest.mark.parametrize(
    ("head_dim", "group", "scale_dtype", "has_zeros"),
    [
        (64, 32, "f16", False),
        (64, 32, "f16", True),
        (128, 64, "f32", False),
        (128, 64, "f32", True),
        (80, 32, "bf16", False),  # the last group is 16 columns
        (82, 64, "bf16", True),
    ],
)


def round_to(values, scale_dtype):
    """To a scale's dtype and back."""
    dtype = SCALES[scale_dtype]
    return (values.astype(dtype) if dtype is np.float32 else round_once(values, dtype)).astype(np.float64)


def encode(values, group, scale_dtype, has_zeros):
    """[..., head_dim] → bytes of the rows, and what they stand for: written from docs/layouts.md alone."""
    values = values.astype(np.float64)
    codes, numbers, decoded = [], [], []
    for first in range(0, values.shape[-1], group):
        part = values[..., first : first + group]
        if has_zeros:
            low, high = part.min(-1, keepdims=True), part.max(-1, keepdims=True)
            scale, zero = round_to((high - low) / 15, scale_dtype), round_to(low, scale_dtype)
            lowest, highest = 0, 15
        else:
            scale, zero = round_to(np.abs(part).max(-1, keepdims=True) / 7, scale_dtype), 0.0
            lowest, highest = -8, 7
        steps = np.divide(part - zero, scale, out=np.zeros_like(part), where=scale != 0)
        code = np.clip(np.rint(steps), lowest, highest)
        codes.append(code.astype(np.int64) & 15)
        numbers += [scale, zero] if has_zeros else [scale]
        decoded.append(code * scale + zero)
    codes = np.concatenate(codes, -1)
    packed = (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)
    tail = np.ascontiguousarray(np.concatenate(numbers, -1).astype(SCALES[scale_dtype])).view(np.uint8)
    return np.concatenate([packed, tail], -1), np.concatenate(decoded, -1)


def int4_cache(head_dim, group, scale_dtype, has_zeros, *, rng):
    """A cache of encoded random rows, and the cache of the numbers that they stand for."""
    plain = make_cache(NEW, CACHED, rng=rng, head_dim=head_dim)
    known = np.nan_to_num(plain.blocks)
    packed, decoded = encode(known, group, scale_dtype, has_zeros)
    row_format = quire.RowFormat.int4(head_dim, group, scale_dtype, has_zeros)
    assert (row_format.width, row_format.row_bytes) == (head_dim, packed.shape[-1])
    blocks = np.where(np.isnan(plain.blocks[..., :1]), np.uint8(0xFF), packed)  # NaN where nobody may read
    cache = quire.PagedKVCache(blocks, plain.cache_lengths, plain.page_table, row_format=row_format)
    values = np.where(np.isnan(plain.blocks), np.nan, decoded)
    return cache, quire.PagedKVCache(values, plain.cache_lengths, plain.page_table)


def new_rows(cache, layer, side):
    return np.concatenate([rows(cache, layer, side, b, c + n)[c:] for b, (n, c) in enumerate(zip(NEW, CACHED))])


@formats
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
@pytest.mark.parametrize(("side", "index"), [("key", 0), ("value", 1)])
def test_store_writes_codes_and_scales(head_dim, group, scale_dtype, has_zeros, dtype, side, index, rng):
    cache, _ = int4_cache(head_dim, group, scale_dtype, has_zeros, rng=rng)
    before = cache.blocks.copy()
    x = (3 * rng.standard_normal((sum(NEW), 2, head_dim))).astype(dtype)
    x[0, 0] = 0.0
    x[1, 1] = 2.5  # no range
    quire.store(x, offsets(NEW), cache, 1, side=side)
    expected, _ = encode(x, group, scale_dtype, has_zeros)
    np.testing.assert_array_equal(new_rows(cache, 1, index), expected)
    np.testing.assert_array_equal(cache.blocks[:, :, 0], before[:, :, 0])
    np.testing.assert_array_equal(cache.blocks[:, 1 - index], before[:, 1 - index])


@formats
def test_attention_reads_the_values(head_dim, group, scale_dtype, has_zeros, rng):
    cache, values = int4_cache(head_dim, group, scale_dtype, has_zeros, rng=rng)
    q = rng.standard_normal((sum(NEW), 4, head_dim)).astype(np.float32)
    out = quire.flash_attention(q, offsets(NEW), cache, 1)
    expected = attention(q, offsets(NEW), values, 1, scale=head_dim**-0.5)
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-6)


@formats
def test_projections_are_quantized(head_dim, group, scale_dtype, has_zeros, rng):
    """Of whole numbers, so that every sum is exact."""
    cache, _ = int4_cache(head_dim, group, scale_dtype, has_zeros, rng=rng)
    x = rng.integers(-4, 5, (sum(NEW), 24)).astype(np.float32)
    weight = rng.integers(-3, 4, (32 + 4 * head_dim, 24)).astype(np.float32)
    quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    y = (x @ weight.T)[:, 32:].reshape(sum(NEW), 2, 2, head_dim)
    for side in range(2):
        expected, _ = encode(y[:, side], group, scale_dtype, has_zeros)
        np.testing.assert_array_equal(new_rows(cache, 0, side), expected)


def test_copies_and_slots_take_whole_rows(rng):
    cache, _ = int4_cache(64, 32, "f16", True, rng=rng)
    source, target = int(cache.page_table[2, 0]), int(cache.page_table[3, 0])
    quire.copy_pages(cache, np.array([[source, target]], np.uint32))
    np.testing.assert_array_equal(cache.blocks[target], cache.blocks[source])
    x = rng.standard_normal((2, 2, 64)).astype(np.float32)
    quire.store(x, None, cache, 0, slots=np.array([9, 3]), value=-x)
    for i, slot in enumerate([9, 3]):
        for side, values in enumerate([x[i], -x[i]]):
            expected, _ = encode(values, 32, "f16", True)
            np.testing.assert_array_equal(cache.blocks[slot // 4, side, 0, slot % 4], expected)


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_scales_in_a_tensor_of_their_own(static, rng):
    blocks = np.zeros((3, 2, 1, 4, 2, 32), np.uint8)
    shape = (3, 2, 1, 4, 2, 2)
    scales = np.broadcast_to(np.float32(0.25), shape) if static else np.zeros(shape, np.float32)
    row_format = quire.RowFormat.scaled("i4", 64, 32)
    cache = quire.PagedKVCache(
        blocks, np.zeros(1, np.uint32), np.array([[2, 0]], np.uint32), scales, row_format=row_format
    )
    x = rng.standard_normal((5, 2, 64)).astype(np.float32)
    quire.store(x, offsets([5]), cache, 0)
    packed, _ = encode(x, 32, "f32", False)
    if static:
        codes = np.clip(np.rint(x.astype(np.float64) / 0.25), -8, 7).astype(np.int64) & 15
        packed[..., :32] = codes[..., 0::2] | codes[..., 1::2] << 4
    np.testing.assert_array_equal(np.concatenate([blocks[2, 0, 0], blocks[0, 0, 0, :1]]), packed[..., :32])
    if not static:
        stored = np.concatenate([scales[2, 0, 0], scales[0, 0, 0, :1]])
        np.testing.assert_array_equal(stored, packed[..., 32:].copy().view(np.float32))


@pytest.mark.parametrize(
    ("row_format", "message"),
    [
        (quire.RowFormat.int4(63), "63 columns of i4, which come in pairs"),
        (quire.RowFormat.int4(64, 16), "a scale per 16 columns of i4, not per 32 or 64"),
        (quire.RowFormat.int4(128, 128, has_zeros=True), "a scale per 128 columns of u4, not per 32 or 64"),
        (quire.RowFormat.uniform("i4", 64), "an i4 part without scales"),
        (quire.RowFormat.scaled("u4", 64, 32), "a u4 part whose scales and zeros are not in the row"),
    ],
)
def test_other_rows_are_refused(row_format, message):
    blocks = np.zeros((3, 2, 1, 4, 2, row_format.row_bytes), np.uint8)
    cache = quire.PagedKVCache(blocks, np.zeros(1, np.uint32), np.array([[2]], np.uint32), row_format=row_format)
    x = np.ones((1, 2, row_format.width), np.float32)
    with pytest.raises(ValueError, match=f"^store: 'cache.row_format' must be consistent in itself, got {message}"):
        quire.store(x, offsets([1]), cache, 0)
    assert not blocks.any()


def test_rows_are_not_changed_in_place(rng):
    """A rotated row would need another scale."""
    cache, _ = int4_cache(64, 32, "f16", False, rng=rng)
    q = np.ones((sum(NEW), 4, 64), np.float32)
    with pytest.raises(ValueError, match="^rope: 'cache' must be unscaled in the columns"):
        quire.rope(q, offsets(NEW), cache, 0, freqs_cis=np.ones((64, 64), np.float32))
