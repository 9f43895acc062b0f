# SPDX-License-Identifier: Apache-2.0
"""store, store_scales, rope, rms_norm_key, rms_norm_value, copy_pages, row_offsets."""

import ml_dtypes
import numpy as np
import pytest
import quire
from problems import make_cache, make_freqs, offsets, rotate_pairs, rows

NEW, CACHED = [3, 1], [2, 5]


def new_rows(cache, layer, side):
    return np.concatenate([rows(cache, layer, side, b, c + n)[c:] for b, (n, c) in enumerate(zip(NEW, CACHED))])


def positions():
    return np.concatenate([np.arange(c, c + n) for n, c in zip(NEW, CACHED)])


@pytest.mark.parametrize(("side", "index"), [("key", 0), ("value", 1)])
def test_store_puts_rows_at_their_places(side, index, rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    before = cache.blocks.copy()
    x = rng.standard_normal((4, 2, 8)).astype(np.float32)
    quire.store(x, offsets(NEW), cache, 1, side=side)
    np.testing.assert_array_equal(new_rows(cache, 1, index), x)
    changed = (cache.blocks != before) & ~(np.isnan(cache.blocks) & np.isnan(before))
    assert changed.sum() == x.size


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_store_rounds_to_the_cache(dtype, rng):
    cache = make_cache(NEW, CACHED, rng=rng, dtype=dtype)
    x = (rng.standard_normal((4, 2, 8)) * 300).astype(np.float32)
    quire.store(x, offsets(NEW), cache, 0)
    largest = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(x, -largest, largest).astype(dtype)
    assert new_rows(cache, 0, 0).tobytes() == expected.tobytes()


@pytest.mark.parametrize("heads", [1, 2])
def test_store_leaves_a_static_scale_of_one_page_and_one_token(heads):
    """DLPack gives a dimension of size 1 any stride, so that an expanded scale looks like a dense one."""
    torch = pytest.importorskip("torch")
    blocks = torch.zeros((1, 2, 1, 1, heads, 8), dtype=torch.int8)
    scale = torch.tensor(0.5)
    scales = scale.expand(1, 2, 1, 1, heads, 1)
    table = torch.zeros((1, 1), dtype=torch.int32)
    x = torch.full((1, heads, 8), 3.0)
    for static_scales in (None, True):
        cache = quire.PagedKVCache(
            blocks, torch.zeros(1, dtype=torch.int32), table, scales, static_scales=static_scales
        )
        quire.store(x, torch.tensor([0, 1], dtype=torch.int32), cache, 0)
        assert scale.item() == 0.5
        assert (blocks[0, 0] == 6).all()


def test_store_asks_whether_a_scale_of_one_token_is_static():
    blocks = np.zeros((1, 1, 1, 1, 1, 8), np.int8)
    for static_scales, scale, code in [(None, 3 / 127, 127), (False, 3 / 127, 127), (True, 0.5, 6)]:
        scales = np.full((1, 1, 1, 1, 1, 1), 0.5, np.float32)
        cache = quire.PagedKVCache(
            blocks, np.array([0], np.uint32), np.array([[0]], np.uint32), scales, static_scales=static_scales
        )
        quire.store(np.full((1, 1, 8), 3, np.float32), offsets([1]), cache, 0)
        assert scales.item() == np.float32(scale)
        assert (blocks == code).all()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, np.int8])
def test_store_quantizes_per_granule(dtype, rng):
    cache = make_cache(NEW, CACHED, rng=rng, head_dim=8, dtype=dtype)
    cache.scales = np.zeros((*cache.blocks.shape[:5], 2), np.float32)
    x = rng.standard_normal((4, 2, 8)).astype(np.float32)
    x[1, 0, :4] = 0
    quire.store(x, offsets(NEW), cache, 0)
    holder = quire.PagedKVCache(cache.scales, cache.cache_lengths, cache.page_table)
    scales = new_rows(holder, 0, 0)
    largest = 127 if dtype is np.int8 else 448
    expected = (np.abs(x.reshape(4, 2, 2, 4)).max(-1).astype(np.float64) / largest).astype(np.float32)
    np.testing.assert_array_equal(scales, expected)
    assert scales[1, 0, 0] == 0
    codes = new_rows(cache, 0, 0).astype(np.float32)
    assert (codes[1, 0, :4] == 0).all()
    step = 0.5 if dtype is np.int8 else 16  # half a unit in the last place at the largest value
    np.testing.assert_allclose(codes * scales.repeat(4, -1), x, atol=step * expected.max())


def test_store_scales(rng):
    cache = make_cache(NEW, CACHED, rng=rng, dtype=np.int8)
    cache.scales = np.zeros((*cache.blocks.shape[:5], 1), np.float32)
    scales = rng.uniform(1, 2, (4, 2, 1)).astype(np.float32)
    quire.store_scales(scales, offsets(NEW), cache, 1, side="value")
    holder = quire.PagedKVCache(cache.scales, cache.cache_lengths, cache.page_table)
    np.testing.assert_array_equal(new_rows(holder, 1, 1), scales)
    assert np.count_nonzero(cache.scales) == scales.size


def test_scales_have_a_page_table_of_their_own(rng):
    cache = make_cache(NEW, CACHED, rng=rng, dtype=np.int8)
    cache.scales = np.zeros((cache.num_pages + 3, *cache.blocks.shape[1:5], 1), np.float32)
    cache.scales_page_table = np.where(cache.page_table < cache.num_pages, cache.page_table + 3, 0xFFFFFFFF).astype(
        np.uint32
    )
    quire.store_scales(np.ones((4, 2, 1), np.float32), offsets(NEW), cache, 0)
    assert not cache.scales[:3].any()
    holder = quire.PagedKVCache(cache.scales, cache.cache_lengths, cache.scales_page_table)
    assert (new_rows(holder, 0, 0) == 1).all()


def test_rope_interleaved_rotates_the_tail(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    freqs = make_freqs(16, 4)
    q = rng.standard_normal((4, 3, 8)).astype(np.float32)
    k = new_rows(cache, 0, 0).copy()
    out = quire.rope(q, offsets(NEW), cache, 0, freqs_cis=freqs, interleaved=True)
    angles = freqs[positions()][:, None]
    for actual, original in ((out, q), (new_rows(cache, 0, 0), k)):
        np.testing.assert_array_equal(actual[..., :4], original[..., :4])
        np.testing.assert_allclose(actual[..., 4:], rotate_pairs(original[..., 4:], angles), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_an_inverse_rope_takes_a_rotation_back(interleaved, rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    q = rng.standard_normal((4, 3, 8)).astype(np.float32)
    k = new_rows(cache, 0, 0).copy()
    options = {"freqs_cis": make_freqs(16, 6), "interleaved": interleaved}
    turned = quire.rope(q, offsets(NEW), cache, 0, **options)
    assert np.abs(turned - q).max() > 0.1
    # By the table of the other signs, too.
    conjugate = options | {"freqs_cis": options["freqs_cis"] * np.tile(np.array([1, -1], np.float32), 3)}
    by_table = quire.rope(turned, offsets(NEW), cache, 0, rotate_key=False, **conjugate)
    back = quire.rope(turned, offsets(NEW), cache, 0, inverse=True, **options)
    np.testing.assert_array_equal(back, by_table)
    np.testing.assert_allclose(back, q, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new_rows(cache, 0, 0), k, rtol=1e-5, atol=1e-6)


def test_rope_half_split_rotates_the_head(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    freqs = make_freqs(16, 4)
    q = rng.standard_normal((4, 3, 8)).astype(np.float32)
    out = quire.rope(q, offsets(NEW), cache, 0, freqs_cis=freqs, rotate_key=False)
    cos, sin = freqs[positions()][:, None, 0::2], freqs[positions()][:, None, 1::2]
    a, b = q[..., :2], q[..., 2:4]
    expected = np.concatenate([a * cos - b * sin, a * sin + b * cos, q[..., 4:]], axis=-1)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_rope_in_place_and_position_ids(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    freqs = make_freqs(32, 8)
    q = rng.standard_normal((4, 2, 8)).astype(np.float32)
    ids = np.array([[9, 0, 31, 4]], np.uint32)
    expected = rotate_pairs(q, freqs[ids[0]][:, None])
    out = quire.rope(
        q, offsets(NEW), cache, 0, freqs_cis=freqs, interleaved=True, position_ids=ids, rotate_key=False, out=q
    )
    assert out is q
    np.testing.assert_allclose(q, expected, rtol=1e-5, atol=1e-6)


def test_rope_without_keys_reads_a_read_only_cache(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    cache.blocks.flags.writeable = False
    q = rng.standard_normal((4, 2, 8)).astype(np.float32)
    quire.rope(q, offsets(NEW), cache, 0, freqs_cis=make_freqs(16, 8), rotate_key=False)
    with pytest.raises(ValueError, match="rope: 'cache.blocks' must be a writable tensor"):
        quire.rope(q, offsets(NEW), cache, 0, freqs_cis=make_freqs(16, 8))


def normed(x, gamma, epsilon, offset):
    """RMSNorm of the first len(gamma) columns, in float64."""
    head = x[..., : len(gamma)].astype(np.float64)
    head = head / np.sqrt((head**2).mean(-1, keepdims=True) + epsilon) * (gamma + offset)
    return np.concatenate([head, x[..., len(gamma) :]], axis=-1)


@pytest.mark.parametrize(("q_columns", "key_columns"), [(8, 8), (8, 3), (None, 8), (6, None)])
def test_rope_with_a_norm(q_columns, key_columns, rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    freqs = make_freqs(16, 4)
    q = rng.standard_normal((4, 3, 8)).astype(np.float32)
    k = new_rows(cache, 0, 0).copy()
    gammas = [None if n is None else rng.standard_normal(n).astype(np.float32) for n in (q_columns, key_columns)]
    out = quire.rope(
        q, offsets(NEW), cache, 0, freqs_cis=freqs, interleaved=True, q_gamma=gammas[0], key_gamma=gammas[1],
        epsilon=1e-3, weight_offset=1.0,
    )
    angles = freqs[positions()][:, None]
    for actual, original, gamma in ((out, q, gammas[0]), (new_rows(cache, 0, 0), k, gammas[1])):
        row = original if gamma is None else normed(original, gamma, 1e-3, 1.0)
        np.testing.assert_allclose(actual[..., :4], row[..., :4], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(actual[..., 4:], rotate_pairs(row[..., 4:], angles), rtol=1e-5, atol=1e-6)


def test_rope_with_a_norm_is_qwen3s(rng):
    torch = pytest.importorskip("torch")
    qwen3 = pytest.importorskip("transformers.models.qwen3.modeling_qwen3")
    cache = make_cache(NEW, CACHED, rng=rng)
    freqs = make_freqs(16, 8)
    q = rng.standard_normal((4, 3, 8)).astype(np.float32)
    k = new_rows(cache, 0, 0).copy()
    norms = [qwen3.Qwen3RMSNorm(8, eps=1e-5) for _ in range(2)]
    for norm in norms:
        torch.nn.init.normal_(norm.weight)
    with torch.no_grad():
        rows_of = [norm(torch.from_numpy(x)).transpose(0, 1)[None] for norm, x in zip(norms, (q, k))]
        angles = torch.from_numpy(freqs[positions()])[None]
        cos, sin = (torch.cat([part, part], dim=-1) for part in (angles[..., 0::2], angles[..., 1::2]))
        expected = qwen3.apply_rotary_pos_emb(*rows_of, cos, sin)
    gammas = [norm.weight.detach().numpy() for norm in norms]
    out = quire.rope(
        q, offsets(NEW), cache, 0, freqs_cis=freqs, q_gamma=gammas[0], key_gamma=gammas[1], epsilon=1e-5
    )
    np.testing.assert_allclose(out, expected[0][0].transpose(0, 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new_rows(cache, 0, 0), expected[1][0].transpose(0, 1), rtol=1e-5, atol=1e-6)


def low_words_in_torch(ids):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(ids.astype(np.int64)).view(torch.int32)[:, ::2]


def test_mrope_sections(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    freqs = make_freqs(32, 8)
    q = rng.standard_normal((4, 2, 8)).astype(np.float32)
    ids = rng.integers(0, 32, (3, 4)).astype(np.uint32)
    out = quire.rope(
        q, offsets(NEW), cache, 0, freqs_cis=freqs, interleaved=True, position_ids=ids,
        mrope_sections=(1, 2, 1), rotate_key=False,
    )
    section = np.repeat([0, 1, 1, 2], 2)  # of each column
    angles = np.stack([freqs[ids[section[c]], c] for c in range(8)], axis=-1)
    np.testing.assert_allclose(out, rotate_pairs(q, angles[:, None]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "strided",
    [
        lambda ids: np.repeat(ids, 3, axis=1)[:, ::3],
        np.asfortranarray,  # one row per token, as [tokens, sections] has it
        lambda ids: ids.astype(np.int64).view(np.int32)[:, ::2],  # the low words of 64-bit positions
        low_words_in_torch,
        lambda ids: np.repeat(ids[:, None], 2, axis=1)[:, 0],
    ],
    ids=["every_third", "transposed", "int64_numpy", "int64_torch", "sections_apart"],
)
@pytest.mark.parametrize("sections", [(), (1, 2, 1)])
def test_position_ids_of_any_stride(strided, sections, rng):
    ids = rng.integers(0, 32, (max(len(sections), 1), 4)).astype(np.uint32)
    q = rng.standard_normal((4, 2, 8)).astype(np.float32)

    def rotated(position_ids):
        cache = make_cache(NEW, CACHED, rng=np.random.default_rng(3))
        out = quire.rope(
            q, offsets(NEW), cache, 0, freqs_cis=make_freqs(32, 8), position_ids=position_ids, mrope_sections=sections
        )
        return out, cache.blocks

    for actual, expected in zip(rotated(strided(ids)), rotated(ids)):
        np.testing.assert_array_equal(actual, expected)


def test_position_ids_of_a_stride_are_checked_too(rng):
    ids = np.array([[1, 99, 2, 99, 40, 99, 3, 99]], np.uint32)[:, ::2]
    q = rng.standard_normal((4, 2, 8)).astype(np.float32)
    cache = make_cache(NEW, CACHED, rng=rng)
    with pytest.raises(ValueError, match=r"rope: 'position_ids' must be below the 32 rows of freqs_cis, got 40 at \[0, 2\]"):
        quire.rope(q, offsets(NEW), cache, 0, freqs_cis=make_freqs(32, 8), position_ids=ids)


@pytest.mark.parametrize(
    ("norm", "side"), [(quire.rms_norm_key, 0), (quire.rms_norm_value, 1)], ids=["key", "value"]
)
@pytest.mark.parametrize("columns", [8, 5])
def test_rms_norm_per_head(norm, side, columns, rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    gamma = rng.standard_normal(columns).astype(np.float32)
    x = new_rows(cache, 0, side).astype(np.float64)
    norm(offsets(NEW), cache, 0, gamma=gamma, epsilon=1e-3, weight_offset=1.0)
    head = x[..., :columns]
    expected = head / np.sqrt((head**2).mean(-1, keepdims=True) + 1e-3) * (gamma + 1.0)
    np.testing.assert_allclose(new_rows(cache, 0, side)[..., :columns], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(new_rows(cache, 0, side)[..., columns:], x[..., columns:])


def test_rms_norm_of_the_whole_token(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    gamma = rng.standard_normal(16).astype(np.float32)
    x = new_rows(cache, 0, 0).reshape(4, 16).astype(np.float64)
    quire.rms_norm_key(offsets(NEW), cache, 0, gamma=gamma, per_head=False)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gamma
    np.testing.assert_allclose(new_rows(cache, 0, 0).reshape(4, 16), expected, rtol=1e-5, atol=1e-6)


def test_rms_norm_leaves_the_cached_rows_alone(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    before = [rows(cache, 0, 0, b, c).copy() for b, c in enumerate(CACHED)]
    quire.rms_norm_key(offsets(NEW), cache, 0, gamma=np.ones(8, np.float32))
    for sequence, cached in enumerate(CACHED):
        np.testing.assert_array_equal(rows(cache, 0, 0, sequence, cached), before[sequence])


def test_copy_pages(rng):
    cache = make_cache(NEW, CACHED, rng=rng, dtype=np.int8)
    cache.scales = rng.uniform(1, 2, (*cache.blocks.shape[:5], 2)).astype(np.float32)
    blocks, scales = cache.blocks.copy(), cache.scales.copy()
    quire.copy_pages(cache, np.array([[0, 2], [0xFFFFFFFF, 1]], np.uint32))
    blocks[2], scales[2] = blocks[0], scales[0]
    np.testing.assert_array_equal(cache.blocks, blocks)
    np.testing.assert_array_equal(cache.scales, scales)
    with pytest.raises(ValueError, match="copy_pages: 'pairs' must be no page a target twice"):
        quire.copy_pages(cache, np.array([[0, 2], [1, 2]], np.uint32))


def test_row_offsets():
    out = quire.row_offsets(offsets([3, 0, 2]), np.array([4, 1, 0], np.uint32))
    assert out.dtype == np.uint32
    assert out.tolist() == [0, 7, 8, 10]


def test_side_must_be_key_or_value(rng):
    cache = make_cache(NEW, CACHED, rng=rng)
    with pytest.raises(ValueError, match="store: 'side' must be 'key' or 'value', got 'both'"):
        quire.store(np.zeros((4, 2, 8), np.float32), offsets(NEW), cache, 0, side="both")
