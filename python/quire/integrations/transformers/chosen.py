# SPDX-License-Identifier: Apache-2.0
"""Attention to keys that an indexer chose, where the cache holds keys and values of all heads."""

from __future__ import annotations

import torch

import quire
from quire.integrations.transformers.scores import Scores


def attend_chosen(
    q: torch.Tensor,
    row_blocks: torch.Tensor,
    cache: quire.PagedKVCache,
    row_offsets: torch.Tensor,
    positions: torch.Tensor,
    value_dim: int,
    scores: Scores,
) -> torch.Tensor:
    """q [tokens, heads, columns], positions int32 [tokens, top_k] → [tokens, heads, value_dim].

    Every token becomes a sequence of its own whose keys are pages of one token: `row_blocks` is the memory of the
    cache's blocks seen so.
    """
    rows = quire.remap_sparse_indices(positions, row_offsets, cache)
    there = rows >= 0
    rows = rows.gather(1, there.to(torch.uint8).argsort(dim=1, descending=True, stable=True))
    others = there.sum(1, dtype=torch.int32) - 1  # a token sees one key at least: its own, or a better one
    offsets = torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
    own = quire.PagedKVCache(row_blocks, others, rows, max_seq_length=1)
    out = q.new_empty((q.shape[0], q.shape[1], value_dim))
    return quire.flash_attention(q, offsets, own, 0, mask="null", out=out, **scores.arguments)
