# SPDX-License-Identifier: Apache-2.0
"""mla_indexer, sparse_mla, remap_sparse_indices, and the row formats of 640 and 656 bytes."""

import ml_dtypes
import numpy as np
import pytest
import quire
import torch
from problems import make_cache, offsets, round_once, rows, softmax_rows

E4M3 = ml_dtypes.float8_e4m3fn


def make_index_problem(new_tokens, cached, rng, heads=4, head_dim=32):
    cache = make_cache(new_tokens, cached, rng=rng, heads=1, head_dim=head_dim, kv=1, dtype=E4M3)
    cache.scales = rng.uniform(0.5, 2, (*cache.blocks.shape[:5], 1)).astype(np.float32)
    tokens = sum(new_tokens)
    q = rng.standard_normal((tokens, heads, head_dim)).astype(E4M3)
    q_scale = rng.standard_normal((tokens, heads)).astype(np.float32)
    return cache, q, q_scale


def index_scores(cache, q, q_scale, sequence, token, num_keys):
    k = rows(cache, 0, 0, sequence, num_keys)[:, 0].astype(np.float64)
    holder = quire.PagedKVCache(cache.scales, cache.cache_lengths, cache.page_table)
    k_scale = rows(holder, 0, 0, sequence, num_keys)[:, 0, 0].astype(np.float64)
    return k_scale * (np.maximum(0, k @ q[token].astype(np.float64).T) @ q_scale[token].astype(np.float64))


@pytest.mark.parametrize("mask", ["causal", "null"])
@pytest.mark.parametrize("top_k", [1, 5, 64])
def test_indexer_against_numpy(mask, top_k, rng):
    new_tokens, cached = [3, 0, 4], [9, 2, 0]
    cache, q, q_scale = make_index_problem(new_tokens, cached, rng)
    out = quire.mla_indexer(q, q_scale, offsets(new_tokens), cache, 0, top_k=top_k, mask=mask)
    assert out.shape == (7, top_k)
    assert out.dtype == np.int32
    for sequence, (new, old) in enumerate(zip(new_tokens, cached)):
        for i in range(new):
            token = int(offsets(new_tokens)[sequence]) + i
            bound = old + i + 1 if mask == "causal" else old + new
            scores = index_scores(cache, q, q_scale, sequence, token, old + new)[:bound]
            best = np.sort(np.argsort(-scores, kind="stable")[:top_k])
            expected = np.full(top_k, -1)
            expected[: len(best)] = best
            assert out[token].tolist() == expected.tolist()


@pytest.mark.parametrize("top_k", [1, 5, 64])
def test_indexer_scores_against_numpy(top_k, rng):
    new_tokens, cached = [3, 0, 4], [9, 2, 0]
    cache, q, q_scale = make_index_problem(new_tokens, cached, rng)
    out, scores = quire.mla_indexer(q, q_scale, offsets(new_tokens), cache, 0, top_k=top_k, return_scores=True)
    assert (out == quire.mla_indexer(q, q_scale, offsets(new_tokens), cache, 0, top_k=top_k)).all()
    assert scores.shape == out.shape and scores.dtype == np.float32
    for sequence, (new, old) in enumerate(zip(new_tokens, cached)):
        for i in range(new):
            token = int(offsets(new_tokens)[sequence]) + i
            expected = index_scores(cache, q, q_scale, sequence, token, old + new)
            taken = out[token] >= 0
            np.testing.assert_allclose(scores[token][taken], expected[out[token][taken]], rtol=1e-5, atol=1e-6)
            assert (scores[token][~taken] == -np.inf).all()


def test_indexer_ties_go_to_the_lowest_position(rng):
    cache, q, q_scale = make_index_problem([1], [20], rng)
    q[...] = np.asarray(0, E4M3)
    out = quire.mla_indexer(q, q_scale, offsets([1]), cache, 0, top_k=4)
    assert out.tolist() == [[0, 1, 2, 3]]


LATENT, ROPE, HEADS = 32, 8, 3


def make_sparse_problem(rng, new_tokens=(2, 1), cached=(9, 4), top_k=6):
    cache = make_cache(list(new_tokens), list(cached), rng=rng, heads=1, head_dim=LATENT + ROPE, kv=1)
    tokens = sum(new_tokens)
    q = rng.standard_normal((tokens, HEADS, LATENT + ROPE)).astype(np.float32)
    indices = rng.integers(-2, 16, (tokens, top_k)).astype(np.int32)
    return cache, q, indices


def sparse_expected(q, indices, keys_of, num_keys, scale, sinks=None, lengths=None):
    out = np.zeros((len(q), HEADS, LATENT))
    for token in range(len(q)):
        slots = indices[token][: None if lengths is None else lengths[token]]
        keys = keys_of(token)[[t for t in slots if 0 <= t < num_keys[token]]].astype(np.float64)
        for head in range(HEADS):
            weights = np.exp(keys @ q[token, head].astype(np.float64) * scale)
            denominator = weights.sum() + (0 if sinks is None else np.exp(float(sinks[head])))
            if len(keys):
                out[token, head] = weights @ keys[:, :LATENT] / denominator
    return out


@pytest.mark.parametrize("variant", ["plain", "sinks", "lengths"])
def test_sparse_mla_against_numpy(variant, rng):
    cache, q, indices = make_sparse_problem(rng)
    sinks = rng.standard_normal(HEADS).astype(np.float32) if variant == "sinks" else None
    lengths = np.array([0, 3, 6], np.int32) if variant == "lengths" else None
    out = quire.sparse_mla(
        q, offsets([2, 1]), cache, 1, indices=indices, scale=0.3, sinks=sinks, topk_lengths=lengths, latent_dim=LATENT
    )
    keys = [rows(cache, 1, 0, b, n)[:, 0] for b, n in enumerate([11, 5])]
    expected = sparse_expected(q, indices, lambda t: keys[t // 2], [11, 11, 5], 0.3, sinks, lengths)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    if variant == "lengths":
        assert (out[0] == 0).all()


def test_sparse_mla_without_keys(rng):
    cache, q, indices = make_sparse_problem(rng)
    out, lse = quire.sparse_mla(
        q, offsets([2, 1]), cache, 0, indices=np.full_like(indices, -1), scale=1.0, latent_dim=LATENT, return_lse=True
    )
    assert (out == 0).all()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize("length", [None, 2])
def test_sparse_mla_with_an_extra_stream(length, rng):
    """Two streams = one stream over the joined keys."""
    cache, q, indices = make_sparse_problem(rng, new_tokens=(1,), cached=(9,))
    extra, _, extra_indices = make_sparse_problem(rng, new_tokens=(1,), cached=(5,), top_k=3)
    indices, extra_indices = np.abs(indices) % 10, np.abs(extra_indices) % 6
    lengths = None if length is None else np.array([length], np.int32)
    out = quire.sparse_mla(
        q, offsets([1]), cache, 0, indices=indices, scale=0.3, latent_dim=LATENT,
        extra=quire.SparseExtra(extra, 1, extra_indices, lengths),
    )
    chosen = rows(cache, 0, 0, 0, 10)[indices[0], 0]
    keys = np.concatenate([chosen, rows(extra, 1, 0, 0, 6)[extra_indices[0, :length], 0]])
    for head in range(HEADS):
        weights = softmax_rows(keys.astype(np.float64) @ q[0, head].astype(np.float64) * 0.3)
        np.testing.assert_allclose(out[0, head], weights @ keys[:, :LATENT], rtol=1e-5, atol=1e-6)


def test_indexer_feeds_sparse_mla(rng):
    """top_k ≥ keys: sparse attention over the indexer's choice is dense absorbed attention."""
    new_tokens, cached = [2, 1], [9, 4]
    cache, q, _ = make_sparse_problem(rng)
    index_cache, index_q, q_scale = make_index_problem(new_tokens, cached, rng)
    indices = quire.mla_indexer(index_q, q_scale, offsets(new_tokens), index_cache, 0, top_k=16)
    sparse = quire.sparse_mla(q, offsets(new_tokens), cache, 0, indices=indices, scale=0.3, latent_dim=LATENT)
    dense = quire.mla_decode(q, offsets(new_tokens), cache, 0, scale=0.3, latent_dim=LATENT)
    np.testing.assert_allclose(sparse, dense, rtol=1e-5, atol=1e-6)


def test_remap_sparse_indices(rng):
    cache = make_cache([2, 1], [5, 9], rng=rng, heads=1, kv=1, page_size=4)
    indices = np.array([[0, 6, -1, 99], [4, -7, 3, 1], [9, 8, 0, 16]], np.int32)
    out = quire.remap_sparse_indices(indices, offsets([2, 1]), cache)
    for token, sequence in enumerate([0, 0, 1]):
        for slot, t in enumerate(indices[token]):
            if t < 0:
                expected = t
            elif t // 4 >= cache.page_table.shape[1] or cache.page_table[sequence, t // 4] >= cache.num_pages:
                expected = -1
            else:
                expected = int(cache.page_table[sequence, t // 4]) * 4 + t % 4
            assert out[token, slot] == expected
    in_place = indices.copy()
    assert quire.remap_sparse_indices(in_place, offsets([2, 1]), cache, out=in_place) is in_place
    np.testing.assert_array_equal(in_place, out)


def make_format_cache(row_format, plane, new_tokens, rng):
    table = make_cache(new_tokens, [0] * len(new_tokens), rng=rng, heads=1, kv=1)
    blocks = np.full((table.num_pages, 1, 1, table.page_size, 1, row_format.row_bytes), 0x7F, np.uint8)
    scales = np.zeros((*blocks.shape[:5], 1), np.float32) if plane else None
    return quire.PagedKVCache(blocks, table.cache_lengths, table.page_table, scales, row_format=row_format)


FORMATS = {
    "640": (quire.RowFormat.mla_fp8_token(), True, 640),
    "656": (quire.RowFormat.mla_fp8_block(), False, 656),
}


@pytest.mark.parametrize("name", FORMATS)
def test_row_format_bytes(name, rng):
    """What `store` leaves in a row, read byte by byte with ml_dtypes."""
    row_format, plane, num_bytes = FORMATS[name]
    assert row_format.row_bytes == num_bytes
    assert row_format.width == 576
    cache = make_format_cache(row_format, plane, [3], rng)
    assert cache.head_dim == 576
    x = rng.standard_normal((3, 1, 576)).astype(ml_dtypes.bfloat16)
    quire.store(x, offsets([3]), cache, 0)
    row = rows(cache, 0, 0, 0, 3)[2, 0]
    wide = x[2, 0].astype(np.float64)
    if plane:
        page = cache.page_table[0, 0]
        scale = cache.scales[page, 0, 0, 2, 0, 0]
        assert scale == np.float32(np.abs(wide[:512]).max() / 448)
        np.testing.assert_array_equal(row[:512].view(E4M3), round_once(wide[:512] / scale, E4M3))
        rope = round_once(wide[512:] / scale, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(row[512:].view(ml_dtypes.bfloat16), rope)
    else:
        scales = row[512:528].view(np.float32)
        np.testing.assert_array_equal(scales, (np.abs(wide[:512]).reshape(4, 128).max(1) / 448).astype(np.float32))
        latent = round_once(wide[:512] / scales.repeat(128), E4M3)
        np.testing.assert_array_equal(row[:512].view(E4M3), latent)
        np.testing.assert_array_equal(row[528:].view(ml_dtypes.bfloat16), x[2, 0, 512:])


@pytest.mark.parametrize("name", FORMATS)
def test_store_then_sparse_mla(name, rng):
    row_format, plane, _ = FORMATS[name]
    cache = make_format_cache(row_format, plane, [4], rng)
    x = rng.standard_normal((4, 1, 576)).astype(np.float32)
    quire.store(x, offsets([4]), cache, 0)
    q = (rng.standard_normal((4, 2, 576)) / 10).astype(np.float32)
    indices = np.tile(np.array([0, 2, 3, -1], np.int32), (4, 1))
    out = quire.sparse_mla(q, offsets([4]), cache, 0, indices=indices, scale=0.1)
    assert out.shape == (4, 2, 512)  # latent_dim from the row format
    keys = x[[0, 2, 3], 0].astype(np.float64)
    weights = softmax_rows(q.astype(np.float64) @ keys.T * 0.1)
    np.testing.assert_allclose(out, weights @ keys[:, :512], atol=0.12)  # fp8 of values up to about 4
    assert np.abs(out - weights @ keys[:, :512]).mean() < 0.02


def test_row_format_of_our_own(rng):
    """A format nobody named: i8 with f32 scales behind it, then f16."""
    row_format = quire.RowFormat(
        [
            quire.RowPart("i8", 8, 0, scale_source="in_row", granularity=4, scale_offset_bytes=8),
            quire.RowPart("f16", 4, 16),
        ],
        24,
    )
    assert row_format.width == 12
    assert [part.dtype for part in row_format.parts] == ["i8", "f16"]
    cache = make_format_cache(row_format, False, [2], rng)
    x = rng.standard_normal((2, 1, 12)).astype(np.float32)
    quire.store(x, offsets([2]), cache, 0)
    row = rows(cache, 0, 0, 0, 2)[1, 0]
    scales = row[8:16].view(np.float32)
    largest = np.abs(x[1, 0, :8]).reshape(2, 4).max(1).astype(np.float64)
    np.testing.assert_array_equal(scales, (largest / 127).astype(np.float32))
    np.testing.assert_array_equal(row[:8].view(np.int8), np.rint(x[1, 0, :8] / scales.repeat(4).astype(np.float64)))
    np.testing.assert_array_equal(row[16:].view(np.float16), x[1, 0, 8:].astype(np.float16))


def test_row_format_is_a_value():
    assert quire.RowFormat.mla_fp8_block() == quire.RowFormat.mla_fp8_block(512, 64, 128)
    assert quire.RowFormat.mla_fp8_block() != quire.RowFormat.mla_fp8_token()
    assert "656 B" in str(quire.RowFormat.mla_fp8_block())
    with pytest.raises(ValueError, match="RowFormat: 'parts' must be 1 to 4 parts, got 5"):
        quire.RowFormat([quire.RowPart("f32", 1)] * 5, 20)


def test_torch_gives_int32_indices(rng):
    cache, q, q_scale = make_index_problem([2], [5], rng)
    expected = quire.mla_indexer(q, q_scale, offsets([2]), cache, 0, top_k=4)
    torch_cache = quire.PagedKVCache(
        torch.from_numpy(cache.blocks.view(np.uint8)).view(torch.float8_e4m3fn),
        torch.from_numpy(cache.cache_lengths.astype(np.int32)),
        torch.from_numpy(cache.page_table.astype(np.int32)),
        torch.from_numpy(cache.scales),
    )
    out = quire.mla_indexer(
        torch.from_numpy(q.view(np.uint8)).view(torch.float8_e4m3fn), torch.from_numpy(q_scale),
        torch.tensor([0, 2], dtype=torch.int32), torch_cache, 0, top_k=4,
    )
    assert out.dtype == torch.int32
    np.testing.assert_array_equal(out.numpy(), expected)
