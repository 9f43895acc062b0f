# SPDX-License-Identifier: Apache-2.0
"""What a call costs the host, beside torch's own attention in the same run:

python -m benchmarks.host [--json benchmarks/results/h200/host.json]

Small problems, so that the stream never waits for a kernel: minima over batches of calls, in µs. The C++ side of it is
`quire bench --host --device cuda`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import quire
import torch

from benchmarks import machine

HEADS, KV_HEADS, HEAD_DIM, PAGE, KEYS = 32, 8, 128, 16, 64


def host_us(call: Callable[[], object], calls: int = 100, batches: int = 60) -> float:
    least = float("inf")
    for _ in range(batches):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return round(least, 2)


def decode_problem(batch: int, device: str) -> tuple[torch.Tensor, torch.Tensor, quire.PagedKVCache]:
    pages = KEYS // PAGE
    blocks = torch.randn(batch * pages, 2, 1, PAGE, KV_HEADS, HEAD_DIM, dtype=torch.bfloat16, device=device)
    table = torch.arange(batch * pages, dtype=torch.int32, device=device).reshape(batch, pages)
    lengths = torch.full((batch,), KEYS - 1, dtype=torch.int32, device=device)
    cache = quire.PagedKVCache(blocks, lengths, table, max_seq_length=1, max_cache_length=KEYS)
    q = torch.randn(batch, HEADS, HEAD_DIM, dtype=torch.bfloat16, device=device)
    return q, torch.arange(batch + 1, dtype=torch.int32, device=device), cache


def decode_times() -> dict[str, float]:
    q, offsets, cache = decode_problem(1, "cuda")
    out = torch.empty_like(q)
    needed = quire.supports("flash_attention", q, offsets, cache, 0).workspace_bytes
    workspace = torch.empty(max(needed, 256), dtype=torch.uint8, device="cuda")
    step = quire.plan("flash_attention", q, offsets, cache, 0, out=out)
    dense = [torch.randn(1, HEADS, n, HEAD_DIM, dtype=torch.bfloat16, device="cuda") for n in (1, KEYS, KEYS)]

    def call() -> object:
        return quire.flash_attention(q, offsets, cache, 0, out=out)

    def in_workspace() -> float:
        with quire.using(workspace=workspace):
            return host_us(call)

    return {
        "torch sdpa": host_us(lambda: torch.nn.functional.scaled_dot_product_attention(*dense)),
        "flash_attention, workspace": in_workspace(),
        "flash_attention, no workspace": host_us(call),
        "flash_attention, planned": host_us(step),
        "flash_attention, planned, other q and out": host_us(lambda: step(q=q.view_as(q), out=out.view_as(out))),
        "two views, which that one makes": host_us(lambda: (q.view_as(q), out.view_as(out))),
    }


def planning_us(batch: int) -> float:
    """Validation and planning of a batch whose lengths are on the host: reading them is linear in the batch."""
    q, offsets, cache = decode_problem(batch, "cpu")
    out = torch.empty_like(q)  # so that no call has to ask for one, which takes longer the larger it is
    least = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        for _ in range(20):
            quire.supports("flash_attention", q, offsets, cache, 0, out=out)
        least = min(least, (time.perf_counter() - start) / 20 * 1e6)
    return round(least, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [{"call": name, "us": us} for name, us in decode_times().items()]
    rows += [{"call": f"planning, host lengths of {batch}", "us": planning_us(batch)} for batch in (1, 1000, 4000)]
    for row in rows:
        print(f"{row['call']:<48} {row['us']:8.2f} us")
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}  # the C++ side's rows
        found = kept | {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "commit": machine.commit(),
            "rows": rows,
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
