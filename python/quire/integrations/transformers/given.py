# SPDX-License-Identifier: Apache-2.0
"""Attention over keys and values that transformers hands over whole: another cache than Quire's, or none."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import quire
from quire.integrations.transformers.chosen import attend_chosen
from quire.integrations.transformers.masks import Rule, StepMask, is_one_run
from quire.integrations.transformers.rows import (
    ScratchPages,
    chosen_positions,
    offsets_of,
    one_token_pages,
    rows_of,
    with_padding,
)
from quire.integrations.transformers.scores import Scores

_PAGE_SIZE = 64


@dataclass(eq=False)
class Batch:
    """Which rows are tokens, and where they go: the same for all layers that share a mask."""

    key_rows: torch.Tensor | None
    query_rows: torch.Tensor | None
    row_offsets: torch.Tensor
    before: torch.Tensor  # keys before the queries of each sequence
    table: torch.Tensor
    visible: torch.Tensor | None
    pages: ScratchPages


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: StepMask | None,
    rule: Rule,
    scores: Scores,
    indices: torch.Tensor | None,
) -> torch.Tensor:
    """[batch, heads, tokens, columns] each → [batch, tokens, heads, columns]. K and V are copied into pages."""
    sequences, heads, count, _ = query.shape
    keys, value_dim = key.shape[2], value.shape[-1]
    batch = _batch_of(sequences, count, keys, query.device, mask, rule)
    blocks = batch.pages.fill(rows_of(key, batch.key_rows), rows_of(value, batch.key_rows))
    q = rows_of(query, batch.query_rows)
    cache = quire.PagedKVCache(blocks, batch.before, batch.table, max_seq_length=count)
    if indices is not None and indices.shape[-1] < keys:
        positions = chosen_positions(indices, keys - count, batch.visible, batch.query_rows)
        rows = one_token_pages(blocks)
        out = attend_chosen(q, rows, cache, batch.row_offsets, positions, value_dim, scores)
    else:
        out = q.new_empty((q.shape[0], heads, value_dim))
        quire.flash_attention(q, batch.row_offsets, cache, 0, mask=rule.mask, out=out, **scores.arguments)
    return with_padding(out, batch.query_rows, sequences, count)


def _batch_of(
    sequences: int, count: int, keys: int, device: torch.device, mask: StepMask | None, rule: Rule
) -> Batch:
    """Made once for a mask."""
    if mask is None:
        return _read_batch(sequences, count, keys, device, None, rule)
    shape = (sequences, count, keys, device)
    if shape not in mask.batches:
        _check_sizes(count, keys, mask, rule)
        padding = None if mask.padding is None else mask.padding[:, mask.kv_offset :].to(device)
        mask.batches[shape] = _read_batch(sequences, count, keys, device, padding, rule)
    return mask.batches[shape]


def _check_sizes(count: int, keys: int, mask: StepMask, rule: Rule) -> None:
    is_last = mask.q_offset + count == mask.kv_offset + keys
    if (mask.q_length, mask.kv_length) != (count, keys) or (rule.causal and not is_last):
        raise NotImplementedError(
            f"quire: {keys} keys from {mask.kv_offset} on for {count} queries from {mask.q_offset} on; a cache with "
            "room that is not in use (StaticCache) is not served: pass a PagedCache, or none"
        )
    if rule.chunk is not None and mask.kv_offset > 0:
        raise NotImplementedError("quire: chunked attention over a cache that dropped tokens; pass a PagedCache")


def _read_batch(
    sequences: int, count: int, keys: int, device: torch.device, padding: torch.Tensor | None, rule: Rule
) -> Batch:
    if padding is not None and padding.shape[1] != keys:
        raise ValueError(f"quire: the attention mask has {padding.shape[1]} columns for {keys} keys")
    if padding is not None and bool(padding.all()):
        padding = None
    has_places = rule.causal or rule.window is not None or rule.chunk is not None
    if padding is not None and rule != Rule(rule.causal) and not bool(is_one_run(padding)):
        raise NotImplementedError(
            "quire: the attention mask has padding between tokens, which windows and chunks would count as distance; "
            "pad on the left"
        )
    key_rows, key_counts = _rows_and_counts(padding, sequences, keys, device)
    pages = ScratchPages(key_counts, keys, sequences * -(-keys // _PAGE_SIZE), _PAGE_SIZE)
    if not has_places:
        return _read_placeless(count, key_counts, key_rows, padding, pages)
    own = None if padding is None else padding[:, keys - count :]
    query_rows, query_counts = _rows_and_counts(own, sequences, count, device)
    before = key_counts - query_counts
    return Batch(key_rows, query_rows, offsets_of(query_counts), before, pages.table, padding, pages)


def _rows_and_counts(
    padding: torch.Tensor | None, sequences: int, count: int, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Rows of [sequences * count] that are tokens (None: all), and how many each sequence has, int32."""
    if padding is None:
        return None, torch.full((sequences,), count, dtype=torch.int32, device=device)
    return padding.flatten().nonzero().flatten(), padding.sum(1, dtype=torch.int32)


def _read_placeless(
    count: int,
    key_counts: torch.Tensor,
    key_rows: torch.Tensor | None,
    padding: torch.Tensor | None,
    pages: ScratchPages,
) -> Batch:
    """Every query sees every key, wherever it stands: an encoder, or cross attention.

    Quire counts queries among the keys. Where a sequence has more queries than keys, they are dealt to several
    sequences over the same pages.
    """
    pieces = []  # sequence, queries, keys
    for sequence, keys in enumerate(key_counts.tolist()):
        if keys == 0:
            raise NotImplementedError(f"quire: sequence {sequence} has no keys at all")
        pieces += [(sequence, min(keys, count - first), keys) for first in range(0, count, keys)]
    owners, queries, keys = torch.tensor(pieces, dtype=torch.int32, device=key_counts.device).T.contiguous()
    table = pages.table.index_select(0, owners)
    return Batch(key_rows, None, offsets_of(queries), keys - queries, table, padding, pages)
