# SPDX-License-Identifier: Apache-2.0
"""Between transformers' [batch, heads, tokens, columns] with padding and Quire's rows of tokens without."""

from __future__ import annotations

import torch

import quire


def rows_of(x: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """[batch, heads, tokens, columns] → [tokens of all sequences, heads, columns], those that `rows` names."""
    x = x.transpose(1, 2).flatten(0, 1)
    return x if rows is None else x.index_select(0, rows.to(x.device))


def with_padding(out: torch.Tensor, rows: torch.Tensor | None, batch: int, count: int) -> torch.Tensor:
    """Back to [batch, tokens, heads, columns], zero where there is padding."""
    if rows is not None:
        whole = out.new_zeros((batch * count, *out.shape[1:]))
        out = whole.index_copy_(0, rows.to(out.device), out)
    return out.unflatten(0, (batch, count))


def widened(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Rows of `columns`, filled up with zeros: a page has one width for K and V."""
    return x if x.shape[-1] == columns else torch.nn.functional.pad(x, (0, columns - x.shape[-1]))


def offsets_of(counts: torch.Tensor) -> torch.Tensor:
    """int32 [batch] → int32 [batch + 1], their prefix sums."""
    return torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))


def chosen_positions(
    indices: torch.Tensor, start: int, visible: torch.Tensor | None, rows: torch.Tensor | None
) -> torch.Tensor:
    """What an indexer chose [batch, new tokens, top_k], columns of the mask → positions int32 [tokens, top_k].

    -1 for what a token does not see: where it sees too few keys, an indexer fills its places with hidden ones.
    """
    own = torch.arange(start, start + indices.shape[1], device=indices.device)[:, None]
    there, positions = indices <= own, indices
    if visible is not None:
        columns = indices.long().flatten(1)
        there = there & visible.gather(1, columns).view_as(indices)
        positions = (visible.cumsum(1) - 1).gather(1, columns).view_as(indices)
    positions = torch.where(there, positions, -1).flatten(0, 1).to(torch.int32)
    return positions if rows is None else positions.index_select(0, rows)


class ScratchPages:
    """Pages for one call; those of a sequence stand one after the other."""

    def __init__(self, counts: torch.Tensor, most_keys: int, num_pages: int, page_size: int) -> None:
        """counts int32 [batch] of keys, at most `most_keys`, all in `num_pages` pages: bounds that the host knows."""
        self.counts = counts
        self.page_size = page_size
        self.num_pages = num_pages
        pages = (counts + page_size - 1) // page_size
        first = offsets_of(pages)[:-1]
        columns = torch.arange(-(-most_keys // page_size), dtype=torch.int32, device=counts.device)
        self.table = torch.where(columns < pages[:, None], first[:, None] + columns, -1)

    def fill(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Blocks with these rows [keys, heads, columns]; V may be narrower than K."""
        shape = (2, self.num_pages, self.page_size, *k.shape[1:])
        blocks = torch.empty(shape, dtype=k.dtype, device=k.device).transpose(0, 1).unsqueeze(2)
        empty = quire.PagedKVCache(blocks, torch.zeros_like(self.counts), self.table)
        offsets = offsets_of(self.counts)
        quire.store(k, offsets, empty, 0, side="key")
        quire.store(widened(v, k.shape[-1]), offsets, empty, 0, side="value")
        return blocks


def one_token_pages(blocks: torch.Tensor) -> torch.Tensor:
    """Blocks [pages, K and V, 1, tokens, heads, columns] whose K and V are dense each, as pages of one token."""
    return blocks[:, :, 0].transpose(0, 1).flatten(1, 2).transpose(0, 1)[:, :, None, None]
