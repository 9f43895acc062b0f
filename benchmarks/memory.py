# SPDX-License-Identifier: Apache-2.0
"""Peak memory of prefills beyond their arguments, in a process of its own: what an op keeps for the next call counts.

    python -m benchmarks.memory flash_attention 2    one JSON object per line; 2 threads
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from functools import partial
from typing import Any

import quire
import torch

from benchmarks.curves import CONTEXTS, attention_calls, mla_prefill_calls

PREFILLS = {
    "flash_attention": lambda new, context: attention_calls("bf16", 1, new, context)[0],
    "mla_prefill": lambda new, context: mla_prefill_calls(16, new, context)[0],
}
SHAPES = [(256, context) for context in CONTEXTS[1:]] + [(new, 8192) for new in (512, 1024, 2048)]


def _resident_bytes(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def _return_free_memory() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _argument_bytes(call: partial) -> int:
    arguments = [*call.args, *call.keywords.values()]
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    tensors += [a.blocks for a in arguments if isinstance(a, quire.PagedKVCache)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _measure(op: str) -> None:
    torch.zeros(1 << 20).sum()  # torch's own threads
    _return_free_memory()
    base = _resident_bytes("VmRSS")
    for new, context in SHAPES:
        call = PREFILLS[op](new, context)[0]
        _return_free_memory()
        _reset_peak()
        call()
        extra = _resident_bytes("VmHWM") - base - _argument_bytes(call)
        print(json.dumps({"op": op, "new": new, "context": context, "extra_mib": round(extra / 2**20, 1)}))
        del call


def measure_memory(threads: int) -> list[dict[str, Any]]:
    entries = []
    for op in PREFILLS:
        command = [sys.executable, "-m", "benchmarks.memory", op, str(threads)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        entries += [json.loads(line) for line in lines.splitlines()]
    return entries


if __name__ == "__main__":
    with quire.using(num_threads=int(sys.argv[2])):
        _measure(sys.argv[1])
