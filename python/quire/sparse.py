# SPDX-License-Identifier: Apache-2.0
"""Sparse attention: what chooses keys or blocks of them, and latent attention over chosen keys."""

from __future__ import annotations

from typing import NamedTuple

from quire._call import flag, refuse_type, run
from quire._tensor import Array, activation_dtype, empty, size
from quire.cache import PagedKVCache
from quire.decode import latent_columns
from quire.masks import Mask


class SparseExtra(NamedTuple):
    """A second stream of rows that `sparse_mla` attends after the chosen ones."""

    cache: PagedKVCache
    layer: int
    indices: Array  # int32 [tokens, extra_k]
    lengths: Array | None = None  # int32 [tokens]
    tokens_per_row: int = 1  # that a row stands for, as compress_keys writes them; lengths count tokens


def mla_indexer(
    q: Array,
    q_scale: Array,
    row_offsets: Array,
    index_cache: PagedKVCache,
    layer: int,
    *,
    top_k: int = 2048,
    mask: Mask | str = "causal",
    out: Array | None = None,
    batch_invariant: bool = False,
    return_scores: bool = False,
    tokens_per_key: int = 1,
) -> Array | tuple[Array, Array]:
    """For each new token the `top_k` positions of its own sequence with the highest index score.

    score(i, t) = k_scale(t) * sum over heads of max(0, q(i, h) · k(t)) * q_scale(i, h). Exact and deterministic: ties
    go to the lowest position.

    Parameters
    ----------
    q : float8_e4m3fn array [tokens, heads, head_dim]
    q_scale : float32 array [tokens, heads]
        May be negative.
    row_offsets : uint32 array [batch + 1]
    index_cache, layer : PagedKVCache, int
        K only, one head, float8_e4m3fn rows with a float32 scale per token; holds the new tokens' keys already.
    top_k : int
    mask : Mask or str
        "causal" or "null".
    out : int32 array [tokens, top_k], optional
    batch_invariant : bool
        A token's positions are the same in any batch, also where float32 cannot tell scores apart.
    return_scores : bool
        Return the scores of the positions too, float32 [tokens, top_k], -inf where there is none. A GPU scores the
        chosen keys a second time for it.
    tokens_per_key : int
        Tokens that a key stands for, as `compress_keys` writes them: lengths count tokens, the positions are those of
        keys, and the token at position p sees the keys below (p + 1) // tokens_per_key. On a GPU 1 alone.

    Returns
    -------
    int32 array [tokens, top_k]
        min(top_k, keys seen) positions in ascending order, then -1. With `return_scores` (positions, scores).

    Examples
    --------
    >>> import ml_dtypes
    >>> blocks = np.ones((2, 1, 1, 16, 1, 32), ml_dtypes.float8_e4m3fn)
    >>> scales = np.arange(32, dtype=np.float32).reshape(2, 1, 1, 16, 1, 1)  # later tokens score higher
    >>> cache = quire.PagedKVCache(blocks, np.array([6], np.uint32), np.array([[1]], np.uint32), scales)
    >>> q = np.ones((1, 2, 32), ml_dtypes.float8_e4m3fn)
    >>> quire.mla_indexer(q, np.ones((1, 2), np.float32), np.array([0, 1], np.uint32), cache, 0, top_k=3)
    array([[4, 5, 6]], dtype=int32)
    """
    out = empty(q, (size(q, 0), top_k), "i32") if out is None else out
    wants_scores = flag("mla_indexer", "return_scores", return_scores)
    scores = empty(q, (size(q, 0), top_k), "f32") if wants_scores else None
    run(
        "mla_indexer",
        q,
        q=q,
        q_scale=q_scale,
        row_offsets=row_offsets,
        index_cache=index_cache,
        layer=layer,
        top_k=top_k,
        mask=mask,
        out=out,
        scores=scores,
        batch_invariant=batch_invariant,
        tokens_per_key=tokens_per_key,
    )
    return (out, scores) if return_scores else out


def select_blocks(
    q: Array,
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    max_blocks: int,
    block_size: int = 128,
    first_blocks: int = 0,
    local_blocks: int = 1,
    mask: Mask | str = "causal",
    out: Array | None = None,
) -> Array:
    """For each new token and head the `max_blocks` blocks of its own sequence with the highest key score.

    score(i, h, t) = q(i, h) · k(t); a block's score is the highest of its keys'. Exact and deterministic: equal scores
    go to the lower block. The result is what `flash_attention` takes as `key_blocks`, where heads are its KV heads.

    Parameters
    ----------
    q : array [tokens, heads, head_dim]
        float32, float16 or bfloat16.
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        Its keys, the new tokens' among them; V, where there is one, is not read. Heads of q share those of the cache as
        in attention.
    max_blocks : int
    block_size : int
        Keys of a block.
    first_blocks, local_blocks : int
        The first blocks of a sequence, and the last ones up to the token's own, that come before all others.
    mask : Mask or str
        "causal" or "null".
    out : int32 array [tokens, heads, max_blocks], optional

    Returns
    -------
    int32 array [tokens, heads, max_blocks]
        min(max_blocks, blocks that the token sees keys of) ids in ascending order, then -1.

    Examples
    --------
    >>> keys = np.array([0, 9, 1, 1, 7, -5, 8, 8, 2, 2], np.float32).reshape(1, 1, 1, 10, 1, 1)
    >>> cache = quire.PagedKVCache(keys, np.array([9], np.uint32), np.array([[0]], np.uint32))
    >>> q = np.ones((1, 1, 1), np.float32)  # keys are their own scores
    >>> quire.select_blocks(q, np.array([0, 1], np.uint32), cache, 0, max_blocks=3, block_size=2)
    array([[[0, 3, 4]]], dtype=int32)
    """
    out = empty(q, (size(q, 0), size(q, 1), max_blocks), "i32") if out is None else out
    run(
        "select_blocks",
        q,
        q=q,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        block_size=block_size,
        first_blocks=first_blocks,
        local_blocks=local_blocks,
        mask=mask,
        out=out,
    )
    return out


def sparse_mla(
    q: Array,
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    indices: Array,
    scale: float,
    topk_lengths: Array | None = None,
    sinks: Array | None = None,
    extra: SparseExtra | None = None,
    latent_dim: int | None = None,
    return_lse: bool = False,
    out: Array | None = None,
    batch_invariant: bool = False,
) -> Array | tuple[Array, Array]:
    """Absorbed latent attention over chosen rows only, for prefill and decode alike.

    There is no mask: the indexer applied it. Duplicate indices count as often as they are given.

    Parameters
    ----------
    q : array [tokens, heads, latent + rope]
        Absorbed; float32, float16 or bfloat16.
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        An MLA cache of any row format.
    indices : int32 array [tokens, top_k]
        Positions in the token's own sequence. Negative, past its keys or on an unassigned page: absent.
    scale : float
    topk_lengths : int32 array [tokens], optional
        Slots of each row of `indices` to look at.
    sinks : float32 array [heads], optional
    extra : SparseExtra, optional
        A second stream of rows with a cache of its own.
    latent_dim : int, optional
        Columns of the result; by default the row format's first part, or all but 64 columns of the row.
    return_lse : bool
        Return the natural log of the softmax denominator too, float32 [tokens, heads].
    out : array [tokens, heads, latent], optional
    batch_invariant : bool
        A token's result is the same bits in any batch.

    Examples
    --------
    >>> blocks = np.zeros((2, 1, 1, 16, 1, 24), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[1]], np.uint32))
    >>> out, lse = quire.sparse_mla(
    ...     np.ones((1, 2, 24), np.float32), np.array([0, 1], np.uint32), cache, 0,
    ...     indices=np.array([[0, 3, -1, -1]], np.int32), scale=1.0, latent_dim=16, return_lse=True,
    ... )
    >>> out.shape, np.exp(lse).round().tolist()  # two keys of score 0
    ((1, 2, 16), [[2.0, 2.0]])
    """
    if extra is not None and not isinstance(extra, SparseExtra):
        refuse_type("sparse_mla", "extra", "a quire.SparseExtra", type(extra).__name__)
    tokens, heads = size(q, 0), size(q, 1)
    if out is None:
        latent = latent_columns("sparse_mla", cache, latent_dim)
        out = empty(q, (tokens, heads, latent), activation_dtype(q))
    lse = empty(q, (tokens, heads), "f32") if flag("sparse_mla", "return_lse", return_lse) else None
    run(
        "sparse_mla",
        q,
        q=q,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        indices=indices,
        topk_lengths=topk_lengths,
        scale=scale,
        sinks=sinks,
        out=out,
        lse=lse,
        batch_invariant=batch_invariant,
        **{} if extra is None else {f"extra.{name}": value for name, value in extra._asdict().items()},
    )
    return (out, lse) if return_lse else out


def remap_sparse_indices(
    indices: Array, row_offsets: Array, cache: PagedKVCache, *, out: Array | None = None
) -> Array:
    """Positions of a token's own sequence → physical rows, page * page_size + row in the page.

    Parameters
    ----------
    indices : int32 array [tokens, top_k]
        Negative entries pass through. Positions past the page table or on an unassigned page become -1.
    row_offsets : uint32 array [batch + 1]
    cache : PagedKVCache
    out : int32 array [tokens, top_k], optional
        May be `indices` itself.

    Examples
    --------
    >>> blocks = np.zeros((4, 1, 1, 16, 1, 24), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([20], np.uint32), np.array([[3, 1]], np.uint32))
    >>> indices = np.array([[0, 17, -1, 40]], np.int32)
    >>> quire.remap_sparse_indices(indices, np.array([0, 1], np.uint32), cache)
    array([[48, 17, -1, -1]], dtype=int32)
    """
    out = empty(indices, (size(indices, 0), size(indices, 1)), "i32") if out is None else out
    run(
        "remap_sparse_indices",
        indices,
        indices=indices,
        row_offsets=row_offsets,
        cache=cache,
        out=out,
    )
    return out
