# SPDX-License-Identifier: Apache-2.0
"""How time grows with tokens, context and batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import quire
import torch

from benchmarks import attention, latent, projection, quantized_projection
from benchmarks.timing import Calls, time_in_turns
from benchmarks.work import offsets

TOKENS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
CONTEXTS = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
BATCHES = [1, 2, 4, 8, 16, 32, 64]


@dataclass(frozen=True)
class Curve:
    name: str
    axis: str  # "tokens", "context", "batch"
    points: Sequence[int]
    make: Callable[[int], tuple[Calls, float]]  # the calls at a point, and the work in any unit


def _projection(make: Callable[[int], Any], tokens: int) -> tuple[Calls, float]:
    work = make(tokens)
    return work.quire, work.flops


def int4_projection(tokens: int) -> Any:
    return quantized_projection.int4(128, tokens, "exact")


def attention_calls(dtype: str, batch: int, new: int, context: int) -> tuple[Calls, float]:
    made = attention.Batch(batch, new, context - new, dtype)
    return made.quire_calls(), made.flops()


def _latent(make: Callable[[int], Any], point: int) -> tuple[Calls, float]:
    work = make(point)
    return work.quire, work.flops


def mla_prefill_calls(heads: int, new: int, context: int) -> tuple[Calls, float]:
    nope, value = 128, 128
    cache = latent.latent_cache(context, 1)
    cache.cache_lengths = torch.tensor([context - new], dtype=torch.int32)
    q = torch.randn(new, heads, nope + latent.ROPE).bfloat16()
    weight = (torch.randn(heads * (nope + value), latent.LATENT) / 23).bfloat16()
    row_offsets = offsets([new])
    call = partial(
        quire.mla_prefill,
        q,
        row_offsets,
        cache,
        0,
        kv_b_proj=weight,
        scale=latent.SCALE,
        plan=quire.mla_prefill_plan(row_offsets, cache, 0),
        out=torch.empty(new, heads, value, dtype=q.dtype),
    )
    seen = sum(context - new + i + 1 for i in range(new))
    return [call], 2.0 * heads * (seen * (nope + latent.ROPE + value) + context * latent.LATENT * (nope + value))


def curves() -> list[Curve]:
    long = [c for c in CONTEXTS if c >= 4096]  # below top_k the indexer has nothing to do
    return [
        Curve("fused_qkv bf16", "tokens", TOKENS, partial(_projection, partial(projection.dense, "bf16"))),
        Curve("fused_qkv f32", "tokens", TOKENS, partial(_projection, partial(projection.dense, "f32"))),
        Curve("fused_qkv int4 g128", "tokens", TOKENS, partial(_projection, int4_projection)),
        Curve("prefill of n bf16", "tokens", TOKENS[5:], lambda n: attention_calls("bf16", 1, n, n)),
        Curve("prefill of 256 bf16", "context", CONTEXTS, lambda n: attention_calls("bf16", 1, 256, n)),
        Curve("mla_prefill of 256 H=16", "context", CONTEXTS, partial(mla_prefill_calls, 16, 256)),
        Curve("decode B=1 bf16", "context", CONTEXTS, lambda n: attention_calls("bf16", 1, 1, n)),
        Curve("decode B=1 fp8", "context", CONTEXTS, lambda n: attention_calls("fp8", 1, 1, n)),
        Curve("mla_decode H=16", "context", CONTEXTS, partial(_latent, partial(latent.mla_decode, 16))),
        Curve("mla_decode H=128", "context", CONTEXTS, partial(_latent, partial(latent.mla_decode, 128))),
        Curve("indexer", "context", long, partial(_latent, latent.indexer)),
        Curve("decode ctx=1024 bf16", "batch", BATCHES, lambda n: attention_calls("bf16", n, 1, 1024)),
        Curve("sparse_mla H=16", "batch", BATCHES, partial(_latent, lambda n: latent.sparse(16, n, 8192))),
    ]


def measure_curve(curve: Curve, seconds: float) -> dict[str, Any]:
    """Times at each point, in the options in force."""
    points = []
    for value in curve.points:
        calls, work = curve.make(value)
        times = time_in_turns({"quire": calls}, seconds)["quire"]
        points.append({"n": value, "work": work, "us_min": times.us_min, "us_median": times.us_median})
    return {"curve": curve.name, "axis": curve.axis, "points": points}
