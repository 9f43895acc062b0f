# SPDX-License-Identifier: Apache-2.0
"""Small problems for the tests, built and read back with plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import quire


def round_once(values: np.ndarray, dtype: object) -> np.ndarray:
    """float64 → a type of 8 or 16 bits: nearest, ties to even, clipped to the finite range, -0 as 0.

    A plain astype of ml_dtypes goes through float32 and so rounds twice.
    """
    unsigned = np.uint8 if np.dtype(dtype).itemsize == 1 else np.uint16
    codes = np.arange(np.iinfo(unsigned).max + 1).astype(unsigned).view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers, first = np.unique(codes.astype(np.float64), return_index=True)
    finite = np.isfinite(numbers)
    numbers, codes = numbers[finite], codes[first[finite]]
    values = np.clip(np.asarray(values, np.float64), numbers[0], numbers[-1])
    above = np.clip(np.searchsorted(numbers, values), 1, len(numbers) - 1)
    to_low, to_high = values - numbers[above - 1], numbers[above] - values
    low_is_even = codes[above - 1].view(unsigned) % 2 == 0
    take_low = (to_low < to_high) | ((to_low == to_high) & low_is_even)
    return np.where(take_low, codes[above - 1], codes[above])


def offsets(new_tokens: Sequence[int]) -> np.ndarray:
    """row_offsets of a ragged batch."""
    return np.concatenate([[0], np.cumsum(new_tokens)]).astype(np.uint32)


def make_cache(
    new_tokens: Sequence[int],
    cached: Sequence[int],
    *,
    rng: np.random.Generator,
    heads: int = 2,
    head_dim: int = 8,
    page_size: int = 4,
    kv: int = 2,
    layers: int = 2,
    dtype: object = np.float32,
) -> quire.PagedKVCache:
    """A cache of shuffled pages, random where a key belongs to a sequence and NaN (or garbage) everywhere else."""
    pages = [-(-(n + c) // page_size) for n, c in zip(new_tokens, cached)]
    num_pages = sum(pages) + 2  # two pages belong to nobody
    shape = (num_pages, kv, layers, page_size, heads, head_dim)
    blocks = np.full(shape, 77 if np.dtype(dtype).kind in "iu" else np.nan).astype(dtype)
    table = np.full((len(pages), max(pages, default=0) + 1), num_pages, np.uint32)
    order = iter(rng.permutation(num_pages))
    for sequence, count in enumerate(pages):
        table[sequence, :count] = [next(order) for _ in range(count)]
        for position in range(new_tokens[sequence] + cached[sequence]):
            page, row = table[sequence, position // page_size], position % page_size
            values = rng.standard_normal((kv, layers, heads, head_dim))
            blocks[page, :, :, row] = values.astype(dtype)
    return quire.PagedKVCache(blocks, np.array(cached, np.uint32), table)


def rows(
    cache: quire.PagedKVCache, layer: int, side: int, sequence: int, count: int
) -> np.ndarray:
    """Rows 0..count of a sequence [count, heads, row] as they lie in `blocks`: 0 for K, 1 for V."""
    size = cache.page_size
    table = np.asarray(cache.page_table)
    return np.stack(
        [np.asarray(cache.blocks)[table[sequence, t // size], side, layer, t % size] for t in range(count)]
    )


def softmax_rows(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention(
    q: np.ndarray,
    row_offsets: np.ndarray,
    cache: quire.PagedKVCache,
    layer: int,
    *,
    scale: float,
    visible: Callable[[int, int], bool] = lambda query, key: key <= query,
) -> np.ndarray:
    """Attention in float64, written the obvious way."""
    out = np.zeros(q.shape)
    group = q.shape[1] // cache.num_kv_heads
    for sequence in range(cache.batch):
        first, last = int(row_offsets[sequence]), int(row_offsets[sequence + 1])
        cached = int(cache.cache_lengths[sequence])
        num_keys = cached + last - first
        if first == last:
            continue
        k, v = (rows(cache, layer, side, sequence, num_keys).astype(np.float64) for side in (0, 1))
        for token in range(first, last):
            position = cached + token - first
            seen = [t for t in range(num_keys) if visible(position, t)]
            for head in range(q.shape[1]):
                if not seen:
                    continue
                scores = k[seen, head // group] @ q[token, head].astype(np.float64) * scale
                out[token, head] = softmax_rows(scores) @ v[seen, head // group]
    return out


def rotate_pairs(x: np.ndarray, freqs: np.ndarray) -> np.ndarray:
    """Interleaved rope of the last axis; freqs holds cos, sin interleaved."""
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * (freqs[..., 0::2] + 1j * freqs[..., 1::2])
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


def make_freqs(max_pos: int, rope_dim: int) -> np.ndarray:
    angles = np.outer(np.arange(max_pos), 10000.0 ** (-np.arange(0, rope_dim, 2) / rope_dim))
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(max_pos, rope_dim).astype(np.float32)
