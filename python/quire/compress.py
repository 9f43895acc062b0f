# SPDX-License-Identifier: Apache-2.0
"""Rows that stand for several tokens: DeepSeek-V4's compressor."""

from __future__ import annotations

from quire._call import run
from quire._tensor import Array
from quire.cache import PagedKVCache


def compress_keys(
    kv: Array,
    gate: Array,
    row_offsets: Array,
    cache: PagedKVCache,
    layer: int,
    *,
    bias: Array,
    gamma: Array,
    freqs_cis: Array,
    state: Array,
    state_slots: Array | None = None,
    epsilon: float = 1e-6,
) -> None:
    """Pool every `ratio` tokens into one row of a cache: softmax of the gates, column by column, norm, rope, store.

    Row e comes to be with the sequence's token (e + 1) * ratio - 1. Without overlap (kv as wide as a row) it pools the
    `ratio` tokens of its window; with overlap (kv twice as wide) those by the second half of their columns and the
    `ratio` tokens before them by the first half. Tokens whose window is not whole yet wait in `state`, so that a prompt
    may be cut anywhere: the rows are the same, bit for bit. Not on a GPU yet.

    Parameters
    ----------
    kv, gate : array [tokens, width] or [tokens, 2 * width]
        What the two projections gave; float32, float16 or bfloat16.
    row_offsets : uint32 array [batch + 1]
    cache, layer : PagedKVCache, int
        K only, one head, rows of `width` columns in any format. Its lengths count tokens: a sequence of n tokens has
        n // ratio rows, as `sparse_mla` (SparseExtra.tokens_per_row) and `mla_indexer` (tokens_per_key) read them.
    bias : array [ratio, columns of kv]
        Added to the gate of the token at position p: row p % ratio.
    gamma : array [width]
        Weight of the RMSNorm.
    freqs_cis : array [max_pos, rope_dim]
        cos and sin interleaved. The pairs (2j, 2j + 1) of the last rope_dim columns are rotated by row e * ratio.
    state : array [slots, rows, 2, columns of kv]
        float32, or kv's dtype; `rows` at least ratio, with overlap twice that. The caller keeps it from call to call,
        and what is in it at first does not matter. More rows let a sequence go back by as many tokens.
    state_slots : uint32 array [batch], optional
        Each sequence's slot of `state`; None: 0, 1, 2, …
    epsilon : float

    Examples
    --------
    >>> blocks = np.zeros((1, 1, 1, 4, 1, 2), np.float32)  # of rows, two columns each
    >>> cache = quire.PagedKVCache(blocks, np.array([0], np.uint32), np.array([[0]], np.uint32))
    >>> kv = np.array([[3, 4], [3, 4], [6, 8]], np.float32)  # three tokens: one row of two, and one that waits
    >>> quire.compress_keys(kv, np.zeros_like(kv), np.array([0, 3], np.uint32), cache, 0,
    ...     bias=np.zeros((2, 2), np.float32), gamma=np.ones(2, np.float32),
    ...     freqs_cis=np.array([[1, 0]], np.float32), state=np.zeros((1, 2, 2, 2), np.float32))
    >>> blocks[0, 0, 0, :2, 0].astype(float).round(3).tolist()
    [[0.849, 1.131], [0.0, 0.0]]
    """
    run(
        "compress_keys",
        kv,
        kv=kv,
        gate=gate,
        row_offsets=row_offsets,
        cache=cache,
        layer=layer,
        bias=bias,
        gamma=gamma,
        freqs_cis=freqs_cis,
        state=state,
        state_slots=state_slots,
        epsilon=epsilon,
    )
