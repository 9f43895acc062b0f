# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV caches as Quire's blocks [pages, K and V, layers, tokens, heads, columns]: views, never copies."""

from __future__ import annotations

from dataclasses import dataclass

import quire
import torch

from quire_vllm.asking import CACHE_DTYPES

INDEX_COLUMNS = 128
INDEX_BYTES = INDEX_COLUMNS + 4  # a key's values, and its float32 scale at the end of the page


def key_value_blocks(kv_cache: torch.Tensor, dtype_name: str) -> torch.Tensor:
    """[pages, heads, tokens, K and V beside each other], in any order of memory; fp8 comes as bytes."""
    if kv_cache.dtype == torch.uint8:
        kv_cache = kv_cache.view(CACHE_DTYPES[dtype_name])
    width = kv_cache.shape[-1] // 2
    return kv_cache.unflatten(-1, (2, width)).permute(0, 3, 2, 1, 4).unsqueeze(2)


def factors(k_scale: torch.Tensor, v_scale: torch.Tensor) -> torch.Tensor:
    """One scale for all keys and one for all values, beside each other."""
    return torch.stack([k_scale.reshape(()), v_scale.reshape(())]).to(torch.float32)


def scales_of(both: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """What `factors` gave, as static scales of the blocks."""
    pages, _, layers, tokens, heads, _ = blocks.shape
    return both.as_strided((pages, 2, layers, tokens, heads, 1), (0, 1, 0, 0, 0, 0))


@dataclass(frozen=True)
class LatentPages:
    """An MLA cache [pages, tokens, bytes or columns] and what its rows are."""

    blocks: torch.Tensor
    row_format: quire.RowFormat | None

    @classmethod
    def of(cls, kv_cache: torch.Tensor, dtype_name: str) -> LatentPages:
        if dtype_name == "fp8_ds_mla":
            rows, row_format = kv_cache, quire.RowFormat.mla_fp8_block()
        else:
            is_bytes = kv_cache.dtype == torch.uint8
            rows, row_format = kv_cache.view(CACHE_DTYPES[dtype_name]) if is_bytes else kv_cache, None
        return cls(rows[:, None, None, :, None, :], row_format)


@dataclass(frozen=True)
class IndexPages:
    """Keys of the indexer [pages, tokens, 132 bytes]: in a page first all values, then all scales."""

    blocks: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def of(cls, kv_cache: torch.Tensor) -> IndexPages:
        pages, tokens, width = kv_cache.shape
        if width != INDEX_BYTES:
            raise ValueError(f"quire: rows of the indexer have {INDEX_BYTES} bytes, got {width}")
        stride = kv_cache.stride(0)
        values = kv_cache.view(torch.float8_e4m3fn).as_strided(
            (pages, 1, 1, tokens, 1, INDEX_COLUMNS),
            (stride, stride, stride, INDEX_COLUMNS, INDEX_COLUMNS, 1),
            kv_cache.storage_offset(),
        )
        words = stride // 4
        floats = kv_cache.view(torch.float32) if kv_cache.is_contiguous() else _as_floats(kv_cache)
        scales = floats.as_strided(
            (pages, 1, 1, tokens, 1, 1),
            (words, words, words, 1, 1, 1),
            (kv_cache.storage_offset() + tokens * INDEX_COLUMNS) // 4,
        )
        return cls(values, scales)


def _as_floats(kv_cache: torch.Tensor) -> torch.Tensor:
    """The same memory as float32, where pages are further apart than their bytes."""
    return torch.empty(0, dtype=torch.float32, device=kv_cache.device).set_(kv_cache.untyped_storage())
