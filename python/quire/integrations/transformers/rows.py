# SPDX-License-Identifier: Apache-2.0
"""Between transformers' [batch, heads, tokens, columns] with padding and Quire's rows of tokens without."""

from __future__ import annotations

import torch


def are_rows(x: torch.Tensor) -> bool:
    """Whether [batch, tokens, heads, columns] is [batch * tokens, heads, columns] without a copy."""
    batch, tokens = x.shape[:2]
    return batch == 1 or tokens == 1 or x.stride(0) == tokens * x.stride(1)


def rows_of(x: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """[batch, heads, tokens, columns] → [tokens of all sequences, heads, columns], those that `rows` names.

    Copied at most once, and not at all where every row is wanted and one stride leads from each to the next.
    """
    if x.shape[2] == 1 and rows is None:
        return x.squeeze(2)
    x = x.transpose(1, 2)
    if rows is None:
        return x.flatten(0, 1)
    rows = rows.to(x.device)
    if are_rows(x):
        return x.flatten(0, 1).index_select(0, rows)
    return x[rows // x.shape[1], rows % x.shape[1]]


def with_padding(out: torch.Tensor, rows: torch.Tensor | None, batch: int, count: int) -> torch.Tensor:
    """Back to [batch, tokens, heads, columns], zero where there is padding."""
    if rows is not None:
        whole = out.new_zeros((batch * count, *out.shape[1:]))
        out = whole.index_copy_(0, rows.to(out.device), out)
    return out.unsqueeze(1) if count == 1 else out.view(batch, count, *out.shape[1:])


def offsets_of(counts: torch.Tensor) -> torch.Tensor:
    """int32 [batch] → int32 [batch + 1], their prefix sums."""
    return torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
