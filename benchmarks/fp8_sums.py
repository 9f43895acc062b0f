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
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import quire
import torch

from benchmarks import machine

MODELS = {"llama8b": (4096, 4096), "llama70b": (8192, 8192)}  # hidden, q_dim
TOKENS = (512, 2048, 8192)
KV_HEADS, HEAD_DIM, PAGE = 8, 128, 128
TURNS, WARM_UPS = 15, 3
COMPARED = 256  # tokens, and rows of the weight, whose sums are compared with those in double


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of e4m3 and their scales [rows, 1]."""
    scale = x.abs().amax(1, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


class Projection:
    """One set of operands and the four products of it."""

    def __init__(self, tokens: int, hidden: int, q_dim: int, signs: str) -> None:
        sign = torch.abs if signs == "positive" else torch.clone
        rows = q_dim + 2 * KV_HEADS * HEAD_DIM
        self.x, self.x_scale = quantize(sign(torch.randn(tokens, hidden, device="cuda")))
        self.weight, self.weight_scale = quantize(sign(torch.randn(rows, hidden, device="cuda")))
        self.out = torch.empty(tokens, q_dim, device="cuda", dtype=torch.bfloat16)
        self.row_offsets = torch.tensor([0, tokens], device="cuda", dtype=torch.int32)
        pages = -(-tokens // PAGE)
        self.cache = quire.PagedKVCache(
            torch.zeros(pages, 2, 1, PAGE, KV_HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16),
            torch.zeros(1, device="cuda", dtype=torch.int32),
            torch.randperm(pages, device="cuda").to(torch.int32).reshape(1, -1),
        )

    def quire(self, *, fast: bool) -> torch.Tensor:
        return quire.fused_qkv_matmul(
            self.x,
            self.row_offsets,
            self.weight,
            self.cache,
            0,
            input_scale=self.x_scale,
            weight_scale=self.weight_scale,
            allow_fast_accum=fast,
            out=self.out,
        )

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


def record_graph(call: Callable[[], torch.Tensor]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def time_in_turns(calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, dict[str, float]]:
    """Median and minimum of TURNS replays of each, in µs."""
    graphs = {name: record_graph(call) for name, call in calls.items()}
    dirt = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(WARM_UPS + TURNS):
        for name, graph in graphs.items():
            dirt.fill_(turn)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn >= WARM_UPS:
                times[name].append(1e3 * start.elapsed_time(end))
    return {name: {"us": statistics.median(all_us), "us_min": min(all_us)} for name, all_us in times.items()}


def measure(model: str, tokens: int) -> list[dict[str, object]]:
    hidden, q_dim = MODELS[model]
    mixed, positive = (Projection(tokens, hidden, q_dim, signs) for signs in ("mixed", "positive"))
    times, errors, biases = time_in_turns(mixed.products()), mixed.errors(), positive.errors()
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
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": machine.commit(),
        "rows": rows,
    }
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
