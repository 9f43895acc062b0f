# SPDX-License-Identifier: Apache-2.0
"""The paged KV cache of all layers: views of the caller's page pool, page table and lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quire._quire import RowFormat
from quire._tensor import Array, size


def is_cache(cache: object) -> bool:
    """Whether results may be sized by it: where it is none, the op says so."""
    return isinstance(cache, PagedKVCache)


class _Broadcast(NamedTuple):
    """A numpy array with strides of 0, which pickle and deepcopy would make an ordinary one."""

    numbers: np.ndarray  # of size 1 where the stride was 0
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> _Broadcast:
        first = tuple(slice(1) if stride == 0 else slice(None) for stride in array.strides)
        return cls(array[first], array.shape)

    def restored(self) -> np.ndarray:
        return np.broadcast_to(self.numbers, self.shape)


class PagedKVCache:
    """A paged KV cache. It holds references and never copies; ops write rows into `blocks`.

    `copy.copy` gives another one over the same arrays; `copy.deepcopy` and `pickle` take the arrays along.

    Parameters
    ----------
    blocks : array [num_pages, kv, num_layers, page_size, num_kv_heads, row]
        The page pool; kv is 2 (K and V) or 1 (MLA: K only). All strides but the last are free. Row formats that
        mix dtypes, and those of int4, are uint8 here, one element per byte.
    cache_lengths : uint32 array [batch]
        Tokens of each sequence that were cached before the call. No op changes it. int32 is read as uint32.
    page_table : uint32 array [batch, max_pages]
        Column j names the page of tokens [j * page_size, (j + 1) * page_size). An entry of num_pages or 0xFFFFFFFF
        (int32: -1) means "no page": loads there read as masked zeros, stores are dropped. Lengths and page table may
        be None where `store` takes slots instead; the other ops ask for both.
    scales : array [num_scale_pages, kv, num_layers, page_size, num_kv_heads, slots], optional
        Scales of a quantized cache, with any strides.
    scales_page_table : uint32 array [batch, max_pages], optional
        Page ids of `scales`; by default those of `page_table`.
    static_scales : bool, optional
        Whether `scales` are calibrated ones, which ops read and never write. By default a broadcast tensor (stride 0
        over several pages or tokens) is. A pool of one page of one token has no strides that could say it.
    row_format : RowFormat, optional
        What a row looks like in bytes. By default `row` columns of the dtype of `blocks`, scaled if there are scales.
    value_blocks : array [num_pages, 1, num_layers, page_size, num_kv_heads, value row], optional
        V, where it is a tensor of its own: `blocks` is then K's, with kv = 1. Strides are its own, and, for
        `flash_attention`, so is the width of its rows. See `from_key_value`.
    max_seq_length, max_cache_length : int, optional
        Upper bounds of new tokens and of keys per sequence, for lengths that live on a GPU.

    Examples
    --------
    >>> blocks = np.zeros((4, 2, 1, 16, 2, 8), np.float32)
    >>> cache = quire.PagedKVCache(blocks, np.array([5], np.uint32), np.array([[2, 0]], np.uint32))
    >>> cache.page_size, cache.num_kv_heads, cache.head_dim
    (16, 2, 8)
    """

    def __init__(
        self,
        blocks: Array,
        cache_lengths: Array | None = None,
        page_table: Array | None = None,
        scales: Array | None = None,
        *,
        scales_page_table: Array | None = None,
        static_scales: bool | None = None,
        row_format: RowFormat | None = None,
        max_seq_length: int | None = None,
        max_cache_length: int | None = None,
        value_blocks: Array | None = None,
    ) -> None:
        self.blocks = blocks
        self.cache_lengths = cache_lengths
        self.page_table = page_table
        self.scales = scales
        self.scales_page_table = scales_page_table
        self.static_scales = static_scales
        self.row_format = row_format
        self.max_seq_length = max_seq_length
        self.max_cache_length = max_cache_length
        self.value_blocks = value_blocks

    @classmethod
    def from_key_value(
        cls, keys: Array, values: Array, cache_lengths: Array, page_table: Array, **options: Any
    ) -> PagedKVCache:
        """A cache of one layer whose K and V are two page pools, as FlashAttention's `k_cache` and `v_cache` are.

        Parameters
        ----------
        keys : array [num_pages, page_size, num_kv_heads, head_dim]
        values : array [num_pages, page_size, num_kv_heads, value_dim]
            The same pages, with strides and a width of its own.
        cache_lengths, page_table
            As of any cache.
        **options
            The other arguments of a cache, by name.

        Examples
        --------
        >>> k, v = np.zeros((4, 16, 2, 8), np.float32), np.zeros((4, 16, 2, 6), np.float32)
        >>> cache = quire.PagedKVCache.from_key_value(k, v, np.array([5], np.uint32), np.array([[2]], np.uint32))
        >>> quire.flash_attention(np.ones((1, 4, 8), np.float32), np.array([0, 1], np.uint32), cache).shape
        (1, 4, 6)
        """
        return cls(keys[:, None, None], cache_lengths, page_table, value_blocks=values[:, None, None], **options)

    def __copy__(self) -> PagedKVCache:
        """Another cache over the same arrays."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy. Static scales stay static: a broadcast array is kept as what it repeats."""
        state = dict(self.__dict__)
        if isinstance(state.get("scales"), np.ndarray) and 0 in state["scales"].strides:
            state["scales"] = _Broadcast.of(state["scales"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.scales, _Broadcast):
            self.scales = self.scales.restored()

    @property
    def num_pages(self) -> int:
        return size(self.blocks, 0)

    @property
    def is_mla(self) -> bool:
        """Whether there are K rows only."""
        return size(self.blocks, 1) == 1 and self.value_blocks is None

    @property
    def num_layers(self) -> int:
        return size(self.blocks, 2)

    @property
    def page_size(self) -> int:
        """Tokens per page."""
        return size(self.blocks, 3)

    @property
    def num_kv_heads(self) -> int:
        return size(self.blocks, 4)

    @property
    def head_dim(self) -> int:
        """Logical columns of a row."""
        return size(self.blocks, 5) if self.row_format is None else self.row_format.width

    @property
    def value_dim(self) -> int:
        """Columns of a row of V."""
        return self.head_dim if self.value_blocks is None else size(self.value_blocks, 5)

    @property
    def batch(self) -> int:
        """Sequences; 0 without lengths."""
        return 0 if self.cache_lengths is None else size(self.cache_lengths, 0)

    def __repr__(self) -> str:
        return (
            f"<quire.PagedKVCache {self.num_pages} pages of {self.page_size} tokens, {self.num_layers} layers,"
            f" {self.num_kv_heads} heads of {self.head_dim}, batch {self.batch}>"
        )
