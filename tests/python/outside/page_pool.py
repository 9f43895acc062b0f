# SPDX-License-Identifier: Apache-2.0
"""A page pool in torch memory, laid out by these tests and not by quire, so that a shared mistake cannot hide.

Everything starts as poison (NaN): what an op must not read shows in its output.
"""

import math
import random
from dataclasses import dataclass, field

import torch

import quire

NO_PAGE = 0xFFFFFFFF
ORDERS = ("identity", "reversed", "shuffled")


def u32(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64).to(torch.uint32)


def offsets_of(counts) -> torch.Tensor:
    """Row offsets of a ragged batch with these numbers of new tokens."""
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return u32(sums)


@dataclass
class PagePool:
    capacities: list[int]  # most tokens that each sequence will ever hold
    row: int  # columns of a row
    kv_heads: int = 1
    page_size: int = 4
    layers: int = 2
    is_mla: bool = False
    dtype: torch.dtype = torch.float32
    order: str = "shuffled"
    spare_pages: int = 3
    sentinel: int | None = None  # None: num_pages
    scale_slots: int = 0  # > 0: a plane of f32 scales beside the rows
    heads_first: bool = False  # memory order HND instead of NHD
    table: list[list[int]] = field(init=False)

    def __post_init__(self):
        needed = [math.ceil(capacity / self.page_size) for capacity in self.capacities]
        num_pages = sum(needed) + self.spare_pages
        pages = list(range(num_pages))
        if self.order == "reversed":
            pages.reverse()
        elif self.order == "shuffled":
            random.Random(num_pages).shuffle(pages)
        columns = max(needed, default=0) + 1
        none = num_pages if self.sentinel is None else self.sentinel
        self.table = []
        for count in needed:
            self.table.append(pages[:count] + [none] * (columns - count))
            pages = pages[count:]
        shape = [num_pages, 1 if self.is_mla else 2, self.layers, self.page_size, self.kv_heads, self.row]
        self.blocks = self._poisoned(shape, self.dtype)
        self.scales = None
        if self.scale_slots:
            self.scales = self._poisoned([*shape[:-1], self.scale_slots], torch.float32)

    def _poisoned(self, shape, dtype) -> torch.Tensor:
        if self.heads_first:
            shape = [*shape[:3], shape[4], shape[3], shape[5]]
        memory = torch.full(shape, float("nan"), dtype=torch.float32).to(dtype)
        return memory.transpose(3, 4) if self.heads_first else memory

    def cache(self, cache_lengths) -> "quire.PagedKVCache":
        """The view that an op gets when the sequences hold these numbers of tokens before the call."""
        return quire.PagedKVCache(self.blocks, u32(list(cache_lengths)), u32(self.table), self.scales)

    def place(self, token: int, sequence: int) -> tuple[int, int]:
        return self.table[sequence][token // self.page_size], token % self.page_size

    def write(self, layer: int, side: int, sequence: int, first: int, rows: torch.Tensor, scales=None):
        """rows [tokens, kv_heads, row] at positions first, first + 1, …; side 0 is K, 1 is V."""
        for i in range(rows.shape[0]):
            page, row = self.place(first + i, sequence)
            self.blocks[page, side, layer, row] = rows[i].to(self.dtype)
            if scales is not None:
                self.scales[page, side, layer, row] = scales[i]

    def read(self, layer: int, side: int, sequence: int, length: int) -> torch.Tensor:
        """The first `length` rows of a sequence, [length, kv_heads, row]."""
        rows = [self.blocks[page, side, layer, row] for page, row in self._places(sequence, length)]
        return torch.stack(rows) if rows else self.blocks.new_empty(0, self.kv_heads, self.row)

    def read_scales(self, layer: int, side: int, sequence: int, length: int) -> torch.Tensor:
        return torch.stack([self.scales[page, side, layer, row] for page, row in self._places(sequence, length)])

    def _places(self, sequence: int, length: int):
        return [self.place(token, sequence) for token in range(length)]
