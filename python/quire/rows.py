# SPDX-License-Identifier: Apache-2.0
"""The new tokens' rows: writing them into the cache, rotating and normalising them there."""

from __future__ import annotations

from collections.abc import Sequence

from quire._call import run
from quire._tensor import Array, activation_dtype, dtype_name, empty, size
from quire.cache import PagedKVCache


def store(
    x: Array,
    row_offsets: Array | None = None,
    cache: PagedKVCache | None = None,
    layer: int = 0,
    *,
    side: str = "key",
    value: Array | None = None,
    slots: Array | None = None,
) -> None:
    """Write the new tokens' rows into the cache, at cache_length + i, or where `slots` say; K and V in one launch.

    Rows are rounded to the cache's dtype, fp8 saturating. Parts with scales are quantized: scale = amax / max of each
    granule, written beside the rows, or the cache's static scale. Rows on unassigned pages are dropped.

    Parameters
    ----------
    x : array [tokens, kv_heads, head_dim]
        float32, float16, bfloat16, or the cache's own dtype, which is stored as it is. Any strides but the last.
    row_offsets : uint32 array [batch + 1], optional
        Not needed, and not read, with `slots`.
    cache, layer : PagedKVCache, int
        With `slots` it needs neither lengths nor page table.
    side : str
        "key" or "value": where `x` goes.
    value : array [tokens, kv_heads, head_dim], optional
        Of the dtype of `x`, with strides of its own: `x` goes to the keys and this to the values.
    slots : int64 or int32 array [tokens], optional
        page * page_size + row of the page; a negative one skips its token. No slot may come twice. Slots past the last
        page are an error; on a GPU, whose numbers the host does not read, they are skipped.

    Examples
    --------
    >>> blocks = np.zeros((4, 2, 1, 16, 1, 8), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[2]], np.uint32))
    >>> quire.store(np.ones((3, 1, 8), np.float32), np.array([0, 3], np.uint32), cache, 0, side="value")
    >>> np.flatnonzero(blocks[2, 1, 0, :, 0, 0]).tolist()
    [5, 6, 7]
    >>> pool = quire.PagedKVCache(np.zeros((4, 2, 1, 16, 1, 8), np.float32))
    >>> k, v = np.ones((3, 1, 8), np.float32), np.full((3, 1, 8), 2, np.float32)
    >>> quire.store(k, cache=pool, value=v, slots=np.array([35, -1, 0]))
    >>> pool.blocks[2, :, 0, 3, 0, 0].tolist(), pool.blocks[0, :, 0, 0, 0, 0].tolist()
    ([1.0, 2.0], [1.0, 2.0])
    """
    run(
        "store",
        x,
        x=x,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        side=side,
        value=value,
        slots=slots,
    )


def store_scales(
    scales: Array, row_offsets: Array, cache: PagedKVCache, layer: int, *, side: str = "key"
) -> None:
    """Write ready-made scales of the new tokens' rows into the cache, at cache_length + i.

    Parameters
    ----------
    scales : array [tokens, kv_heads, slots]
        float32, float16 or bfloat16.
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        With scales that are not static.
    side : str
        "key" or "value".

    Examples
    --------
    >>> blocks, scales = np.zeros((4, 2, 1, 16, 1, 8), np.int8), np.zeros((4, 2, 1, 16, 1, 1), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[2]], np.uint32), scales)
    >>> quire.store_scales(np.full((1, 1, 1), 0.5, np.float32), np.array([0, 1], np.uint32), cache, 0)
    >>> float(scales[2, 0, 0, 5, 0, 0])
    0.5
    """
    run(
        "store_scales",
        scales,
        scales=scales,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        side=side,
    )


def rope(
    q: Array,
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    freqs_cis: Array,
    interleaved: bool = False,
    inverse: bool = False,
    position_ids: Array | None = None,
    mrope_sections: Sequence[int] = (),
    rotate_key: bool = True,
    q_gamma: Array | None = None,
    key_gamma: Array | None = None,
    epsilon: float = 1e-6,
    weight_offset: float = 0.0,
    out: Array | None = None,
) -> Array:
    """Rotary embedding of the new tokens: q into the result, the cached keys in place.

    With a gamma each head is normalised first, in the same pass and under the same rounding (Qwen3's QK norm):
    x * rsqrt(mean(x²) + epsilon) * (gamma + weight_offset) over the first `columns` of the head.

    Parameters
    ----------
    q : array [tokens, heads, head_dim]
        float32, float16 or bfloat16; not changed unless it is `out`.
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        The new tokens' keys are rotated where they lie.
    freqs_cis : array [max_pos, rope_dim]
        cos and sin interleaved; float32, float16 or bfloat16. Row cache_length + i serves new token i.
    interleaved : bool
        Pairs (2j, 2j + 1) of the last rope_dim columns; otherwise (j, j + rope_dim / 2) of the first rope_dim.
    inverse : bool
        By the negative angles, which takes a rotation back (DeepSeek-V4's attention output). Not on a GPU yet.
    position_ids : uint32 array [sections, tokens], optional
        Rows of freqs_cis to use instead.
    mrope_sections : sequence of int
        Pairs that each section of position_ids serves (multimodal rope).
    rotate_key : bool
        False leaves the cache alone.
    q_gamma, key_gamma : array [columns], optional
        Norm weights, `columns` ≤ head_dim; float32, float16 or bfloat16. None: no norm.
    epsilon, weight_offset : float
    out : array [tokens, heads, head_dim], optional
        May be `q` itself.

    Examples
    --------
    >>> blocks = np.zeros((2, 2, 1, 16, 1, 4), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([1], np.uint32), np.array([[0]], np.uint32))
    >>> quarter_turn = np.tile(np.array([0.0, 1.0], np.float32), (16, 2))  # cos 0, sin 1
    >>> q = np.array([[[1.0, 2.0, 3.0, 4.0]]], np.float32)
    >>> quire.rope(q, np.array([0, 1], np.uint32), cache, 0, freqs_cis=quarter_turn, interleaved=True).tolist()
    [[[-2.0, 1.0, -4.0, 3.0]]]
    """
    out = empty(q, (size(q, 0), size(q, 1), size(q, 2)), activation_dtype(q)) if out is None else out
    run(
        "rope",
        q,
        q=q,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        freqs_cis=freqs_cis,
        interleaved=interleaved,
        inverse=inverse,
        position_ids=position_ids,
        mrope_sections=mrope_sections,
        rotate_key=rotate_key,
        q_gamma=q_gamma,
        key_gamma=key_gamma,
        epsilon=epsilon,
        weight_offset=weight_offset,
        out=out,
    )
    return out


def rms_norm_key(
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    gamma: Array,
    epsilon: float = 1e-6,
    weight_offset: float = 0.0,
    per_head: bool = True,
    multiply_before_cast: bool = True,
) -> None:
    """RMSNorm of the new tokens' cached keys, in place: x * rsqrt(mean(x²) + epsilon) * (gamma + weight_offset).

    Parameters
    ----------
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        Rows without scales.
    gamma : array [columns]
        Per head over the first `columns` ≤ head_dim columns; with per_head=False [kv_heads * head_dim], the token.
    epsilon, weight_offset : float
    per_head : bool
    multiply_before_cast : bool
        True rounds once, at the end. False rounds the normalised value to gamma's dtype before gamma multiplies it.

    Examples
    --------
    >>> blocks = np.full((1, 2, 1, 16, 1, 4), 3.0, np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([7], np.uint32), np.array([[0]], np.uint32))
    >>> quire.rms_norm_key(np.array([0, 1], np.uint32), cache, 0, gamma=np.full(4, 2.0, np.float32))
    >>> blocks[0, 0, 0, 6:9, 0, 0].round(3).tolist()
    [3.0, 2.0, 3.0]
    """
    run(
        "rms_norm_key",
        row_offsets,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        gamma=gamma,
        epsilon=epsilon,
        weight_offset=weight_offset,
        per_head=per_head,
        multiply_before_cast=multiply_before_cast,
    )


def rms_norm_value(
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    gamma: Array,
    epsilon: float = 1e-6,
    weight_offset: float = 0.0,
    per_head: bool = True,
    multiply_before_cast: bool = True,
) -> None:
    """RMSNorm of the new tokens' cached values, in place. Arguments as in `rms_norm_key`.

    Examples
    --------
    >>> blocks = np.full((1, 2, 1, 16, 1, 4), 3.0, np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([7], np.uint32), np.array([[0]], np.uint32))
    >>> quire.rms_norm_value(np.array([0, 1], np.uint32), cache, 0, gamma=np.ones(4, np.float32))
    >>> blocks[0, 1, 0, 6:9, 0, 0].round(3).tolist()
    [3.0, 1.0, 3.0]
    """
    run(
        "rms_norm_value",
        row_offsets,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        gamma=gamma,
        epsilon=epsilon,
        weight_offset=weight_offset,
        per_head=per_head,
        multiply_before_cast=multiply_before_cast,
    )


def copy_pages(cache: PagedKVCache, pairs: Array) -> None:
    """Copy whole pages of the cache onto others: all layers, K and V, and the scales beside them.

    For sequences that share a prefix until one of them writes to it. The pairs are one step: no page is a target
    twice, and no target is a source.

    Parameters
    ----------
    cache : PagedKVCache
        Without scales_page_table; its page table and lengths are not read.
    pairs : uint32 array [count, 2]
        Source and target page ids. A pair with an id of "no page" on either side is dropped.

    Examples
    --------
    >>> blocks = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1, 1, 1).repeat(2, axis=1)
    >>> cache = quire.PagedKVCache(blocks, np.array([1], np.uint32), np.array([[0]], np.uint32))
    >>> quire.copy_pages(cache, np.array([[0, 2], [1, 3]], np.uint32))
    >>> blocks[:, 0].ravel().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    run("copy_pages", pairs, cache=cache, pairs=pairs)


def row_offsets(
    row_offsets: Array, cache_lengths: Array, *, out: Array | None = None
) -> Array:
    """Prefix sums of the keys that each sequence has: cache_length + new tokens.

    Parameters
    ----------
    row_offsets : uint32 array [batch + 1]
        Of the new tokens.
    cache_lengths : uint32 array [batch]
    out : uint32 array [batch + 1], optional

    Examples
    --------
    >>> quire.row_offsets(np.array([0, 3, 4], np.uint32), np.array([5, 0], np.uint32)).tolist()
    [0, 8, 9]
    """
    if out is None:
        unsigned = "i32" if dtype_name(row_offsets) == "i32" else "u32"
        out = empty(row_offsets, (size(row_offsets, 0),), unsigned)
    run("row_offsets", row_offsets, row_offsets=row_offsets, cache_lengths=cache_lengths, out=out)
    return out
