# SPDX-License-Identifier: Apache-2.0
"""The new tokens of one forward pass over a PagedCache: where they go, for all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import quire


class OnDevices:
    """Arrays of the host, on the devices where layers asked for them."""

    def __init__(self) -> None:
        self._there: dict[Any, torch.Tensor] = {}

    def at(
        self, device: torch.device, name: str, make: Callable[[], np.ndarray], dtype: Any = np.int32
    ) -> torch.Tensor:
        key = (device, name)
        if key not in self._there:
            self._there[key] = torch.from_numpy(np.ascontiguousarray(make(), dtype)).to(device)
        return self._there[key]


class LaidPages(OnDevices):
    """The pages of all layers with the same window. Steps share it until a page comes or goes."""

    def __init__(self, table: np.ndarray, num_pages: int, version: int) -> None:
        super().__init__()
        self.table = table  # page ids [batch, columns]
        self.num_pages = num_pages  # of a pool that holds them all
        self.version = version

    def page_table(self, device: torch.device) -> torch.Tensor:
        return self.at(device, "page_table", lambda: self.table)


class NewRows(OnDevices):
    """How many new tokens each sequence has, and which of the new rows they are. Steps of equal numbers share it."""

    def __init__(self, batch: int, count: int, new: torch.Tensor | None) -> None:
        """new bool [batch, count]: False where there is padding; None: nowhere."""
        super().__init__()
        self.batch, self.count = batch, count
        self.is_token = None if new is None else new.cpu().numpy()
        self.counts = np.full(batch, count, np.int64) if new is None else self.is_token.sum(axis=1)
        self.rows = None if new is None else new.flatten().nonzero().flatten()  # of [batch * count]; None: all
        self.most = int(self.counts.max(initial=0))

    def row_offsets(self, device: torch.device) -> torch.Tensor:
        return self.at(device, "row_offsets", lambda: np.concatenate(([0], np.cumsum(self.counts))))


@dataclass(eq=False)
class Step:
    """Made by the first layer that gets new tokens, used by the others."""

    start: int  # tokens before, padding counted
    page_size: int
    new: NewRows
    lengths: np.ndarray  # tokens before, padding not counted
    visible: torch.Tensor | None  # bool [batch, start + count], where there was padding
    laid: dict[int | None, LaidPages]  # by window
    copies: dict[int | None, np.ndarray]  # pages to copy first, [n, 2]
    joined: set[int] = field(default_factory=set)  # layers that have begun
    plans: dict[torch.device, quire.MlaPrefillPlan] = field(default_factory=dict)
    _own: OnDevices = field(default_factory=OnDevices)

    @property
    def rows(self) -> torch.Tensor | None:
        return self.new.rows

    def row_offsets(self, device: torch.device) -> torch.Tensor:
        return self.new.row_offsets(device)

    def cache_lengths(self, device: torch.device) -> torch.Tensor:
        return self._own.at(device, "cache_lengths", lambda: self.lengths)

    def page_copies(self, device: torch.device, window: int | None) -> torch.Tensor:
        return self._own.at(device, f"copies {window}", lambda: self.copies[window])

    def slots(self, device: torch.device, window: int | None) -> torch.Tensor | None:
        """int64 [batch * count]: where in a pool each new row goes, -1 for padding. None: one after the other."""
        if self.new.is_token is None:
            return None
        return self._own.at(device, f"slots {window}", lambda: self._find_slots(self.laid[window].table), np.int64)

    def _find_slots(self, table: np.ndarray) -> np.ndarray:
        is_token = self.new.is_token
        if table.shape[1] == 0:  # padding alone
            return np.full(is_token.size, -1)
        # Padding after the last token stands at that token's place, padding before the first one at one before.
        positions = np.maximum(self.lengths[:, None] + is_token.cumsum(axis=1) - 1, 0)
        columns, within = np.divmod(positions, self.page_size)
        pages = np.take_along_axis(table, columns, axis=1).astype(np.int64)
        return np.where(is_token, pages * self.page_size + within, -1).ravel()
