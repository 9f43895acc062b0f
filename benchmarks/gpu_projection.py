# SPDX-License-Identifier: Apache-2.0
"""Projections of two models on the GPU: where their results go, and operands of e4m3."""

from __future__ import annotations

import quire
import torch

MODELS = {"llama8b": (4096, 4096), "llama70b": (8192, 8192)}  # hidden, q_dim
KV_HEADS, HEAD_DIM, PAGE = 8, 128, 128


def num_rows(q_dim: int) -> int:
    """Of the weight."""
    return q_dim + 2 * KV_HEADS * HEAD_DIM


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of e4m3 and their scales [rows, 1]."""
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


class Results:
    """One sequence's Q and the pages of its K and V."""

    def __init__(self, tokens: int, q_dim: int) -> None:
        self.out = torch.empty(tokens, q_dim, device="cuda", dtype=torch.bfloat16)
        self.row_offsets = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
        pages = -(-tokens // PAGE)
        self.cache = quire.PagedKVCache(
            torch.zeros(pages, 2, 1, PAGE, KV_HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16),
            torch.zeros(1, device="cuda", dtype=torch.int32),
            torch.randperm(pages, device="cuda").to(torch.int32).reshape(1, -1),
        )

    def project(self, x: torch.Tensor, weight: torch.Tensor | quire.PackedWeight, **options: object) -> torch.Tensor:
        return quire.fused_qkv_matmul(x, self.row_offsets, weight, self.cache, 0, out=self.out, **options)
