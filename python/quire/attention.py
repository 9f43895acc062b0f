# SPDX-License-Identifier: Apache-2.0
"""Attention over the paged cache, and the merge of partial attentions."""

from __future__ import annotations

from quire._call import flag, run
from quire._tensor import Array, activation_dtype, empty, size
from quire.cache import PagedKVCache, is_cache
from quire.masks import Mask


def flash_attention(
    q: Array,
    row_offsets: Array,
    cache: PagedKVCache | None = None,
    layer: int = 0,
    *,
    scale: float | None = None,
    mask: Mask | str = "causal",
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    return_lse: bool = False,
    out: Array | None = None,
    batch_invariant: bool = False,
    allow_fp8_products: bool = False,
    shared_prefix_pages: int = 0,
    max_workspace_bytes: int = 0,
    key_lengths: Array | None = None,
    k: Array | None = None,
    v: Array | None = None,
    key_offsets: Array | None = None,
    key_blocks: Array | None = None,
    key_block_size: int = 128,
) -> Array | tuple[Array, Array]:
    """Attention of a ragged batch over the paged cache: prefill, decode and mixtures in one call.

    The K and V rows of the new tokens must be in the cache already. MHA, GQA and MQA by the heads of q and cache.
    Without a cache, over K and V of a ragged batch: `k`, `v` and `key_offsets`.

    Parameters
    ----------
    q : array [tokens, heads, head_dim]
        float32, float16 or bfloat16; the new tokens of all sequences.
    row_offsets : uint32 array [batch + 1]
        Sequence b owns the rows [row_offsets[b], row_offsets[b + 1]) of q.
    cache, layer : PagedKVCache, int, optional
        Query i of a sequence stands at position cache_length + i.
    scale : float, optional
        Of the scores; by default head_dim ** -0.5.
    mask : Mask or str
        "causal", "null" or a value such as ``quire.causal() & quire.sliding_window(1024)``.
    softcap : float
        Scores become softcap * tanh(score / softcap) if it is positive.
    alibi_slopes : float32 array [heads], optional
        slope * (key position - query position) is added to the scores.
    sinks : float32 array [heads], optional
        One more logit per head in the denominator.
    return_lse : bool
        Return the natural log of the softmax denominator too, float32 [tokens, heads].
    out : array [tokens, heads, value_dim], optional
        Where the result goes; value_dim may be less than head_dim.
    batch_invariant : bool
        A sequence's result is the same bits in any batch of the same `max_seq_length`, which chooses between the
        kernels of a GPU.
    allow_fp8_products : bool
        Over a cache of float8_e4m3, let a kernel round q and the softmax weights to it and multiply on fp8 tensor
        cores.
    shared_prefix_pages : int
        So many first pages are the same in the tables of all sequences with new tokens, and full (a system prompt,
        say). On a GPU their keys are then read once for the whole batch.
    max_workspace_bytes : int
        Of copies of K and V, where prefill on a GPU makes some (over a quantized cache): sequences are then attended in
        parts of the batch whose copies fit. Where those of one sequence do not, a kernel without copies runs, which may
        be slower. 0: copies of the whole batch, up to 1 GiB.
    key_lengths : uint32 array [batch], optional
        The keys of a sequence, whatever its new tokens are: a pass over the context alone, a part of the context, or
        none. By default the cached and the new tokens. Queries stand at cache_length + i as ever.
    k : array [total_keys, kv_heads, head_dim], optional
        In place of a cache, with `v` and `key_offsets`: new tokens alone, encoders, chunks of a context.
    v : array [total_keys, kv_heads, value_dim], optional
        Of k's dtype; it may be narrower, or wider, than k.
    key_offsets : uint32 array [batch + 1], optional
        Sequence b owns the keys [key_offsets[b], key_offsets[b + 1]). Query i of a sequence stands at position
        keys - queries + i: the last query at the last key.
    key_blocks : int32 array [tokens, kv_heads, max_blocks], optional
        Sparse attention: the heads of a token on a KV head see, of the keys above, those alone that stand in the blocks
        of its list; the mask still holds inside of them. Block b is the keys [b * key_block_size,
        (b + 1) * key_block_size) of the sequence. Ids come in any order, each at most once; -1 names nothing, nor does
        a block past the sequence's keys, wherever they stand.
    key_block_size : int
        Keys of a block; 1 makes `key_blocks` lists of keys.

    Returns
    -------
    out, or (out, lse)
        A query that sees no key gives 0 and, without a sink, LSE -inf. Nothing but keys of its own sequence reaches a
        query; a NaN or infinity among the values of those that the mask hides may make its out NaN.

    Examples
    --------
    >>> blocks = np.zeros((4, 2, 1, 16, 2, 8), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[2]], np.uint32))
    >>> q = np.ones((3, 4, 8), np.float32)  # three new tokens, four heads on two of the cache
    >>> out, lse = quire.flash_attention(q, np.array([0, 3], np.uint32), cache, 0, return_lse=True)
    >>> out.shape, np.exp(lse[:, 0]).round().tolist()  # all scores are 0: the sum counts the keys seen
    ((3, 4, 8), [6.0, 7.0, 8.0])

    >>> k, v = np.zeros((5, 2, 8), np.float32), np.ones((5, 2, 6), np.float32)  # an encoder's, without a cache
    >>> offsets = np.array([0, 5], np.uint32)
    >>> quire.flash_attention(np.ones((5, 4, 8), np.float32), offsets, k=k, v=v, key_offsets=offsets, mask="null").shape
    (5, 4, 6)

    >>> blocks = np.array([[[0, -1]], [[1, 0]]], np.int32)  # two tokens, one KV head; blocks of two keys
    >>> k = np.array([0.0, 0, 0, 1000], np.float32).reshape(4, 1, 1)
    >>> at = np.array([0, 2], np.uint32), np.array([0, 4], np.uint32)
    >>> ones = np.ones((2, 1, 1), np.float32)
    >>> quire.flash_attention(ones, at[0], k=k, v=k, key_offsets=at[1], key_blocks=blocks, key_block_size=2).tolist()
    [[[0.0]], [[1000.0]]]
    """
    if out is None:
        value_dim = size(q, 2) if v is None else size(v, 2)
        if v is None and is_cache(cache) and cache.value_blocks is not None:
            value_dim = size(cache.value_blocks, 5)
        out = empty(q, (size(q, 0), size(q, 1), value_dim), activation_dtype(q))
    lse = None
    if flag("flash_attention", "return_lse", return_lse):
        lse = empty(q, (size(q, 0), size(q, 1)), "f32")
    run(
        "flash_attention",
        q,
        q=q,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        scale=scale,
        mask=mask,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        out=out,
        lse=lse,
        batch_invariant=batch_invariant,
        allow_fp8_products=allow_fp8_products,
        shared_prefix_pages=shared_prefix_pages,
        max_workspace_bytes=max_workspace_bytes,
        key_lengths=key_lengths,
        k=k,
        v=v,
        key_offsets=key_offsets,
        key_blocks=key_blocks,
        key_block_size=key_block_size,
    )
    return (out, lse) if return_lse else out


def merge_states(
    states: Array, lses: Array, *, return_lse: bool = False, out: Array | None = None
) -> Array | tuple[Array, Array]:
    """Join attentions over disjoint sets of keys: sum of states * exp(lses - lse), lse = log sum exp(lses).

    Parameters
    ----------
    states : array [num_states, tokens, heads, value_dim]
        float32, float16 or bfloat16.
    lses : float32 array [num_states, tokens, heads]
        Natural log. A state of LSE -inf contributes nothing, whatever it holds.
    return_lse : bool
        Return the joint LSE too.
    out : array [tokens, heads, value_dim], optional
        Where the result goes.

    Examples
    --------
    >>> states = np.array([1.0, 5.0], np.float32).reshape(2, 1, 1, 1)
    >>> lses = np.log(np.array([1.0, 3.0], np.float32)).reshape(2, 1, 1)
    >>> round(quire.merge_states(states, lses).item(), 6)  # weights 1/4 and 3/4
    4.0
    """
    tokens, heads = size(states, 1), size(states, 2)
    if out is None:
        out = empty(states, (tokens, heads, size(states, 3)), activation_dtype(states))
    lse = empty(states, (tokens, heads), "f32") if flag("merge_states", "return_lse", return_lse) else None
    run("merge_states", states, states=states, lses=lses, out=out, lse=lse)
    return (out, lse) if return_lse else out
