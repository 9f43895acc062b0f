# SPDX-License-Identifier: Apache-2.0
"""mla_prefill_plan, mla_prefill, mla_decode, absorb_kv_b_proj."""

import ml_dtypes
import numpy as np
import pytest
import quire
from problems import make_cache, make_freqs, offsets, rotate_pairs, rows, softmax_rows

HEADS, NOPE, ROPE, VALUE, LATENT = 3, 6, 4, 5, 16
SCALE = (NOPE + ROPE) ** -0.5
EPSILON = 1e-5


class Layer:
    """One MLA layer in float32: weights, queries and raw rows of the new tokens."""

    def __init__(self, new_tokens, cached, rng):
        self.new_tokens, self.cached = new_tokens, cached
        tokens = sum(new_tokens)
        self.cache = make_cache(new_tokens, cached, rng=rng, heads=1, head_dim=LATENT + ROPE, kv=1)
        self.q = rng.standard_normal((tokens, HEADS, NOPE + ROPE)).astype(np.float32)
        self.gamma = rng.uniform(0.5, 1.5, LATENT).astype(np.float32)
        self.freqs = make_freqs(32, ROPE)
        self.kv_b_proj = rng.standard_normal((HEADS * (NOPE + VALUE), LATENT)).astype(np.float32)
        self.kv = rng.standard_normal((tokens, LATENT + ROPE)).astype(np.float32)
        self.row_offsets = offsets(new_tokens)

    def store_raw_rows(self, layer):
        quire.store(self.kv[:, None], self.row_offsets, self.cache, layer)

    def arguments(self):
        return {"freqs_cis": self.freqs, "kv_norm_gamma": self.gamma, "epsilon": EPSILON, "scale": SCALE}

    def finished_row(self, token, position):
        raw = self.kv[token].astype(np.float64)
        latent = raw[:LATENT] / np.sqrt((raw[:LATENT] ** 2).mean() + EPSILON) * self.gamma
        return np.concatenate([latent, rotate_pairs(raw[LATENT:], self.freqs[position])])

    def expected(self, layer):
        """The output and the finished rows, in float64 from the definition: K and V built head by head."""
        out = np.zeros((len(self.q), HEADS, VALUE))
        finished = np.zeros((len(self.q), LATENT + ROPE))
        weight = self.kv_b_proj.astype(np.float64).reshape(HEADS, NOPE + VALUE, LATENT)
        for sequence, (new, cached) in enumerate(zip(self.new_tokens, self.cached)):
            first = int(self.row_offsets[sequence])
            old = rows(self.cache, layer, 0, sequence, cached + new)[:cached, 0] if cached + new else None
            for i in range(new):
                finished[first + i] = self.finished_row(first + i, cached + i)
            keys = finished[first : first + new] if not cached else np.concatenate([old, finished[first : first + new]])
            for i in range(new):
                seen = keys[: cached + i + 1].astype(np.float64)
                for head in range(HEADS):
                    q = self.q[first + i, head].astype(np.float64)
                    q = np.concatenate([q[:NOPE], rotate_pairs(q[NOPE:], self.freqs[cached + i])])
                    k = np.concatenate([seen[:, :LATENT] @ weight[head, :NOPE].T, seen[:, LATENT:]], axis=1)
                    v = seen[:, :LATENT] @ weight[head, NOPE:].T
                    out[first + i, head] = softmax_rows(k @ q * SCALE) @ v
        return out, finished

    def new_rows(self, layer):
        return np.concatenate(
            [
                rows(self.cache, layer, 0, b, c + n)[c:, 0]
                for b, (n, c) in enumerate(zip(self.new_tokens, self.cached))
                if n
            ]
        )


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows_given", ["in the cache", "as kv"])
@pytest.mark.parametrize(("new_tokens", "cached"), [([5], [0]), ([3, 0, 2], [4, 2, 0])])
def test_prefill_against_numpy(rows_given, new_tokens, cached, rng):
    mla = Layer(new_tokens, cached, rng)
    expected, finished = mla.expected(1)
    if rows_given == "in the cache":
        mla.store_raw_rows(1)
    out = quire.mla_prefill(
        mla.q.copy(), mla.row_offsets, mla.cache, 1, kv_b_proj=mla.kv_b_proj,
        kv=mla.kv if rows_given == "as kv" else None, **mla.arguments(),
    )
    assert_close(out, expected)
    assert_close(mla.new_rows(1), finished)


def test_prefill_rotates_q_in_place_and_nothing_else(rng):
    mla = Layer([3], [4], rng)
    q = mla.q.copy()
    quire.mla_prefill(q, mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, kv=mla.kv, **mla.arguments())
    np.testing.assert_array_equal(q[..., :NOPE], mla.q[..., :NOPE])
    assert_close(q[..., NOPE:], rotate_pairs(mla.q[..., NOPE:], mla.freqs[4:7][:, None]))


def test_prefill_with_allowed_fp8_products_is_the_same_where_there_are_none(rng):
    mla = Layer([3], [4], rng)
    q = mla.q.copy()
    arguments = {"kv_b_proj": mla.kv_b_proj, "kv": mla.kv, **mla.arguments()}
    plain = quire.mla_prefill(mla.q.copy(), mla.row_offsets, mla.cache, 0, **arguments)
    np.testing.assert_array_equal(
        quire.mla_prefill(q, mla.row_offsets, mla.cache, 0, allow_fp8_products=True, **arguments), plain
    )


def test_decode_with_allowed_fp8_products_is_the_same_where_there_are_none(rng):
    mla = Layer([2], [4], rng)
    weights = quire.absorb_kv_b_proj(mla.kv_b_proj, heads=HEADS, nope=NOPE)
    arguments = {"w_uk": weights.w_uk, "w_uv": weights.w_uv, "kv": mla.kv, **mla.arguments()}
    plain = quire.mla_decode(mla.q, mla.row_offsets, mla.cache, 0, **arguments)
    np.testing.assert_array_equal(
        quire.mla_decode(mla.q, mla.row_offsets, mla.cache, 0, allow_fp8_products=True, **arguments), plain
    )


def test_prefill_is_not_idempotent(rng):
    """The docstring warns of it: a second call rotates and normalises again."""
    mla = Layer([3], [4], rng)
    mla.store_raw_rows(0)
    q = mla.q.copy()
    first = quire.mla_prefill(q, mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, **mla.arguments())
    second = quire.mla_prefill(q, mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, **mla.arguments())
    assert np.abs(first - second).max() > 1e-3


def test_prefill_of_finished_rows_changes_nothing(rng):
    mla = Layer([3], [4], rng)
    q = mla.q.copy()
    quire.mla_prefill(q, mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, kv=mla.kv, **mla.arguments())
    expected, _ = mla.expected(0)
    blocks, rotated = mla.cache.blocks.copy(), q.copy()
    q.flags.writeable = False
    mla.cache.blocks.flags.writeable = False
    out = quire.mla_prefill(q, mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, scale=SCALE)
    assert_close(out, expected)
    np.testing.assert_array_equal(q, rotated)
    np.testing.assert_array_equal(mla.cache.blocks, blocks)


def test_read_only_q_is_refused_before_writing(rng):
    mla = Layer([3], [4], rng)
    mla.q.flags.writeable = False
    before = mla.cache.blocks.copy()
    with pytest.raises(ValueError, match="mla_prefill: 'q' must be a writable tensor"):
        quire.mla_prefill(
            mla.q, mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, kv=mla.kv, **mla.arguments()
        )
    np.testing.assert_array_equal(mla.cache.blocks, before)


def test_prefill_in_chunks(rng):
    """Buffers of one page each: the merge over chunks gives what one chunk gives."""
    mla = Layer([5, 3], [6, 0], rng)
    expected, _ = mla.expected(0)
    plan = quire.mla_prefill_plan(mla.row_offsets, mla.cache, 0, buffer_tokens=4)
    assert len(plan.buffer_lengths) == 4
    out, lse = quire.mla_prefill(
        mla.q.copy(), mla.row_offsets, mla.cache, 0, kv_b_proj=mla.kv_b_proj, kv=mla.kv, plan=plan,
        return_lse=True, **mla.arguments(),
    )
    assert_close(out, expected)
    assert lse.shape == (8, HEADS)


def test_plan_golden_case():
    blocks = np.zeros((4, 1, 1, 128, 1, 20), np.float32)
    cache = quire.PagedKVCache(blocks, np.zeros(2, np.uint32), np.arange(4, dtype=np.uint32).reshape(2, 2))
    plan = quire.mla_prefill_plan(offsets([160, 200]), cache, 0, buffer_tokens=256, max_chunks=4)
    assert plan.buffer_row_offsets.tolist() == [[0, 256, 256], [0, 0, 256], [0, 0, 0], [0, 0, 0]]
    assert plan.cache_offsets[:, :2].tolist() == [[0, 0], [256, 0], [256, 256], [256, 256]]
    assert plan.buffer_lengths.tolist() == [256, 256, -1, -1]


def test_too_few_chunks_is_an_error(rng):
    mla = Layer([5], [6], rng)
    with pytest.raises(ValueError, match="mla_prefill_plan"):
        quire.mla_prefill_plan(mla.row_offsets, mla.cache, 0, buffer_tokens=4, max_chunks=2)


def test_prefill_with_fp8_weight(rng):
    """One 128 × 128 block per head and side: against arithmetic with ml_dtypes."""
    heads, nope, value, latent, rope = 1, 128, 128, 128, 4
    cache = make_cache([3], [2], rng=rng, heads=1, head_dim=latent + rope, kv=1, layers=1)
    weight = rng.standard_normal((nope + value, latent)).astype(ml_dtypes.float8_e4m3fn)
    weight_scale = np.array([[0.5], [0.25]], np.float32)
    q = rng.standard_normal((3, heads, nope + rope)).astype(np.float32)
    out = quire.mla_prefill(
        q, offsets([3]), cache, 0, kv_b_proj=weight, kv_b_proj_scale=weight_scale, scale=0.1
    )
    keys = rows(cache, 0, 0, 0, 5)[:, 0]
    scale = (np.abs(keys[:, :latent]).max(1, keepdims=True).astype(np.float64) / 448).astype(np.float32)
    latents = (keys[:, :latent] / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale
    dense = weight.astype(np.float64) * weight_scale.repeat(128, 0)
    k = np.concatenate([latents @ dense[:nope].T, keys[:, latent:]], axis=1)
    v = latents @ dense[nope:].T
    for i in range(3):
        scores = k[: 3 + i] @ q[i, 0].astype(np.float64) * 0.1
        assert_close(out[i, 0], softmax_rows(scores) @ v[: 3 + i])


@pytest.mark.parametrize(("new_tokens", "cached"), [([1], [0]), ([1, 1], [9, 3]), ([2, 8, 0], [5, 0, 2])])
def test_decode_against_numpy(new_tokens, cached, rng):
    mla = Layer(new_tokens, cached, rng)
    expected, finished = mla.expected(1)
    weights = quire.absorb_kv_b_proj(mla.kv_b_proj, heads=HEADS, nope=NOPE)
    q = mla.q.copy()
    out = quire.mla_decode(
        q, mla.row_offsets, mla.cache, 1, kv=mla.kv, w_uk=weights.w_uk, w_uv=weights.w_uv, **mla.arguments()
    )
    assert_close(out, expected)
    assert_close(mla.new_rows(1), finished)
    np.testing.assert_array_equal(q, mla.q)  # decode leaves q alone


def test_decode_absorbed(rng):
    """Without w_uk and w_uv: q is [tokens, heads, latent + rope] and the result is latent."""
    mla = Layer([1, 2], [4, 3], rng)
    q = rng.standard_normal((3, HEADS, LATENT + ROPE)).astype(np.float32)
    out, lse = quire.mla_decode(
        q, mla.row_offsets, mla.cache, 0, scale=SCALE, latent_dim=LATENT, return_lse=True
    )
    assert out.shape == (3, HEADS, LATENT)
    keys = rows(mla.cache, 0, 0, 0, 5)[:, 0].astype(np.float64)
    scores = keys @ q[0, 1].astype(np.float64) * SCALE
    assert_close(out[0, 1], softmax_rows(scores) @ keys[:, :LATENT])
    assert_close(lse[0, 1], np.log(np.exp(scores).sum()))


def test_latent_dim_must_be_known(rng):
    mla = Layer([1], [4], rng)
    q = np.zeros((1, HEADS, LATENT + ROPE), np.float32)
    with pytest.raises(ValueError, match="mla_decode: 'latent_dim' must be given"):
        quire.mla_decode(q, mla.row_offsets, mla.cache, 0, scale=SCALE)


def test_decode_refuses_nine_tokens(rng):
    mla = Layer([9], [1], rng)
    weights = quire.absorb_kv_b_proj(mla.kv_b_proj, heads=HEADS, nope=NOPE)
    with pytest.raises(ValueError, match="mla_decode: 'row_offsets' must be at most 8 new tokens"):
        quire.mla_decode(mla.q, mla.row_offsets, mla.cache, 0, w_uk=weights.w_uk, w_uv=weights.w_uv, scale=SCALE)


def test_absorbed_weights_are_views():
    kv_b_proj = np.arange(HEADS * (NOPE + VALUE) * LATENT, dtype=np.float32).reshape(-1, LATENT)
    weights = quire.absorb_kv_b_proj(kv_b_proj, heads=HEADS, nope=NOPE)
    assert np.shares_memory(weights.w_uk, kv_b_proj)
    assert np.shares_memory(weights.w_uv, kv_b_proj)
    assert weights.w_uk.shape == (HEADS, LATENT, NOPE)
    assert weights.w_uv.shape == (HEADS, VALUE, LATENT)
    assert weights.w_uk[2, 3, 4] == kv_b_proj[2 * (NOPE + VALUE) + 4, 3]
    assert weights.w_uv[2, 3, 4] == kv_b_proj[2 * (NOPE + VALUE) + NOPE + 3, 4]
    with pytest.raises(ValueError, match="absorb_kv_b_proj: 'kv_b_proj' must be"):
        quire.absorb_kv_b_proj(kv_b_proj, heads=HEADS + 1, nope=NOPE)


def test_absorbed_scales_are_views():
    kv_b_proj = np.zeros((2 * (128 + 256), 256), ml_dtypes.float8_e4m3fn)
    scale = np.arange(12, dtype=np.float32).reshape(6, 2)
    weights = quire.absorb_kv_b_proj(kv_b_proj, heads=2, nope=128, kv_b_proj_scale=scale)
    assert weights.w_uk_scale.tolist() == [[[0.0], [1.0]], [[6.0], [7.0]]]
    assert weights.w_uv_scale.tolist() == [[[2.0, 3.0], [4.0, 5.0]], [[8.0, 9.0], [10.0, 11.0]]]
    assert np.shares_memory(weights.w_uv_scale, scale)


def test_prefill_and_decode_agree(rng):
    mla = Layer([4, 2], [3, 0], rng)
    weights = quire.absorb_kv_b_proj(mla.kv_b_proj, heads=HEADS, nope=NOPE)
    decoded = quire.mla_decode(
        mla.q, mla.row_offsets, mla.cache, 0, kv=mla.kv, w_uk=weights.w_uk, w_uv=weights.w_uv, **mla.arguments()
    )
    prefilled = quire.mla_prefill(
        mla.q, mla.row_offsets, mla.cache, 0, kv=mla.kv, kv_b_proj=mla.kv_b_proj, **mla.arguments()
    )
    assert_close(prefilled, decoded)
