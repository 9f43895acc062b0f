# SPDX-License-Identifier: Apache-2.0
"""No kernel spills registers or runs its wgmma one by one: read from what the compiler said when it was built.

Usage: compiler_report.py <object>...   (of the CUDA backend; <object>.ptxas stands beside each)

The kernels in any/<op> beside an op's sm90/<op> take what those refuse and are not meant to be fast: their spills
are printed and forgiven. SPILLING names others that spill, and how much at most: a list to be shortened.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)'")
FRAME = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (?P<count>\d+) registers")
LOSS = re.compile(r"\((?P<code>C\d+)\) Potential Performance Loss: (?P<words>.*)")


class Kernel(NamedTuple):
    name: str
    registers: int
    stack_bytes: int
    spill_bytes: int


def kernels_of(report: str) -> list[Kernel]:
    """Every kernel of one object's report, in the order in which they were compiled."""
    kernels = []
    for block in report.split("Compiling entry function ")[1:]:
        name = ENTRY.match("Compiling entry function " + block)
        frame = FRAME.search(block)
        registers = REGISTERS.search(block)
        if name is None or frame is None or registers is None:
            raise ValueError(f"a report that cannot be read: {block[:200]!r}")
        kernels.append(
            Kernel(
                name=name["name"],
                registers=int(registers["count"]),
                stack_bytes=int(frame["stack"]),
                spill_bytes=int(frame["stores"]) + int(frame["loads"]),
            )
        )
    return kernels


GENERAL = {
    ("any", "flash_attention"),
    ("any", "fused_qkv_matmul"),
    ("any", "mla_decode"),
    ("any", "mla_indexer"),
    ("any", "mla_prefill"),
    ("any", "sparse_mla"),
    ("common", "general_attention"),
}


def is_forgiven(target: Path) -> bool:
    return target.parts[-3:-1] in GENERAL


# Bytes of spill stores and loads, by a part of the kernel's name. The loading warps of fp8_pingpong have 40 registers, and its
# mainloop, whose accumulators take 208 of 232, reloads a few addresses a tile (docs/kernels/mla_decode.md, Open).
SPILLING = {
    "mla_decode_fp8_pingpong_kernel": 964,
    "mla_decode_fp8_wgmma_kernel": 8,
}


def allowed_bytes(kernel: Kernel) -> int:
    return max((most for name, most in SPILLING.items() if name in kernel.name), default=0)


def judge(target: Path, kernel: Kernel) -> list[str]:
    """No fault, or what is wrong with the spills of a kernel."""
    if kernel.spill_bytes == 0:
        return []
    words = f"{target.name}: {kernel.name} spills {kernel.spill_bytes} bytes ({kernel.registers} registers)"
    if not is_forgiven(target) and kernel.spill_bytes > allowed_bytes(kernel):
        return [words]
    print("forgiven:" if is_forgiven(target) else "known:", words)
    return []


def faults_of(target: Path) -> list[str]:
    path = target.with_name(target.name + ".ptxas")
    if not path.is_file():
        return [f"{target.name}: no report beside it; build the CUDA backend again"]
    report = path.read_text()
    kernels = kernels_of(report)
    faults = [f"{target.name}: {loss['code']}: {loss['words']}" for loss in LOSS.finditer(report)]
    faults += [fault for kernel in kernels for fault in judge(target, kernel)]
    return faults if kernels else [*faults, f"{target.name}: a report without a kernel"]


def self_check() -> None:
    """A report that is wrong in both ways is found out: a reader that finds nothing must not pass."""
    bad = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
        "ptxas info    : Compiling entry function '_Z1kv' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kv\n"
        "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers\n"
    )
    assert kernels_of(bad) == [Kernel("_Z1kv", 255, 8, 16)], kernels_of(bad)
    assert [loss["code"] for loss in LOSS.finditer(bad)] == ["C7510"]
    spilling = kernels_of(bad)[0]
    assert judge(Path("x.cu.o"), spilling) and not judge(Path("x.cu.o"), spilling._replace(spill_bytes=0))
    assert is_forgiven(Path("any/mla_prefill/attend.cu.o")) and not is_forgiven(Path("any/rope/general.cu.o"))


def main(objects: list[str]) -> int:
    self_check()
    targets = [Path(name) for name in objects if ".cu." in Path(name).name]
    faults = [fault for target in targets for fault in faults_of(target)]
    for fault in faults:
        print(fault)
    if not targets:
        print("no objects of CUDA sources")
    print(f"{len(targets)} CUDA objects, {len(faults)} faults")
    return 1 if faults or not targets else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
