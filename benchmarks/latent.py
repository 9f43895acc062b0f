# SPDX-License-Identifier: Apache-2.0
"""mla_decode, sparse_mla and mla_indexer. No library has them on the CPU; the peer is what a user would write in torch."""

from __future__ import annotations

from functools import partial

import quire
import torch

from benchmarks.projection import PAGE
from benchmarks.timing import Calls, layers_beyond_cache
from benchmarks.work import Case, Work, copies, difference, offsets

LATENT, ROPE, SCALE = 512, 64, 192**-0.5
INDEX_HEADS, INDEX_DIM, TOP_K = 64, 128, 2048


def latent_cache(context: int, layers: int) -> quire.PagedKVCache:
    """One sequence of `context` keys, the last of them new."""
    pages = -(-context // PAGE)
    rows = (torch.randn(pages, 1, 1, PAGE, 1, LATENT + ROPE) / 4).bfloat16()
    return quire.PagedKVCache(
        rows.expand(-1, -1, layers, -1, -1, -1).contiguous(),
        torch.tensor([context - 1], dtype=torch.int32),
        torch.randperm(pages).to(torch.int32).reshape(1, -1),
    )


def dense_rows(cache: quire.PagedKVCache, context: int) -> torch.Tensor:
    """The rows of the only sequence in order, the same on every layer: bf16 [context, columns]."""
    return cache.blocks[cache.page_table[0].long(), 0, 0, :, 0].flatten(0, 1)[:context].bfloat16().contiguous()


def attend(q: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[heads, 576] over [keys, 576], with torch's matrix products."""
    scores = torch.softmax((q @ rows.T).float() * SCALE, dim=-1)
    return scores.to(rows.dtype) @ rows[:, :LATENT]


def mla_decode(heads: int, context: int) -> Work:
    size = context * (LATENT + ROPE) * 2.0
    layers = layers_beyond_cache(size)
    cache = latent_cache(context, layers)
    q = torch.randn(1, heads, LATENT + ROPE).bfloat16()
    out = torch.empty(1, heads, LATENT, dtype=q.dtype)
    row_offsets = offsets([1])
    calls: Calls = [
        partial(quire.mla_decode, q, row_offsets, cache, layer, scale=SCALE, out=out) for layer in range(layers)
    ]
    peer: Calls = [partial(attend, q[0], rows) for rows in copies(dense_rows(cache, context), layers)]
    return Work(
        name=f"mla_decode H={heads} ctx={context} bf16",
        quire=calls,
        kernel=lambda: quire.supports("mla_decode", *calls[0].args, **calls[0].keywords).kernel,
        flops=2.0 * context * heads * (2 * LATENT + ROPE),
        bytes=size,
        products="bf16",
        peers={"torch matmul bf16": peer},
        differences={"torch matmul bf16": difference(calls[0](), peer[0]())},
    )


def choose(q: torch.Tensor, weights: torch.Tensor, keys: torch.Tensor, key_scale: torch.Tensor) -> torch.Tensor:
    """The indexer in torch: bf16 keys, because torch has no fp8 product on the CPU."""
    scores = (weights @ torch.relu(q @ keys.T).float()) * key_scale
    return scores.topk(TOP_K).indices.sort().values


def index_cache(context: int, layers: int) -> quire.PagedKVCache:
    pages = -(-context // PAGE)
    rows = torch.randn(pages, 1, 1, PAGE, 1, INDEX_DIM).to(torch.float8_e4m3fn)
    return quire.PagedKVCache(
        rows.expand(-1, -1, layers, -1, -1, -1).contiguous(),
        torch.tensor([context - 1], dtype=torch.int32),
        torch.randperm(pages).to(torch.int32).reshape(1, -1),
        (0.5 + torch.rand(pages, 1, 1, PAGE, 1, 1)).expand(-1, -1, layers, -1, -1, -1).contiguous(),
    )


def indexer(context: int) -> Work:
    size = context * (INDEX_DIM + 4.0)
    layers = layers_beyond_cache(size)
    cache = index_cache(context, layers)
    q = torch.randn(1, INDEX_HEADS, INDEX_DIM).to(torch.float8_e4m3fn)
    q_scale = torch.rand(1, INDEX_HEADS)
    out = torch.empty(1, TOP_K, dtype=torch.int32)
    row_offsets = offsets([1])
    calls: Calls = [
        partial(quire.mla_indexer, q, q_scale, row_offsets, cache, layer, top_k=TOP_K, out=out)
        for layer in range(layers)
    ]
    key_scale = cache.scales[cache.page_table[0].long(), 0, 0, :, 0, 0].flatten()[:context].contiguous()
    keys = copies(dense_rows(cache, context), layers)
    peer: Calls = [partial(choose, q[0].bfloat16(), q_scale[0], rows, key_scale) for rows in keys]
    # The share of chosen positions that differ: torch rounds the scores to bf16 on the way.
    theirs = set(peer[0]().tolist())
    missing = sum(position not in theirs for position in calls[0]()[0].tolist())
    return Work(
        name=f"indexer ctx={context} top_k={TOP_K}",
        quire=calls,
        kernel=lambda: quire.supports("mla_indexer", *calls[0].args, **calls[0].keywords).kernel,
        flops=2.0 * context * INDEX_HEADS * INDEX_DIM,
        bytes=size,
        products="bf16",
        peers={"torch matmul bf16": peer},
        differences={"torch matmul bf16": round(missing / TOP_K, 4)},
    )


def sparse(heads: int, tokens: int, context: int) -> Work:
    cache = latent_cache(context, 1)
    q = torch.randn(tokens, heads, LATENT + ROPE).bfloat16()
    cache.cache_lengths = torch.tensor([context - tokens], dtype=torch.int32)
    chosen = torch.stack([torch.randperm(context - tokens)[:TOP_K].sort().values for _ in range(tokens)])
    out = torch.empty(tokens, heads, LATENT, dtype=q.dtype)
    call = partial(
        quire.sparse_mla, q, offsets([tokens]), cache, 0, indices=chosen.to(torch.int32), scale=SCALE, out=out
    )
    return Work(
        name=f"sparse_mla H={heads} T={tokens}",
        quire=[call],
        kernel=lambda: quire.supports("sparse_mla", *call.args, **call.keywords).kernel,
        flops=2.0 * tokens * TOP_K * heads * (2 * LATENT + ROPE),
        bytes=tokens * TOP_K * (LATENT + ROPE) * 2.0,
        products="bf16",
    )


def cases() -> list[Case]:
    found = [Case(f"mla_decode H={h} ctx=4096 bf16", partial(mla_decode, h, 4096)) for h in (16, 128)]
    return [*found, Case(f"indexer ctx=32768 top_k={TOP_K}", partial(indexer, 32768))]
