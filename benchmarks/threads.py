# SPDX-License-Identifier: Apache-2.0
"""Whether a second thread ever costs time: every op on 1 to 64 tokens, by one thread and by two, in turns.

    PYTHONPATH=build/release/python python -m benchmarks.threads

Small problems on warm data, where waking a thread is a large part of a call. Recorded in
benchmarks/results/<machine>/threads.json; `python -m benchmarks.plot` makes the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import quire
import torch

from benchmarks import machine
from benchmarks.attention import HEAD_DIM, HEADS, KV_HEADS
from benchmarks.curves import mla_prefill_calls
from benchmarks.latent import INDEX_DIM, INDEX_HEADS, SCALE, index_cache, latent_cache, sparse
from benchmarks.projection import PAGE
from benchmarks.timing import NeighbourWatch, burst, time_in_turns
from benchmarks.work import offsets

TOKENS = (1, 4, 16, 64)
MOST_DECODED = 8  # new tokens of a sequence in mla_decode
Call = Callable[[], object]


def paged(tokens: int, heads: int, columns: int, sides: int = 2, dtype: torch.dtype = torch.bfloat16) -> Any:
    """An empty cache of one sequence that has room for `tokens`."""
    pages = -(-tokens // PAGE)
    blocks = torch.randn(pages, sides, 1, PAGE, heads, columns).to(dtype)
    table = torch.arange(pages, dtype=torch.int32).reshape(1, pages)
    return quire.PagedKVCache(blocks, torch.zeros(1, dtype=torch.int32), table)


def products(tokens: int) -> dict[str, Call]:
    """Projections of two sizes."""
    calls: dict[str, Call] = {}
    for size in (576, 2048):
        weight, x = torch.randn(size, size), torch.randn(tokens, size)
        scale = torch.rand(size, size // 128) + 0.5
        codes = torch.randint(0, 256, (size, size // 2), dtype=torch.uint8) if size % 128 == 0 else None
        for dtype in (torch.bfloat16, torch.float32):
            packed, cast = quire.pack_weight(weight.to(dtype)), x.to(dtype)
            out = torch.empty(tokens, size, dtype=dtype)
            calls[f"linear {size} {str(dtype)[6:]}"] = partial(quire.linear, cast, packed, out=out)
        if codes is not None:
            packed = quire.pack_weight(codes, weight_scale=scale, quant=quire.Quant("int4", group_size=128))
            for way in ("exact", "int8"):
                out = torch.empty(tokens, size, dtype=torch.bfloat16)
                calls[f"linear {size} int4 {way}"] = partial(
                    quire.linear, x.bfloat16(), packed, activations=way, out=out
                )
    return calls


def attention(tokens: int) -> dict[str, Call]:
    """One sequence of so many new tokens, alone and behind 960 others."""
    calls: dict[str, Call] = {}
    for cached in (0, 960):
        cache = paged(cached + tokens, KV_HEADS, HEAD_DIM)
        cache.cache_lengths = torch.tensor([cached], dtype=torch.int32)
        q = torch.randn(tokens, HEADS, HEAD_DIM).bfloat16()
        calls[f"flash_attention after {cached}"] = partial(
            quire.flash_attention, q, offsets([tokens]), cache, 0, out=torch.empty_like(q)
        )
    states, lses = torch.randn(2, tokens, HEADS, HEAD_DIM), torch.randn(2, tokens, HEADS)
    calls["merge_states"] = partial(quire.merge_states, states, lses, out=torch.empty(tokens, HEADS, HEAD_DIM))
    return calls


def latent(tokens: int) -> dict[str, Call]:
    """DeepSeek's ops after 1 024 keys."""
    cache = latent_cache(1024 + tokens, 1)
    cache.cache_lengths = torch.tensor([1024], dtype=torch.int32)
    q, out = torch.randn(tokens, 16, 576).bfloat16(), torch.empty(tokens, 16, 512, dtype=torch.bfloat16)
    keys = index_cache(4096 + tokens, 1)
    keys.cache_lengths = torch.tensor([4096], dtype=torch.int32)
    asked = torch.randn(tokens, INDEX_HEADS, INDEX_DIM).to(torch.float8_e4m3fn)
    chosen = torch.empty(tokens, 512, dtype=torch.int32)
    row_offsets = offsets([tokens])
    (prefill,), _ = mla_prefill_calls(16, tokens, tokens)
    decode = partial(quire.mla_decode, q, row_offsets, cache, 0, scale=SCALE, out=out)
    return {
        **({"mla_decode H=16": decode} if tokens <= MOST_DECODED else {}),
        "mla_prefill H=16": prefill,
        "mla_indexer": partial(
            quire.mla_indexer, asked, torch.rand(tokens, INDEX_HEADS), row_offsets, keys, 0, top_k=512, out=chosen
        ),
        "sparse_mla H=16": sparse(16, tokens, 4096).quire[0],
    }


def rows(tokens: int) -> dict[str, Call]:
    """Ops that rewrite rows."""
    cache, row_offsets = paged(tokens, KV_HEADS, HEAD_DIM), offsets([tokens])
    q = torch.randn(tokens, HEADS, HEAD_DIM).bfloat16()
    turned = torch.empty_like(q)
    k, v = (torch.randn(tokens, KV_HEADS, HEAD_DIM).bfloat16() for _ in "kv")
    freqs = torch.randn(tokens + PAGE, HEAD_DIM)
    keys, x = index_cache(tokens, 1), torch.randn(tokens, INDEX_DIM).bfloat16()
    asked = torch.randn(tokens, INDEX_HEADS, INDEX_DIM).bfloat16()
    wide = torch.randn(tokens, 4096).bfloat16()
    return {
        "rope": partial(quire.rope, q, row_offsets, cache, 0, freqs_cis=freqs, rotate_key=False, out=turned),
        "rms_norm_key": partial(quire.rms_norm_key, row_offsets, cache, 0, gamma=torch.ones(HEAD_DIM)),
        "store": partial(quire.store, k, row_offsets, cache, 0, value=v),
        "store_index_keys": partial(quire.store_index_keys, x, row_offsets, keys, 0),
        "quantize_index_queries": partial(quire.quantize_index_queries, asked, row_offsets, keys),
        "quantize_fp8": partial(quire.quantize_fp8, wide, group_size=128),
    }


class Threads:
    """A call by so many threads."""

    def __init__(self, call: Call, count: int) -> None:
        self._calls, self._count = cycle([call]), count

    def burst(self, seconds: float) -> list[float]:
        with quire.using(num_threads=self._count):
            return burst(self._calls, seconds)


def measure(tokens: int, seconds: float) -> list[dict[str, Any]]:
    found = []
    for make in (products, attention, latent, rows):
        for name, call in make(tokens).items():
            with NeighbourWatch() as neighbours:
                times = time_in_turns({str(n): Threads(call, n) for n in (1, 2)}, seconds)
            row: dict[str, Any] = {"call": name, "tokens": tokens, "neighbours": neighbours.share}
            row |= {f"us_{n}": {"min": t.us_min, "median": t.us_median, "runs": t.runs} for n, t in times.items()}
            row["ratio"] = round(times["2"].us_min / times["1"].us_min, 3)
            row["median_ratio"] = round(times["2"].us_median / times["1"].us_median, 3)
            found.append(row)
            print(json.dumps(row), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="*", default=list(TOKENS))
    parser.add_argument("--seconds", type=float, default=0.3, help="for each call and number of threads")
    options = parser.parse_args()
    torch.manual_seed(1)
    found: Sequence[dict[str, Any]] = [row for tokens in options.tokens for row in measure(tokens, options.seconds)]
    about = machine.describe()
    record = {"machine": about, "commit": machine.commit(), "when": machine.now(), "tokens": options.tokens}
    file = machine.ROOT / "benchmarks" / "results" / machine.folder_name(about) / "threads.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record | {"rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
