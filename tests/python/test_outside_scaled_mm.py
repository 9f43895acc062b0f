# SPDX-License-Identifier: Apache-2.0
"""fp8 products with row scales beside `torch._scaled_mm`, which adds up as Quire may: in fp32, or in the tensor cores."""

from __future__ import annotations

import pytest
import quire
import torch
from outside import seeded

TOKENS, HIDDEN, Q_DIM, KV_HEADS, HEAD_DIM, PAGE = 2048, 4096, 1536, 2, 128, 64
ROWS = Q_DIM + 2 * KV_HEADS * HEAD_DIM

pytestmark = pytest.mark.skipif(torch.get_default_device().type != "cuda", reason="torch has these products on a GPU alone")


def quantize(x):
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def project(x, x_scale, weight, weight_scale, **arguments):
    """[tokens, rows] out of Q and the pages."""
    pages = TOKENS // PAGE
    blocks = torch.zeros(pages, 2, 1, PAGE, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16)
    table = torch.arange(pages, dtype=torch.int32)[None]
    cache = quire.PagedKVCache(blocks, torch.zeros(1, dtype=torch.int32), table)
    row_offsets = torch.tensor([0, TOKENS], dtype=torch.int32)
    q = quire.fused_qkv_matmul(
        x, row_offsets, weight, cache, 0, input_scale=x_scale, weight_scale=weight_scale, **arguments
    )
    return torch.cat([q, *blocks.transpose(0, 1).reshape(2, TOKENS, KV_HEADS * HEAD_DIM)], dim=1)


@pytest.mark.parametrize("fast", [False, True], ids=["fp32", "fast_accum"])
@pytest.mark.parametrize("sign", [torch.clone, torch.abs], ids=["mixed", "positive"])
def test_row_scales(sign, fast):
    """Our error is at most twice torch's with the same leave, or what 512 of K lose in the tensor cores."""
    generator = seeded(3)
    x, x_scale = quantize(sign(torch.randn(TOKENS, HIDDEN, generator=generator)))
    weight, weight_scale = quantize(sign(torch.randn(ROWS, HIDDEN, generator=generator)))
    exact = (x.double() * x_scale) @ (weight.double() * weight_scale).t()
    size = (x.double().abs() * x_scale) @ (weight.double().abs() * weight_scale).t()
    ours = project(x, x_scale, weight, weight_scale, allow_fast_accum=fast)
    theirs = torch._scaled_mm(
        x, weight.t(), x_scale, weight_scale.t(), out_dtype=torch.bfloat16, use_fast_accum=fast
    )
    errors = [((y.double() - exact) / size).square().mean().sqrt().item() for y in (ours, theirs)]
    least = 1e-4 if sign is torch.clone else 7e-3
    assert errors[0] < max(2 * errors[1], least)
    if fast and sign is torch.abs:  # the leave was used, and only where it was given
        assert errors[0] > 2e-2
