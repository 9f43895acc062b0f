# SPDX-License-Identifier: Apache-2.0
"""The rows that the indexer reads: keys into its cache, queries and their scales, one pass each."""

from __future__ import annotations

from quire._call import run
from quire._tensor import Array, empty, size
from quire.cache import PagedKVCache


def store_index_keys(
    x: Array,
    row_offsets: Array,
    index_cache: PagedKVCache,
    layer: int,
    *,
    norm_weight: Array | None = None,
    norm_bias: Array | None = None,
    epsilon: float = 1e-6,
    freqs_cis: Array | None = None,
    interleaved: bool = False,
    hadamard: bool = False,
    power_of_two_scale: bool = True,
) -> None:
    """LayerNorm, rotate, transform and quantize the new tokens' raw index keys into the indexer's cache.

    All in float32 with one rounding at the end; token i of a sequence goes to position cache_length + i.

    Parameters
    ----------
    x : array [tokens, head_dim]
        What the key projection gave: float32, float16 or bfloat16.
    row_offsets : uint32 array [batch + 1]
    index_cache, layer : PagedKVCache, int
        K only, one head, float8_e4m3fn rows with a float32 scale per token, as `mla_indexer` reads it.
    norm_weight, norm_bias : array [head_dim], optional
        Both or none; none: no LayerNorm.
    epsilon : float
    freqs_cis : array [max_pos, rope_dim], optional
        cos and sin in turns; the first rope_dim columns are rotated. None: no rope.
    interleaved : bool
        Pairs of columns (2j, 2j + 1) instead of (j, j + rope_dim / 2).
    hadamard : bool
        Multiply the row by Hadamard's matrix times head_dim ** -0.5; head_dim must be a power of two.
    power_of_two_scale : bool
        Round the scale, amax / 448, up to a power of two.

    Examples
    --------
    >>> import ml_dtypes
    >>> blocks = np.zeros((2, 1, 1, 16, 1, 4), ml_dtypes.float8_e4m3fn)
    >>> scales = np.zeros((2, 1, 1, 16, 1, 1), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([6], np.uint32), np.array([[1]], np.uint32), scales)
    >>> x = np.array([[1, 2, 3, 4]], np.float32)
    >>> quire.store_index_keys(x, np.array([0, 1], np.uint32), cache, 0, hadamard=True)
    >>> (blocks[1, 0, 0, 6, 0].astype(np.float32) * scales[1, 0, 0, 6, 0]).tolist()
    [5.0, -1.0, -2.0, 0.0]
    """
    run(
        "store_index_keys",
        x,
        x=x,
        row_offsets=row_offsets,
        index_cache=index_cache,
        layer=layer,
        norm_weight=norm_weight,
        norm_bias=norm_bias,
        epsilon=epsilon,
        freqs_cis=freqs_cis,
        interleaved=interleaved,
        hadamard=hadamard,
        power_of_two_scale=power_of_two_scale,
    )


def quantize_index_queries(
    q: Array,
    row_offsets: Array,
    index_cache: PagedKVCache,
    *,
    weights: Array | None = None,
    factor: float = 1.0,
    freqs_cis: Array | None = None,
    interleaved: bool = False,
    hadamard: bool = False,
    power_of_two_scale: bool = True,
    out: Array | None = None,
    q_scale: Array | None = None,
) -> tuple[Array, Array]:
    """Rotate, transform and quantize the new tokens' raw index queries; fold gate and factor into their scales.

    Parameters
    ----------
    q : array [tokens, heads, head_dim]
        What the query projection gave: float32, float16 or bfloat16.
    row_offsets : uint32 array [batch + 1]
    index_cache : PagedKVCache
        For the positions alone: token i of a sequence is at cache_length + i.
    weights : array [tokens, heads], optional
        The gate of each head, float32, float16 or bfloat16; None: 1.
    factor : float
        Usually head_dim ** -0.5 * heads ** -0.5.
    freqs_cis, interleaved, hadamard, power_of_two_scale
        As in `store_index_keys`.
    out, q_scale : array, optional
        float8_e4m3fn [tokens, heads, head_dim] and float32 [tokens, heads].

    Returns
    -------
    (out, q_scale)
        What `mla_indexer` takes as q and q_scale: q_scale = scale of the codes * weights * factor.

    Examples
    --------
    >>> import ml_dtypes
    >>> blocks = np.zeros((2, 1, 1, 16, 1, 4), ml_dtypes.float8_e4m3fn)
    >>> scales = np.zeros((2, 1, 1, 16, 1, 1), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([6], np.uint32), np.array([[1]], np.uint32), scales)
    >>> q = np.array([[[896, -448, 2, 0]]], np.float32)
    >>> codes, q_scale = quire.quantize_index_queries(
    ...     q, np.array([0, 1], np.uint32), cache, weights=np.array([[-3]], np.float32), factor=0.5
    ... )
    >>> codes.astype(np.float32).tolist(), q_scale.tolist()
    ([[[448.0, -224.0, 1.0, 0.0]]], [[-3.0]])
    """
    tokens, heads, columns = size(q, 0), size(q, 1), size(q, 2)
    out = empty(q, (tokens, heads, columns), "fp8_e4m3") if out is None else out
    q_scale = empty(q, (tokens, heads), "f32") if q_scale is None else q_scale
    run(
        "quantize_index_queries",
        q,
        q=q,
        row_offsets=row_offsets,
        index_cache=index_cache,
        weights=weights,
        factor=factor,
        freqs_cis=freqs_cis,
        interleaved=interleaved,
        hadamard=hadamard,
        power_of_two_scale=power_of_two_scale,
        out=out,
        q_scale=q_scale,
    )
    return out, q_scale
