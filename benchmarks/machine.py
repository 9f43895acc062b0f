# SPDX-License-Identifier: Apache-2.0
"""What a measurement was taken on, and from which source."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.timing import cache_bytes

ROOT = Path(__file__).resolve().parents[1]
ARM_PARTS = {"0xd40": "Arm Neoverse V1", "0xd4f": "Arm Neoverse V2", "0xd0c": "Arm Neoverse N1"}
ISA = re.compile(r"^(avx2|fma|f16c|avx512\w+|avx_vnni|amx_\w+|asimd\w*|sve\w*|i8mm|bf16|fphp)$")
WIDEST = {"amx_bf16": "amx", "avx512_bf16": "avx512", "avx512_vnni": "avx512-vnni", "avx2": "avx2"}  # best first


def cpuinfo() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def describe() -> dict[str, Any]:
    info = cpuinfo()
    part = info.get("CPU part", "")
    flags = info.get("flags") or info.get("Features") or ""
    return {
        "cpu": info.get("model name") or ARM_PARTS.get(part, f"Arm part {part}"),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": [flag for flag in flags.split() if ISA.match(flag)],
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "cache_mib": cache_bytes() >> 20,
    }


def folder_name(machine: dict[str, Any]) -> str:
    """A name for the machine's results: 'arm-neoverse-n1-2-cores', 'intel-xeon-processor-amx-16-cores'.

    Virtual machines hide the model: there the instructions say which of many processors it is.
    """
    name = re.findall(r"[a-z0-9]+", re.sub(r"\((R|TM)\)|@.*|CPU", "", machine["cpu"]).lower())
    if not any(character.isdigit() for word in name for character in word):
        name += [short for isa, short in WIDEST.items() if isa in machine["isa"]][:1]
    return "-".join([*name, str(machine["cores"]), "cores"])


def commit() -> str:
    """QUIRE_COMMIT where it is set, as on a machine that got the files without their history."""
    if "QUIRE_COMMIT" in os.environ:
        return os.environ["QUIRE_COMMIT"]
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
