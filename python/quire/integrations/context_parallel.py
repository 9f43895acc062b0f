# SPDX-License-Identifier: Apache-2.0
"""Context-parallel decode over torch.distributed: cached tokens of every sequence are dealt to the ranks of a group.

Position p lives on rank (p // interleave) % world_size, so that every rank holds about the same share of every
sequence and gets about the same share of new tokens. A rank attends over its own keys, the ranks exchange (out, LSE),
and each merges all parts in the order of ranks. A rank has a page pool and a page table of its own, whose columns
count its own tokens.

    ranks = ContextParallel(group, interleave=64)
    step = ranks.step(row_offsets, cache_lengths, page_table, tokens=q.shape[0], page_size=64)  # once for all layers
    step.store(k, v, cache, layer)                                                              # in each layer
    out = step.attend(q, cache, layer)

Queries, and the K and V rows of new tokens, are the same on all ranks; so are lengths and row offsets. The backend of
the process group moves the tensors: gloo for CPUs, NCCL for GPUs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import quire
from quire._call import flag, refuse_value, whole_number

_OP = "context_parallel"
_ALIGNMENT = 16  # bytes, of the parts of a message


@dataclass(frozen=True)
class TokenSharding:
    """Which rank holds which position. The functions take ints, and integer arrays or tensors element by element.

    Examples
    --------
    >>> sharding = TokenSharding(world_size=2, interleave=4)
    >>> [sharding.owner(p) for p in (0, 3, 4, 8)], [sharding.local_index(p) for p in (0, 3, 4, 8)]
    ([0, 0, 1, 0], [0, 3, 0, 4])
    >>> sharding.local_length(10, rank=0), sharding.local_length(10, rank=1)
    (6, 4)
    """

    world_size: int
    interleave: int

    def __post_init__(self) -> None:
        whole_number(_OP, "world_size", self.world_size, 1)
        whole_number(_OP, "interleave", self.interleave, 1)

    def owner(self, position: Any) -> Any:
        """The rank that holds a position."""
        return position // self.interleave % self.world_size

    def local_index(self, position: Any) -> Any:
        """Where its owner has it: the number of that rank's tokens before it."""
        return position // (self.interleave * self.world_size) * self.interleave + position % self.interleave

    def local_length(self, length: Any, rank: int) -> Any:
        """How many of the first `length` positions a rank holds."""
        chunks = length // self.interleave  # whole ones; the rest belongs to the rank after the last of them
        own = (chunks + (self.world_size - 1 - rank)) // self.world_size
        return own * self.interleave + (chunks % self.world_size == rank) * (length % self.interleave)

    def most_local(self, count: int) -> int:
        """The most positions that a rank can hold of `count` in a row, wherever they start."""
        cycles, rest = divmod(count, self.interleave * self.world_size)
        return cycles * self.interleave + min(rest, self.interleave)


class ContextParallel:
    """This process's place in a group of ranks that share the tokens of every sequence.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        By default all processes.
    interleave : int
        Tokens in a row on one rank. With the page size, or a multiple of it, the pages of a rank are whole pages of the
        sequence, as a connector or a prefix cache names them; small numbers balance short sequences.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, *, interleave: int = 64) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.sharding = TokenSharding(dist.get_world_size(group), interleave)

    @property
    def world_size(self) -> int:
        return self.sharding.world_size

    def step(
        self,
        row_offsets: torch.Tensor,
        cache_lengths: torch.Tensor,
        page_table: torch.Tensor,
        *,
        tokens: int,
        page_size: int,
        max_length: int | None = None,
    ) -> Step:
        """What all layers of one forward pass share; computed on the tensors' device without waiting for it.

        Parameters
        ----------
        row_offsets : int32 or uint32 tensor [batch + 1]
            Of the new tokens. Tokens behind the last one (a captured graph's padding) attend to nothing.
        cache_lengths : int32 or uint32 tensor [batch]
            Tokens of a sequence that are cached on all ranks together.
        page_table : int32 or uint32 tensor [batch, columns]
            Of this rank: column j is the page of its tokens [j * page_size, (j + 1) * page_size); -1 means no page.
        tokens, page_size : int
        max_length : int, optional
            Upper bound of a sequence's length on all ranks together; GPUs plan by it.
        """
        return Step(self, row_offsets, cache_lengths, page_table, tokens, page_size, max_length)

    def merged(
        self,
        out: torch.Tensor,
        lse: torch.Tensor,
        by_heads: bool = False,
        more: tuple[torch.Tensor, torch.Tensor] | None = None,
        return_lse: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Exchange attentions over disjoint keys and merge them, in the order of ranks.

        Parameters
        ----------
        out, lse : tensors [tokens, heads, value_dim] and float32 [tokens, heads]
        by_heads : bool
            Each rank gets the result of its own heads / world_size heads, by an all-to-all; otherwise all ranks get
            the same bits of all heads, by an all-gather.
        more : tensors like out and lse, optional
            One more state, the same on all ranks.
        """
        states, lses = self._exchange(out, lse, flag(_OP, "by_heads", by_heads))
        if more is not None:
            extra = tuple(part.unflatten(1, (self.world_size, -1))[:, self.rank] for part in more) if by_heads else more
            states, lses = (torch.cat((all_, part[None])) for all_, part in zip((states, lses), extra, strict=True))
        if states.shape[0] == 1:
            return (states[0], lses[0]) if return_lse else states[0]
        return quire.merge_states(states, lses, return_lse=return_lse)

    def _exchange(
        self, out: torch.Tensor, lse: torch.Tensor, by_heads: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """States [world_size, tokens, heads, value_dim] and LSEs of all ranks, moved in one message."""
        if by_heads and out.shape[1] % self.world_size:
            refuse_value(_OP, "by_heads", f"of heads that {self.world_size} ranks divide", f"{out.shape[1]} heads")
        heads = out.shape[1] // self.world_size if by_heads else out.shape[1]
        if self.world_size == 1 or out.shape[0] == 0:
            return out[None, :, :heads], lse[None, :, :heads]
        if not by_heads:
            message, received = _Message(out, lse), _Message(out, lse, self.world_size)
            message.fill(out[None], lse[None])
            dist.all_gather_into_tensor(received.bytes.flatten(), message.bytes.flatten(), group=self.group)
            return received.parts()
        by_rank = [part.unflatten(1, (self.world_size, -1)).transpose(0, 1) for part in (out, lse)]
        message, received = (_Message(by_rank[0][0], by_rank[1][0], self.world_size) for _ in range(2))
        message.fill(*by_rank)
        dist.all_to_all_single(received.bytes, message.bytes, group=self.group)
        return received.parts()


class _Message:
    """`count` states, each with its LSE behind it, as bytes [count, bytes of one]."""

    def __init__(self, out: torch.Tensor, lse: torch.Tensor, count: int = 1) -> None:
        self.dtype, self.shape = out.dtype, out.shape
        self.out_bytes = out.numel() * out.element_size()
        self.lse_begin = -(-self.out_bytes // _ALIGNMENT) * _ALIGNMENT
        self.lse_end = self.lse_begin + lse.numel() * 4
        size = -(-self.lse_end // _ALIGNMENT) * _ALIGNMENT
        self.bytes = torch.empty(count, size, dtype=torch.uint8, device=out.device)

    def parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Views [count, tokens, heads, value_dim] and [count, tokens, heads]."""
        states = self.bytes[:, : self.out_bytes].view(self.dtype).unflatten(1, self.shape)
        lses = self.bytes[:, self.lse_begin : self.lse_end].view(torch.float32).unflatten(1, self.shape[:2])
        return states, lses

    def fill(self, out: torch.Tensor, lse: torch.Tensor) -> None:
        for mine, given in zip(self.parts(), (out, lse), strict=True):
            mine.copy_(given)


class Step:
    """New tokens of a batch, and where this rank has the keys that they see. `ContextParallel.step` makes it.

    A token is attended as a sequence of its own: how many of this rank's keys it sees follows from its position alone,
    whereas no mask over local positions says it for several tokens of a sequence at once. `attend_chunk` is the way
    for many new tokens.
    """

    def __init__(
        self,
        ranks: ContextParallel,
        row_offsets: torch.Tensor,
        cache_lengths: torch.Tensor,
        page_table: torch.Tensor,
        tokens: int,
        page_size: int,
        max_length: int | None,
    ) -> None:
        self.ranks = ranks
        self.page_size = whole_number(_OP, "page_size", page_size, 1)
        self.row_offsets, self.cache_lengths = _signed(row_offsets), _signed(cache_lengths)
        self.page_table = _signed(page_table)
        self._most_keys = None if max_length is None else ranks.sharding.most_local(max_length)
        row = torch.arange(whole_number(_OP, "tokens", tokens, 0), device=row_offsets.device)
        offsets = self.row_offsets.long()
        sequence = torch.searchsorted(offsets[1:], row, right=True).clamp_(max=max(len(cache_lengths) - 1, 0))
        exists = row < offsets[-1]
        # Of each new token, in the whole sequence; -1 where there is none.
        position = self.cache_lengths.long()[sequence] + row - offsets[sequence]
        self.positions = torch.where(exists, position, -1)
        self._token_pages = self.page_table[sequence]  # [tokens, columns]
        self._token_offsets = torch.arange(tokens + 1, dtype=torch.int32, device=row.device)
        self.key_lengths = self._local_length(self.positions + 1)  # keys of this rank that a token sees
        self.slots = self._slots()
        self._starts: dict[int, torch.Tensor] = {}

    def _local_length(self, lengths: torch.Tensor) -> torch.Tensor:
        return self.ranks.sharding.local_length(lengths, self.ranks.rank).to(torch.int32)

    def _slots(self) -> torch.Tensor:
        """Where this rank stores each new token, int64 [tokens]; -1: another rank does."""
        sharding, position = self.ranks.sharding, self.positions.clamp(min=0)
        index = sharding.local_index(position)
        column = (index // self.page_size).clamp(max=max(self.page_table.shape[1] - 1, 0))
        page = self._token_pages.gather(1, column[:, None])[:, 0].long()
        is_mine = (self.positions >= 0) & (sharding.owner(position) == self.ranks.rank) & (page >= 0)
        return torch.where(is_mine, page * self.page_size + index % self.page_size, -1)

    def store(self, k: torch.Tensor, v: torch.Tensor | None, cache: quire.PagedKVCache, layer: int = 0) -> None:
        """Write the rows of new tokens that belong to this rank. Latent rows have no v."""
        quire.store(k, cache=cache, layer=layer, value=v, slots=self.slots)

    def attend(
        self,
        q: torch.Tensor,
        cache: quire.PagedKVCache,
        layer: int = 0,
        *,
        window: int | None = None,
        sinks: torch.Tensor | None = None,
        by_heads: bool = False,
        return_lse: bool = False,
        **arguments: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """`flash_attention` of the new tokens [tokens, heads, head_dim], causal, over the keys of all ranks.

        Parameters
        ----------
        q, cache, layer
            Of the cache only the pages count (`blocks`, `scales`, ...): lengths and page table are the step's.
        window : int, optional
            A token sees itself and the window - 1 before it.
        sinks : float32 tensor [heads], optional
            Counted once, on rank 0.
        by_heads : bool
            Return [tokens, heads / world_size, value_dim]: this rank's heads, by an all-to-all.
        **arguments
            Of `flash_attention`: scale, softcap, batch_invariant, allow_fp8_products, max_workspace_bytes. ALiBi is
            refused: its bias needs positions that local keys do not have.
        """
        return self._attend(quire.flash_attention, q, cache, layer, window, sinks, by_heads, return_lse, arguments)

    def attend_latent(
        self,
        q: torch.Tensor,
        cache: quire.PagedKVCache,
        layer: int = 0,
        *,
        window: int | None = None,
        sinks: torch.Tensor | None = None,
        by_heads: bool = False,
        return_lse: bool = False,
        **arguments: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """`mla_decode` of the new tokens over the latent rows of all ranks, whose new rows are finished and stored.

        As `attend`; the other arguments are those of `mla_decode`: scale, w_uk, w_uv and their scales, latent_dim,
        batch_invariant, allow_fp8_products. With w_uv a rank sends `value` columns of a head, without it the latent ones.
        """
        return self._attend(quire.mla_decode, q, cache, layer, window, sinks, by_heads, return_lse, arguments)

    def attend_chunk(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: quire.PagedKVCache,
        layer: int = 0,
        *,
        window: int | None = None,
        sinks: torch.Tensor | None = None,
        by_heads: bool = False,
        return_lse: bool = False,
        **arguments: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """As `attend`, for many new tokens: each rank reads its context once per sequence, not once per token.

        The tokens cached before the step are seen by all new ones, so they need no mask. Attention among the new
        tokens is causal over `k` and `v`, which every rank has: each computes it, and merges it as one more state.

        Parameters
        ----------
        k, v : tensors [tokens, kv_heads, head_dim]
            Rows of the new tokens, all of them. They are read from here; `store` them for later steps.
        window
            Refused: new tokens see different parts of a rank's context.
        """
        if window is not None:
            refuse_value(_OP, "window", "absent from attend_chunk; attend takes it", str(window))
        self._refuse(cache, arguments)
        cached = self._local_length(self.cache_lengths)
        context = self._over(cache, cached, self.page_table, None)
        arguments = {"return_lse": True, **arguments}
        old = quire.flash_attention(
            q, self.row_offsets, context, layer, mask=quire.full(), key_lengths=cached, **arguments
        )
        new = quire.flash_attention(
            q, self.row_offsets, k=k, v=v, key_offsets=self.row_offsets, sinks=sinks, **arguments
        )
        return self.ranks.merged(*old, by_heads, new, return_lse)

    def _attend(
        self,
        op: Any,
        q: torch.Tensor,
        cache: quire.PagedKVCache,
        layer: int,
        window: int | None,
        sinks: torch.Tensor | None,
        by_heads: bool,
        return_lse: bool,
        arguments: dict[str, Any],
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        self._refuse(cache, arguments)
        mask, lengths = quire.full(), self.key_lengths
        if window is not None:
            # The window's keys on this rank are a run of its own: a query `span` after their begin sees no earlier one.
            span = self.ranks.sharding.most_local(whole_number(_OP, "window", window, 1))
            mask, lengths = quire.sliding_window(span), self._window_start(window) + (span - 1)
        out, lse = op(
            q,
            self._token_offsets,
            self._over(cache, lengths, self._token_pages, 1),
            layer,
            mask=mask,
            key_lengths=self.key_lengths,
            sinks=sinks if self.ranks.rank == 0 else None,
            return_lse=True,
            **arguments,
        )
        return self.ranks.merged(out, lse, by_heads, return_lse=return_lse)

    def _window_start(self, window: int) -> torch.Tensor:
        """int32 [tokens]: this rank's keys before each token's window."""
        if window not in self._starts:
            self._starts[window] = self._local_length((self.positions + 1 - window).clamp(min=0))
        return self._starts[window]

    def _over(
        self, cache: quire.PagedKVCache, lengths: torch.Tensor, pages: torch.Tensor, most_new: int | None
    ) -> quire.PagedKVCache:
        """The same pages with other lengths and another page table."""
        view = copy.copy(cache)
        view.cache_lengths, view.page_table = lengths, pages
        if most_new is not None:
            view.max_seq_length = most_new
        if self._most_keys is not None:
            view.max_cache_length = self._most_keys
        return view

    @staticmethod
    def _refuse(cache: quire.PagedKVCache, arguments: dict[str, Any]) -> None:
        """What no rank could do right with its own keys alone."""
        if cache.scales_page_table is not None:
            refuse_value(_OP, "cache", "without scales_page_table", "one")
        if arguments.get("alibi_slopes") is not None:
            refuse_value(_OP, "alibi_slopes", "absent: keys of a rank are not at their positions", "a tensor")


def _signed(numbers: torch.Tensor) -> torch.Tensor:
    """uint32, for which torch has few functions, read as int32."""
    return numbers.view(torch.int32) if numbers.dtype == torch.uint32 else numbers.to(torch.int32)
