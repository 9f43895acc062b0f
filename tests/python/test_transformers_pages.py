# SPDX-License-Identifier: Apache-2.0
"""The host's side of the paged cache: what sequences wrote is what they read, whatever they share and give back."""

import numpy as np
import pytest

from quire.integrations.transformers.pages import NO_PAGE, PageTable


class Pool:
    """A PageTable beside plain lists, and the one layer whose pages it is about."""

    def __init__(self, batch: int, page_size: int, window: int | None = None):
        self.table = PageTable(page_size, window)
        self.table.start(batch)
        self.rows = np.zeros((0, page_size), np.int64)
        self.said: list[list[int]] = [[] for _ in range(batch)]
        self.next = 1

    def add(self, counts: list[int]) -> np.ndarray:
        size = self.table.page_size
        copies = self.table.extend(np.array(counts))
        missing = self.table.num_pages - len(self.rows)
        self.rows = np.pad(self.rows, ((0, missing), (0, 0)))
        self.rows[copies[:, 1]] = self.rows[copies[:, 0]]
        for sequence, count in enumerate(counts):
            for _ in range(count):
                position = len(self.said[sequence])
                self.rows[self.table.ids[sequence, position // size], position % size] = self.next
                self.said[sequence].append(self.next)
                self.next += 1
        self.table.advance(np.array(counts))
        self.check()
        return copies

    def keep(self, lengths: list[int]):
        self.table.shorten(np.array(lengths))
        self.said = [tokens[:length] for tokens, length in zip(self.said, lengths, strict=True)]
        self.check()

    def select(self, sequences: list[int]):
        self.table.select(np.array(sequences))
        self.said = [list(self.said[sequence]) for sequence in sequences]
        self.check()

    def check(self):
        size, window = self.table.page_size, self.table.window
        assert self.table.lengths.tolist() == [len(tokens) for tokens in self.said]
        for sequence, tokens in enumerate(self.said):
            first = 0 if window is None else max(len(tokens) - window + 1, 0)
            for position in range(first, len(tokens)):
                page = self.table.ids[sequence, position // size]
                assert 0 <= page < self.table.num_pages
                assert self.rows[page, position % size] == tokens[position]


def test_who_writes_to_a_shared_page_gets_a_copy():
    pool = Pool(1, 4)
    pool.add([6])
    pool.select([0, 0, 0])
    assert pool.table.num_pages == 2
    assert pool.table.in_use == 2
    copies = pool.add([1, 1, 1])
    assert copies[:, 0].tolist() == [1, 1]  # the last one may keep the page
    assert pool.table.num_pages == pool.table.in_use == 4
    assert len(set(pool.table.ids[:, 0])) == 1


def test_full_pages_stay_shared():
    pool = Pool(2, 4)
    pool.add([8, 3])
    pool.select([0, 0])
    assert len(pool.add([1, 1])) == 0
    assert pool.table.num_pages == 4  # two of the first sequence, one of the other is used again


def test_pages_come_back():
    pool = Pool(2, 4)
    pool.add([17, 9])
    pool.keep([2, 9])
    pool.add([15, 0])
    assert pool.table.num_pages == 8
    pool.table.start(1)
    pool.said = [[]]
    pool.add([32])
    assert pool.table.num_pages == 8


def test_a_window_bounds_the_pages():
    pool = Pool(2, 4, window=6)
    pool.add([10, 3])
    for _ in range(60):
        pool.add([1, 1])
    assert pool.table.num_pages <= 3 + 3 + 1
    assert (pool.table.ids[:, :10] == NO_PAGE).all()
    with pytest.raises(RuntimeError, match="left the window of 6"):
        pool.keep([50, 62])


def test_a_window_that_keeps_all():
    pool = Pool(1, 4, window=6)
    pool.table.keeps_all = True
    pool.add([10])
    pool.add([30])
    pool.keep([11])
    pool.add([1])


@pytest.mark.parametrize("window", [None, 5, 11])
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(seed, window):
    """Every token has a number of its own: one page in two hands would show."""
    rng = np.random.default_rng(seed)
    pool = Pool(3, int(rng.integers(1, 6)), window)
    pool.table.keeps_all = bool(rng.integers(2))
    for _ in range(120):
        batch, what = pool.table.batch, rng.integers(6)
        if what < 4:
            pool.add(rng.integers(0, rng.integers(1, 12), batch).tolist())
        elif what == 4:
            pool.select(rng.integers(0, batch, rng.integers(1, 6)).tolist())
        elif window is None or pool.table.keeps_all:
            pool.keep([int(rng.integers(0, length + 1)) for length in pool.table.lengths])
