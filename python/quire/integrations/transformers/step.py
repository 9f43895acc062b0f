# SPDX-License-Identifier: Apache-2.0
"""The new tokens of one forward pass over a PagedCache: where they go, for all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

import quire


class LaidPages(NamedTuple):
    """What a step does to the pages of all layers with the same window."""

    table: np.ndarray  # page ids [batch, columns], those of the new tokens among them
    copies: np.ndarray  # pages to copy first, [n, 2]
    num_pages: int  # of a pool that holds them all


@dataclass(eq=False)
class Step:
    """Made by the first layer that gets new tokens, used by the others."""

    start: int  # tokens before, padding counted
    count: int
    batch: int
    page_size: int
    counts: np.ndarray  # new tokens of each sequence, padding not counted
    lengths: np.ndarray  # tokens before, padding not counted
    new: np.ndarray | None  # bool [batch, count], which of the new rows are tokens; None: all
    visible: torch.Tensor | None  # bool [batch, start + count], where there was padding
    rows: torch.Tensor | None  # which rows of [batch * count] are tokens; None: all
    laid: dict[int | None, LaidPages]  # by window
    joined: set[int] = field(default_factory=set)  # layers that have begun
    plans: dict[torch.device, quire.MlaPrefillPlan] = field(default_factory=dict)
    _there: dict[Any, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def most_tokens(self) -> int:
        return int(self.counts.max(initial=0))

    def row_offsets(self, device: torch.device) -> torch.Tensor:
        return self._at(device, "row_offsets", lambda: np.concatenate(([0], np.cumsum(self.counts))))

    def cache_lengths(self, device: torch.device) -> torch.Tensor:
        return self._at(device, "cache_lengths", lambda: self.lengths)

    def page_table(self, device: torch.device, window: int | None) -> torch.Tensor:
        return self._at(device, ("page_table", window), lambda: self.laid[window].table)

    def copies(self, device: torch.device, window: int | None) -> torch.Tensor:
        return self._at(device, ("copies", window), lambda: self.laid[window].copies)

    def slots(self, device: torch.device, window: int | None) -> torch.Tensor:
        """int64 [batch * count]: where in a pool each new row goes, -1 for padding."""
        return self._at(device, ("slots", window), lambda: self._find_slots(self.laid[window].table), np.int64)

    def _find_slots(self, table: np.ndarray) -> np.ndarray:
        if self.new is None:
            after = np.arange(self.count)
        else:
            after = self.new.cumsum(axis=1) - 1
        if table.shape[1] == 0:  # padding alone
            return np.full(self.batch * self.count, -1)
        positions = np.maximum(self.lengths[:, None] + after, 0)
        columns, within = np.divmod(positions, self.page_size)
        # Padding after the last token stands at that token's place, padding before the first one at a page before.
        pages = np.take_along_axis(table, columns, axis=1).astype(np.int64)
        slots = pages * self.page_size + within
        return slots.ravel() if self.new is None else np.where(self.new, slots, -1).ravel()

    def _at(
        self, device: torch.device, name: Any, make: Callable[[], np.ndarray], dtype: Any = np.int32
    ) -> torch.Tensor:
        key = (device, name)
        if key not in self._there:
            self._there[key] = torch.from_numpy(np.ascontiguousarray(make(), dtype)).to(device)
        return self._there[key]
