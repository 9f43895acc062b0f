# SPDX-License-Identifier: Apache-2.0
"""A ragged attention problem with two answers: quire's over pages, and torch's sequence by sequence."""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

import quire

from . import seeded
from .page_pool import PagePool, offsets_of

LAYER = 1


@dataclass
class AttentionProblem:
    cached: tuple[int, ...] = (5, 0, 11, 2)
    new: tuple[int, ...] = (3, 7, 1, 0)
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    dtype: torch.dtype = torch.float32
    page_size: int = 4
    order: str = "shuffled"
    sentinel: int | None = None
    heads_first: bool = False
    seed: int = 0

    def __post_init__(self):
        generator = seeded(self.seed)

        def normal(tokens, heads):
            return torch.randn(tokens, heads, self.head_dim, generator=generator).to(self.dtype)

        self.totals = [cached + new for cached, new in zip(self.cached, self.new)]
        self.q = [normal(new, self.heads) for new in self.new]
        self.k = [normal(total, self.kv_heads) for total in self.totals]
        self.v = [normal(total, self.kv_heads) for total in self.totals]
        self.pool = PagePool(
            capacities=self.totals,
            row=self.head_dim,
            kv_heads=self.kv_heads,
            page_size=self.page_size,
            dtype=self.dtype,
            order=self.order,
            sentinel=self.sentinel,
            heads_first=self.heads_first,
        )
        for sequence, (k, v) in enumerate(zip(self.k, self.v)):
            self.pool.write(LAYER, 0, sequence, 0, k)
            self.pool.write(LAYER, 1, sequence, 0, v)

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5

    @property
    def row_offsets(self) -> torch.Tensor:
        return offsets_of(self.new)

    def positions(self, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the queries [new, 1] and of the keys [1, total]."""
        queries = torch.arange(self.new[sequence]) + self.cached[sequence]
        return queries[:, None], torch.arange(self.totals[sequence])[None]

    def quire(self, **arguments):
        q = torch.cat(self.q)
        return quire.flash_attention(q, self.row_offsets, self.pool.cache(self.cached), LAYER, **arguments)

    def sdpa(self, rule, dtype, *, scale=None, alibi_slopes=None, sinks=None) -> torch.Tensor:
        """torch's own attention. ALiBi is its additive mask; a sink is one more key, of score `sink` and value 0."""
        outputs = []
        for sequence, (q, k, v) in enumerate(zip(self.q, self.k, self.v)):
            queries, keys = self.positions(sequence)
            bias = torch.zeros(self.heads, queries.shape[0], keys.shape[1], dtype=torch.float64)
            if alibi_slopes is not None:
                bias += alibi_slopes.double()[:, None, None] * (keys - queries)
            bias.masked_fill_(~rule(queries, keys), float("-inf"))
            if sinks is not None:
                bias = torch.cat((bias, sinks.double()[:, None, None].expand(-1, queries.shape[0], 1)), dim=-1)
                k, v = (torch.cat((x, x.new_zeros(1, *x.shape[1:]))) for x in (k, v))
            out = scaled_dot_product_attention(
                *(x.to(dtype).transpose(0, 1)[None] for x in (q, k, v)),
                attn_mask=bias.to(dtype)[None],
                scale=self.scale if scale is None else scale,
                enable_gqa=True,
            )
            outputs.append(out[0].transpose(0, 1))
        return torch.cat(outputs)

    def by_hand(self, rule, dtype, *, softcap=0.0, sinks=None) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and LSE, for what torch's own attention does not have."""
        outputs, lses = [], []
        for sequence, (q, k, v) in enumerate(zip(self.q, self.k, self.v)):
            queries, keys = self.positions(sequence)
            group = self.heads // self.kv_heads
            k, v = (x.to(dtype).repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
            scores = q.to(dtype).transpose(0, 1) @ k.transpose(1, 2) * self.scale
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            scores = scores.masked_fill(~rule(queries, keys), float("-inf"))
            if sinks is not None:
                sink = sinks.to(dtype)[:, None, None].expand(-1, queries.shape[0], 1)
                scores = torch.cat((scores, sink), dim=-1)
                v = torch.cat((v, v.new_zeros(self.heads, 1, self.head_dim)), dim=1)
            outputs.append((torch.softmax(scores, dim=-1) @ v).transpose(0, 1))
            lses.append(torch.logsumexp(scores, dim=-1).transpose(0, 1))
        return torch.cat(outputs), torch.cat(lses)
