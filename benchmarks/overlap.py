# SPDX-License-Identifier: Apache-2.0
"""A projection after the kernel that makes its x, with and without `overlaps_previous`: what a decode step saves.

    python -m benchmarks.overlap --out FILE.json

Pairs of a norm or quantize_fp8 and fused_qkv_matmul, each pair a CUDA graph. The two ways are timed in turns in one
process, after 256 MiB have been written, and must leave the same bits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import quire
import torch
import torch.nn.functional as F

from benchmarks.gpu_projection import MODELS, Results, num_rows, quantize
from benchmarks.graphs import time_in_turns, write_record

TOKENS = {"llama8b": (1, 16, 64, 128, 512), "llama70b": (1, 16, 64, 128)}
TURNS = 41
GROUP = 128


@dataclass
class Pair:
    """`before` makes x, which the projection reads."""

    name: str
    before: Callable[[], torch.Tensor]
    weight: torch.Tensor | quire.PackedWeight
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, results: Results, *, overlaps_previous: bool) -> None:
        x = self.before()
        with quire.using(overlaps_previous=overlaps_previous):
            results.project(x, self.weight, **self.options)


def quantize_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 and a scale for every 128 × 128."""
    rows, columns = weight.shape
    blocks = weight.reshape(rows // 128, 128, columns // 128, 128)
    scale = blocks.abs().amax((1, 3), keepdim=True) / 448
    return (blocks / scale).to(torch.float8_e4m3fn).reshape(rows, columns), scale.reshape(rows // 128, columns // 128)


class Weights:
    """One projection's, in the formats of the pairs."""

    def __init__(self, hidden: int, q_dim: int) -> None:
        rows = num_rows(q_dim)
        weight = torch.randn(rows, hidden, device="cuda") / hidden**0.5
        self.bf16 = weight.bfloat16()
        self.fp8_rows = quantize(weight)
        self.fp8_blocks = quantize_blocks(weight)
        codes = torch.randint(0, 16, (rows, hidden), device="cuda", dtype=torch.uint8)
        scale = torch.rand(rows, hidden // GROUP, device="cuda").half() / hidden**0.5
        quant = quire.Quant("int4", group_size=GROUP)
        self.int4 = quire.pack_weight(quire.pack_int4(codes), weight_scale=scale, quant=quant)


def fp8_pair(name: str, x: torch.Tensor, group: int, weight: tuple[torch.Tensor, torch.Tensor]) -> Pair:
    """Of quantize_fp8 in groups of columns, -1 for whole rows."""
    codes, scale = quire.quantize_fp8(x, group_size=group)

    def before() -> torch.Tensor:
        quire.quantize_fp8(x, group_size=group, out=codes, scale=scale)
        return codes

    return Pair(name, before, weight[0], {"input_scale": scale, "weight_scale": weight[1]})


def pairs(weights: Weights, x: torch.Tensor) -> list[Pair]:
    gamma = torch.ones(x.shape[1], device="cuda", dtype=x.dtype)
    norm = partial(F.rms_norm, x, (x.shape[1],), gamma)
    return [
        fp8_pair("quantize_fp8 of tokens, fp8", x, -1, weights.fp8_rows),
        fp8_pair("quantize_fp8 of 1×128, fp8", x, 128, weights.fp8_blocks),
        Pair("torch rms_norm, bf16", norm, weights.bf16),
        Pair("torch rms_norm, int4", norm, weights.int4),
    ]


def measure(pair: Pair, results: Results, shape: str) -> dict[str, object]:
    ways = {name: partial(pair.run, results, overlaps_previous=name == "overlapping") for name in ("after", "overlapping")}
    times = time_in_turns(ways, TURNS)
    left = []
    for way in ways.values():
        way()
        left.append((results.out.clone(), results.cache.blocks.clone()))
    if not all(map(torch.equal, *left)):
        raise RuntimeError(f"{shape}, {pair.name}: the overlapping projection leaves other bits")
    found = {f"{number}_{name}": times[name][number] for name in ways for number in ("us", "us_min")}
    return {"shape": shape, "pair": pair.name, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.manual_seed(0)
    rows = []
    for model, (hidden, q_dim) in MODELS.items():
        weights = Weights(hidden, q_dim)
        for tokens in TOKENS[model]:
            x = torch.randn(tokens, hidden, device="cuda").bfloat16()
            results = Results(tokens, q_dim)
            rows += [measure(pair, results, f"{model} T={tokens}") for pair in pairs(weights, x)]
    write_record(out, rows)


if __name__ == "__main__":
    main()
