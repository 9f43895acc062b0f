# SPDX-License-Identifier: Apache-2.0
"""What each kernel of a case costs on the GPU, and its share of the memory's and the tensor cores' peak, by Nsight Compute.

    python -m benchmarks.per_kernel --quire build/release/quire --cases cases --commit X --out FILE.kernels.json CASE…

Runs `quire bench` on each case under the profiler and records the kernels of one call in the order of their launch, each
with the median over the calls that were seen. A kernel is timed alone, without the launches that otherwise overlap it:
the sum of these times is longer than the op's.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import subprocess
from pathlib import Path

TIME = "gpu__time_duration.sum"
MEMORY = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
READ = "dram__bytes_read.sum"

def profile(quire: str, cases: str, case: str, launches: int) -> list[dict[str, str]]:
    """Rows of the profiler's table, one for each launch and metric."""
    command = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base"]
    command += ["--metrics", ",".join((TIME, MEMORY, TENSOR, READ)), "--launch-count", str(launches)]
    command += ["--kernel-name-base", "demangled", "--kernel-name", "regex:quire::cuda::"]
    command += [quire, "bench", "--device", "cuda", "--cases", cases, "--seconds", "0.01", case]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    start = text.index('"ID"')
    return list(csv.DictReader(text[start:].splitlines()))


def launches_of(rows: list[dict[str, str]]) -> list[dict[str, str | float]]:
    """One object for each launch, in order."""
    launches: dict[str, dict[str, str | float]] = {}
    for row in rows:
        name = re.sub(r"^void |<.*$|\(.*$", "", row["Kernel Name"]).split("::")[-1]
        launch = launches.setdefault(row["ID"], {"kernel": name})
        launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return list(launches.values())


def calls_of(launches: list[dict[str, str | float]]) -> list[list[dict[str, str | float]]]:
    """The launches of each whole call: the shortest sequence of names that the list repeats."""
    names = [launch["kernel"] for launch in launches]
    period = next(p for p in range(1, len(names) + 1) if all(names[i] == names[i % p] for i in range(len(names))))
    return [launches[i : i + period] for i in range(0, len(launches) - period + 1, period)]


def record(case: str, commit: str, calls: list[list[dict[str, str | float]]]) -> list[dict[str, object]]:
    rows = []
    for launches in zip(*calls):
        median = {name: statistics.median(launch[name] for launch in launches) for name in (TIME, MEMORY, TENSOR, READ)}
        rows.append(
            {
                "case": case,
                "commit": commit,
                "kernel": launches[0]["kernel"],
                "calls": len(calls),
                "us": round(median[TIME] / 1e3, 2),
                "memory_percent": round(median[MEMORY], 1),
                "tensor_percent": round(median[TENSOR], 1),
                "read_bytes": int(median[READ]),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quire", default="build/release/quire")
    parser.add_argument("--cases", default="cases")
    parser.add_argument("--commit", required=True)
    parser.add_argument("--launches", type=int, default=40, help="kernels to look at")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("case", nargs="+")
    arguments = parser.parse_args()
    with arguments.out.open("w") as out:
        for case in arguments.case:
            launches = launches_of(profile(arguments.quire, arguments.cases, case, arguments.launches))
            for row in record(case, arguments.commit, calls_of(launches)):
                print(json.dumps(row), file=out)


if __name__ == "__main__":
    main()
