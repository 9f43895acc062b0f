# SPDX-License-Identifier: Apache-2.0
"""fused_qkv_matmul beside torch's linear layers. The peers only multiply; Quire also stores K and V into the pages."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import lru_cache, partial

import quire
import torch
import torch.nn.functional as F

from benchmarks.timing import Calls, layers_beyond_cache
from benchmarks.work import Case, Work, copies, difference, offsets, usable

HIDDEN, Q_DIM, KV_HEADS, HEAD_DIM, PAGE = 4096, 4096, 8, 128, 128
ROWS = Q_DIM + 2 * KV_HEADS * HEAD_DIM
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


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


# The cases of one weight come one after another: it is made once, and gone before the next.
@lru_cache(maxsize=1)
def dense_layers(dtype: str) -> Layers:
    weight = (torch.randn(ROWS, HIDDEN) / HIDDEN**0.5).to(DTYPES[dtype])
    return Layers(weight, weight.numel() * weight.element_size())


def dense(dtype: str, tokens: int) -> Work:
    layers = dense_layers(dtype)
    x = torch.randn(tokens, HIDDEN).to(DTYPES[dtype])
    calls, kernel = layers.calls(x)
    peer = f"torch linear {dtype}"
    return Work(
        name=f"fused_qkv {dtype} T={tokens}",
        quire=calls,
        kernel=kernel,
        flops=2.0 * tokens * ROWS * HIDDEN,
        bytes=layers.bytes,
        products=dtype,
        peers={peer: [partial(F.linear, x, w) for w in layers.weights]},
        differences={peer: difference(calls[0](), F.linear(x, layers.weights[0])[:, :Q_DIM])},
    )


class Int4Layers(Layers):
    """Codes 0..15 with a zero point of 8, for Quire and for the two 4-bit products that torch has."""

    def __init__(self, group: int) -> None:
        self.group = group
        codes = torch.randint(0, 16, (ROWS, HIDDEN), dtype=torch.uint8)
        scale = (0.5 + torch.rand(ROWS, HIDDEN // group)) / (4.6 * HIDDEN**0.5)
        packed = quire.pack_int4(codes)
        quant = quire.Quant("int4", group_size=group)
        super().__init__(packed, packed.numel() + 2.0 * scale.numel(), weight_scale=scale.half(), quant=quant)
        self.peers = usable({"torch int4pack": partial(self._int4pack, codes, scale)})
        if platform.machine() == "aarch64":  # KleidiAI; elsewhere torch only emulates it
            self.peers |= usable({"torch dyn_quant 4bit": partial(self._dynamic, packed, scale)})

    def _int4pack(self, codes: torch.Tensor, scale: torch.Tensor) -> Calls:
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 2)
        zeros = torch.zeros_like(scale)
        scale_and_zero = torch.stack((scale, zeros), dim=-1).transpose(0, 1).bfloat16().contiguous()
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        runs = [
            lambda x, w=w: multiply(x, w, self.group, scale_and_zero)
            for w in copies(packed, len(self.weights))
        ]
        runs[0](torch.zeros(1, HIDDEN, dtype=torch.bfloat16))
        return runs

    def _dynamic(self, packed: torch.Tensor, scale: torch.Tensor) -> Calls:
        pack = torch.ops.aten._dyn_quant_pack_4bit_weight
        weight = pack(packed, scale.bfloat16(), None, self.group, HIDDEN, ROWS)
        multiply = torch.ops.aten._dyn_quant_matmul_4bit
        runs = [
            lambda x, w=w: multiply(x, w, self.group, HIDDEN, ROWS) for w in copies(weight, len(self.weights))
        ]
        runs[0](torch.zeros(1, HIDDEN))
        return runs


int4_layers = lru_cache(maxsize=1)(Int4Layers)


def int4(group: int, tokens: int, activations: str) -> Work:
    layers = int4_layers(group)
    x = torch.randn(tokens, HIDDEN).bfloat16()
    calls, kernel = layers.calls(x, activations=activations)
    ours = calls[0]().clone()
    # Each peer gets activations in the dtype that it takes.
    inputs = {"torch int4pack": x, "torch dyn_quant 4bit": x.float()}
    peers = {name: [partial(run, inputs[name]) for run in runs] for name, runs in layers.peers.items()}
    return Work(
        name=int4_name(group, tokens, activations),
        quire=calls,
        kernel=kernel,
        flops=2.0 * tokens * ROWS * HIDDEN,
        bytes=layers.bytes,
        products="int8",
        peers=peers,
        differences={name: difference(ours, runs[0]()[:, :Q_DIM]) for name, runs in peers.items()},
    )


def int4_name(group: int, tokens: int, activations: str) -> str:
    return f"fused_qkv int4 g{group}{' int8' if activations == 'int8' else ''} T={tokens}"


def cases() -> list[Case]:
    shapes = [("bf16", t) for t in (1, 8, 64, 512)] + [("f32", t) for t in (1, 8, 64, 512)]
    found = [Case(f"fused_qkv {d} T={t}", partial(dense, d, t)) for d, t in shapes]
    return found + [
        Case(int4_name(group, t, activations), partial(int4, group, t, activations))
        for group in (128, 32)
        for activations in ("exact", "int8")
        for t in (1, 8, 64, 512)
    ]
