# SPDX-License-Identifier: Apache-2.0
"""Attention to keys that an indexer chose, where there are keys and values of all heads."""

from __future__ import annotations

import torch

import quire
from quire.integrations.transformers.scores import Scores


def attend_chosen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor, scores: Scores
) -> torch.Tensor:
    """q [tokens, heads, columns] over those of k and v [rows, heads, columns] that `rows` int32 [tokens, top_k] names.

    → [tokens, heads, columns of v]. A negative row is none. Every token becomes a sequence of its own whose keys are
    pages of one token.
    """
    there = rows >= 0
    rows = rows.gather(1, there.to(torch.uint8).argsort(dim=1, descending=True, stable=True))
    counts = there.sum(1, dtype=torch.int32)
    offsets = torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
    own = quire.PagedKVCache.from_key_value(k[:, None], v[:, None], torch.zeros_like(counts), rows, max_seq_length=1)
    return quire.flash_attention(q, offsets, own, mask="null", key_lengths=counts, **scores.arguments)


def chosen_positions(
    indices: torch.Tensor, start: int, visible: torch.Tensor | None, rows: torch.Tensor | None
) -> torch.Tensor:
    """What an indexer chose [batch, new tokens, top_k], columns of the mask → positions int32 [tokens, top_k].

    -1 for what a token does not see: where it sees too few keys, an indexer fills its places with hidden ones.
    """
    own = torch.arange(start, start + indices.shape[1], device=indices.device)[:, None]
    there, positions = indices <= own, indices
    if visible is not None:
        columns = indices.long().flatten(1).clamp_(max=visible.shape[1] - 1)  # a StaticCache has more
        there = there & visible.gather(1, columns).view_as(indices)
        positions = (visible.cumsum(1) - 1).gather(1, columns).view_as(indices)
    positions = torch.where(there, positions, -1).flatten(0, 1).to(torch.int32)
    return positions if rows is None else positions.index_select(0, rows)
