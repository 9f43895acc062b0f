# SPDX-License-Identifier: Apache-2.0
"""Which page holds which tokens of which sequence: the host's side of a paged cache."""

from __future__ import annotations

import numpy as np

NO_PAGE = -1
_NO_COPIES = np.zeros((0, 2), np.int32)


class PageTable:
    """Pages of a batch of sequences. Sequences may share pages; whoever writes to a shared one gets a copy first.

    With a `window` the pages that no later query can see are given back, unless `keeps_all`.
    """

    def __init__(self, page_size: int, window: int | None = None) -> None:
        self.page_size = page_size
        self.window = window
        self.keeps_all = False
        self.lengths = np.zeros(0, np.int64)  # tokens of each sequence
        self.ids = np.full((0, 0), NO_PAGE, np.int32)  # [batch, columns]
        self.num_pages = 0  # ids in use are below it; a pool needs so many pages
        self.version = 0  # another one whenever `ids` changed
        self._sharers = np.zeros(0, np.int64)  # of each page: entries of `ids` that name it
        self._free: list[int] = []
        self._room = 0  # so many more tokens of every sequence go to its last page, which is its own

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def in_use(self) -> int:
        return int(np.count_nonzero(self._sharers))

    def start(self, batch: int) -> None:
        """Empty sequences."""
        self.lengths = np.zeros(batch, np.int64)
        self.ids = np.full((batch, 0), NO_PAGE, np.int32)
        self._recount()

    def extend(self, counts: np.ndarray) -> np.ndarray:
        """Make room for `counts` new tokens of each sequence; returns the page copies to be made first, [n, 2].

        `lengths` stay what they are until `advance`.
        """
        most = int(counts.max(initial=0))
        if most <= self._room:
            self._room -= most
            return _NO_COPIES
        self.version += 1
        self._give_back_unseen()
        ends = self.lengths + counts
        first, columns = self.lengths // self.page_size, -(-ends // self.page_size)
        self._widen(int(columns.max(initial=0)))
        copies = []
        for sequence in np.flatnonzero(self._needs_pages(counts, first, columns)):
            for column in range(first[sequence], columns[sequence]):
                page = self.ids[sequence, column]
                if page != NO_PAGE and self._sharers[page] == 1:
                    continue
                fresh = self.ids[sequence, column] = self._take()
                if page != NO_PAGE:
                    self._sharers[page] -= 1
                    copies.append((page, fresh))
        self._room = int((-ends % self.page_size).min(initial=self.page_size)) if (counts > 0).all() else 0
        return np.array(copies, np.int32).reshape(-1, 2)

    def advance(self, counts: np.ndarray) -> None:
        """The new tokens are there."""
        self.lengths = self.lengths + counts

    def shorten(self, lengths: np.ndarray) -> None:
        """Keep the first `lengths` tokens of each sequence."""
        columns = -(-lengths // self.page_size)
        kept = np.arange(self.ids.shape[1]) < columns[:, None]
        if self.window is not None:
            seen = np.arange(self.ids.shape[1]) >= self._unseen(lengths)[:, None]
            if (self.ids[kept & seen] == NO_PAGE).any():
                raise RuntimeError(
                    f"quire: crop needs tokens that have left the window of {self.window}, whose pages are gone; call "
                    "activate_past_recording() on the cache before the tokens that may be cropped"
                )
        self.lengths = lengths
        self.ids[~kept] = NO_PAGE
        self._recount()

    def select(self, sequences: np.ndarray) -> None:
        """The batch becomes these sequences, in this order; one that is named twice is shared."""
        self.lengths = self.lengths[sequences]
        self.ids = self.ids[sequences]
        self._recount()

    def _needs_pages(self, counts: np.ndarray, first: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Sequences whose new tokens do not all go to pages of their own."""
        needs = (counts > 0) & (columns - first > 1)
        single = np.flatnonzero((counts > 0) & ~needs)
        pages = self.ids[single, first[single]]
        needs[single] = (pages == NO_PAGE) | (self._sharers[np.maximum(pages, 0)] != 1 if self.num_pages else True)
        return needs

    def _give_back_unseen(self) -> None:
        if self.window is None or self.keeps_all or self.ids.size == 0:
            return
        gone = (np.arange(self.ids.shape[1]) < self._unseen(self.lengths)[:, None]) & (self.ids != NO_PAGE)
        for page in self.ids[gone]:
            self._sharers[page] -= 1
            if self._sharers[page] == 0:
                self._free.append(int(page))
        self.ids[gone] = NO_PAGE

    def _unseen(self, lengths: np.ndarray) -> np.ndarray:
        """So many first columns hold nothing that the token after `lengths` sees."""
        return np.maximum(lengths - self.window + 1, 0) // self.page_size

    def _widen(self, columns: int) -> None:
        if columns > self.ids.shape[1]:
            # Room for an eighth more: widening moves the whole table.
            more = columns + columns // 8 - self.ids.shape[1]
            self.ids = np.pad(self.ids, ((0, 0), (0, more)), constant_values=NO_PAGE)

    def _take(self) -> int:
        if self._free:
            page = self._free.pop()
        else:
            page = self.num_pages
            self.num_pages += 1
            if page == len(self._sharers):
                self._sharers = np.pad(self._sharers, (0, max(64, page)))
        self._sharers[page] = 1
        return page

    def _recount(self) -> None:
        self.version += 1
        self._room = 0
        used = self.ids[self.ids != NO_PAGE]
        self._sharers = np.bincount(used, minlength=self.num_pages)
        self._free = np.flatnonzero(self._sharers[: self.num_pages] == 0)[::-1].tolist()
