# SPDX-License-Identifier: Apache-2.0
"""Continuous batching (`generate_batch`): attention over the paged cache that transformers itself keeps.

    layers              pages                                              copied
    full attention      stored to and read in place                        nothing
    with a window       a ring: in place while every request decodes       nothing
                        prompts without a past: the new tokens alone       nothing
                        prompts in pieces, or beside requests that decode  what transformers reads back, once

Nothing is read back from the device, so that a CUDA graph may capture it. A graph's shape does not say that all
requests decode, so there a ring is read back, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import quire
from quire.integrations.transformers.rings import ring_table
from quire.integrations.transformers.scores import Scores


@dataclass(frozen=True, eq=False)
class LayerPages:
    """Where the tokens of one layer lie in transformers' cache, whatever its version."""

    keys: torch.Tensor  # [blocks, tokens, heads, columns]
    values: torch.Tensor
    group: int  # of layers with the same pages, in read_index and write_index
    is_first: bool  # of its group
    kind: str  # key of cu_seq_lens_k
    window: int | None
    stride: int  # rows of read_index from block to block
    trash: int  # what write_index says of tokens that are not stored

    @property
    def page_size(self) -> int:
        return self.keys.shape[1]

    @classmethod
    def read(cls, cache: Any, layer: int) -> LayerPages:
        allocators = getattr(cache, "layer_to_allocator", None)
        return cls._read_groups(cache, layer) if allocators is None else cls._read_allocator(allocators[layer], layer)

    @classmethod
    def _read_allocator(cls, allocator: Any, layer: int) -> LayerPages:
        """As in 5.22: one flat tensor, in whose blocks stand K and V of one layer after the other."""
        flat, layers, page_size = allocator.cache_tensor, allocator.layer_indices, allocator.tokens_per_page
        blocks = flat.view(-1, len(layers), 2, page_size, *flat.shape[-2:])
        index = layers.index(layer)
        kind, stride, trash = allocator.layer_type, allocator.block_physical_stride, allocator.write_trash_index
        window = allocator.sliding_window if kind == "sliding_attention" else None
        return cls(blocks[:, index, 0], blocks[:, index, 1], allocator.index, index == 0, kind, window, stride, trash)

    @classmethod
    def _read_groups(cls, cache: Any, layer: int) -> LayerPages:
        """As in 5.17: a tensor of keys and one of values for the n-th layers of all groups."""
        group, index = cache.layer_index_to_group_indices[layer]
        window = None if cache.sliding_windows[layer] == 1 else cache.sliding_windows[layer]
        keys, values = (x[index].unflatten(0, (-1, cache.block_size)) for x in (cache.key_cache, cache.value_cache))
        kind = "full_attention" if window is None else "sliding_attention"
        return cls(keys, values, group, index == 0, kind, window, cache.block_size, cache.write_trash_index)


@dataclass(eq=False)
class Batch:
    """Where the tokens of one step go, for all layers of a group."""

    row_offsets: torch.Tensor
    key_offsets: torch.Tensor | None = None  # where keys are read one after the other
    page_table: torch.Tensor | None = None
    cache_lengths: torch.Tensor | None = None
    slots: torch.Tensor | None = None  # for layers with a window; else row_offsets and lengths say it
    most_tokens: int = 1


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
    """query [1, heads, tokens, columns] of all requests, end to end → [1, tokens, heads, columns]."""
    pages = _pages_of(cache, module.layer_idx)
    if not key.shape[-1] == value.shape[-1] == pages.keys.shape[-1]:
        raise NotImplementedError(
            f"quire: keys of {key.shape[-1]} and values of {value.shape[-1]} columns, where transformers' paged cache "
            f"has {pages.keys.shape[-1]}: it does not serve latent attention; use generate()"
        )
    if sliding_window is not None and sliding_window != pages.window:
        raise NotImplementedError(f"quire: the layer has a window of {sliding_window}, its cache one of {pages.window}")
    batches = cache.__dict__.setdefault("quire_batches", {})
    if pages.is_first:
        batches[pages.group] = _read_batch(pages, query.shape[2], kwargs)
    batch = batches[pages.group]
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if batch.page_table is None:
        return _attend_rows(q, k, v, pages, batch, (module.layer_idx, cache, kwargs), scores)[None]
    paged = quire.PagedKVCache.from_key_value(
        pages.keys, pages.values, batch.cache_lengths, batch.page_table, max_seq_length=batch.most_tokens
    )
    quire.store(k, batch.row_offsets, paged, value=v, slots=batch.slots)
    # The one query of a request sees all of its ring, in whatever order.
    mask = quire.causal() if pages.window is None else quire.full()
    return quire.flash_attention(q, batch.row_offsets, paged, mask=mask, **scores.arguments)[None]


def _attend_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pages: LayerPages,
    batch: Batch,
    read_back: tuple[int, Any, dict[str, Any]],
    scores: Scores,
) -> torch.Tensor:
    """A layer with a window where prompts are among the new tokens, which may overwrite what they see."""
    if batch.slots is not None:  # nothing was cached before
        where = quire.PagedKVCache.from_key_value(pages.keys, pages.values, None, None)
        quire.store(k, cache=where, value=v, slots=batch.slots)
    else:
        k, v = _read_back(k, v, *read_back)
    mask = quire.causal() & quire.sliding_window(pages.window)
    offsets = _with_unused(batch.key_offsets, k.shape[0])
    return quire.flash_attention(q, batch.row_offsets, k=k, v=v, key_offsets=offsets, mask=mask, **scores.arguments)


def _pages_of(cache: Any, layer: int) -> LayerPages:
    known = cache.__dict__.setdefault("quire_pages", {})
    if layer not in known:
        known[layer] = LayerPages.read(cache, layer)
    return known[layer]


def _with_unused(offsets: torch.Tensor, rows: int) -> torch.Tensor:
    """One more sequence, of the rows after the last one's: those that fill up the shape of a CUDA graph."""
    return torch.nn.functional.pad(offsets.to(torch.int32), (0, 1), value=rows)


def _of_kind(pages: LayerPages, kwargs: dict[str, Any], *names: str) -> Any:
    """The argument of the first of these names that is there; it may be one for all layers, or one for each kind."""
    found = next(kwargs[name] for name in names if name in kwargs)
    return found[pages.kind] if isinstance(found, dict) else found


def _read_batch(pages: LayerPages, tokens: int, kwargs: dict[str, Any]) -> Batch:
    """Made at the first layer of a group, once per step."""
    if kwargs.get("block_table") is not None:
        return _read_block_table(pages, tokens, kwargs)
    if pages.window is None:
        return _read_indices(pages, tokens, kwargs)
    return _read_ring(pages, tokens, kwargs)


def _read_block_table(pages: LayerPages, tokens: int, kwargs: dict[str, Any]) -> Batch:
    """Every request has one new token. Those that fill up a graph's shape have no pages and -1 keys before it."""
    before = _of_kind(pages, kwargs, "cu_seq_lens_k").to(torch.int32).diff() - 1
    # Ids there count pages of one layer's K or V; a block holds those of all layers.
    table = kwargs["block_table"][pages.group].to(torch.int32) // (pages.stride // pages.page_size)
    row_offsets = torch.arange(tokens + 1, dtype=torch.int32, device=table.device)
    return Batch(row_offsets, None, table.contiguous(), before.clamp_(min=0))


def _read_indices(pages: LayerPages, tokens: int, kwargs: dict[str, Any]) -> Batch:
    """From the rows of the cache that transformers would read (and write, where nothing was cached before)."""
    row_offsets = _with_unused(kwargs["cu_seq_lens_q"], tokens)
    key_offsets = _of_kind(pages, kwargs, "cu_seq_lens_k").to(torch.int32)
    where, offsets = kwargs["read_index"][pages.group], key_offsets
    if where.numel() == 0:
        where, offsets = kwargs["write_index"][pages.group], row_offsets[:-1]
    keys = key_offsets.diff()
    most_keys = _of_kind(pages, kwargs, "max_length_k", "max_seqlen_k")
    starts = torch.arange(0, max(most_keys, 1), pages.page_size, device=where.device)
    first_rows = (offsets[:-1, None] + starts).clamp_(max=where.numel() - 1)
    table = (where[first_rows] // pages.stride).to(torch.int32).masked_fill_(starts >= keys[:, None], -1)
    unused = torch.nn.functional.pad
    return Batch(
        row_offsets,
        None,
        unused(table, (0, 0, 0, 1), value=-1),
        unused(keys - row_offsets[:-1].diff(), (0, 1)),
        most_tokens=_of_kind(pages, kwargs, "max_length_q", "max_seqlen_q"),
    )


def _read_ring(pages: LayerPages, tokens: int, kwargs: dict[str, Any]) -> Batch:
    """A layer with a window: the token at position p lies in slot p % window of its request's pages."""
    written = kwargs["write_index"][pages.group]
    slots = written // pages.stride * pages.page_size + written % pages.stride
    slots = slots.masked_fill(written == pages.trash, -1)
    read = kwargs["read_index"][pages.group]
    row_offsets = kwargs["cu_seq_lens_q"].to(torch.int32)
    if read.numel() == 0:
        return Batch(_with_unused(row_offsets, tokens), row_offsets, slots=slots)
    key_offsets = _of_kind(pages, kwargs, "cu_seq_lens_k").to(torch.int32)
    positions = kwargs.get("position_ids")
    if _of_kind(pages, kwargs, "max_length_q", "max_seqlen_q") > 1 or positions is None:
        return Batch(_with_unused(row_offsets, tokens), key_offsets)
    before = positions.reshape(-1)[:tokens]
    table = ring_table(read, written, key_offsets, before, pages.window, pages.page_size) // pages.stride
    lengths = key_offsets.diff() - 1
    return Batch(row_offsets, None, table.to(torch.int32), lengths, slots)


def _read_back(
    k: torch.Tensor, v: torch.Tensor, layer: int, cache: Any, kwargs: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Store through transformers and get all keys and values back, [keys of all requests, heads, columns]."""
    new = {"key_states": k.transpose(0, 1)[None], "value_states": v.transpose(0, 1)[None], "layer_idx": layer}
    if hasattr(cache, "layer_to_allocator"):
        keys, values = cache.update(**new, kwargs=dict(kwargs))
        return keys[0].transpose(0, 1), values[0].transpose(0, 1)
    return cache.update(**new, read_index=kwargs["read_index"], write_index=kwargs["write_index"])
