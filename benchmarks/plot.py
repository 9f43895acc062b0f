# SPDX-License-Identifier: Apache-2.0
"""Pictures and tables from recorded results: benchmarks/results/*/cpu.json → *.svg there and docs/performance.md.

    python -m benchmarks.plot           rewrite them
    python -m benchmarks.plot --png     PNG pictures as well
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import gpu_tables, host_tables, model_tables, serving_tables
from benchmarks.tables import generate, replace_generated, row_sections

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "performance.md"
GPU_DOCUMENT = ROOT / "docs" / "performance_gpu.md"
# The pages of figures, one for each kernel page, and the recordings they show.
GPU_KERNEL_DOCUMENTS = {
    ROOT / "docs" / "measured" / "fused_qkv.md": "fused_qkv_matmul.jsonl",
    ROOT / "docs" / "measured" / "companions_hopper.md": "companions.jsonl",
    ROOT / "docs" / "measured" / "flash_attention.md": "flash_attention.jsonl",
    ROOT / "docs" / "measured" / "indexer.md": "mla_indexer.jsonl",
    ROOT / "docs" / "measured" / "index_rows.md": "index_rows.jsonl",
    ROOT / "docs" / "measured" / "mla_decode.md": "mla_decode.jsonl",
    ROOT / "docs" / "measured" / "mla_prefill.md": "mla_prefill.jsonl",
    ROOT / "docs" / "measured" / "sparse_mla.md": "sparse_mla.jsonl",
}
# Pages with recordings of another kind, and how each is shown.
OTHER_DOCUMENTS = {
    ROOT / "docs" / "kernels" / "v32_layer.md": {"v32_layer_decode.kernels.json": gpu_tables.kernel_table},
    ROOT / "docs" / "kernels" / "mla.md": {"mla_prefill.kernels.json": gpu_tables.kernel_table},
    ROOT / "docs" / "kernels" / "fused_qkv_hopper.md": {
        "fp8_sums.json": gpu_tables.sums_table,
        "overlap.json": gpu_tables.overlap_table,
    },
    ROOT / "docs" / "integrations.md": {
        "serving_transformers.json": serving_tables.serving_table,
        "serving_vllm.json": serving_tables.serving_table,
    },
    ROOT / "docs" / "measured" / "model.md": {"model.json": model_tables.model_table},
    ROOT / "docs" / "measured" / "threads.md": {"threads.json": host_tables.threads_table},
    ROOT / "docs" / "page_manager.md": {"page_manager.json": host_tables.page_manager_table},
}
QUIRE, PEER, LINE = "#4477aa", "#cc6677", "#888888"


def load_results() -> dict[str, dict[str, Any]]:
    """Results by the name of their folder."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*/cpu.json"))
    return {file.parent.name: json.loads(file.read_text()) for file in files}


def draw_rows(rows: list[dict[str, Any]], title: str):
    """Times of Quire and its fastest peer as bars, relative to the floor of the measured ceiling."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 0.42 * len(rows) + 1.6), layout="constrained")
    for place, row in enumerate(reversed(rows)):
        floor = row["share"] * row["quire"]["us_min"]
        bars = [(row["quire"]["us_min"] / floor, QUIRE, f"{100 * row['share']:.0f} % of {row['ceiling']}")]
        if "peer" in row:
            bars.append((row["peers"][row["peer"]]["us_min"] / floor, PEER, row["peer"]))
        for offset, (length, color, text) in enumerate(bars):
            axes.barh(place + 0.2 - 0.4 * offset, length, height=0.38, color=color)
            axes.text(length, place + 0.2 - 0.4 * offset, " " + text, va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [row["case"] for row in reversed(rows)], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1.0, color=LINE, linewidth=0.8)
    axes.set_xlabel("time / floor of the measured ceiling (blue: Quire, red: fastest peer)")
    axes.set_xlim(right=axes.get_xlim()[1] * 3)
    axes.set_title(title, fontsize=10)
    return figure


def draw_curves(curves: list[dict[str, Any]], title: str):
    import matplotlib.pyplot as plt

    axis_names = list(dict.fromkeys(curve["axis"] for curve in curves))
    figure, plots = plt.subplots(1, len(axis_names), figsize=(4.6 * len(axis_names), 4.2), layout="constrained")
    for axes, axis in zip([plots] if len(axis_names) == 1 else plots, axis_names, strict=True):
        for curve in (c for c in curves if c["axis"] == axis):
            points = curve["points"]
            axes.plot([p["n"] for p in points], [p["us_min"] for p in points], marker=".", label=curve["curve"])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(axis)
        axes.set_ylabel("µs")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def draw(folder: Path, results: dict[str, Any], formats: list[str]) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    # Text stays text, and the same picture is the same file.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "quire"}
    machine = f"{results['machine']['cpu']}, {results['machine']['cores']} cores"
    figures = {}
    for (target, threads), rows in row_sections(results).items():
        name, forced = (f"rows_{target}_{threads}", f", {target}") if target else (f"rows_{threads}", "")
        figures[name] = draw_rows(rows, f"{machine}, {threads} threads{forced}")
    if results.get("curves"):
        figures["curves"] = draw_curves(results["curves"], f"{machine}, {results['curves'][0]['threads']} threads")
    for name, figure in figures.items():
        for suffix in formats:
            figure.savefig(folder / f"{name}.{suffix}", metadata={"Date": None} if suffix == "svg" else None)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--png", action="store_true", help="PNG pictures as well")
    formats = ["svg", "png"] if parser.parse_args().png else ["svg"]
    all_results = load_results()
    for folder, results in all_results.items():
        draw(ROOT / "benchmarks" / "results" / folder, results, formats)
    DOCUMENT.write_text(replace_generated(DOCUMENT.read_text(), generate(all_results)))
    records = gpu_tables.load_records(ROOT / "benchmarks" / "results")
    GPU_DOCUMENT.write_text(replace_generated(GPU_DOCUMENT.read_text(), gpu_tables.generate(records)))
    for document, file in GPU_KERNEL_DOCUMENTS.items():
        generated = gpu_tables.generate(gpu_tables.only(records, file))
        document.write_text(replace_generated(document.read_text(), generated))
    for document, descriptions in OTHER_DOCUMENTS.items():
        generated = gpu_tables.generate_by_machine(ROOT / "benchmarks" / "results", descriptions)
        document.write_text(replace_generated(document.read_text(), generated))


if __name__ == "__main__":
    main()
