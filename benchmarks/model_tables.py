# SPDX-License-Identifier: Apache-2.0
"""The table of benchmarks/model.py's records in docs/measured/model.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.tables import number, table

OWN = "quire"


def cell(values: list[float]) -> str:
    """Median, and the best in brackets."""
    return f"{number(statistics.median(values))} ({number(max(values))})"


def lines(record: dict[str, Any], names: Sequence[str]) -> list[list[str]]:
    """A row for each length and kind of token. Ratios are of medians, above 1 where Quire's faster side is faster."""
    found = []
    for row in record["rows"]:
        texts = {
            "prompt": f"prompt of {row['prompt_tokens']}",
            "generate": f"{row['new_tokens']} after {row['prompt_tokens']}",
        }
        for kind, what in texts.items():
            speeds = {name: values[kind] for name, values in row["tokens_per_second"].items()}
            medians = {name: statistics.median(values) for name, values in speeds.items()}
            own = max((median for name, median in medians.items() if name.startswith(OWN)), default=None)
            peer = max((median for name, median in medians.items() if not name.startswith(OWN)), default=None)
            ratio = f"{own / peer:.2f}×" if own and peer else "–"
            found.append([what, *(cell(speeds[name]) if name in speeds else "–" for name in names), ratio])
    return found


def section(record: dict[str, Any]) -> str:
    """One number of threads. Programs that did not run are no columns; why not is said."""
    ran = [name for name, about in record["contenders"].items() if "error" not in about]
    versions = ", ".join(f"{name} {record['contenders'][name]['version']}" for name in ran)
    busy = 100 * max(row["neighbours"] for row in record["rows"])
    threads = f"{record['threads']} thread{'s' if record['threads'] > 1 else ''}"
    text = f"{record['machine']['cpu']}, {threads}; {record['model']}; {versions}; "
    text += f"{record['when'][:10]}, commit {record['commit']}. Other processes took up to {busy:.0f} % of the cores."
    for name, about in record["contenders"].items():
        if "error" in about:
            text += f" {name} did not run here: `{about['error'].replace('|', '/')}`"
    return f"{text}\n\n{table(['tokens', *ran, 'Quire / fastest peer'], lines(record, ran))}"


def model_table(records: Sequence[dict[str, Any]]) -> str:
    """A record of benchmarks/model.py: tokens per second."""
    return "\n\n".join(section(record) for record in records)
