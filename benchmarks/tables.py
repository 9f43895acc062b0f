# SPDX-License-Identifier: Apache-2.0
"""Markdown from recorded results: what stands between the marks of docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import forced_target
from benchmarks.growth import TOLERANCE, growth, superlinear

BEGIN = "<!-- begin: made by benchmarks/plot.py -->"
END = "<!-- end -->"


def number(value: float) -> str:
    """Three digits, and no more than a reader needs."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def peer_text(row: dict[str, Any]) -> str:
    peers = sorted(row["peers"].items(), key=lambda item: item[1]["us_min"])
    return ", ".join(f"{name} {number(times['us_min'])}" for name, times in peers) or "–"


def row_cells(row: dict[str, Any]) -> list[str]:
    ratio = f"{row['ratio']:.2f}×" if "ratio" in row else "–"
    share = f"{100 * row['share']:.0f} % of {row['ceiling']}"
    quire = f"{number(row['quire']['us_min'])} ({number(row['quire']['us_median'])})"
    kernel = f"`{row['kernel'].rsplit('/', 1)[0]}`"
    return [row["case"], quire, peer_text(row), ratio, number(row["gbs"]), number(row["tflops"]), share, kernel]


def row_table(rows: Sequence[dict[str, Any]]) -> str:
    heads = ["case", "Quire µs (median)", "peers µs", "ratio", "GB/s", "TFLOP/s", "share", "kernel"]
    return table(heads, map(row_cells, rows))


def probe_line(rows: Sequence[dict[str, Any]]) -> str:
    """The best that the probes between these rows read."""
    probes = [row[when] for row in rows for when in ("probe_before", "probe_after")]
    best = {key: max(probe[key] for probe in probes) for key in ("read_gbs", "f32_gflops", "bf16_gflops", "int8_gops")}
    return (
        f"Probe: read {number(best['read_gbs'])} GB/s, f32 {number(best['f32_gflops'])} GFLOP/s,"
        f" bf16 {number(best['bf16_gflops'])} GFLOP/s, int8 {number(best['int8_gops'])} GOP/s."
    )


def growth_table(curves: Sequence[dict[str, Any]]) -> str:
    rows = []
    for curve in curves:
        points, faults = curve["points"], superlinear(curve["points"])
        verdict = "as the work" if not faults else "faster at " + ", ".join(f"{n}" for n in faults)
        span = f"{curve['axis']} {points[0]['n']} to {points[-1]['n']}"
        times = f"{number(points[0]['us_min'])} to {number(points[-1]['us_min'])}"
        rows.append([curve["curve"], span, times, f"{max(growth(points)):.2f}", verdict])
    heads = ["curve", "over", "µs", f"largest step beyond the work (limit {TOLERANCE})", "grows"]
    return table(heads, rows)


def memory_table(entries: Sequence[dict[str, Any]]) -> str:
    rows = [[e["op"], f"{e['new']}", f"{e['context']}", number(e["extra_mib"])] for e in entries]
    return table(["op", "new tokens", "context", "MiB beyond the arguments"], rows)


def describe_stamps(entries: Sequence[dict[str, Any]]) -> str:
    """When and from what: the range, as a file may be measured in parts."""
    dates = sorted({entry["date"][:10] for entry in entries})
    commits = sorted({entry["commit"] for entry in entries})
    torches = sorted({entry["torch"] for entry in entries})
    peers = sorted({peer for entry in entries for peer in entry.get("peer_versions", {}).items()})
    text = f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}, commit {', '.join(commits)}, torch {', '.join(torches)}"
    return ", ".join([text, *(f"{name} {version}" for name, version in peers)])


def row_sections(results: dict[str, Any]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Rows by forced target ("": none) and number of threads, in the order of the document."""
    found = {}
    for target in forced_target.targets_of(results):
        rows = results[forced_target.section(target)]
        for threads in sorted({row["threads"] for row in rows}, reverse=True):
            found[target, threads] = [row for row in rows if row["threads"] == threads]
    return found


def section(results: dict[str, Any], folder: str) -> str:
    machine, sections = results["machine"], row_sections(results)
    rows = [row for chosen in sections.values() for row in chosen]
    curves, memory = results.get("curves", []), results.get("memory", [])
    parts = [
        f"## {machine['cpu']}, {machine['cores']} cores, {machine['architecture']}",
        f"{describe_stamps([*rows, *curves, *memory])}. Record: `benchmarks/results/{folder}/cpu.json`.",
    ]
    for (target, threads), chosen in sections.items():
        forced = f", all contenders forced to {target}" if target else ""
        parts.append(f"### {threads} thread{'s' if threads > 1 else ''}{forced}")
        parts += [probe_line(chosen), row_table(chosen)]
    if curves:
        parts += [f"### Growth, {curves[0]['threads']} threads", growth_table(curves)]
        parts.append(f"![time over tokens, context and batch](../benchmarks/results/{folder}/curves.svg)")
    if memory:
        parts += ["### Peak memory of prefill", memory_table(memory)]
    return "\n\n".join(parts)


def generate(all_results: dict[str, dict[str, Any]]) -> str:
    """The text between the marks, for results by folder."""
    sections = [section(results, folder) for folder, results in sorted(all_results.items())]
    return "\n\n".join([BEGIN, *sections, END])


def replace_generated(document: str, generated: str) -> str:
    before, rest = document.split(BEGIN)
    return before + generated + rest.split(END, 1)[1]
