# SPDX-License-Identifier: Apache-2.0
import ml_dtypes
import numpy as np
import pytest
import quire
from problems import make_cache, offsets, round_once, rows

NEW, CACHED = [3, 0, 2], [2, 4, 0]
HIDDEN, HEADS, DIM = 16, 2, 8
Q_DIM, KV_DIM = 3 * DIM, HEADS * DIM


def make(rng, dtype=np.float32, kv=2):
    cache = make_cache(NEW, CACHED, rng=rng, heads=HEADS if kv == 2 else 1, head_dim=DIM, kv=kv, dtype=dtype)
    x = rng.standard_normal((sum(NEW), HIDDEN)).astype(dtype)
    num_rows = Q_DIM + (2 * KV_DIM if kv == 2 else DIM)
    return cache, x, rng.standard_normal((num_rows, HIDDEN)).astype(dtype)


def new_rows(cache, layer, side):
    """The rows of all new tokens [tokens, heads, head_dim]."""
    parts = [rows(cache, layer, side, b, c + n)[c:] for b, (n, c) in enumerate(zip(NEW, CACHED)) if n]
    return np.concatenate(parts)


@pytest.mark.parametrize("bias", [False, True])
def test_q_is_returned_and_kv_are_stored(bias, rng):
    cache, x, weight = make(rng)
    b = rng.standard_normal(len(weight)).astype(np.float32) if bias else None
    before = cache.blocks.copy()
    q = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 1, bias=b)
    y = x.astype(np.float64) @ weight.astype(np.float64).T + (0 if b is None else b)
    np.testing.assert_allclose(q, y[:, :Q_DIM], rtol=1e-5, atol=1e-5)
    k, v = y[:, Q_DIM : Q_DIM + KV_DIM], y[:, Q_DIM + KV_DIM :]
    np.testing.assert_allclose(new_rows(cache, 1, 0).reshape(k.shape), k, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(new_rows(cache, 1, 1).reshape(v.shape), v, rtol=1e-5, atol=1e-5)
    # Nothing else: 5 tokens × 2 sides × 2 heads × 8 columns of layer 1 changed.
    changed = (cache.blocks != before) & ~(np.isnan(cache.blocks) & np.isnan(before))
    assert changed.sum() == sum(NEW) * 2 * KV_DIM
    assert not changed[:, :, 0].any()


def test_bf16_rounds_once(rng):
    cache, x, weight = make(rng, ml_dtypes.bfloat16)
    bias = rng.standard_normal(len(weight)).astype(np.float32)
    q = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0, bias=bias)
    assert q.dtype == ml_dtypes.bfloat16
    y = x.astype(np.float64) @ weight.astype(np.float64).T + bias
    np.testing.assert_array_equal(q, round_once(y[:, :Q_DIM], ml_dtypes.bfloat16))


def test_allowed_tf32_changes_nothing_where_there_is_none(rng):
    cache, x, weight = make(rng)
    plain = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    blocks = cache.blocks.copy()
    np.testing.assert_array_equal(quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0, allow_tf32=True), plain)
    np.testing.assert_array_equal(cache.blocks, blocks)
    with pytest.raises(TypeError, match="^fused_qkv_matmul: 'allow_tf32' must be True or False, got "):
        quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0, allow_tf32="yes")


def test_mla_cache_takes_every_column_after_q(rng):
    cache, x, weight = make(rng, kv=1)
    q = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    assert q.shape == (sum(NEW), Q_DIM)
    np.testing.assert_allclose(new_rows(cache, 0, 0)[:, 0], y[:, Q_DIM:], rtol=1e-5, atol=1e-5)


def test_fp8_cache_without_scales_saturates(rng):
    cache, x, weight = make(rng)
    cache.blocks = np.zeros(cache.blocks.shape, ml_dtypes.float8_e4m3fn)
    quire.fused_qkv_matmul(x * 1000, offsets(NEW), weight, cache, 0)
    y = (x * 1000).astype(np.float64) @ weight.astype(np.float64).T
    expected = round_once(y[:, Q_DIM : Q_DIM + KV_DIM], ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(new_rows(cache, 0, 0).reshape(expected.shape), expected)


def test_fp8_cache_with_static_scales(rng):
    cache, x, weight = make(rng)
    cache.blocks = np.zeros(cache.blocks.shape, ml_dtypes.float8_e4m3fn)
    cache.scales = np.broadcast_to(np.float32(0.25), (*cache.blocks.shape[:5], 1))  # read-only
    quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    expected = round_once(y[:, Q_DIM : Q_DIM + KV_DIM] / 0.25, ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(new_rows(cache, 0, 0).reshape(expected.shape), expected)


def test_read_only_scales_that_would_be_written(rng):
    cache, x, weight = make(rng)
    cache.blocks = np.zeros(cache.blocks.shape, ml_dtypes.float8_e4m3fn)
    cache.scales = np.zeros((*cache.blocks.shape[:5], 1), np.float32)
    cache.scales.flags.writeable = False
    with pytest.raises(ValueError, match="'cache.scales' must be a writable tensor"):
        quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    assert not cache.blocks.astype(bool).any()


@pytest.mark.parametrize("kind", ["tensor", "channel", "block"])
def test_fp8_weight_and_input(kind, rng):
    hidden = 256
    cache = make_cache(NEW, CACHED, rng=rng, heads=HEADS, head_dim=DIM)
    num_rows = 160
    x = rng.standard_normal((sum(NEW), hidden)).astype(ml_dtypes.float8_e4m3fn)
    weight = rng.standard_normal((num_rows, hidden)).astype(ml_dtypes.float8_e4m3fn)
    shapes = {"tensor": ((1, 1), (1, 1)), "channel": ((num_rows, 1), (sum(NEW), 1)), "block": ((2, 2), (sum(NEW), 2))}
    weight_scale, input_scale = (
        rng.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes[kind]
    )
    q = quire.fused_qkv_matmul(
        x, offsets(NEW), weight, cache, 0, weight_scale=weight_scale, input_scale=input_scale,
        out=np.empty((sum(NEW), num_rows - 2 * KV_DIM), np.float32),
    )
    if kind == "block":
        weight_scale = weight_scale.repeat(128, 0)[:num_rows].repeat(128, 1)
        input_scale = input_scale.repeat(128, 1)
    w = weight.astype(np.float64) * weight_scale
    y = (x.astype(np.float64) * input_scale) @ w.T
    np.testing.assert_allclose(q, y[:, : q.shape[1]], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        new_rows(cache, 0, 0).reshape(sum(NEW), KV_DIM), y[:, q.shape[1] :][:, :KV_DIM], rtol=1e-5, atol=1e-5
    )


def test_a_cpu_sums_in_fp32_whatever_is_allowed(rng):
    _, x, weight = make(rng, ml_dtypes.bfloat16)
    x, weight = (a.astype(ml_dtypes.float8_e4m3fn) for a in (x, weight))
    one = np.ones((1, 1), np.float32)
    results = []
    for allow in (False, True):
        cache = make_cache(NEW, CACHED, rng=rng, heads=HEADS, head_dim=DIM)
        results.append(
            quire.fused_qkv_matmul(
                x, offsets(NEW), weight, cache, 0, weight_scale=one, input_scale=one, allow_fast_accum=allow
            )
        )
    np.testing.assert_array_equal(*results)


def test_fp8_input_gives_bf16(rng):
    cache, x, weight = make(rng, ml_dtypes.bfloat16)
    q = quire.fused_qkv_matmul(
        x.astype(ml_dtypes.float8_e4m3fn), offsets(NEW), weight, cache, 0,
        input_scale=np.ones((1, 1), np.float32),
    )
    assert q.dtype == ml_dtypes.bfloat16


def test_store_to_an_unassigned_page_is_dropped(rng):
    cache, x, weight = make(rng)
    expected = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    cache.page_table = np.full_like(cache.page_table, 0xFFFFFFFF)
    before = cache.blocks.copy()
    q = quire.fused_qkv_matmul(x, offsets(NEW), weight, cache, 0)
    np.testing.assert_array_equal(q, expected)
    np.testing.assert_array_equal(cache.blocks, before)


def test_zero_tokens(rng):
    cache = make_cache([0, 0], [3, 1], rng=rng, heads=HEADS, head_dim=DIM)
    before = cache.blocks.copy()
    weight = rng.standard_normal((Q_DIM + 2 * KV_DIM, HIDDEN)).astype(np.float32)
    q = quire.fused_qkv_matmul(np.zeros((0, HIDDEN), np.float32), offsets([0, 0]), weight, cache, 0)
    assert q.shape == (0, Q_DIM)
    np.testing.assert_array_equal(cache.blocks, before)


@pytest.mark.parametrize("new", [[1], [2], [3, 0, 17]])
def test_k_and_v_alone(new, rng):
    """A weight without rows of Wq: Q has no columns."""
    cache = make_cache(new, [0] * len(new), rng=rng, heads=HEADS, head_dim=DIM)
    x = rng.standard_normal((sum(new), HIDDEN)).astype(np.float32)
    weight = rng.standard_normal((2 * KV_DIM, HIDDEN)).astype(np.float32)
    q = quire.fused_qkv_matmul(x, offsets(new), weight, cache, 1)
    assert q.shape == (sum(new), 0)
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    first = 0
    for b, n in enumerate(new):
        for side, columns in enumerate((slice(0, KV_DIM), slice(KV_DIM, None))):
            stored = rows(cache, 1, side, b, n) if n else np.zeros((0, KV_DIM))
            np.testing.assert_allclose(
                stored.reshape(n, KV_DIM), y[first : first + n, columns], rtol=1e-5, atol=1e-5
            )
        first += n


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_fewer_rows_than_k_and_v(tokens, rng):
    cache = make_cache([tokens], [0], rng=rng, heads=HEADS, head_dim=DIM)
    x = rng.standard_normal((tokens, HIDDEN)).astype(np.float32)
    weight = rng.standard_normal((2 * KV_DIM - 1, HIDDEN)).astype(np.float32)
    with pytest.raises(ValueError, match=r"'weight' must be f32\[32, 16\], got f32\[31, 16\]"):
        quire.fused_qkv_matmul(x, offsets([tokens]), weight, cache, 1)
