# SPDX-License-Identifier: Apache-2.0
"""Continuous batching (`generate_batch`): attention over the paged cache that transformers itself keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import quire
from quire.integrations.transformers.rows import ScratchPages
from quire.integrations.transformers.scores import Scores

_SCRATCH_PAGE = 16


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: Any,
    scores: Scores,
    sliding_window: int | None,
    kwargs: dict[str, Any],
) -> torch.Tensor:
    """query [1, heads, tokens, columns] of all requests, end to end → [1, tokens, heads, columns].

    Nothing is read back from the device, so that a CUDA graph may capture it.
    """
    layer = module.layer_idx
    allocator = getattr(cache, "layer_to_allocator", {}).get(layer)
    room = getattr(cache if allocator is None else allocator, "head_dim", key.shape[-1])
    if not key.shape[-1] == value.shape[-1] == room:
        raise NotImplementedError(
            f"quire: keys of {key.shape[-1]} and values of {value.shape[-1]} columns, where transformers' paged cache "
            f"has {room}: it does not serve latent attention; use generate()"
        )
    q = query[0].transpose(0, 1)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if allocator is not None and allocator.layer_type == "full_attention":
        batch = _step_of(allocator, layer, q.shape[0], kwargs)
        index = allocator.layer_indices.index(layer)
        pages = quire.PagedKVCache(
            _blocks_of(allocator), batch.cache_lengths, batch.page_table, max_seq_length=batch.most_tokens
        )
        quire.store(key[0].transpose(0, 1), batch.row_offsets, pages, index, side="key")
        quire.store(value[0].transpose(0, 1), batch.row_offsets, pages, index, side="value")
        return quire.flash_attention(q, batch.row_offsets, pages, index, out=out, **scores.arguments)[None]
    window = _window_of(layer, cache, allocator)
    if sliding_window is not None and sliding_window != window:
        raise NotImplementedError(f"quire: the layer has a window of {sliding_window}, its cache one of {window}")
    mask = quire.causal() if window is None else quire.causal() & quire.sliding_window(window)
    k, v, key_offsets = _read_back(layer, key, value, cache, allocator, kwargs)
    row_offsets = _with_unused(kwargs["cu_seq_lens_q"], q.shape[0])
    counts = _with_unused(key_offsets, k.shape[0]).diff()
    num_pages = -(-k.shape[0] // _SCRATCH_PAGE) + counts.shape[0]  # the last page of each is not full
    scratch = ScratchPages(counts, k.shape[0], num_pages, _SCRATCH_PAGE)
    before = (counts - row_offsets.diff()).contiguous()
    pages = quire.PagedKVCache(scratch.fill(k, v), before, scratch.table)
    return quire.flash_attention(q, row_offsets, pages, 0, mask=mask, out=out, **scores.arguments)[None]


def _with_unused(offsets: torch.Tensor, rows: int) -> torch.Tensor:
    """One more sequence, of the rows after the last one's: those that fill up the shape of a CUDA graph."""
    return torch.nn.functional.pad(offsets.to(torch.int32), (0, 1), value=rows)


def _window_of(layer: int, cache: Any, allocator: Any) -> int | None:
    if allocator is not None:
        return allocator.sliding_window if allocator.layer_type == "sliding_attention" else None
    window = cache.sliding_windows[layer]
    return None if window == 1 else window  # 1 says full attention there


@dataclass(eq=False)
class _Batch:
    """Where the tokens of one step go, for all full-attention layers."""

    row_offsets: torch.Tensor
    page_table: torch.Tensor
    cache_lengths: torch.Tensor
    most_tokens: int


def _step_of(allocator: Any, layer: int, tokens: int, kwargs: dict[str, Any]) -> _Batch:
    """Made at the first layer of a step."""
    if layer == allocator.layer_indices[0]:
        with_table = kwargs.get("block_table") is not None
        allocator.quire_batch = (_read_block_table if with_table else _read_indices)(allocator, tokens, kwargs)
    return allocator.quire_batch


def _read_block_table(allocator: Any, tokens: int, kwargs: dict[str, Any]) -> _Batch:
    """Every request has one new token. Those that fill up a graph's shape have no pages and -1 keys before it."""
    before = kwargs["cu_seq_lens_k"][allocator.layer_type].to(torch.int32).diff() - 1
    # Ids there count pages of one layer's K or V; a page of Quire holds all layers.
    pages_per_block = allocator.block_physical_stride // allocator.tokens_per_page
    table = kwargs["block_table"][allocator.index].to(torch.int32) // pages_per_block
    row_offsets = torch.arange(tokens + 1, dtype=torch.int32, device=table.device)
    return _Batch(row_offsets, table.contiguous(), before.clamp_(min=0), 1)


def _read_indices(allocator: Any, tokens: int, kwargs: dict[str, Any]) -> _Batch:
    """From the rows of the cache that transformers would read (and write, where nothing was cached before)."""
    page_size, stride = allocator.tokens_per_page, allocator.block_physical_stride
    row_offsets = _with_unused(kwargs["cu_seq_lens_q"], tokens)
    key_offsets = kwargs["cu_seq_lens_k"][allocator.layer_type].to(torch.int32)
    where, offsets = kwargs["read_index"][allocator.index], key_offsets
    if where.numel() == 0:
        where, offsets = kwargs["write_index"][allocator.index], row_offsets[:-1]
    keys = key_offsets.diff()
    starts = torch.arange(0, max(kwargs["max_length_k"][allocator.layer_type], 1), page_size, device=where.device)
    first_rows = (offsets[:-1, None] + starts).clamp_(max=where.numel() - 1)
    table = (where[first_rows] // stride).to(torch.int32).masked_fill_(starts >= keys[:, None], -1)
    unused = torch.nn.functional.pad
    return _Batch(
        row_offsets,
        unused(table, (0, 0, 0, 1), value=-1),
        unused(keys - row_offsets[:-1].diff(), (0, 1)),
        kwargs["max_length_q"],
    )


def _blocks_of(allocator: Any) -> torch.Tensor:
    """transformers' one flat tensor as [blocks, K and V, layers, tokens, heads, columns]."""
    flat, layers, page_size = allocator.cache_tensor, len(allocator.layer_indices), allocator.tokens_per_page
    return flat.view(-1, layers, 2, page_size, *flat.shape[-2:]).permute(0, 2, 1, 3, 4, 5)


def _read_back(
    layer: int, key: torch.Tensor, value: torch.Tensor, cache: Any, allocator: Any, kwargs: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Store through transformers and get all keys and values back, [keys of all requests, heads, columns].

    For layers with a window, whose pages are a ring, and for versions that keep K and V in two tensors.
    """
    if allocator is not None:
        changed = dict(kwargs)
        k, v = cache.update(key_states=key, value_states=value, layer_idx=layer, kwargs=changed)
        return k[0].transpose(0, 1), v[0].transpose(0, 1), changed["cu_seq_lens_k"].to(torch.int32)
    k, v = cache.update(
        key_states=key,
        value_states=value,
        layer_idx=layer,
        read_index=kwargs["read_index"],
        write_index=kwargs["write_index"],
    )
    offsets = kwargs["cu_seq_lens_k"]
    if isinstance(offsets, dict):
        offsets = offsets["full_attention" if cache.sliding_windows[layer] == 1 else "sliding_attention"]
    return k, v, offsets.to(torch.int32)
