# SPDX-License-Identifier: Apache-2.0
"""Which page holds which tokens: the host's side of a paged KV cache, for engines that schedule requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quire import _quire

NO_PAGE = 0xFFFFFFFF
"""Entry of a page table without a page."""


@dataclass(frozen=True)
class PageGroup:
    """Layers that share a page table.

    Parameters
    ----------
    rule : str
        What keys a later token needs: "full" (all), "sliding_window" (the last `reach`) or "chunk" (those of its own
        chunk of `reach`). Pages that no later token needs are given back as a sequence advances.
    page_size : int
        Tokens. A multiple of the smallest group's that divides the largest group's.
    reach : int
        Tokens of the window or chunk.
    pool : int
        The pool that its pages come from.
    """

    rule: str = "full"
    page_size: int = 16
    reach: int = 0
    pool: int = 0


class Admission(NamedTuple):
    """A new sequence: its id, how many of its tokens are in the cache already, and how many of those in a page that is
    copied."""

    id: int
    cached_tokens: int
    partial_tokens: int


class PrefixProbe(NamedTuple):
    """What `create` would find now, and how many pages of it stand on the host."""

    cached_tokens: int
    host_pages: int


class PageCopies(NamedTuple):
    """Copies of one pool's pages, uint32 arrays [count, 2] of (source, target), to be executed in this order."""

    to_host: np.ndarray
    from_host: np.ndarray
    on_device: np.ndarray


class PageEvent(NamedTuple):
    """A page that can be shared from now on (`is_stored`), or no longer. `hash` is that of its last block of tokens,
    `parent` that of the block before; `end` counts the tokens up to the page's end."""

    is_stored: bool
    tier: str
    group: int
    hash: tuple[int, int]
    parent: tuple[int, int]
    end: int
    tokens: list[int]


def _pairs(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint32).reshape(-1, 2)


class PageManager:
    """Pages of many sequences that share prefixes.

    A sequence has known tokens (`create`, `append`), of which the first `length` are in the cache (`advance`), and pages
    for as many as it was extended to (`extend`). Out of pages is an answer (False); misuse raises ValueError or TypeError
    and changes nothing. Calls from several threads run one after another.

    Parameters
    ----------
    pages : int
        Pages of the only pool; or give `pools`.
    page_size : int
        Tokens of a page of the only group; or give `groups`.
    host_pages : int
        Pages of the host tier of the only pool.
    groups : sequence of PageGroup
    pools : sequence of (pages, host_pages)
    cache_prefixes : bool
        Whether pages are shared and kept after their sequence has ended.
    reuse_partial_pages : bool
        Whether a page that begins like a cached one is copied from it. Only where all groups have one page size.
    max_events : int
        Events that are kept for `take_events`. 0: none are recorded.
    hash_seed : int
        The same in all processes whose events are to be compared.
    """

    def __init__(
        self,
        pages: int | None = None,
        page_size: int = 16,
        *,
        host_pages: int = 0,
        groups: Sequence[PageGroup] | None = None,
        pools: Sequence[tuple[int, int]] | None = None,
        cache_prefixes: bool = True,
        reuse_partial_pages: bool = True,
        max_events: int = 0,
        hash_seed: int = 0,
    ) -> None:
        if (pages is None) == (pools is None):
            _quire.refuse(True, "PageManager", "pages", "given, or else `pools`", "both" if pages else "neither")
        self.groups = tuple(groups) if groups is not None else (PageGroup(page_size=page_size),)
        self.pools = tuple(pools) if pools is not None else ((pages, host_pages),)
        self._manager = _quire.PageManager(
            [(g.rule, g.page_size, g.reach, g.pool) for g in self.groups],
            [tuple(pool) for pool in self.pools],
            bool(cache_prefixes),
            bool(reuse_partial_pages),
            max_events,
            hash_seed,
        )
        self._arrays: tuple[Any, Any] | None = None

    def create(
        self, tokens: Any, *, scope: str = "", keys: Iterable[tuple[int, int, str]] = (), priority: int = 4
    ) -> Admission:
        """A new sequence that shares the cached pages of its prefix.

        Parameters
        ----------
        tokens : list or integer array [n]
            At least one of them is left to be computed.
        scope : str
            What all tokens depend on beside themselves: adapter, tenant, salt. Other scopes share nothing.
        keys : iterable of (first, end, key)
            Tokens that stand for something else, an image for example.
        priority : int
            0 to 7: pages of lower ones are taken first once nobody uses them.
        """
        return Admission(*self._manager.create(tokens, scope, list(keys), priority))

    def probe(self, tokens: Any, *, scope: str = "", keys: Iterable[tuple[int, int, str]] = ()) -> PrefixProbe:
        """What `create` would find. Changes nothing."""
        return PrefixProbe(*self._manager.probe(tokens, scope, list(keys)))

    def pin(self, tokens: Any, *, scope: str = "", keys: Iterable[tuple[int, int, str]] = ()) -> Admission:
        """A sequence that holds the cached pages of these tokens until it is freed. It cannot be extended."""
        return Admission(*self._manager.pin(tokens, scope, list(keys)))

    def append(self, sequence: int, tokens: Any) -> None:
        """More known tokens."""
        self._manager.append(sequence, tokens)

    def extend(self, sequence: int, count: int) -> bool:
        """Pages for `count` tokens behind `length`. False: there are not enough, and nothing has changed."""
        return self._manager.extend(sequence, count)

    def advance(self, sequence: int, count: int) -> None:
        """`count` more known tokens are in the cache: full pages can be shared from now on."""
        self._manager.advance(sequence, count)

    def step(self, sequences: Any, tokens: Any) -> int:
        """A decode step: append one token to each sequence and extend it by one.

        Returns
        -------
        int
            How many were served, in order. The next one would be out of pages, and has not been changed.
        """
        return self._manager.step(sequences, tokens)

    def advance_all(self, sequences: Any) -> None:
        """`advance` by one token each."""
        self._manager.advance_all(sequences)

    def trim(self, sequence: int, length: int) -> None:
        """Forgets known tokens from `length` on, and what the cache holds of them."""
        self._manager.trim(sequence, length)

    def fork(self, sequence: int) -> int:
        """A sequence that shares all pages; the page that both would write is copied when one of them is extended."""
        return self._manager.fork(sequence)

    def free(self, sequence: int) -> None:
        """Ends a sequence. Its full pages stay cached until they are needed."""
        self._manager.free(sequence)

    def length(self, sequence: int) -> int:
        """Tokens that are in the cache."""
        return self._manager.length(sequence)

    def tokens(self, sequence: int) -> np.ndarray:
        """Known tokens, int32 [n]."""
        return np.frombuffer(self._manager.tokens(sequence), np.int32)

    def pages(self, sequence: int, group: int = 0) -> np.ndarray:
        """Page ids, uint32 [n]; NO_PAGE where a page was given back."""
        return np.frombuffer(self._manager.pages(sequence, group), np.uint32)

    def bind_tables(self, page_tables: Any, cache_lengths: Any) -> None:
        """Arrays that are kept up to date for sequences that have a row (`place`).

        Parameters
        ----------
        page_tables : uint32 array [rows, columns], or one for each group
        cache_lengths : uint32 array [rows]
        """
        tables = list(page_tables) if isinstance(page_tables, (list, tuple)) else [page_tables]
        self._manager.bind_tables(tables, cache_lengths)
        self._arrays = (tables, cache_lengths)  # written as long as the manager lives

    def place(self, sequence: int, row: int) -> None:
        """The sequence's row of the bound arrays from now on."""
        self._manager.place(sequence, row)

    def displace(self, sequence: int) -> None:
        """Takes the sequence's row from it; the row is empty then."""
        self._manager.displace(sequence)

    def take_copies(self, pool: int = 0) -> PageCopies:
        """Copies to be executed before the next kernels that use the cache."""
        return PageCopies(*map(_pairs, self._manager.take_copies(pool)))

    def take_events(self) -> list[PageEvent]:
        """What has become shareable, or no longer is, since the last call."""
        return [PageEvent(*event) for event in self._manager.take_events()]

    def statistics(self) -> dict[str, Any]:
        """Counts of pages (lists: one number for each pool), sequences, lookups, hits, evictions and copies."""
        return self._manager.statistics()

    def clear_cache(self) -> None:
        """Forgets all that is cached and not in use."""
        self._manager.clear_cache()
