# SPDX-License-Identifier: Apache-2.0
"""Times of GPU calls as CUDA graphs: several in turns in one process, each replayed after 256 MiB have been written."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import machine

WARM_UPS = 3


def record_graph(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def time_in_turns(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, dict[str, float]]:
    """Median and minimum of `turns` replays of each, in µs."""
    graphs = {name: record_graph(call) for name, call in calls.items()}
    dirt = torch.empty(256 << 20, device="cuda", dtype=torch.uint8)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(WARM_UPS + turns):
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


def write_record(path: Path, rows: list[dict[str, object]]) -> None:
    """The rows, and what they were measured on."""
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": machine.commit(),
        "rows": rows,
    }
    path.write_text(json.dumps(found, indent=1) + "\n")
