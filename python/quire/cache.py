# SPDX-License-Identifier: Apache-2.0
"""The paged KV cache of all layers: views of the caller's page pool, page table and lengths."""

from __future__ import annotations

from quire._quire import RowFormat
from quire._tensor import Array, size


def is_cache(cache: object) -> bool:
    """Whether results may be sized by it: where it is none, the op says so."""
    return isinstance(cache, PagedKVCache)


class PagedKVCache:
    """A paged KV cache. It holds references and never copies; ops write rows into `blocks`.

    Parameters
    ----------
    blocks : array [num_pages, kv, num_layers, page_size, num_kv_heads, row]
        The page pool; kv is 2 (K and V) or 1 (MLA: K only). All strides but the last are free. Row formats that
        mix dtypes are uint8 here, one element per byte.
    cache_lengths : uint32 array [batch]
        Tokens of each sequence that were cached before the call. No op changes it. int32 is read as uint32.
    page_table : uint32 array [batch, max_pages]
        Column j names the page of tokens [j * page_size, (j + 1) * page_size). An entry of num_pages or 0xFFFFFFFF
        (int32: -1) means "no page": loads there read as masked zeros, stores are dropped.
    scales : array [num_scale_pages, kv, num_layers, page_size, num_kv_heads, slots], optional
        Scales of a quantized cache, with any strides. A broadcast tensor (stride 0 over pages or tokens) is static:
        ops read it and never write it.
    scales_page_table : uint32 array [batch, max_pages], optional
        Page ids of `scales`; by default those of `page_table`.
    row_format : RowFormat, optional
        What a row looks like in bytes. By default `row` columns of the dtype of `blocks`, scaled if there are scales.
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
        cache_lengths: Array,
        page_table: Array,
        scales: Array | None = None,
        *,
        scales_page_table: Array | None = None,
        row_format: RowFormat | None = None,
        max_seq_length: int | None = None,
        max_cache_length: int | None = None,
    ) -> None:
        self.blocks = blocks
        self.cache_lengths = cache_lengths
        self.page_table = page_table
        self.scales = scales
        self.scales_page_table = scales_page_table
        self.row_format = row_format
        self.max_seq_length = max_seq_length
        self.max_cache_length = max_cache_length

    @property
    def num_pages(self) -> int:
        return size(self.blocks, 0)

    @property
    def is_mla(self) -> bool:
        """Whether there are K rows only."""
        return size(self.blocks, 1) == 1

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
    def batch(self) -> int:
        return size(self.cache_lengths, 0)

    def __repr__(self) -> str:
        return (
            f"<quire.PagedKVCache {self.num_pages} pages of {self.page_size} tokens, {self.num_layers} layers,"
            f" {self.num_kv_heads} heads of {self.head_dim}, batch {self.batch}>"
        )
