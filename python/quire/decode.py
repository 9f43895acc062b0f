# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention of few new tokens: the absorbed form and its weights."""

from __future__ import annotations

from typing import NamedTuple

from quire import _quire
from quire._call import flag, refuse_value, run, whole_number
from quire._tensor import Array, activation_dtype, empty, size
from quire.cache import PagedKVCache, is_cache
from quire.masks import Mask


class AbsorbedWeights(NamedTuple):
    """Views of kv_b_proj in the shapes that `mla_decode` takes."""

    w_uk: Array  # [heads, latent, nope]
    w_uv: Array  # [heads, value, latent]
    w_uk_scale: Array | None = None
    w_uv_scale: Array | None = None


def absorb_kv_b_proj(
    kv_b_proj: Array, *, heads: int, nope: int, kv_b_proj_scale: Array | None = None
) -> AbsorbedWeights:
    """The weights of `mla_decode` as views, not copies, of the one that `mla_prefill` takes.

    Parameters
    ----------
    kv_b_proj : array [heads * (nope + value), latent]
    heads, nope : int
    kv_b_proj_scale : float32 array [ceil(rows / 128), ceil(latent / 128)], optional
        Block scales, where nope and value are multiples of 128.

    Examples
    --------
    >>> weights = quire.absorb_kv_b_proj(np.zeros((2 * (4 + 6), 16), np.float32), heads=2, nope=4)
    >>> weights.w_uk.shape, weights.w_uv.shape
    ((2, 16, 4), (2, 6, 16))
    """
    _quire.check_absorb_kv_b_proj(
        kv_b_proj=kv_b_proj, heads=heads, nope=nope, kv_b_proj_scale=kv_b_proj_scale
    )
    w_uk, w_uv = _split_heads(kv_b_proj, heads, nope)
    if kv_b_proj_scale is None:
        return AbsorbedWeights(w_uk, w_uv)
    return AbsorbedWeights(w_uk, w_uv, *_split_heads(kv_b_proj_scale, heads, nope // 128))


def _split_heads(matrix: Array, heads: int, split: int) -> tuple[Array, Array]:
    """[heads * rows, columns] → the first `split` rows of each head transposed, and the others."""
    per_head = matrix.reshape(heads, -1, matrix.shape[1])
    return per_head[:, :split].swapaxes(1, 2), per_head[:, split:]


def mla_decode(
    q: Array,
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    freqs_cis: Array | None = None,
    kv_norm_gamma: Array | None = None,
    kv: Array | None = None,
    w_uk: Array | None = None,
    w_uv: Array | None = None,
    w_uk_scale: Array | None = None,
    w_uv_scale: Array | None = None,
    scale: float,
    epsilon: float = 1e-6,
    mask: Mask | str = "causal",
    sinks: Array | None = None,
    latent_dim: int | None = None,
    return_lse: bool = False,
    out: Array | None = None,
    batch_invariant: bool = False,
    allow_fp8_products: bool = False,
    key_lengths: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Latent attention for 1 to 8 new tokens per sequence in the absorbed form: K and V are never built.

    The new tokens' cache rows are finished in place as in `mla_prefill`; `q` is not changed.

    Parameters
    ----------
    q : array [tokens, heads, nope + rope]
        Or, without w_uk and w_uv, absorbed: [tokens, heads, latent + rope].
    row_offsets, cache, layer, freqs_cis, kv_norm_gamma, kv, epsilon, mask, sinks, return_lse
        As in `mla_prefill`.
    w_uk : array [heads, latent, nope], optional
        float32, float16, bfloat16 or fp8; see `absorb_kv_b_proj`.
    w_uv : array [heads, value, latent], optional
    w_uk_scale, w_uv_scale : float32 arrays [heads, ceil(. / 128), ceil(. / 128)], optional
        For fp8.
    scale : float
        That of the un-absorbed head, (nope + rope) ** -0.5.
    latent_dim : int, optional
        Columns of an absorbed result; by default the row format's first part, or all but 64 columns of the row.
    out : array [tokens, heads, value], optional
        Absorbed: [tokens, heads, latent].
    batch_invariant : bool
        A sequence's result is the same bits in any batch.
    allow_fp8_products : bool
        Over a cache whose latents are float8_e4m3, let a kernel round the absorbed queries and the softmax weights to it
        and multiply on fp8 tensor cores.
    key_lengths : uint32 array [batch], optional
        The keys of a sequence, as in `flash_attention`; not together with freqs_cis.

    Returns
    -------
    out, or (out, lse)
        A query that sees no key gives 0 and, without a sink, LSE -inf. Nothing but keys of its own sequence reaches a
        query; a NaN or infinity in the latents of those that the mask hides may make its out NaN.

    Examples
    --------
    >>> blocks = np.zeros((2, 1, 1, 16, 1, 24), np.float32)  # latent 16, rope 8
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[1]], np.uint32))
    >>> weights = quire.absorb_kv_b_proj(np.ones((2 * (4 + 6), 16), np.float32), heads=2, nope=4)
    >>> quire.mla_decode(
    ...     np.ones((1, 2, 12), np.float32), np.array([0, 1], np.uint32), cache, 0,
    ...     w_uk=weights.w_uk, w_uv=weights.w_uv, scale=12**-0.5,
    ... ).shape
    (1, 2, 6)
    """
    tokens, heads = size(q, 0), size(q, 1)
    if out is None:
        value = latent_columns("mla_decode", cache, latent_dim) if w_uv is None else size(w_uv, 1)
        out = empty(q, (tokens, heads, value), activation_dtype(q))
    lse = empty(q, (tokens, heads), "f32") if flag("mla_decode", "return_lse", return_lse) else None
    run(
        "mla_decode",
        q,
        q=q,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        freqs_cis=freqs_cis,
        kv_norm_gamma=kv_norm_gamma,
        kv=kv,
        w_uk=w_uk,
        w_uk_scale=w_uk_scale,
        w_uv=w_uv,
        w_uv_scale=w_uv_scale,
        scale=scale,
        epsilon=epsilon,
        mask=mask,
        sinks=sinks,
        out=out,
        lse=lse,
        batch_invariant=batch_invariant,
        allow_fp8_products=allow_fp8_products,
        key_lengths=key_lengths,
    )
    return (out, lse) if return_lse else out


def latent_columns(op: str, cache: PagedKVCache, latent_dim: int | None) -> int:
    """Columns of a latent row that are values: given, or the row format's first part, or all but 64."""
    if latent_dim is not None:
        return whole_number(op, "latent_dim", latent_dim, 1)
    if not is_cache(cache):
        return 0
    if cache.row_format is not None and len(cache.row_format.parts) > 1:
        return cache.row_format.parts[0].width
    if cache.head_dim <= 64:
        refuse_value(
            op, "latent_dim", "given (or out) where rows have at most 64 columns", f"{cache.head_dim} columns"
        )
    return cache.head_dim - 64
