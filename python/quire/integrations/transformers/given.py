# SPDX-License-Identifier: Apache-2.0
"""Attention over keys and values that transformers hands over whole: another cache than Quire's, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import quire
from quire.integrations.transformers.chosen import attend_chosen, chosen_positions
from quire.integrations.transformers.masks import Rule, StepMask, is_one_run
from quire.integrations.transformers.rows import are_rows, offsets_of, rows_of, with_padding
from quire.integrations.transformers.scores import Scores


@dataclass(eq=False)
class Batch:
    """Which rows are tokens: the same for all layers that share a mask."""

    keys: int  # of each sequence, padding counted, room that is not in use not
    key_rows: torch.Tensor | None  # of [sequences * keys], None: all
    query_rows: torch.Tensor | None
    key_counts: torch.Tensor  # int32 [sequences]
    key_offsets: torch.Tensor
    row_offsets: torch.Tensor
    visible: torch.Tensor | None


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: StepMask | None,
    rule: Rule,
    scores: Scores,
    indices: torch.Tensor | None,
) -> torch.Tensor:
    """[batch, heads, tokens, columns] each → [batch, tokens, heads, columns]."""
    sequences, _, count, _ = query.shape
    batch = _batch_of(sequences, count, key.shape[2], query.device, mask, rule)
    key, value = key[:, :, : batch.keys], value[:, :, : batch.keys]
    q = rows_of(query, batch.query_rows)
    if indices is not None and indices.shape[-1] < batch.keys:
        positions = chosen_positions(indices, batch.keys - count, batch.visible, batch.query_rows)
        out = attend_chosen(q, *_rows_of_both(key, value, batch), _rows_at(positions, batch), scores)
    else:
        keys = _keys_of(key, value, count, batch)
        out = quire.flash_attention(q, batch.row_offsets, mask=rule.mask, **keys, **scores.arguments)
    return with_padding(out, batch.query_rows, sequences, count)


def _keys_of(key: torch.Tensor, value: torch.Tensor, count: int, batch: Batch) -> dict[str, Any]:
    """K and V as arguments of flash_attention, copied only where padding lies between the tokens of sequences.

    A cache of transformers has [batch, heads, tokens, columns] in memory, over which no one stride leads from token to
    token: there a sequence is one page. A GPU's kernel for prompts wants pages of 8 · n tokens, and gets a copy else.
    """
    k, v = key.transpose(1, 2), value.transpose(1, 2)
    is_page = not key.is_cuda or count <= 16 or batch.keys % 8 == 0
    if batch.key_rows is not None or not is_page or (are_rows(k) and are_rows(v)):
        k, v = _rows_of_both(key, value, batch)
        return {"k": k, "v": v, "key_offsets": batch.key_offsets}
    table = torch.arange(key.shape[0], dtype=torch.int32, device=key.device)[:, None]
    before = (batch.key_counts - count).clamp_(min=0)  # cross attention may have more queries than keys
    pages = quire.PagedKVCache.from_key_value(k, v, before, table, max_seq_length=count)
    return {"cache": pages, "key_lengths": batch.key_counts}


def _rows_of_both(key: torch.Tensor, value: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return rows_of(key, batch.key_rows), rows_of(value, batch.key_rows)


def _rows_at(positions: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Positions in a sequence, int32 [tokens, top_k] → rows of all sequences' keys; what is negative stays so."""
    counts = batch.row_offsets.diff().long()
    first = batch.key_offsets[:-1].repeat_interleave(counts, output_size=positions.shape[0])
    return torch.where(positions >= 0, positions + first[:, None], positions)


def _batch_of(
    sequences: int, count: int, keys: int, device: torch.device, mask: StepMask | None, rule: Rule
) -> Batch:
    """Made once for a mask."""
    if mask is None:
        return _read_batch(sequences, count, keys, device, None, rule)
    shape = (sequences, count, keys, device)
    if shape not in mask.batches:
        used = _used_keys(count, keys, mask, rule)
        padding = None if mask.padding is None else mask.padding[:, mask.kv_offset :].to(device)
        if padding is not None and padding.shape[1] == keys:
            padding = padding[:, :used]
        mask.batches[shape] = _read_batch(sequences, count, used, device, padding, rule)
    return mask.batches[shape]


def _used_keys(count: int, keys: int, mask: StepMask, rule: Rule) -> int:
    """Without the room at the end of a StaticCache that no token has reached yet."""
    used = mask.q_offset + count - mask.kv_offset if rule.causal else keys
    if (mask.q_length, mask.kv_length) != (count, keys) or (rule.causal and not count <= used <= keys):
        raise NotImplementedError(
            f"quire: {keys} keys from {mask.kv_offset} on for {count} queries from {mask.q_offset} on, and a mask of "
            f"{mask.q_length} x {mask.kv_length}: which keys are whose cannot be told"
        )
    if rule.chunk is not None and mask.kv_offset > 0:
        raise NotImplementedError("quire: chunked attention over a cache that dropped tokens; pass a PagedCache")
    return used


def _read_batch(
    sequences: int, count: int, keys: int, device: torch.device, padding: torch.Tensor | None, rule: Rule
) -> Batch:
    if padding is not None and padding.shape[1] != keys:
        raise ValueError(f"quire: the attention mask has {padding.shape[1]} columns for {keys} keys")
    if padding is not None and bool(padding.all()):
        padding = None
    if padding is not None and rule != Rule(rule.causal) and not bool(is_one_run(padding)):
        raise NotImplementedError(
            "quire: the attention mask has padding between tokens, which windows and chunks would count as distance; "
            "pad on the left"
        )
    key_rows, key_counts = _rows_and_counts(padding, sequences, keys, device)
    # Where every query sees every key (an encoder, cross attention) a query's place says nothing of its padding.
    has_places = rule.causal or rule.window is not None or rule.chunk is not None
    own = padding[:, keys - count :] if padding is not None and has_places else None
    query_rows, query_counts = _rows_and_counts(own, sequences, count, device)
    offsets = offsets_of(key_counts), offsets_of(query_counts)
    return Batch(keys, key_rows, query_rows, key_counts, *offsets, padding)


def _rows_and_counts(
    padding: torch.Tensor | None, sequences: int, count: int, device: torch.device
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Rows of [sequences * count] that are tokens (None: all), and how many each sequence has, int32."""
    if padding is None:
        return None, torch.full((sequences,), count, dtype=torch.int32, device=device)
    return padding.flatten().nonzero().flatten(), padding.sum(1, dtype=torch.int32)
