# SPDX-License-Identifier: Apache-2.0
"""Markdown from the records of `quire bench --device cuda`: what stands between the marks of docs/performance_gpu.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import BEGIN, END, number, table


def load_records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Rows by file, benchmarks/results/<machine>/*.jsonl."""
    files = sorted(folder.glob("*/*.jsonl"))
    return {f"{file.parent.name}/{file.name}": [json.loads(line) for line in file.read_text().splitlines()] for file in files}


def only(records: dict[str, list[dict[str, Any]]], file: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of one recording, on every machine that has it."""
    return {name: rows for name, rows in records.items() if name.endswith(f"/{file}")}


def by_op_and_size(row: dict[str, Any]) -> tuple[Any, ...]:
    """"llama8b T=16" after "llama8b T=1": numbers in a shape count as numbers."""
    words = row["shape"].replace("=", " ").split()
    return row["op"], [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in words]


def same_copy_us(row: dict[str, Any]) -> float | None:
    """Older records have cudaMemcpyAsync alone, behind a dirty L2 only."""
    return row.get("us_same_copy", row.get("us_memcpy"))


def copy_cells(row: dict[str, Any]) -> list[str]:
    """Of rows that only move data: the share of a large copy's bandwidth, and of a copy of as many bytes."""
    copy = same_copy_us(row)
    if copy is None:
        return ["–", "–", "–", "–"]
    clean = f"{row['percent_of_same_copy_clean']:.0f} %" if "percent_of_same_copy_clean" in row else "–"
    return [f"{row['percent_of_copy']:.0f} %", number(copy), f"{100 * copy / row['us']:.0f} %", clean]


def cells(row: dict[str, Any]) -> list[str]:
    against = row.get("against")
    peer = f"{against['peer']} {number(against['us'])}" if against else "–"
    ratio = f"{row['us'] / against['us']:.3f}" if against else "–"
    return [
        row["op"],
        row["shape"] or row["case"],
        number(row["us"]),
        number(row["us_clean"]),
        number(row["gbs"]),
        number(row["tflops"]),
        peer,
        ratio,
        f"`{row['kernel']}`",
    ]


def commits_of(rows: Sequence[dict[str, Any]]) -> str:
    """"commit a", or "commit a (rope, store), commit b (rms_norm_key)" where the rows are of several."""
    ops: dict[str, list[str]] = {}
    for row in rows:
        ops.setdefault(row["commit"], []).append(row["op"])
    if len(ops) == 1:
        return f"commit {rows[0]['commit']}"
    return ", ".join(f"commit {commit} ({', '.join(dict.fromkeys(names))})" for commit, names in ops.items())


def section(name: str, rows: Sequence[dict[str, Any]]) -> str:
    first = rows[0]
    heads = ["op", "shape", "µs", "µs, clean L2", "GB/s", "TFLOP/s", "fastest peer µs", "time / peer", "kernel"]
    ordered = sorted(rows, key=by_op_and_size)
    lines = [cells(row) for row in ordered]
    if any(same_copy_us(row) is not None for row in rows):
        heads[-1:-1] = ["of the copy ceiling", "copy of as many bytes µs", "of it", "of it, clean L2"]
        for line, row in zip(lines, ordered, strict=True):
            line[-1:-1] = copy_cells(row)
    return "\n\n".join(
        [
            f"### {name}",
            f"{first['device']}, driver {first['driver']}, {commits_of(rows)}. Measured ceilings: read"
            f" {number(first['ceiling_read_gbs'])} GB/s, copy {number(first['ceiling_copy_gbs'])} GB/s, empty graph"
            f" {first['ceiling_graph_us']:.2f} µs.",
            table(heads, lines),
        ]
    )


def generate(records: dict[str, list[dict[str, Any]]]) -> str:
    return "\n\n".join([BEGIN, *(section(name, rows) for name, rows in records.items() if rows), END])


def kernel_cells(row: dict[str, Any]) -> list[str]:
    shares = [f"{row[share]:.0f} %" for share in ("memory_percent", "tensor_percent")]
    return [row["case"], f"`{row['kernel']}`", number(row["us"]), *shares, number(row["read_bytes"] / 1e6)]


def kernel_table(rows: Sequence[dict[str, Any]]) -> str:
    """A record of benchmarks/per_kernel.py."""
    heads = ["case", "kernel", "µs", "of the memory's peak", "of the tensor cores' peak", "MB read"]
    return f"Commit {rows[0]['commit']}.\n\n{table(heads, map(kernel_cells, rows))}"


def sums_cells(row: dict[str, Any]) -> list[str]:
    errors = [f"{row['error_rms']:.1e}", f"{100 * row['error_mean_positive']:.2f} %"]
    return [row["shape"], row["product"], number(row["us"]), number(row["us_min"]), *errors]


def sums_table(found: dict[str, Any]) -> str:
    """A record of benchmarks/fp8_sums.py."""
    heads = ["shape", "product", "µs", "fastest µs", "rms error / Σ\\|products\\|", "mean error, all products positive"]
    return f"{about(found)}\n\n{table(heads, map(sums_cells, found['rows']))}"


def overlap_cells(row: dict[str, Any]) -> list[str]:
    saved = row["us_after"] - row["us_overlapping"]
    times = [number(row[name]) for name in ("us_after", "us_overlapping", "us_min_after", "us_min_overlapping")]
    return [row["shape"], row["pair"], *times, f"{saved:.1f}"]


def overlap_table(found: dict[str, Any]) -> str:
    """A record of benchmarks/overlap.py."""
    heads = ["shape", "pair", "µs, one after the other", "overlapping", "fastest µs, one after the other", "overlapping"]
    return f"{about(found)}\n\n{table([*heads, 'saved µs'], map(overlap_cells, found['rows']))}"


def about(found: dict[str, Any]) -> str:
    """What a record of benchmarks/graphs.py was measured on."""
    return f"{found['device']}, torch {found['torch']}, commit {found['commit']}."


def generate_by_machine(folder: Path, descriptions: dict[str, Callable[[Any], str]]) -> str:
    """Of files by name: what the description makes of each machine's recording, benchmarks/results/<machine>/<file>."""
    parts = [
        f"### {path.parent.name}/{file}\n\n{describe(json.loads(path.read_text()))}"
        for file, describe in descriptions.items()
        for path in sorted(folder.glob(f"*/{file}"))
    ]
    return "\n\n".join([BEGIN, *parts, END])
