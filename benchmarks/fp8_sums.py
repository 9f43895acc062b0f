# SPDX-License-Identifier: Apache-2.0
"""fp8 products with row scales on the GPU, Quire beside `torch._scaled_mm`: how fast, and what happens to long sums.

    python -m benchmarks.fp8_sums --out FILE.json

Both have a way that adds up in fp32 and one that leaves all of K to the tensor cores (`allow_fast_accum`,
`use_fast_accum`). The four are timed in turns in one process, each a CUDA graph that is replayed after 256 MiB have been
written, and judged by their error with operands of both signs and of one. torch only multiplies; Quire also stores K and
V into the pages.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu_projection import MODELS, Results, num_rows, quantize
from benchmarks.graphs import time_in_turns, write_record

TOKENS = (512, 2048, 8192)
TURNS = 15
COMPARED = 256  # tokens, and rows of the weight, whose sums are compared with those in double


class Projection:
    """One set of operands and the four products of it."""

    def __init__(self, tokens: int, hidden: int, q_dim: int, signs: str) -> None:
        sign = torch.abs if signs == "positive" else torch.clone
        self.x, self.x_scale = quantize(sign(torch.randn(tokens, hidden, device="cuda")))
        self.weight, self.weight_scale = quantize(sign(torch.randn(num_rows(q_dim), hidden, device="cuda")))
        self.results = Results(tokens, q_dim)

    def quire(self, *, fast: bool) -> torch.Tensor:
        scales = {"input_scale": self.x_scale, "weight_scale": self.weight_scale}
        return self.results.project(self.x, self.weight, **scales, allow_fast_accum=fast)

    def torch(self, *, fast: bool) -> torch.Tensor:
        return torch._scaled_mm(
            self.x,
            self.weight.t(),
            self.x_scale,
            self.weight_scale.t(),
            out_dtype=torch.bfloat16,
            use_fast_accum=fast,
        )

    def products(self) -> dict[str, Callable[[], torch.Tensor]]:
        return {
            "quire": partial(self.quire, fast=False),
            "quire fast_accum": partial(self.quire, fast=True),
            "torch": partial(self.torch, fast=False),
            "torch fast_accum": partial(self.torch, fast=True),
        }

    def errors(self) -> dict[str, dict[str, float]]:
        """Mean and rms of (sum − exact) / Σ |products|, the rounding to bf16 included."""
        x = self.x[:COMPARED].double() * self.x_scale[:COMPARED]
        weight = self.weight[:COMPARED].double() * self.weight_scale[:COMPARED]
        exact, size = x @ weight.t(), x.abs() @ weight.abs().t()
        found = {}
        for name, product in self.products().items():
            error = (product()[:COMPARED, :COMPARED].double() - exact) / size
            found[name] = {"mean": error.mean().item(), "rms": error.square().mean().sqrt().item()}
        return found


def measure(model: str, tokens: int) -> list[dict[str, object]]:
    hidden, q_dim = MODELS[model]
    mixed, positive = (Projection(tokens, hidden, q_dim, signs) for signs in ("mixed", "positive"))
    times, errors, biases = time_in_turns(mixed.products(), TURNS), mixed.errors(), positive.errors()
    return [
        {
            "shape": f"{model} T={tokens}",
            "product": name,
            **times[name],
            "error_rms": errors[name]["rms"],
            "error_mean_positive": biases[name]["mean"],
        }
        for name in times
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.manual_seed(0)
    rows = [row for model in MODELS for tokens in TOKENS for row in measure(model, tokens)]
    write_record(out, rows)


if __name__ == "__main__":
    main()
