# SPDX-License-Identifier: Apache-2.0
"""New rows into the cache: the one place that knows how `quire.store` is told where they go."""

from __future__ import annotations

from typing import Any

import quire
import torch

from quire_vllm import asking
from quire_vllm.batch import Batch

_BY_SLOTS = asking.offers(quire.store, "slots")


def store_keys_and_values(
    key: torch.Tensor, value: torch.Tensor, cache: quire.PagedKVCache, batch: Batch, slots: torch.Tensor
) -> None:
    """key, value [tokens, heads, columns], in the order of the batch; `slots` are the rows that vLLM has for them."""
    if _BY_SLOTS:
        tokens = min(key.shape[0], slots.numel())  # either may be longer, to fill up a shape
        quire.store(key[:tokens], cache=cache, layer=0, value=value[:tokens], slots=slots.flatten()[:tokens])
        return
    quire.store(key, batch.row_offsets, cache, 0, side="key")
    quire.store(value, batch.row_offsets, cache, 0, side="value")


def store_by_slots(rows: torch.Tensor, blocks: torch.Tensor, slots: torch.Tensor, **cache_options: Any) -> None:
    """rows [tokens, heads, columns] to the slots page * page_size + offset; -1 skips one."""
    page_size = blocks.shape[3]
    tokens = min(rows.shape[0], slots.numel())  # either may be longer, to fill up a shape
    rows, slots = rows[:tokens], slots.flatten()[:tokens]
    if _BY_SLOTS:
        quire.store(rows, cache=quire.PagedKVCache(blocks, **cache_options), layer=0, slots=slots)
        return
    # Every token is a sequence of its own, whose one page is that of its slot; page -1 is none, and drops it.
    pages = slots.div(page_size, rounding_mode="floor").to(torch.int32)
    lengths = (slots % page_size).to(torch.int32)
    bounds = {"max_seq_length": 1, "max_cache_length": page_size} if rows.is_cuda else {}
    cache = quire.PagedKVCache(blocks, lengths, pages[:, None], **bounds, **cache_options)
    offsets = torch.arange(tokens + 1, dtype=torch.int32, device=rows.device)
    quire.store(rows, offsets, cache, 0, side="key")
