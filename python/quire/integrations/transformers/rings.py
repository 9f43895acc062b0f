# SPDX-License-Identifier: Apache-2.0
"""The pages of a ring, from the rows of it that transformers lists."""

from __future__ import annotations

import torch


def ring_table(
    read: torch.Tensor,
    written: torch.Tensor,
    key_offsets: torch.Tensor,
    before: torch.Tensor,
    window: int,
    page_size: int,
) -> torch.Tensor:
    """The first row of each page of every request's ring, [requests, pages of a window]; negative: no such page.

    Every request has one new token, at position `before` [requests], which `written` [requests] gives a row.
    `read` lists the rows of the min(before, window - 1) tokens before it, oldest first, then a row for the new one,
    which is not looked at; a request's part begins at key_offsets [requests + 1].
    """
    before = before[:, None].long()
    starts = torch.arange(0, window, page_size, device=read.device)  # slots of the ring
    known = before.clamp(max=window - 1)
    oldest = torch.where(before < window, 0, before + 1)  # its slot, mod window
    age = (starts - oldest) % window
    rows = read[(key_offsets[:-1, None] + age.clamp(max=known)).clamp_(max=read.numel() - 1)]
    rows = torch.where(age < known, rows, written[:, None])
    return rows.masked_fill_(starts > before, -1)
